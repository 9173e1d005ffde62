"""A job's arguments on a GPU, between guard zones, as `measure.verification` has them on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.codegen.artifact import Param
from autosched.runtime.queue import Queue
from autosched.tir import dtypes
from measure.kernel import param_bytes
from measure.verification import Buffers, Expected, Tolerance, canary, damage, same_bytes

Array = npt.NDArray[Any]
ZONE_BYTES = 64 << 10
"""Of each guard zone; a multiple of what parts of a device's memory are aligned to."""
_POISON = 0xFF


class DeviceGuarded:
    """Memory of `nbytes` bytes on a device, between two guard zones. Raises MemoryError."""

    def __init__(self, queue: Queue, name: str, nbytes: int) -> None:
        self.name, self.nbytes = name, nbytes
        self._queue = queue
        zone = -(-ZONE_BYTES // queue.info.align) * queue.info.align
        self._start = zone
        self._whole = queue.allocate(nbytes + 2 * zone)
        self.memory = queue.part(self._whole, zone, nbytes)
        """What kernels are given."""
        self._canary = canary(name, zone)
        self.arm()

    def poison(self) -> None:
        """Fill memory and guards, so that nothing of an earlier run is left to be found."""
        self.poison_data()
        self.arm()

    def poison_data(self) -> None:
        """Fill memory with what is NaN in every float type."""
        words = self.nbytes & ~3
        self._queue.fill(self._whole, self._start, words, _POISON)
        rest = np.full(self.nbytes - words, _POISON, np.uint8)
        self._queue.write(self._whole, rest, self._start + words)

    def write(self, values: Array) -> None:
        """Fill it with an array of as many bytes."""
        self._queue.write(self._whole, np.ascontiguousarray(values), self._start)

    def read(self, into: Array) -> None:
        """Copy it to an array of as many bytes."""
        self._queue.read(into, self._whole, self._start)

    def arm(self) -> None:
        """Fill the guard zones."""
        self._queue.write(self._whole, self._canary[0])
        self._queue.write(self._whole, self._canary[1], self._start + self.nbytes)

    def broken(self) -> str:
        """What was written next to the memory; empty if nothing was."""
        found = np.empty_like(self._canary)
        self._queue.read(found[0], self._whole)
        self._queue.read(found[1], self._whole, self._start + self.nbytes)
        if same_bytes(found, self._canary):
            return ""
        zones = (found[0], self._canary[0]), (found[1], self._canary[1])
        return damage(self.name, self.nbytes, *zones)


class DeviceBuffers(Buffers):
    """All arguments of a kernel in guarded memory of a device. Raises MemoryError.

    They are compared with the reference on the host, in an array for each argument.
    """

    def __init__(
        self,
        queue: Queue,
        params: Sequence[Param],
        values: Sequence[Array],
        tolerance: Tolerance,
    ) -> None:
        self.params = tuple(params)
        self.values = tuple(values)
        self.memory = [DeviceGuarded(queue, p.name, param_bytes(p)) for p in params]
        self.arrays = [queue.host_array(p.shape, dtypes.array_dtype(p.dtype)) for p in params]
        self.expected = {
            n: Expected(p, values[n], tolerance) for n, p in enumerate(params) if p.written
        }
        self._dirty = True

    def reset(self) -> None:
        """Inputs as they were, outputs poisoned, guards armed."""
        for n, memory in enumerate(self.memory):
            expected = self.expected.get(n)
            if expected is not None and expected.poison_is_nan:
                memory.poison_data()
            elif expected is not None:
                expected.poison(self.arrays[n])
                memory.write(self.arrays[n])
            elif self._dirty:
                memory.write(self.values[n])
            if self._dirty:
                memory.arm()
        self._dirty = False

    def array(self, n: int) -> Array:
        """A copy of argument number `n` as it is now."""
        found: Array = self.arrays[n]
        self.memory[n].read(found)
        return found
