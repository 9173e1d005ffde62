"""The CUDA runtime as far as it goes without a GPU: on a driver double, which is no GPU."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_double import ATTRIBUTES, CUresult, DriverDouble

import autosched as at
from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.cuda import compile_cuda, nvrtc_version
from autosched.codegen.gpu.generate import GPUArtifact, Launch
from autosched.errors import ArgumentError, BuildError, DeviceError, TargetError
from autosched.runtime.cuda import HOLD, CUDAFunction, CUDAQueue
from autosched.runtime.cuda_driver import GONE, STICKY, WRONG_CODE, Driver

HERE = Path(__file__).parent
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
N = 64
SIZE = 4 * N


def floats(address: int) -> Any:
    return np.frombuffer((ctypes.c_float * N).from_address(address), np.float32)


def add(grid: Any, block: Any, a: int, out: int, space: int) -> None:
    assert (grid, block) == ((4, 1, 1), (16, 1, 1))
    floats(space)[...] = floats(a) + 1
    floats(out)[...] = floats(space)


@pytest.fixture
def double() -> DriverDouble:
    made = DriverDouble()
    made.kernels["add"] = (3, add)
    return made


def artifact(code: bytes = b"cubin") -> GPUArtifact:
    params = Param("a", (N,), "float32", False), Param("out", (N,), "float32", True)
    launch = Launch("add", (4, 1, 1), (16, 1, 1), (0, 1, 2))
    info = KernelInfo("main", params)
    return GPUArtifact("text", info, (launch,), ((N, "float32"),), "cuda -arch=sm_90", code)


def function(double: DriverDouble) -> CUDAFunction:
    return CUDAFunction(artifact(), CUDAQueue(Driver(double)))


def test_what_the_device_is(double: DriverDouble) -> None:
    info = CUDAQueue(Driver(double)).info
    assert (info.model, info.version, info.units) == ("GPU double", "sm_90", 132)
    assert info.driver == f"CUDA driver 13.2, NVRTC {nvrtc_version()}"
    with pytest.raises(BuildError, match="CUDA has no device 1 here; it has 1"):
        CUDAQueue(Driver(double), 1)


def test_arrays_of_the_host_are_copied(double: DriverDouble) -> None:
    """Arguments are words at the addresses that the driver is given."""
    run = function(double)
    a, out = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    run(a, out)
    np.testing.assert_array_equal(out, a + 1)
    gc.collect()
    assert len(double.allocated) == 1, "the workspace is kept, the copies are given up"
    with pytest.raises(ArgumentError, match="has shape"):
        run(a[1:], out)


class Interface:
    """An array on the device of another library."""

    def __init__(self, double: DriverDouble, stream: int | None, readonly: bool = False) -> None:
        _, address = double.cuMemAlloc(SIZE + 256)
        self.address = -(-address // 256) * 256
        self.device = SimpleNamespace(id=0)
        self.__cuda_array_interface__ = {
            "shape": (N,),
            "typestr": "<f4",
            "data": (self.address, readonly),
            "version": 3,
            "stream": stream,
        }


def test_arrays_of_the_device_are_used_where_they_are(double: DriverDouble) -> None:
    """On the stream of the first, which waits for the others'; launches go nowhere else."""
    run = function(double)
    a, out = Interface(double, 7), Interface(double, 9)
    floats(a.address)[...] = 5
    double.calls.clear()
    run(a, out)
    np.testing.assert_array_equal(floats(out.address), 6)
    names = double.names()
    assert not any("Memcpy" in name or "Alloc" in name for name in names)
    (waits,) = [c for c in double.calls if c[0] == "cuStreamWaitEvent"]
    assert waits[1] == 7
    (launch,) = [c for c in double.calls if c[0] == "cuLaunchKernel"]
    assert launch[9] == 7, "the stream"
    with pytest.raises(ArgumentError, match="is an output and is read-only"):
        run(a, Interface(double, 7, readonly=True))
    a.device.id = 1
    with pytest.raises(ArgumentError, match="on CUDA device"):
        run(a, out)


