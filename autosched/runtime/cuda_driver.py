"""The CUDA driver's functions, their error codes turned into exceptions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from autosched.errors import BuildError, DeviceError

GONE = frozenset(
    {
        "CUDA_ERROR_NO_DEVICE",
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "CUDA_ERROR_DEINITIALIZED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "CUDA_ERROR_MPS_SERVER_NOT_READY",
        "CUDA_ERROR_MPS_CONNECTION_FAILED",
    }
)
"""Errors that are the device's own, whatever ran on it."""
STICKY = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    }
)
"""Errors of a kernel after which every call of the process fails with the same."""
WRONG_CODE = frozenset(
    {
        "CUDA_ERROR_INVALID_IMAGE",
        "CUDA_ERROR_INVALID_PTX",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "CUDA_ERROR_INVALID_SOURCE",
        "CUDA_ERROR_NOT_FOUND",
    }
)
"""Errors that machine code causes by not being for the device."""


class Driver:
    """`cuda.bindings.driver`, or what has its functions.

    Those return a CUresult and values; here a call returns the value, or a tuple of them, or None.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, function: str, *args: Any) -> Any:
        """Call `function`. Raises MemoryError, BuildError for code that is not for the device, else
        DeviceError."""
        status, *values = getattr(self.module, function)(*args)
        if status != self.module.CUresult.CUDA_SUCCESS:
            self._fail(function, status)
        return values[0] if len(values) == 1 else tuple(values) or None

    def _fail(self, function: str, status: Any) -> None:
        name = status.name
        _, said = self.module.cuGetErrorString(status)
        said = said.decode() if isinstance(said, bytes) else "unknown"
        text = f"{function}: {name} ({said})"
        if name == "CUDA_ERROR_OUT_OF_MEMORY":
            raise MemoryError(f"the GPU's memory is full: {text}")
        if name in WRONG_CODE:
            raise BuildError(f"the GPU does not take this machine code: {text}")
        if name in STICKY:
            raise DeviceError(
                f"a kernel failed: {text}; this process can use the GPU no more, start a new one"
            )
        raise DeviceError(f"the GPU reports {text}", lost=name in GONE)


@contextlib.contextmanager
def current(module: Any, context: Any) -> Iterator[None]:
    """Make a context that of this thread; afterwards it has the one that it had.

    PyTorch and CuPy take the device that they work on from the thread's context. Where the driver
    refuses, nothing changes; what is asked of it then says why.
    """
    status, *_ = module.cuCtxPushCurrent(context)
    try:
        yield
    finally:
        if status == module.CUresult.CUDA_SUCCESS:
            module.cuCtxPopCurrent()


@cache
def load_driver() -> Driver:
    """The driver of this machine, initialised. Raises BuildError, saying what is missing."""
    try:
        from cuda.bindings import driver
    except ImportError as e:
        raise BuildError(
            "running CUDA needs NVIDIA's Python packages; install them with "
            "pip install 'autosched[cuda]'"
        ) from e
    try:
        (status,) = driver.cuInit(0)
    except Exception as e:  # of the package that looks for libcuda; no public root class
        raise BuildError(
            f"running CUDA needs NVIDIA's driver, which is not here ({e}); build with "
            "compile_only=True to read the code, or for opencl to run on what is here"
        ) from e
    if status != driver.CUresult.CUDA_SUCCESS:
        raise BuildError(
            f"CUDA finds no device that it can use here: cuInit gives {status.name}; look at what "
            "nvidia-smi says and at CUDA_VISIBLE_DEVICES"
        )
    return Driver(driver)
