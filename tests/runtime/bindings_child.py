"""The CUDA runtime with NVIDIA's real bindings, on `driver_double.c`: a program of its own, since a
process has one libcuda. Its argument is the library."""

from __future__ import annotations

import ctypes
import gc
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.gpu.generate import GPUArtifact, Launch
from autosched.errors import ArgumentError, BuildError, DeviceError
from autosched.runtime.cuda import CUDAFunction, open_cuda

N = 64


def artifact(code: bytes = b"\x7fELF", shared_bytes: int = 0) -> GPUArtifact:
    params = Param("a", (N,), "float32", False), Param("out", (N,), "float32", True)
    launch = Launch("add", (4, 1, 1), (16, 1, 1), (0, 1, 2), shared_bytes)
    return GPUArtifact(
        "text", KernelInfo("main", params), (launch,), ((N, "float32"),), "cuda -arch=sm_90", code
    )


class OnDevice:
    """An array of another library."""

    def __init__(self, values: Any, stream: int) -> None:
        self.memory = open_cuda().allocate(values.nbytes)
        open_cuda().write(self.memory, values)
        self.device = SimpleNamespace(id=0)
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": values.shape,
            "typestr": "<f4",
            "data": (self.memory.address, False),
            "stream": stream,
        }


def main() -> None:
    double = ctypes.CDLL(sys.argv[1])
    queue = open_cuda()
    info = queue.info
    assert (info.model, info.version, info.units) == ("double", "sm_90", 132), info
    assert info.driver.startswith("CUDA driver 13.0, "), info
    driver.cuCtxSetCurrent(driver.CUcontext(0))
    run = CUDAFunction(artifact())
    a, out = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    run(a, out)
    np.testing.assert_array_equal(out, a + 1)
    with pytest.raises(ArgumentError, match="has shape"):
        run(a[1:], out)
    double.double_context.restype = ctypes.c_void_p
    assert double.double_context() is None, "the thread has the context that it had"

    out[...] = 0
    CUDAFunction(artifact(shared_bytes=100_000))(a, out)
    np.testing.assert_array_equal(out, a + 1)
    with pytest.raises(BuildError, match=r"asks for 300000 bytes of shared memory.* has 232448"):
        CUDAFunction(artifact(shared_bytes=300_000))

    there, to = OnDevice(a, 7), OnDevice(out, 9)
    run(there, to)
    found = queue.host_array((N,), "float32")
    queue.read(found, to.memory)
    np.testing.assert_array_equal(found, a + 1)
    for flush in (False, True):
        timing = run.time_evaluator(number=50, repeat=2, flush_cache=flush)(a, out)
        assert timing.median == pytest.approx(3e-6), timing

    with pytest.raises(BuildError, match=r"CUDA_ERROR_INVALID_IMAGE .text of 200"):
        CUDAFunction(artifact(b"text"))
    with pytest.raises(MemoryError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        queue.allocate(1 << 30)
    before = double.double_pieces()
    kept = queue.allocate(4096), queue.host_array((N,), "float32")
    assert double.double_pieces() == before + 2
    del kept
    gc.collect()
    assert double.double_pieces() == before

    double.double_fails()
    for _ in range(2):
        with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as e:
            run(a, out)
        assert not e.value.lost
    print("right")


if __name__ == "__main__":
    main()