def test_shared_memory_beyond_what_there_is_anyway_is_asked_for(double: DriverDouble) -> None:
    made = artifact()
    (launch,) = made.launches
    large = replace(made, launches=(replace(launch, shared_bytes=100_000),))
    run = CUDAFunction(large, CUDAQueue(Driver(double)))
    run(np.zeros(N, np.float32), np.zeros(N, np.float32))
    assert double.shared == {"add": 100_000}
    # Code for sm_80, whose blocks may have 163 KiB, is taken by others that have less.
    more = replace(made, launches=(replace(launch, shared_bytes=300_000),))
    with pytest.raises(BuildError, match=r"300000 bytes .* build for .*-per-block=232448"):
        CUDAFunction(more, CUDAQueue(Driver(double)))


def test_the_thread_keeps_its_context(double: DriverDouble) -> None:
    """By which PyTorch knows the device that it works on."""
    run = function(double)
    assert double.contexts == ["of another library"]
    run(np.zeros(N, np.float32), np.zeros(N, np.float32))
    with pytest.raises(ArgumentError):
        run(np.zeros(N, np.float32), np.zeros(N, np.float64))
    double.fails["cuStreamSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError):
        run(np.zeros(N, np.float32), np.zeros(N, np.float32))
    double.fails = {"cuCtxPushCurrent": CUresult.CUDA_ERROR_INVALID_VALUE}
    del run
    gc.collect()
    assert double.contexts == ["of another library"], "also where the driver takes none"


def test_times_are_those_of_events(double: DriverDouble) -> None:
    """Neither the hold before the launches nor the flush is timed."""
    run = function(double)
    a, out = np.zeros(N, np.float32), np.zeros(N, np.float32)
    for flush in (False, True):
        timing = run.time_evaluator(number=1000, repeat=2, flush_cache=flush)(a, out)
        assert timing.median == pytest.approx(3e-6)
    held = [c for c in double.calls if c[0] == "cuLaunchKernel" and c[1] == "hold"]
    assert len(held) > 1000, "each launch after a flush"


def test_memory_that_is_not_there(double: DriverDouble) -> None:
    queue = CUDAQueue(Driver(double))
    with pytest.raises(
        MemoryError, match="GPU's memory is full: cuMemAlloc: CUDA_ERROR_OUT_OF_MEM"
    ):
        queue.allocate(1 << 30)
    one = queue.allocate(100)
    del one
    gc.collect()
    assert not double.allocated


def test_an_error_that_sticks(double: DriverDouble) -> None:
    double.kernels["add"] = (3, lambda *_: CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    run = function(double)
    arrays = [np.zeros(N, np.float32)] * 1 + [np.zeros(N, np.float32)]
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS \(text of 700\)") as e:
            run(*arrays)
        assert not e.value.lost
    assert "start a new one" in str(e.value)


def test_a_device_that_went_away(double: DriverDouble) -> None:
    run = function(double)
    double.fails["cuLaunchKernel"] = CUresult.CUDA_ERROR_ECC_UNCORRECTABLE
    with pytest.raises(DeviceError, match="CUDA_ERROR_ECC_UNCORRECTABLE") as e:
        run(np.zeros(N, np.float32), np.zeros(N, np.float32))
    assert e.value.lost


def test_code_for_another_device(double: DriverDouble) -> None:
    queue = CUDAQueue(Driver(double))
    with pytest.raises(BuildError, match=r"CUDA_ERROR_NO_BINARY(.|\n)*built for cuda -arch=sm_90"):
        CUDAFunction(artifact(b"for another GPU"), queue)
    with pytest.raises(BuildError, match="there is none"):
        CUDAFunction(artifact(b""), queue)
    run = CUDAFunction(artifact(), queue)
    assert double.modules == 1
    del run
    gc.collect()
    assert double.modules == 0


def test_the_kernel_that_holds_the_stream_compiles() -> None:
    assert compile_cuda(HOLD, "sm_90").startswith(b"\x7fELF")


def test_nvrtc_finds_its_other_half() -> None:
    """Version 13.0, which PyTorch's package for CUDA 13 brings, does not find it by itself."""
    ask = (
        "from autosched.codegen.cuda import _nvrtc; _nvrtc(); print(open('/proc/self/maps').read())"
    )
    found = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert "libnvrtc-builtins.so" in found.stdout


def test_without_a_device() -> None:
    """What is missing is said, by `Target` and by a function that is called."""
    from autosched.runtime.detect import architecture

    try:
        here = architecture()
    except BuildError:
        with pytest.raises(TargetError, match=r"names its architecture.*no device to ask: running"):
            at.Target("cuda")
    else:
        assert at.Target("cuda").mcpu == here


def _arguments(driver: Any) -> list[tuple[Any, ...]]:
    """Every call that the runtime makes, with arguments of the kinds that it gives."""
    host, words = np.zeros(4, np.float32), (ctypes.c_void_p * 2)()
    device, event = driver.CUdevice(0), driver.CUevent(0)
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
    asked = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    grid = block = (1, 1, 1)
    return [
        ("cuDeviceGetCount",),
        ("cuDeviceGet", 0),
        ("cuDevicePrimaryCtxRetain", device),
        ("cuCtxSetCurrent", driver.CUcontext(0)),
        ("cuCtxPushCurrent", driver.CUcontext(0)),
        ("cuCtxPopCurrent",),
        ("cuDeviceGetAttribute", attribute, device),
        ("cuDeviceGetName", 256, device),
        ("cuDriverGetVersion",),
        ("cuDeviceTotalMem", device),
        ("cuMemAlloc", 100),
        ("cuMemFree", 4096),
        ("cuMemHostAlloc", 100, 0),
        ("cuMemFreeHost", 4096),
        ("cuMemcpyHtoDAsync", 4096, host.ctypes.data, host.nbytes, 1),
        ("cuMemcpyDtoHAsync", host.ctypes.data, 4096, host.nbytes, 1),
        ("cuMemsetD32Async", 4096, 0xFFFFFFFF, 4, 1),
        ("cuModuleLoadData", b"cubin"),
        ("cuModuleGetFunction", driver.CUmodule(0), b"kernel"),
        ("cuModuleUnload", driver.CUmodule(0)),
        ("cuFuncSetAttribute", driver.CUfunction(0), asked, 65536),
        ("cuLaunchKernel", driver.CUfunction(0), *grid, *block, 0, 1, ctypes.addressof(words), 0),
        ("cuStreamSynchronize", 1),
        ("cuStreamWaitEvent", 1, event, 0),
        ("cuEventCreate", 0),
        ("cuEventRecord", event, 1),
        ("cuEventSynchronize", event),
        ("cuEventElapsedTime", event, event),
        ("cuGetErrorString", driver.CUresult.CUDA_ERROR_NO_DEVICE),
    ]


def test_the_bindings_take_what_the_double_takes() -> None:
    """They convert arguments before they look for the driver: where there is none, that alone is
    what they complain of."""
    from cuda.bindings import driver

    try:
        driver.cuInit(0)
    except Exception as e:
        missing = type(e)
    else:
        pytest.skip("this machine has NVIDIA's driver, which such arguments would harm")
    calls = _arguments(driver)
    for name, *arguments in calls:
        with pytest.raises(missing, match="driver"):
            getattr(driver, name)(*arguments)
    asked = {n for n in vars(DriverDouble) if n.startswith("cu")}
    assert asked == {name for name, *_ in calls}
    for names in (GONE, STICKY, WRONG_CODE):
        assert all(hasattr(driver.CUresult, name) for name in names)
    for name in ATTRIBUTES:
        assert hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")


@pytest.mark.skipif(CC is None, reason="no C compiler (cc, gcc, clang) on the PATH")
def test_the_bindings_with_a_driver(tmp_path: Path) -> None:
    """NVIDIA's package itself: what it makes of arguments, and in what form it gives results."""
    assert CC is not None
    library = tmp_path / "libcuda.so.1"
    source = HERE / "driver_double.c"
    subprocess.run([CC, "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    others = os.environ.get("LD_LIBRARY_PATH")
    places = f"{tmp_path}:{others}" if others else str(tmp_path)
    found = subprocess.run(
        [sys.executable, str(HERE / "bindings_child.py"), str(library)],
        env={**os.environ, "LD_LIBRARY_PATH": places},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (found.returncode, found.stdout) == (0, "right\n"), found.stderr
