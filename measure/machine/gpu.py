"""A GPU as a machine that runners measure on: its memory, its kernels, its clock probe."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autosched.codegen.artifact import Param
from autosched.codegen.gpu.generate import GPUArtifact
from autosched.errors import BuildError, DeviceError
from autosched.runtime.queue import Array, Queue, QueueInfo
from autosched.tir import dtypes
from measure.machine.gpu_compare import Comparison
from measure.machine.gpu_memory import DeviceBuffers, DeviceGuarded
from measure.machine.protocol import GPU
from measure.machine.threads import Threads
from measure.process.protocol import Request
from measure.timing.gpu_clock_probe import poisoning
from measure.verify.tolerance import Tolerance

POISON_SECONDS = 0.25
"""How long blocks run until each thread of a processor had one: busy ones wake after some 10 ms."""


def open_gpu(where: GPU) -> Queue:
    """The device, opened once a process. Raises BuildError if there is none.

    For children, each of which sees one CUDA device, whatever its number is outside.
    """
    if where.kind == "cuda":
        from autosched.runtime.cuda import open_cuda

        return open_cuda()
    from autosched.runtime.opencl import open_queue

    return open_queue(where.index)


@dataclass(frozen=True)
class DescribeGPU(Request[QueueInfo | str]):
    """What the device is, or why it cannot be used; for a child, since drivers start threads."""

    where: GPU

    def answer(self, fds: Sequence[int]) -> QueueInfo | str:
        where = self.where
        try:
            return open_gpu(where).info
        except (BuildError, DeviceError) as e:
            return str(e) if where.index is None else f"{where.kind} device {where.index}: {e}"


class ListGPUs(Request[tuple[tuple[str, QueueInfo | str], ...]]):
    """Every device of this machine as a slot, "cuda/0", and what it is, or why it cannot be used;
    a kind alone, "cuda", where it has none. For a child, as DescribeGPU."""

    def answer(self, fds: Sequence[int]) -> tuple[tuple[str, QueueInfo | str], ...]:
        from autosched.runtime import cuda, detect, opencl

        found: list[tuple[str, QueueInfo | str]] = []
        openers: tuple[tuple[str, Callable[[], int], Callable[[int], Queue]], ...] = (
            ("cuda", detect.device_count, cuda.open_cuda),
            ("opencl", opencl.device_count, opencl.open_queue),
        )
        for kind, count, opened in openers:
            try:
                number = count()
            except (BuildError, DeviceError) as e:
                found.append((kind, str(e)))
                continue
            for index in range(number):
                try:
                    found.append((f"{kind}/{index}", opened(index).info))
                except (BuildError, DeviceError) as e:
                    found.append((f"{kind}/{index}", str(e)))
        return tuple(found)


class GPUMachine:
    """One device. Times are those of its own events; see `Queue.seconds`."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        # Kernels of a device that is this machine's processor wait for cores as any code does.
        self.threads = Threads(own=False, watched=queue.info.is_cpu)
        self._flush: Callable[[], None] | None = None
        self._poison: tuple[DeviceKernel, DeviceGuarded] | None = None
        self._comparison: Comparison | None = None
        self._buffers: Callable[[], DeviceBuffers | None] = lambda: None

    def buffers(
        self, params: Sequence[Param], values: Sequence[Array], tolerance: Tolerance, shift: int = 0
    ) -> DeviceBuffers:
        """See `Machine.buffers`; where arrays start is the device's to say."""
        if self._comparison is None:
            self._comparison = Comparison(self.queue)
        made = DeviceBuffers(self.queue, params, values, tolerance, self._comparison)
        self._buffers = weakref.ref(made)
        return made

    def kernel(
        self, artifact: GPUArtifact, memory: Sequence[DeviceGuarded], threads: int
    ) -> DeviceKernel:
        """See `Machine.kernel`."""
        try:
            return DeviceKernel(self.queue, artifact, memory, self.flush)
        except MemoryError:
            buffers = self._buffers()
            if buffers is None or not buffers.give_up_copies():
                raise
        # Comparing on the device is a convenience, which costs no candidate its workspaces.
        return DeviceKernel(self.queue, artifact, memory, self.flush)

    def scratch(self, name: str, nbytes: int) -> DeviceGuarded:
        """See `Machine.scratch`."""
        return DeviceGuarded(self.queue, name, nbytes)

    def poison(self, probe: GPUArtifact) -> None:
        """Shared memory: blocks that fill all of it run everywhere. Where it belongs to threads of
        a processor, of which the first to be awake takes all blocks, they run until each was seen,
        or for `POISON_SECONDS`."""
        if self._poison is None:
            filler = replace(probe, launches=(poisoning(probe.launches[0].grid[0]),))
            out = probe.info.params[0]
            memory = self.scratch(out.name, int(np.prod(out.shape)) * dtypes.itemsize(out.dtype))
            self._poison = DeviceKernel(self.queue, filler, [memory], self.flush), memory
        kernel, memory = self._poison
        places = np.empty(memory.nbytes // 4, np.float32)
        seen: set[float] = set()
        until = time.monotonic() + POISON_SECONDS
        kernel.call()
        while self.queue.info.is_cpu and time.monotonic() < until:
            memory.read(places)
            seen.update(np.unique(places).tolist())
            if len(seen) >= self.queue.info.units:
                break
            kernel.call()

    def flush(self) -> None:
        """Leave nothing of anybody's arrays in the device's caches."""
        if self._flush is None:
            self._flush = self.queue.flusher()
        self._flush()


class Workspaces:
    """Global memory of one kernel's own, each between guard zones."""

    def __init__(self, queue: Queue, artifact: GPUArtifact) -> None:
        self.memory = [
            DeviceGuarded(queue, f"workspace {n}", count * dtypes.itemsize(dtype))
            for n, (count, dtype) in enumerate(artifact.workspaces)
        ]

    def poison(self) -> None:
        """See `verification.Checked`."""
        for memory in self.memory:
            memory.poison()

    def broken(self) -> str:
        """See `verification.Checked`."""
        return "\n".join(text for m in self.memory if (text := m.broken()))


class DeviceKernel:
    """Loaded code on fixed memory of a device. Raises BuildError, MemoryError."""

    def __init__(
        self,
        queue: Queue,
        artifact: GPUArtifact,
        memory: Sequence[DeviceGuarded],
        flush: Callable[[], None],
    ) -> None:
        queue.check(artifact)
        kernels = queue.load(artifact)
        self.workspace = Workspaces(queue, artifact)
        used = [m.memory for m in (*memory, *self.workspace.memory)]
        self._queue, self._flush = queue, flush
        self._launchers = queue.launchers(artifact, kernels, used)

    def call(self, number: int = 1, flush: bool = False) -> float:
        """Seconds on the device's clock that `number` calls take. Raises DeviceError."""
        return self._queue.seconds(self._launchers, number, self._flush if flush else None)
