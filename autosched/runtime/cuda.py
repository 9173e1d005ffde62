"""Running generated CUDA through the driver: device, stream, events. Needs the extra `cuda`.

The device's primary context is used, which CuPy, PyTorch and others share, and arrays of these are
used where they are, on the stream on which they are ready (`device_arguments.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.codegen.cuda import compile_cuda, nvrtc_version
from autosched.codegen.gpu.generate import GPUArtifact, Launch
from autosched.errors import ArgumentError, BuildError, DeviceError
from autosched.runtime.cuda_driver import Driver, current, load_driver
from autosched.runtime.device import Bound, DeviceFunction
from autosched.runtime.device_arguments import cuda_arguments
from autosched.runtime.foreign import LEGACY_STREAM, Foreign
from autosched.runtime.queue import Array, Launcher, Memory, Queue, QueueInfo

ALIGN = 256
MOST_PENDING = 400
"""Launches: the driver makes a process wait that has about 1,000 of them ahead."""
LAUNCH_SECONDS = 5e-6
LONGEST_HOLD = 0.02
HOLD = """\
extern "C" __global__ void hold(unsigned long long nanoseconds) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}
"""
"""Keeps the stream busy while launches are put behind it, so that no gap is timed between them."""


@dataclass(frozen=True, eq=False)
class CUDAMemory:
    """Memory of a device: its address and what keeps it from being given up."""

    address: int
    owner: Any = None


@dataclass(frozen=True, eq=False)
class _Allocation:
    """What `cuMemAlloc` gave; freed with this object."""

    address: int


class CUDAQueue(Queue):
    """Device number `index` of those that CUDA_VISIBLE_DEVICES lets through, and its stream."""

    def __init__(self, driver: Driver, index: int = 0) -> None:
        self.driver, self.index = driver, index
        self.stream = LEGACY_STREAM
        """Where work goes that is asked for now."""
        count = driver("cuDeviceGetCount")
        if not 0 <= index < count:
            raise BuildError(
                f"CUDA has no device {index} here; it has {count}, numbered from 0 "
                "(CUDA_VISIBLE_DEVICES says which)"
            )
        self._device = driver("cuDeviceGet", index)
        self._context = driver("cuDevicePrimaryCtxRetain", self._device)
        self._lock = threading.RLock()
        with self.entered():
            self._events = [driver("cuEventCreate", 0) for _ in range(2)]
        self._hold: Any = None
        self._launch_seconds = LAUNCH_SECONDS
        self.info = self._info()

    def _info(self) -> QueueInfo:
        found = {
            name: self._attribute(name)
            for name in (
                "COMPUTE_CAPABILITY_MAJOR",
                "COMPUTE_CAPABILITY_MINOR",
                "MULTIPROCESSOR_COUNT",
                "L2_CACHE_SIZE",
                "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
                "MAX_THREADS_PER_BLOCK",
            )
        }
        raw = self.driver("cuDeviceGetName", 256, self._device)
        version = self.driver("cuDriverGetVersion")
        return QueueInfo(
            kind="cuda",
            model=raw.split(b"\0")[0].decode(),
            version=f"sm_{found['COMPUTE_CAPABILITY_MAJOR']}{found['COMPUTE_CAPABILITY_MINOR']}",
            driver=f"CUDA driver {version // 1000}.{version % 1000 // 10}, NVRTC {nvrtc_version()}",
            units=found["MULTIPROCESSOR_COUNT"],
            cache_bytes=found["L2_CACHE_SIZE"],
            memory_bytes=int(self.driver("cuDeviceTotalMem", self._device)),
            shared_bytes=found["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"],
            max_threads=found["MAX_THREADS_PER_BLOCK"],
            align=ALIGN,
        )

    def _attribute(self, name: str) -> int:
        attribute = getattr(self.driver.module.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver("cuDeviceGetAttribute", attribute, self._device))

    def _enter(self) -> None:
        """Contexts are current in a thread, and others may have made theirs so."""
        self.driver("cuCtxSetCurrent", self._context)

    def entered(self) -> AbstractContextManager[None]:
        """Its context is this thread's meanwhile."""
        return current(self.driver.module, self._context)

    @contextlib.contextmanager
    def on(self, stream: int, others: Sequence[int]) -> Iterator[None]:
        """Work on `stream`, after what is asked of `others` by now; other threads wait."""
        with self._lock, self.entered():
            for other in others:
                self.driver("cuEventRecord", self._events[0], other)
                self.driver("cuStreamWaitEvent", stream, self._events[0], 0)
            before, self.stream = self.stream, stream
            try:
                yield
            finally:
                self.stream = before

    @property
    def name(self) -> str:
        """The GPU's name."""
        return f"{self.info.model} ({self.info.version})"

    def load(self, artifact: GPUArtifact) -> Sequence[Any]:
        """From the cubin."""
        if not artifact.code:
            raise BuildError("a CUDA function is loaded from machine code, and there is none")
        try:
            module = self._module(artifact.code)
            return [self._kernel(module, launch) for launch in artifact.launches]
        except BuildError as e:
            raise BuildError(
                f"{e}; built for {artifact.target}, and this is {self.name}, {self.info.driver} "
                "(code of one NVRTC needs a driver of its major version or later)"
            ) from e

    def _module(self, code: bytes) -> Any:
        self._enter()
        module = self.driver("cuModuleLoadData", code)
        loaded = _Module(module)
        weakref.finalize(loaded, _unload, self.driver.module, self._context, module).atexit = False
        return loaded

    def _kernel(self, module: _Module, launch: Launch) -> _Kernel:
        function = self.driver("cuModuleGetFunction", module.handle, launch.name.encode())
        if launch.shared_bytes:
            attributes = self.driver.module.CUfunction_attribute
            most = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.driver("cuFuncSetAttribute", function, most, launch.shared_bytes)
        return _Kernel(function, module, launch.shared_bytes)

    def allocate(self, nbytes: int) -> Memory:
        """See `Queue.allocate`."""
        self._enter()
        found = _Allocation(int(self.driver("cuMemAlloc", max(1, nbytes))))
        # Not when the process ends: the driver may have gone before, and frees everything.
        freed = weakref.finalize(found, _free, self.driver.module, self._context, found.address)
        freed.atexit = False
        return CUDAMemory(found.address, found)

    def host_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """See `Queue.host_array`. Of pages that stay where they are: the device writes to them,
        where for others the driver copies through some of its own, at a fraction of the rate."""
        count = prod(shape)
        nbytes = max(1, count * np.dtype(dtype).itemsize)
        self._enter()
        try:
            address = int(self.driver("cuMemHostAlloc", nbytes, 0))
        except (MemoryError, DeviceError):
            return super().host_array(shape, dtype)
        memory: Any = (ctypes.c_uint8 * nbytes).from_address(address)
        freed = weakref.finalize(memory, _free_host, self.driver.module, self._context, address)
        freed.atexit = False
        flat: Array = np.frombuffer(memory, dtype, count)
        return flat.reshape(shape)

    def part(self, memory: Memory, start: int, nbytes: int) -> Memory:
        """See `Queue.part`."""
        return CUDAMemory(memory.address + start, memory.owner)

    def write(self, memory: Memory, host: Array, start: int = 0) -> None:
        """See `Queue.write`."""
        if host.nbytes:
            self._enter()
            place, data = memory.address + start, host.ctypes.data
            self.driver("cuMemcpyHtoDAsync", place, data, host.nbytes, self.stream)
            self.driver("cuStreamSynchronize", self.stream)

    def read(self, host: Array, memory: Memory, start: int = 0) -> None:
        """See `Queue.read`."""
        if host.nbytes:
            self._enter()
            place, data = memory.address + start, host.ctypes.data
            self.driver("cuMemcpyDtoHAsync", data, place, host.nbytes, self.stream)
            self.driver("cuStreamSynchronize", self.stream)

    def fill(self, memory: Memory, start: int, nbytes: int, byte: int) -> None:
        """See `Queue.fill`."""
        if nbytes:
            word = int.from_bytes(bytes([byte]) * 4, "little")
            self._enter()
            self.driver("cuMemsetD32Async", memory.address + start, word, nbytes // 4, self.stream)

    def launcher(
        self, kernel: Any, grid: Sequence[int], block: Sequence[int], memory: Sequence[Memory]
    ) -> Launcher:
        """See `Queue.launcher`. The launcher keeps the arguments alive."""
        owners = tuple(memory)
        values = (ctypes.c_uint64 * max(1, len(owners)))(*(m.address for m in owners))
        return self._launcher(kernel, grid, block, values, owners)

    def _launcher(
        self,
        kernel: _Kernel,
        grid: Sequence[int],
        block: Sequence[int],
        values: ctypes.Array[ctypes.c_uint64],
        owners: Any,
    ) -> Launcher:
        """Every argument is a word of `values`; the driver takes the address of each."""
        first = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(values))(*(first + 8 * n for n in range(len(values))))
        shared = kernel.shared_bytes
        arguments = (*grid, *block, shared, self.stream, ctypes.addressof(pointers), 0)
        driver, function = self.driver, kernel.handle
        kept = (kernel, values, pointers, owners)

        def launch(_: Any = kept) -> None:
            driver("cuLaunchKernel", function, *arguments)

        return launch

    def seconds(
        self, launchers: Sequence[Launcher], number: int, before: Callable[[], Any] | None = None
    ) -> float:
        """Between events on the stream. The stream is held while the launches are put behind the
        first of them: this process needs some microseconds for each, kernels may need less."""
        self._enter()
        most = 1 if before is not None else max(1, MOST_PENDING // max(1, len(launchers)))
        total, left = 0.0, number
        while left:
            count = min(left, most)
            total += self._timed(launchers, count, before)
            left -= count
        return max(total, 1e-9)

    def _timed(
        self, launchers: Sequence[Launcher], count: int, before: Callable[[], Any] | None
    ) -> float:
        start, end = self._events
        launches = count * len(launchers)
        self._hold_stream(20e-6 + 1.5 * launches * self._launch_seconds)
        if before is not None:
            before()
        self.driver("cuEventRecord", start, self.stream)
        began = time.perf_counter()
        for _ in range(count):
            for launch in launchers:
                launch()
        took = (time.perf_counter() - began) / max(1, launches)
        self.driver("cuEventRecord", end, self.stream)
        self.driver("cuEventSynchronize", end)
        self._launch_seconds = min(1e-4, max(took, 0.8 * self._launch_seconds))
        return float(self.driver("cuEventElapsedTime", start, end)) * 1e-3

    def _hold_stream(self, seconds: float) -> None:
        if self._hold is None:
            launch = Launch("hold", (1, 1, 1), (1, 1, 1), ())
            self._hold = self._kernel(self._module(compile_cuda(HOLD, self.info.version)), launch)
        nanoseconds = int(min(seconds, LONGEST_HOLD) * 1e9)
        values = (ctypes.c_uint64 * 1)(nanoseconds)
        self._launcher(self._hold, (1, 1, 1), (1, 1, 1), values, None)()

    def finish(self) -> None:
        """See `Queue.finish`."""
        self._enter()
        self.driver("cuStreamSynchronize", self.stream)


@dataclass(frozen=True, eq=False)
class _Module:
    handle: Any


@dataclass(frozen=True, eq=False)
class _Kernel:
    handle: Any
    module: _Module
    shared_bytes: int = 0


def _free(module: Any, context: Any, address: int) -> None:
    """Give up memory. After an error that sticks this fails too, and nothing can be done."""
    with current(module, context):
        module.cuMemFree(address)


def _free_host(module: Any, context: Any, address: int) -> None:
    with current(module, context):
        module.cuMemFreeHost(address)


def _unload(module: Any, context: Any, handle: Any) -> None:
    with current(module, context):
        module.cuModuleUnload(handle)


@cache
def open_cuda(index: int = 0) -> CUDAQueue:
    """The queue of a device, one a process. Raises BuildError where there is none."""
    return CUDAQueue(load_driver(), index)


class CUDAFunction(DeviceFunction):
    """A function on a CUDA device; see `DeviceFunction`."""

    arrays = "arrays of PyTorch, CuPy or others with DLPack or __cuda_array_interface__"

    def __init__(self, artifact: GPUArtifact, queue: CUDAQueue | None = None) -> None:
        self._cuda = queue or open_cuda()
        with self._cuda.entered():
            super().__init__(artifact, self._cuda)

    def _bind(self, arrays: Sequence[Any]) -> Bound:
        given = cuda_arguments(self.info, arrays)
        if given.device not in (None, self._cuda.index):
            raise ArgumentError(
                f"the arrays of {self.info.title} are on CUDA device {given.device}, and the "
                f"function is on {self._cuda.index}; copy them there"
            )
        found = tuple(
            CUDAMemory(x.pointer, x.owner) if isinstance(x, Foreign) else x for x in given.arrays
        )
        return Bound(found, self._cuda.on(given.stream, given.others))
