"""`Queue`: a GPU with a stream of work that takes times. OpenCL's and CUDA's have this one face."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.codegen.gpu.generate import GPUArtifact
from autosched.errors import BuildError

Array = npt.NDArray[Any]
Memory = Any
"""Memory of a device: what a queue's `allocate` and `part` return."""
Launcher = Callable[[], Any]
"""Enqueues one kernel on its memory; what it returns is the queue's to read times from."""


@dataclass(frozen=True)
class QueueInfo:
    """What a device is. `model`: its name; `version`: "sm_90" or "OpenCL 3.0"; `driver`: versions
    of what makes and runs machine code. `units`: multiprocessors. `cache_bytes`: the last cache;
    `memory_bytes`: all of its memory; `shared_bytes`: of a block. `align`: what the start of a
    part of memory is a multiple of. `is_cpu`: kernels run on this machine's processor."""

    kind: str
    model: str
    version: str
    driver: str
    units: int
    cache_bytes: int
    memory_bytes: int
    shared_bytes: int
    max_threads: int
    align: int
    is_cpu: bool = False


class Queue(ABC):
    """Work in the order in which it was asked for. For one thread at a time.

    What goes wrong raises MemoryError where the device has no room, DeviceError where a kernel
    failed or the device is gone.
    """

    info: QueueInfo

    @property
    @abstractmethod
    def name(self) -> str:
        """The device, for people."""

    @abstractmethod
    def load(self, artifact: GPUArtifact) -> Sequence[Any]:
        """The kernels of an artifact, one a launch. Raises BuildError."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """New memory; at least one byte. It is given up with the object."""

    def host_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """A new array of the host, its elements anything, that `read` fills fast."""
        return np.empty(shape, dtype)

    @abstractmethod
    def part(self, memory: Memory, start: int, nbytes: int) -> Memory:
        """Bytes `start` (a multiple of `info.align`) to `start + nbytes` of what `allocate` gave;
        not a copy."""

    @abstractmethod
    def write(self, memory: Memory, host: Array, start: int = 0) -> None:
        """Copy a C-contiguous array to byte `start` of `memory`; returns when it is done."""

    @abstractmethod
    def read(self, host: Array, memory: Memory, start: int = 0) -> None:
        """Copy `memory` from byte `start` on to a C-contiguous array; returns when it is done."""

    @abstractmethod
    def fill(self, memory: Memory, start: int, nbytes: int, byte: int) -> None:
        """Set bytes; both numbers are multiples of 4. Returns at once."""

    @abstractmethod
    def launcher(
        self,
        kernel: Any,
        grid: Sequence[int],
        block: Sequence[int],
        memory: Sequence[Memory],
    ) -> Launcher:
        """A function that launches a kernel with these arguments."""

    @abstractmethod
    def seconds(
        self, launchers: Sequence[Launcher], number: int, before: Callable[[], Any] | None = None
    ) -> float:
        """Seconds on the device's clock that `number` times all of `launchers` take, without copies
        and without waiting for this process. Before each time, not counted, `before` is called."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until everything is done."""

    def check(self, artifact: GPUArtifact) -> None:
        """Raise BuildError if the device grants a block fewer threads than an artifact has, or less
        shared memory than it asks for."""
        most, shared = self.info.max_threads, self.info.shared_bytes
        for launch in artifact.launches:
            threads = launch.block[0] * launch.block[1] * launch.block[2]
            if threads > most:
                raise BuildError(
                    f"kernel {launch.name} has {threads} threads a block; {self.name} allows "
                    f"{most}: build for a target with -max-threads-per-block={most}"
                )
            if launch.shared_bytes > shared:
                raise BuildError(
                    f"kernel {launch.name} asks for {launch.shared_bytes} bytes of shared memory a "
                    f"block; {self.name} has {shared}: build for a target with "
                    f"-max-shared-memory-per-block={shared}"
                )

    def launchers(
        self, artifact: GPUArtifact, kernels: Sequence[Any], memory: Sequence[Memory]
    ) -> list[Launcher]:
        """One a kernel, in order; `memory`: the arguments and after these the workspaces."""
        return [
            self.launcher(kernel, launch.grid, launch.block, [memory[n] for n in launch.args])
            for kernel, launch in zip(kernels, artifact.launches, strict=True)
        ]

    def flusher(self) -> Callable[[], None]:
        """A function that leaves nothing of other arrays in the device's caches: it writes memory
        of twice their size."""
        nbytes = max(1 << 20, 2 * self.info.cache_bytes) & ~3
        memory = self.allocate(nbytes)
        return lambda: self.fill(memory, 0, nbytes, 0)
