"""Running generated OpenCL: device, queue, arguments and times. Needs the extra `opencl`.

Arrays and buffers of pyopencl are used where they are. NumPy arrays are copied to the device
before a call, and outputs back after it; the first time a note on this goes to the log.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from autosched.codegen.gpu.generate import GPUArtifact
from autosched.errors import ArgumentError, BuildError
from autosched.runtime.arguments import check_apart, check_array, check_count, place_of
from autosched.runtime.timing import Protocol, Timing
from autosched.tir.dtypes import array_dtype, itemsize

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Queue:
    """A device with a command queue that takes times."""

    cl: Any
    device: Any
    context: Any
    queue: Any

    @property
    def name(self) -> str:
        """Platform and device, for people."""
        return f"{self.device.platform.name.strip()}: {self.device.name.strip()}"


@cache
def default_queue() -> Queue:
    """The first GPU that OpenCL has here, or else its first device; one queue a process.

    Raises BuildError if there is none, or pyopencl is not installed.
    """
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
    device = next((d for d in devices if d.type & cl.device_type.GPU), devices[0])
    context = cl.Context([device])
    profiling = cl.command_queue_properties.PROFILING_ENABLE
    return Queue(cl, device, context, cl.CommandQueue(context, properties=profiling))


def source_for(source: str, platform: str) -> str:
    """A source as the compiler of a platform takes it.

    PoCL 3.1 forms its loops over work-items after LLVM's jump threading, which leads from one test
    of a thread's number past a barrier to the next equal test: groups then leave out what stands
    there, or the compiler aborts. Numbers that are read anew each time have no equal tests.
    """
    if platform != "Portable Computing Language":
        return source
    return re.sub(r"const int ([bt][xyz]) = get_", r"volatile const int \1 = get_", source)


_INSTALL = "install a GPU's driver, or PoCL, which runs on CPUs (Debian: pocl-opencl-icd)"


class OpenCLFunction:
    """Kernels of one function, compiled for a device: call it with one array a parameter.

    Workspaces are allocated once; calls of one function must not overlap. Raises BuildError if the
    device refuses the source, or grants a block less than the target does.
    """

    def __init__(self, artifact: GPUArtifact, queue: Queue | None = None) -> None:
        self.artifact, self.info = artifact, artifact.info
        self.queue = queue or default_queue()
        cl, device = self.queue.cl, self.queue.device
        for launch in artifact.launches:
            threads = launch.block[0] * launch.block[1] * launch.block[2]
            if threads > device.max_work_group_size:
                raise BuildError(
                    f"kernel {launch.name} has {threads} threads a block; {self.queue.name} allows "
                    f"{device.max_work_group_size}: build for a target with "
                    f"-max-threads-per-block={device.max_work_group_size}"
                )
        try:
            with warnings.catch_warnings():  # of remarks by the device's compiler
                warnings.simplefilter("ignore", cl.CompilerWarning)
                source = source_for(artifact.source, device.platform.name)
                program = cl.Program(self.queue.context, source).build(cache_dir=False)
        except cl.RuntimeError as e:
            raise BuildError(f"{self.queue.name} refused the generated code:\n{e}") from e
        self._kernels = [cl.Kernel(program, launch.name) for launch in artifact.launches]
        self._spaces = [
            self._buffer(count * array_dtype(dtype).itemsize)
            for count, dtype in artifact.workspaces
        ]

    def __call__(self, *arrays: Any) -> None:
        """Run on arrays or buffers of pyopencl, which stay where they are, once what they wait for
        is done, and on NumPy arrays, which are copied. Returns when it is done."""
        buffers, back = self._bind(arrays)
        events = [e for array in arrays for e in getattr(array, "events", ())]
        if events:
            self.queue.cl.wait_for_events(events)
        self._enqueue(buffers)
        for array, buffer in back:
            self.queue.cl.enqueue_copy(self.queue.queue, array, buffer)
        self.queue.queue.finish()

    def time_evaluator(
        self,
        number: int = 1,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_ms: float = 0,
        flush_cache: bool = False,
    ) -> Callable[..., Timing]:
        """A function of the arrays that times this one by the device's own events: the seconds that
        kernels run, without copies and waiting; see `Function.time_evaluator`."""
        if flush_cache:
            raise ArgumentError("flush_cache is for CPU functions; the caches of a device stay")
        protocol = Protocol(number, repeat, min_repeat_ms, cooldown_ms)

        def evaluate(*arrays: Any) -> Timing:
            buffers, _ = self._bind(arrays)

            def measure(count: int) -> float:
                total = 0
                for _ in range(count):
                    events = self._enqueue(buffers)
                    self.queue.queue.finish()
                    total += sum(e.profile.end - e.profile.start for e in events)
                return total * 1e-9

            return protocol.take(measure)

        return evaluate

    def _enqueue(self, buffers: Sequence[Any]) -> list[Any]:
        """Launch the kernels in order; the events of each."""
        memory = [*buffers, *self._spaces]
        events = []
        for launch, kernel in zip(self.artifact.launches, self._kernels, strict=True):
            kernel.set_args(*(memory[n] for n in launch.args))
            size = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
            enqueue = self.queue.cl.enqueue_nd_range_kernel
            events.append(enqueue(self.queue.queue, kernel, size, launch.block))
        return events

    def _buffer(self, count: int) -> Any:
        cl = self.queue.cl
        return cl.Buffer(self.queue.context, cl.mem_flags.READ_WRITE, max(1, count))

    def _bind(self, arrays: Sequence[Any]) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """A buffer for each argument, and the (array, buffer) pairs to copy back."""
        check_count(self.info, arrays)
        buffers: list[Any] = []
        spans: list[tuple[object, int, int]] = []
        back = []
        for n, (param, array) in enumerate(zip(self.info.params, arrays, strict=True)):
            if isinstance(array, self.queue.cl.Buffer) or hasattr(array, "base_data"):
                buffers.append(self._on_device(n, array))
                spans.append(("device", buffers[-1].int_ptr, buffers[-1].size))
                continue
            host = check_array(self.info, n, array)
            _note()
            buffers.append(self._buffer(host.nbytes))
            spans.append(("host", host.ctypes.data, host.nbytes))
            # Outputs too: a program may leave elements as they are.
            self.queue.cl.enqueue_copy(self.queue.queue, buffers[-1], np.ascontiguousarray(host))
            if param.written:
                back.append((host, buffers[-1]))
        check_apart(self.info, spans)
        return buffers, back

    def _on_device(self, n: int, array: Any) -> Any:
        """The buffer of an array of pyopencl, or a buffer, which says only how long it is."""
        param, where = self.info.params[n], place_of(self.info, n)
        data = array
        if not isinstance(array, self.queue.cl.Buffer):
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
        if data.context != self.queue.context:
            raise ArgumentError(
                f"{where} belongs to another OpenCL context; make it in that of "
                "autosched.runtime.opencl.default_queue()"
            )
        return data


@cache
def _note() -> None:
    _log.info(
        "NumPy arrays are copied to the device and back at every call; pass arrays of "
        "pyopencl.array to leave them there"
    )
