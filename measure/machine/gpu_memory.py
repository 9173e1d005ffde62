"""A job's arguments on a GPU, between guard zones, as `verification` has them on a CPU."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.codegen.artifact import Param
from autosched.runtime.queue import Array, Memory, Queue
from autosched.tir import dtypes
from measure.machine.gpu_compare import Comparison
from measure.verify.tolerance import Tolerance
from measure.verify.verification import Buffers, canary, damage, param_bytes

ZONE_BYTES = 64 << 10
"""Of each guard zone; a multiple of what parts of a device's memory are aligned to."""
_POISON = 0xFF
_COMPARED = frozenset({"float32", "int8", "int16", "int32", "int64", "uint8", "bool"})
"""Types of outputs that a device compares."""
_log = logging.getLogger(__name__)


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
        return damage(self.name, self.nbytes, found, self._canary)


class DeviceBuffers(Buffers):
    """All arguments of a kernel in guarded memory of a device. Raises MemoryError.

    With a `comparison` a copy of the inputs and the reference stays on the device, if it has room
    for that and for what kernels need, and what a candidate left is compared there; what is not
    found right, and floats but float32, are compared on the host.
    """

    def __init__(
        self,
        queue: Queue,
        params: Sequence[Param],
        values: Sequence[Array],
        tolerance: Tolerance,
        comparison: Comparison | None = None,
    ) -> None:
        super().__init__(
            params, values, tolerance, 0, lambda name, size, _: DeviceGuarded(queue, name, size)
        )
        self._queue, self._comparison = queue, comparison
        self._host: dict[int, Array] = {}
        self._wanted: dict[int, Memory] = {}
        """What arguments are compared with on the device, by number."""
        if comparison is None:
            return
        try:
            self._wanted = {
                n: comparison.copied(self.values[n])
                for n, p in enumerate(self.params)
                if param_bytes(p) % 4 == 0 and (not p.written or p.dtype in _COMPARED)
            }
        except MemoryError as e:
            _log.info("no room for copies to compare with (%s): results go to the host", e)

    def at(self, place: int) -> Sequence[Any]:
        """See `Buffers.at`: there is one place."""
        return self.memory

    def give_up_copies(self) -> bool:
        """Compare on the host from now on, for room on the device; whether there were copies."""
        had = bool(self._wanted)
        self._wanted.clear()
        return had

    def mismatch(self, n: int) -> str:
        """See `Buffers.mismatch`."""
        wanted, expected, param = self._wanted.get(n), self.expected[n], self.params[n]
        if wanted is not None:
            assert self._comparison is not None
            found, nbytes = self.memory[n].memory, param_bytes(param)
            if param.dtype == "float32":
                limits = expected.rtol, expected.rms
                right = self._comparison.near(found, wanted, nbytes // 4, *limits)
            else:
                right = self._comparison.same(found, wanted, nbytes)
            if right:
                return ""
        return super().mismatch(n)

    def unchanged(self, n: int) -> bool:
        """See `Buffers.unchanged`."""
        wanted, nbytes = self._wanted.get(n), param_bytes(self.params[n])
        if wanted is not None and self._comparison is not None:
            return self._comparison.same(self.memory[n].memory, wanted, nbytes)
        return super().unchanged(n)

    def reset(self) -> None:
        """Inputs as they were, outputs poisoned, guards armed."""
        for n, memory in enumerate(self.memory):
            expected = self.expected.get(n)
            if expected is not None and expected.poison_is_nan:
                memory.poison_data()
            elif expected is not None:
                expected.poison(self._array(n))
                memory.write(self._array(n))
            elif self._dirty:
                memory.write(self.values[n])
            if self._dirty:
                memory.arm()
        self._dirty = False

    def array(self, n: int) -> Array:
        """A copy of argument number `n` as it is now."""
        found = self._array(n)
        self.memory[n].read(found)
        return found

    def _array(self, n: int) -> Array:
        """An array of the host as large as argument `n`, made when it is first asked for."""
        if n not in self._host:
            param = self.params[n]
            kind = dtypes.array_dtype(param.dtype)
            self._host[n] = self._queue.host_array(param.shape, kind)
        return self._host[n]
