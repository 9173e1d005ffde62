"""A driver double: the functions of `cuda.bindings.driver` that the runtime calls, on host memory.

Device pointers are addresses of this process, so that copies, fills and the packing of arguments
are real. Kernels are Python functions of their arguments' words, by name. It counts microseconds
of its own clock: each launch takes `launch_microseconds`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import IntEnum
from typing import Any

CUresult = IntEnum(
    "CUresult",
    {
        "CUDA_SUCCESS": 0,
        "CUDA_ERROR_INVALID_VALUE": 1,
        "CUDA_ERROR_OUT_OF_MEMORY": 2,
        "CUDA_ERROR_NO_DEVICE": 100,
        "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
        "CUDA_ERROR_ECC_UNCORRECTABLE": 214,
        "CUDA_ERROR_NOT_FOUND": 500,
        "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    },
)
OK = CUresult.CUDA_SUCCESS
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "L2_CACHE_SIZE": 1 << 16,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "MAX_THREADS_PER_BLOCK": 1024,
}
CUdevice_attribute = IntEnum(
    "CUdevice_attribute",
    {f"CU_DEVICE_ATTRIBUTE_{name}": n for n, name in enumerate(ATTRIBUTES, 1)},
)

CUfunction_attribute = IntEnum(
    "CUfunction_attribute", {"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 8}
)


class DriverDouble:
    """One device with `memory_bytes` of memory."""

    CUresult = CUresult
    CUdevice_attribute = CUdevice_attribute
    CUfunction_attribute = CUfunction_attribute

    def __init__(self, memory_bytes: int = 1 << 24) -> None:
        self.memory_bytes = memory_bytes
        self.launch_microseconds = 3
        self.allocated: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}
        self.kernels: dict[str, tuple[int, Callable[..., None]]] = {}
        self.shared: dict[str, int] = {}
        """What kernels may ask for at a launch, by name."""
        self.calls: list[tuple[Any, ...]] = []
        self.sticky: CUresult | None = None
        self.fails: dict[str, CUresult] = {}
        self.clock = 0
        self.modules = 0
        self.contexts = ["of another library"]
        """Of the thread, the current one last."""

    def __getattribute__(self, name: str) -> Any:
        """Every call is noted, and fails once something stuck."""
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or name == "cuGetErrorString":
            return found

        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append((name, *args))
            wrong = self.sticky or self.fails.get(name)
            return (wrong, 0) if wrong else found(*args)

        return call

    def names(self) -> list[str]:
        """The functions that were called, in order."""
        return [c[0] for c in self.calls]

    def cuGetErrorString(self, status: CUresult) -> tuple[Any, bytes]:
        return OK, f"text of {int(status)}".encode()

    def cuDeviceGetCount(self) -> tuple[Any, int]:
        return OK, 1

    def cuDeviceGet(self, index: int) -> tuple[Any, int]:
        return OK, index

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, str]:
        return OK, "context"

    def cuCtxSetCurrent(self, context: str) -> tuple[Any]:
        assert context == "context"
        self.contexts[-1] = context
        return (OK,)

    def cuCtxPushCurrent(self, context: str) -> tuple[Any]:
        self.contexts.append(context)
        return (OK,)

    def cuCtxPopCurrent(self) -> tuple[Any, str]:
        return OK, self.contexts.pop()

    def cuDeviceGetAttribute(self, attribute: Any, device: int) -> tuple[Any, int]:
        return OK, ATTRIBUTES[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDeviceGetName(self, length: int, device: int) -> tuple[Any, bytes]:
        return OK, b"GPU double".ljust(length, b"\0")

    def cuDeviceTotalMem(self, device: int) -> tuple[Any, int]:
        return OK, self.memory_bytes

    def cuDriverGetVersion(self) -> tuple[Any, int]:
        return OK, 13020

    def cuMemAlloc(self, size: int) -> tuple[Any, int]:
        assert size > 0
        if size + sum(map(len, self.allocated.values())) > self.memory_bytes:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0
        raw = (ctypes.c_char * size)()
        self.allocated[ctypes.addressof(raw)] = raw
        return OK, ctypes.addressof(raw)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[Any, int]:
        assert size > 0
        raw = (ctypes.c_char * size)()
        self.pinned[ctypes.addressof(raw)] = raw
        return OK, ctypes.addressof(raw)

    def cuMemFreeHost(self, address: int) -> tuple[Any]:
        del self.pinned[address]
        return (OK,)

    def cuMemFree(self, address: int) -> tuple[Any]:
        del self.allocated[address]
        return (OK,)

    def cuMemcpyHtoDAsync(self, device: int, host: int, size: int, stream: int) -> tuple[Any]:
        self._owned(device, size)
        ctypes.memmove(device, host, size)
        return (OK,)

    def cuMemcpyDtoHAsync(self, host: int, device: int, size: int, stream: int) -> tuple[Any]:
        self._owned(device, size)
        ctypes.memmove(host, device, size)
        return (OK,)

    def cuMemsetD32Async(self, device: int, word: int, count: int, stream: int) -> tuple[Any]:
        self._owned(device, 4 * count)
        ctypes.memmove(device, word.to_bytes(4, "little") * count, 4 * count)
        self.clock += 1000
        return (OK,)

    def _owned(self, address: int, size: int) -> None:
        inside = any(
            a <= address and address + size <= a + len(m) for a, m in self.allocated.items()
        )
        assert inside, "outside of every allocation"

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, Any]:
        if code.startswith(b"for another GPU"):
            return CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, None
        self.modules += 1
        return OK, code

    def cuModuleUnload(self, module: Any) -> tuple[Any]:
        self.modules -= 1
        return (OK,)

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[Any, str]:
        known = name.decode() in self.kernels or name == b"hold"
        return (OK if known else CUresult.CUDA_ERROR_NOT_FOUND), name.decode()

    def cuFuncSetAttribute(self, function: str, attribute: Any, value: int) -> tuple[Any]:
        assert attribute == CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        if value > 227 << 10:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.shared[function] = value
        return (OK,)

    def cuLaunchKernel(self, function: str, *rest: Any) -> tuple[Any]:
        grid, block, shared, _, params, extra = rest[:3], rest[3:6], *rest[6:]
        assert (shared, extra) == (self.shared.get(function, 0), 0)
        if function == "hold":
            (address,) = (ctypes.c_void_p * 1).from_address(params)
            self.clock += ctypes.c_uint64.from_address(address).value // 1000
            return (OK,)
        count, body = self.kernels[function]
        pointers = (ctypes.c_void_p * count).from_address(params)
        words = [ctypes.c_uint64.from_address(p).value for p in pointers]
        wrong = body(grid, block, *words)
        self.clock += self.launch_microseconds
        if wrong is not None:
            self.sticky = wrong
        return (OK,)

    def cuStreamSynchronize(self, stream: int) -> tuple[Any]:
        return (OK,)

    def cuStreamWaitEvent(self, stream: int, event: Any, flags: int) -> tuple[Any]:
        return (OK,)

    def cuEventCreate(self, flags: int) -> tuple[Any, list[int]]:
        return OK, [0]

    def cuEventRecord(self, event: list[int], stream: int) -> tuple[Any]:
        event[0] = self.clock
        return (OK,)

    def cuEventSynchronize(self, event: list[int]) -> tuple[Any]:
        return (OK,)

    def cuEventElapsedTime(self, start: list[int], end: list[int]) -> tuple[Any, float]:
        return OK, (end[0] - start[0]) / 1000
