"""Running generated OpenCL: device, queue, arguments and times. Needs the extra `opencl`.

Arrays and buffers of pyopencl are used where they are.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import takewhile
from math import prod
from typing import Any

from autosched.codegen.gpu.generate import GPUArtifact
from autosched.errors import ArgumentError, BuildError, DeviceError
from autosched.runtime.arguments import check_apart, check_array, check_count, place_of
from autosched.runtime.device import Bound, DeviceFunction
from autosched.runtime.queue import Array, Launcher, Memory, Queue, QueueInfo
from autosched.tir.dtypes import array_dtype, itemsize

_INSTALL = "install a GPU's driver, or PoCL, which runs on CPUs (Debian: pocl-opencl-icd)"
MOST_PENDING = 100
"""Calls whose events are kept at a time."""
_NO_ROOM = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")
_GONE = ("DEVICE_NOT_FOUND", "DEVICE_NOT_AVAILABLE")


class OpenCLQueue(Queue):
    """A device of OpenCL with a command queue that takes times."""

    def __init__(self, cl: Any, device: Any) -> None:
        self.cl, self.device = cl, device
        self.context = cl.Context([device])
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=profiling)
        is_cpu = bool(device.type & cl.device_type.CPU)
        version = " ".join(device.version.split()[:2])
        self.info = QueueInfo(
            kind="opencl",
            model=device.name.strip(),
            version=version,
            driver=f"{device.platform.name.strip()} {device.driver_version.strip()}",
            units=device.max_compute_units,
            cache_bytes=device.global_mem_cache_size,
            memory_bytes=device.global_mem_size,
            shared_bytes=device.local_mem_size,
            max_threads=device.max_work_group_size,
            align=max(1, device.mem_base_addr_align // 8),
            is_cpu=is_cpu,
        )

    @property
    def name(self) -> str:
        """Platform and device."""
        return f"{self.device.platform.name.strip()}: {self.info.model}"

    def compile(self, source: str) -> bytes:
        """The program as the driver's binary. Raises BuildError."""
        (code,) = self._built(source).get_info(self.cl.program_info.BINARIES)
        return bytes(code)

    def load(self, artifact: GPUArtifact) -> Sequence[Any]:
        """From the driver's binary where there is one, else from the source."""
        program = self._built(artifact.code or artifact.source)
        return [self.cl.Kernel(program, launch.name) for launch in artifact.launches]

    def _built(self, code: str | bytes) -> Any:
        cl = self.cl
        if isinstance(code, str):
            code = source_for(code, self.device.platform.name)
        try:
            with warnings.catch_warnings():  # of remarks by the device's compiler
                warnings.simplefilter("ignore", cl.CompilerWarning)
                if isinstance(code, str):
                    return cl.Program(self.context, code).build(cache_dir=False)
                return cl.Program(self.context, [self.device], [code]).build()
        except cl.Error as e:
            raise BuildError(f"{self.name} refused the generated code:\n{e}") from e

    def allocate(self, nbytes: int) -> Memory:
        """A buffer that kernels read and write."""
        with self._errors(f"allocating {nbytes} bytes"):
            return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(1, nbytes))

    def part(self, memory: Memory, start: int, nbytes: int) -> Memory:
        """A sub-buffer."""
        with self._errors("dividing a buffer"):
            return memory.get_sub_region(start, max(1, nbytes))

    def write(self, memory: Memory, host: Array, start: int = 0) -> None:
        """See `Queue.write`."""
        if host.nbytes:
            with self._errors("copying to the device"):
                self.cl.enqueue_copy(self.queue, memory, host, dst_offset=start)

    def read(self, host: Array, memory: Memory, start: int = 0) -> None:
        """See `Queue.read`."""
        if host.nbytes:
            with self._errors("copying from the device"):
                self.cl.enqueue_copy(self.queue, host, memory, src_offset=start)

    def fill(self, memory: Memory, start: int, nbytes: int, byte: int) -> None:
        """See `Queue.fill`."""
        if nbytes:
            pattern = bytes([byte]) * 4
            with self._errors("filling a buffer"):
                self.cl.enqueue_fill_buffer(self.queue, memory, pattern, start, nbytes)

    def launcher(
        self, kernel: Any, grid: Sequence[int], block: Sequence[int], memory: Sequence[Memory]
    ) -> Launcher:
        """What it returns is the launch's event."""
        size = tuple(g * b for g, b in zip(grid, block, strict=True))
        local, args = tuple(block), tuple(memory)
        enqueue, queue = self.cl.enqueue_nd_range_kernel, self.queue

        def launch() -> Any:
            kernel.set_args(*args)
            return enqueue(queue, kernel, size, local)

        return launch

    def seconds(
        self, launchers: Sequence[Launcher], number: int, before: Callable[[], Any] | None = None
    ) -> float:
        """The time that kernels ran, by their own events; gaps between them are left out."""
        with self._errors("running kernels"):
            total, left = 0, number
            while left:
                events = []
                for _ in range(min(left, MOST_PENDING)):
                    if before is not None:
                        before()
                    events += [launch() for launch in launchers]
                    left -= 1
                self.queue.finish()
                total += sum(e.profile.end - e.profile.start for e in events)
        return max(total, 1) * 1e-9

    def finish(self) -> None:
        """See `Queue.finish`."""
        with self._errors("running kernels"):
            self.queue.finish()

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        cl = self.cl
        try:
            yield
        except cl.Error as e:
            text = f"{self.name}, {doing}: {e}"
            if e.code in [getattr(cl.status_code, name) for name in _NO_ROOM]:
                raise MemoryError(text) from e
            lost = e.code in [getattr(cl.status_code, name) for name in _GONE]
            raise DeviceError(text, lost) from e


