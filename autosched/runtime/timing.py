"""How long a kernel takes: loops in native code, seconds with their spread."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.errors import ArgumentError
from autosched.integers import settle

Array = npt.NDArray[Any]
_WARMUP_CALLS = 2  # the first two calls are several per cent slow
_MAX_NUMBER = 1 << 40


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, measured `len(seconds)` times as the mean over `number` calls."""

    seconds: tuple[float, ...]
    number: int

    @property
    def median(self) -> float:
        """Middle measurement, in seconds."""
        return statistics.median(self.seconds)

    @property
    def min(self) -> float:
        """Fastest measurement, in seconds."""
        return min(self.seconds)

    @property
    def mean(self) -> float:
        """Arithmetic mean, in seconds."""
        return statistics.fmean(self.seconds)

    @property
    def spread(self) -> float:
        """Distance of the 5th and the 95th percentile, as a fraction of the median."""
        low, high = np.percentile(self.seconds, (5, 95))
        return float(high - low) / self.median if self.median > 0 else 0.0

    def __str__(self) -> str:
        return (
            f"{self.median * 1e6:.3f} us (min {self.min * 1e6:.3f}, spread {self.spread:.1%}, "
            f"{len(self.seconds)} x {self.number} calls)"
        )


@dataclass(frozen=True)
class Protocol:
    """How a time is taken: see `Function.time_evaluator`. Times in milliseconds."""

    number: int = 1
    repeat: int = 1
    min_repeat_ms: float = 0
    cooldown_ms: float = 0
    flush_cache: bool = False

    def __post_init__(self) -> None:
        settle(self, ArgumentError, number=1, repeat=1)
        for name in ("min_repeat_ms", "cooldown_ms"):
            value = getattr(self, name)
            if not isinstance(value, (int, float, np.number)) or not 0 <= value < math.inf:
                raise ArgumentError(f"{name} is {value!r}; expected 0 or more")

    def take(self, measure: Callable[[int], float]) -> Timing:
        """Time with `measure(n)`, the seconds that n calls take."""
        measure(_WARMUP_CALLS)
        count = self.number
        if self.min_repeat_ms:
            count = _enough(measure, self.number, self.min_repeat_ms * 1e-3)
        seconds = []
        for index in range(self.repeat):
            if index and self.cooldown_ms:
                time.sleep(self.cooldown_ms * 1e-3)  # asked for: the processor cools down
            seconds.append(measure(count) / count)
        return Timing(tuple(seconds), count)


def _enough(measure: Callable[[int], float], number: int, seconds: float) -> int:
    """The number of calls, at least `number`, that take at least `seconds`."""
    while number < _MAX_NUMBER:
        took = measure(number)
        if took >= seconds:
            break
        # Aim a little past the goal, and never grow by more than a short call can mislead.
        growth = 1.1 * seconds / took if took > 0 else 100.0
        number = max(number + 1, int(number * min(growth, 100.0)))
    return number


def cells(arrays: Sequence[Array], sizes: Sequence[int] = ()) -> ctypes.Array[ctypes.c_void_p]:
    """The arrays' addresses and the values of the symbolic sizes, as a kernel takes them."""
    words = [*(a.ctypes.data for a in arrays), *sizes]
    return (ctypes.c_void_p * max(1, len(words)))(*words)


def ranges(arrays: Sequence[Array]) -> ctypes.Array[ctypes.c_int64]:
    """(start, end) addresses of the arrays and two zeros: what `flush_cache` flushes."""
    ends = [x for a in arrays for x in (a.ctypes.data, a.ctypes.data + a.nbytes)]
    return (ctypes.c_int64 * (len(ends) + 2))(*ends)
