"""The yardstick: the fastest kernel of the job so far, timed again before every candidate.

The pacer lives in registers and knows the clock only. What memory and shared caches do, which other
work on the machine, or other guests of the same host, wear out too, shows in how the time of one
and the same kernel of the job changes from candidate to candidate. That is the noise of comparing
two candidates. It is not divided out: other kernels feel it more, or less.
"""

from __future__ import annotations

from collections import deque
from math import inf

from measure.machine import Runnable
from measure.timing import relative_range

KEPT = 16
ENOUGH = 4
SAMPLE_SECONDS = 1e-4
TURN_SECONDS = 0.005
TOO_LONG_SECONDS = 0.03


class Yardstick:
    """Times of one kernel, one for each of the last candidates."""

    def __init__(self) -> None:
        self._kernel: Runnable | None = None
        self._seconds = inf
        self._times: deque[float] = deque(maxlen=KEPT)

    def offer(self, kernel: Runnable, seconds: float) -> None:
        """Take this kernel, which takes `seconds`, if it is faster."""
        if seconds < self._seconds:
            self._kernel, self._seconds = kernel, seconds
            self._times.clear()

    def noise(self) -> float:
        """Interquartile range of its times as a fraction of their minimum, the time now included; 0
        while there are too few."""
        if self._kernel is None or self._seconds > TOO_LONG_SECONDS:
            return 0.0
        number = max(1, round(SAMPLE_SECONDS / self._seconds))
        count = min(4, max(1, int(TURN_SECONDS / (number * self._seconds))))
        # The first call after another kernel finds that one's data in the caches.
        times = [self._kernel.call(number) / number for _ in range(count)]
        self._times.append(min(times))
        return relative_range(self._times) if len(self._times) >= ENOUGH else 0.0
