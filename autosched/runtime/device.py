"""`DeviceFunction`: generated kernels on a GPU, called with arrays and timed.

NumPy arrays are copied to the device before a call, and outputs back after it; the first time a
note on this goes to the log. Arrays that are on the device are used where they are.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from autosched.codegen.artifact import Param
from autosched.codegen.gpu.generate import GPUArtifact
from autosched.errors import ArgumentError
from autosched.runtime.arguments import check_arguments
from autosched.runtime.queue import Memory, Queue
from autosched.runtime.timing import Protocol, Timing
from autosched.tir.dtypes import array_dtype

_log = logging.getLogger(__name__)


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
        """Run on arrays of the device, or NumPy arrays, which are copied. Returns when done."""
        memory, back = self._bind(arrays)
        for launch in self.queue.launchers(self.artifact, self._kernels, memory):
            launch()
        self.queue.finish()
        for array, place in back:
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
            memory, _ = self._bind(arrays)
            launchers = self.queue.launchers(self.artifact, self._kernels, memory)
            if flush_cache and self._flush is None:
                self._flush = self.queue.flusher()
            before = self._flush if flush_cache else None
            return protocol.take(lambda count: self.queue.seconds(launchers, count, before))

        return evaluate

    @abstractmethod
    def _is_ours(self, array: Any) -> bool:
        """Whether an argument is an array on a device."""

    @abstractmethod
    def _memory_of(self, array: Any, param: Param, where: str) -> Memory:
        """The memory of such an array. Raises ArgumentError if it does not fit `param`."""

    def _bind(self, arrays: Sequence[Any]) -> tuple[list[Memory], list[tuple[Any, Memory]]]:
        """Memory for each argument and the workspaces; the (array, memory) pairs to copy back."""
        if arrays and all(self._is_ours(a) for a in arrays):
            self._check_count(arrays)
            return [*map(self._on_device, range(len(arrays)), arrays), *self._spaces], []
        hosts, _ = check_arguments(self.info, arrays)
        _note(self.arrays)
        memory, back = [], []
        for param, host in zip(self.info.params, hosts, strict=True):
            place = self.queue.allocate(host.nbytes)
            # Outputs too: a program may leave elements as they are.
            self.queue.write(place, np.ascontiguousarray(host))
            memory.append(place)
            if param.written:
                back.append((host, place))
        return [*memory, *self._spaces], back

    def _on_device(self, n: int, array: Any) -> Memory:
        param = self.info.params[n]
        return self._memory_of(array, param, f"argument {n} ({param.name}) of {self.info.entry}")

    def _check_count(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self.info.params):
            names = ", ".join(p.name for p in self.info.params)
            raise ArgumentError(
                f"{self.info.entry} takes {len(self.info.params)} arrays ({names}), found "
                f"{len(arrays)}"
            )


def check_form(
    shape: Sequence[int], dtype: np.dtype[Any], contiguous: bool, param: Param, where: str
) -> None:
    """Raise ArgumentError if an array on a device is not what a parameter takes."""
    if tuple(shape) != param.shape or dtype != array_dtype(param.dtype):
        raise ArgumentError(
            f"{where} is {dtype.name}{list(shape)}; expected {param.dtype}{list(param.shape)}"
        )
    if not contiguous:
        raise ArgumentError(f"{where} must be C-contiguous and begin its buffer; pass a copy")


@cache
def _note(arrays: str) -> None:
    _log.info(
        "NumPy arrays are copied to the device and back at every call; pass %s to leave them there",
        arrays,
    )
