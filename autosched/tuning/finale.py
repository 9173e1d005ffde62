"""The end of a run: the finalists' times, which decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from measure.status import Status
from records import OK

if TYPE_CHECKING:
    from autosched.schedule import Trace
    from measure.pool import JobHandle, Pool
    from measure.status import Distribution

ROUNDS = 6
"""Interleaved timings of each finalist."""
SLOW = 1.3
"""How much slower than before the finalist that kept its time best may be."""
ATTEMPTS = 4
"""Times that finalists are measured in the worst case."""
_AT_FAULT = frozenset({Status.WRONG_RESULT, Status.OUT_OF_BOUNDS, Status.RUNTIME_ERROR})


def remeasure(
    pool: Pool, handle: JobHandle, traces: Sequence[Trace], before: Sequence[float]
) -> list[Distribution]:
    """The finalists measured again, in turns; `before` are their times so far, in seconds.

    A time that is chosen because it is small is likely to be too small, but only by its noise.
    Where every finalist is slower than before by more than that, it is the machine that is slower
    now: the two threads of a virtual machine may share a core for seconds, and nothing inside it
    says so. Then all are measured once more, `ATTEMPTS` times at most, and the attempt that is
    nearest to what was measured before counts. All are measured once more, too, where a finalist
    was lost with its device. Who has no time in the attempt that counts has that of another one;
    who was at fault in any of them is out.
    """
    attempts: list[tuple[float, list[Distribution]]] = []
    while len(attempts) < ATTEMPTS:
        timings = pool.remeasure(handle, traces, ROUNDS)
        attempts.append((_slowness(timings, before), timings))
        lost = any(t.status is Status.DEVICE_LOST for t in timings) and len(attempts) == 1
        slowness = min(slowness for slowness, _ in attempts)
        if not lost and (math.isinf(slowness) or slowness <= SLOW):
            break
    attempts.sort(key=lambda attempt: attempt[0])
    return [_first_right([timings[n] for _, timings in attempts]) for n in range(len(traces))]


def _first_right(timings: Sequence[Distribution]) -> Distribution:
    """Of one finalist: that it was at fault, or what the first of these attempts gave, or another
    if that one was lost."""
    kept = next((t for t in timings if t.status in _AT_FAULT), timings[0])
    if kept.status in (Status.DEVICE_LOST, Status.RUN_TIMEOUT):
        return next((t for t in timings if t.status == OK), kept)
    return kept


def _slowness(timings: Sequence[Distribution], before: Sequence[float]) -> float:
    """How much slower the finalist that kept its time best is; infinite where none was right."""
    ratios = (
        timing.seconds / seconds
        for timing, seconds in zip(timings, before, strict=True)
        if timing.status == OK and timing.seconds is not None
    )
    return min(ratios, default=math.inf)