@cache
def open_queue(index: int | None = None) -> OpenCLQueue:
    """Device number `index` of all that OpenCL has here, platform after platform; None: the first
    GPU, or else the first device. One queue a process and device.

    Raises BuildError if there is none, or pyopencl is not installed.
    """
    cl, devices = _opencl()
    if index is None:
        gpus = [n for n, d in enumerate(devices) if d.type & cl.device_type.GPU]
        return open_queue(gpus[0] if gpus else 0)
    if not 0 <= index < len(devices):
        there = ", ".join(f"{n} {d.name.strip()}" for n, d in enumerate(devices))
        raise BuildError(f"OpenCL has no device {index} here; it has {there}")
    return OpenCLQueue(cl, devices[index])


def device_count() -> int:
    """How many devices OpenCL has here. Raises BuildError where it has none."""
    return len(_opencl()[1])


def _opencl() -> tuple[Any, list[Any]]:
    """The module pyopencl, and all devices. Raises BuildError."""
    try:
        import pyopencl as cl
    except ImportError as e:
        raise BuildError(
            "running OpenCL needs pyopencl; install it with pip install 'autosched[opencl]'"
        ) from e
    try:
        devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    except cl.Error as e:
        raise BuildError(f"OpenCL finds no platform here ({e}); {_INSTALL}") from e
    if not devices:
        raise BuildError(f"OpenCL finds no device here; {_INSTALL}")
    return cl, devices


def default_queue() -> OpenCLQueue:
    """The first GPU that OpenCL has here, or else its first device. Raises BuildError."""
    return open_queue()


def source_for(source: str, platform: str) -> str:
    """A source as the compiler of a platform takes it.

    PoCL 3.1 forms its loops over work-items after LLVM's jump threading, which leads from one test
    of a thread's number past a barrier to the next equal test: groups then leave out what stands
    there, or the compiler aborts. Numbers that are read anew each time have no equal tests. So it
    is with the numbers of steps that hold a barrier: work-items that a test leads past a loop and
    another test of the same, as where a double buffer is filled, miss what follows. Only tests of
    the number alone: where sums with it are read anew, other kernels came out wrong.
    """
    if platform != "Portable Computing Language":
        return source
    lines = re.sub(r"const (int|long) ([bt][xyz]) = get_", r"volatile \g<0>", source).split("\n")
    out: list[str] = []
    steps: list[tuple[int, str]] = []
    for n, line in enumerate(lines):
        depth = _depth(line)
        steps = [(d, name) for d, name in steps if d < depth]
        if line.lstrip().startswith("if ("):
            for _, name in steps:  # no name of ours begins so
                line = re.sub(rf"\b{name} < ", f"_{name} < ", line)
        out.append(line)
        head = re.match(r" *for \((int|long) (\w+) = 0;", line)
        if head and _waits(lines[n + 1 :], depth):
            kind, name = head.groups()
            out.append(f"{'  ' * (depth + 1)}volatile const {kind} _{name} = {name};")
            steps.append((depth, name))
    return "\n".join(out)


def _depth(line: str) -> int:
    return (len(line) - len(line.lstrip())) // 2


def _waits(lines: Sequence[str], depth: int) -> bool:
    """Whether a barrier stands in what follows a line at `depth`, as far as it is deeper."""
    body = takewhile(lambda line: _depth(line) > depth, lines)
    return any(line.lstrip().startswith("barrier(") for line in body)


class OpenCLFunction(DeviceFunction):
    """A function on a device of OpenCL; see `DeviceFunction`."""

    arrays = "arrays or buffers of pyopencl"

    def __init__(self, artifact: GPUArtifact, queue: OpenCLQueue | None = None) -> None:
        opened = queue or default_queue()
        super().__init__(artifact, opened)
        self._cl, self._context = opened.cl, opened.context

    def _bind(self, arrays: Sequence[Any]) -> Bound:
        check_count(self.info, arrays)
        found: list[Any] = []
        spans: list[tuple[object, int, int]] = []
        events: list[Any] = []
        for n, array in enumerate(arrays):
            if isinstance(array, self._cl.Buffer) or hasattr(array, "base_data"):
                found.append(self._on_device(n, array))
                spans.append(("device", found[-1].int_ptr, found[-1].size))
                events += getattr(array, "events", ())
            else:
                found.append(check_array(self.info, n, array))
                spans.append(("host", found[-1].ctypes.data, found[-1].nbytes))
        check_apart(self.info, spans)
        if events:
            self._cl.wait_for_events(events)
        return Bound(tuple(found), contextlib.nullcontext())

    def _on_device(self, n: int, array: Any) -> Any:
        """The buffer of an array of pyopencl, or a buffer, which says only how long it is."""
        param, where = self.info.params[n], place_of(self.info, n)
        data = array
        if not isinstance(array, self._cl.Buffer):
            if tuple(array.shape) != param.shape or array.dtype != array_dtype(param.dtype):
                raise ArgumentError(
                    f"{where} is {array.dtype.name}{list(array.shape)}; expected "
                    f"{param.dtype}{list(param.shape)}"
                )
            if not array.flags.c_contiguous or array.offset:
                raise ArgumentError(
                    f"{where} must be C-contiguous and begin its buffer; pass a copy"
                )
            data = array.base_data
        needed = prod(param.shape) * itemsize(param.dtype)
        if data.size < needed:
            raise ArgumentError(
                f"{where} is a buffer of {data.size} bytes; expected at least {needed}, for "
                f"{param.dtype}{list(param.shape)}"
            )
        if data.context != self._context:
            raise ArgumentError(
                f"{where} belongs to another OpenCL context; make it in that of "
                "autosched.runtime.opencl.default_queue()"
            )
        return data
