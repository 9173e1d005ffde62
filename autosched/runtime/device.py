"""`DeviceFunction`: generated kernels on a GPU, called with arrays and timed.

Arrays that are on the device are used where they are. NumPy arrays are copied there before a call,
and outputs back after it; the first time a note on this goes to the log.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from autosched.codegen.gpu.generate import GPUArtifact
from autosched.runtime.queue import Array, Memory, Queue
from autosched.runtime.timing import Protocol, Timing
from autosched.tir.dtypes import array_dtype

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Bound:
    """Checked arguments of a call: memory of the device for what is there, arrays of the host to be
    copied. `during`: what holds while they are used."""

    arguments: tuple[Memory | Array, ...]
    during: AbstractContextManager[Any]


class DeviceFunction(ABC):
    """Kernels of one function, loaded on a device: call it with one array a parameter.

    Workspaces are allocated once; calls of one function must not overlap. Raises BuildError if the
    device refuses the code, or grants a block less than the target does.
    """

    arrays = ""
    """What arrays are called that stay on the device."""

    def __init__(self, artifact: GPUArtifact, queue: Queue) -> None:
        self.artifact, self.info = artifact, artifact.info
        self.queue = queue
        queue.check(artifact)
        self._kernels = queue.load(artifact)
        self._spaces = [
            queue.allocate(count * array_dtype(dtype).itemsize)
            for count, dtype in artifact.workspaces
        ]
        self._flush: Callable[[], None] | None = None

    def __call__(self, *arrays: Any) -> None:
        """Run on arrays of the device, once what they wait for is done, and on arrays of the host,
        which are copied. Returns when it is done."""
        bound = self._bind(arrays)
        with bound.during:
            memory = self._memory(bound)
            for launch in self.queue.launchers(self.artifact, self._kernels, memory):
                launch()
            self.queue.finish()
            for param, array, place in zip(self.info.params, bound.arguments, memory, strict=False):
                if param.written and isinstance(array, np.ndarray):
                    self.queue.read(array, place)

    def time_evaluator(
        self,
        number: int = 1,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        cooldown_ms: float = 0,
        flush_cache: bool = False,
    ) -> Callable[..., Timing]:
        """A function of the arrays that times this one by the device's own events: the seconds that
        kernels run, without copies. With `flush_cache` the device's caches hold nothing of the
        arrays before each call; see `Function.time_evaluator`."""
        protocol = Protocol(number, repeat, min_repeat_ms, cooldown_ms, flush_cache)

        def evaluate(*arrays: Any) -> Timing:
            bound = self._bind(arrays)
            with bound.during:
                memory = self._memory(bound)
                launchers = self.queue.launchers(self.artifact, self._kernels, memory)
                if flush_cache and self._flush is None:
                    self._flush = self.queue.flusher()
                before = self._flush if flush_cache else None
                return protocol.take(lambda count: self.queue.seconds(launchers, count, before))

        return evaluate

    @abstractmethod
    def _bind(self, arrays: Sequence[Any]) -> Bound:
        """The arguments, checked. Raises ArgumentError."""

    def _memory(self, bound: Bound) -> list[Memory]:
        """Memory for each argument, what is on the host copied, and for the workspaces."""
        memory = []
        for argument in bound.arguments:
            place = argument
            if isinstance(argument, np.ndarray):
                _note(self.arrays)
                place = self.queue.allocate(argument.nbytes)
                # Outputs too: a program may leave elements as they are.
                self.queue.write(place, np.ascontiguousarray(argument))
            memory.append(place)
        return [*memory, *self._spaces]


@cache
def _note(arrays: str) -> None:
    _log.info(
        "NumPy arrays are copied to the device and back at every call; pass %s to leave them there",
        arrays,
    )
