"""The final re-measurement, whose times decide which program is handed out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from autosched.errors import TuningError
from measure.status import Status
from records import OK, TRIAL, Record
from records.types import quoted_text

if TYPE_CHECKING:
    from autosched.schedule import Trace
    from measure.pool import JobHandle, Pool
    from measure.status import MeasureResult

ROUNDS = 6
"""Interleaved timings of each finalist."""
SLOWED = 1.25
"""Times their trials that finalists take in a disturbed re-measurement; a quiet one: 1 to 1.15."""
ATTEMPTS = 4
"""Re-measurements at most: a disturbance may last for some seconds."""
_AT_FAULT = frozenset({Status.WRONG_RESULT, Status.OUT_OF_BOUNDS, Status.RUNTIME_ERROR})


def remeasure(
    pool: Pool, handle: JobHandle, traces: Sequence[Trace], finalists: Sequence[Record]
) -> list[MeasureResult]:
    """The finalists measured again in interleaved blocks, since a time that is chosen because it is
    small is likely to be too small.

    Once more where a finalist was lost with its device; and again, up to `ATTEMPTS` in all, while
    most take `SLOWED` times what they took before: the machine was disturbed, and not all programs
    suffer alike. Then a finalist has its time of the attempt that was slowed least, or of another
    if it has none there, and is out if it was at fault in any.
    """
    attempts = [pool.remeasure(handle, traces, ROUNDS)]
    before = [r.seconds or math.inf for r in finalists]
    lost = any(timing.status is Status.DEVICE_LOST for timing in attempts[0])
    if lost:
        attempts.append(pool.remeasure(handle, traces, ROUNDS))
    while not lost and len(attempts) < ATTEMPTS and _slowdown(attempts[-1], before) > SLOWED:
        attempts.append(pool.remeasure(handle, traces, ROUNDS))
    if not lost:
        attempts.sort(key=lambda timings: _slowdown(timings, before))
    return [_first_right(timings) for timings in zip(*attempts, strict=True)]


def _slowdown(timings: Sequence[MeasureResult], before: Sequence[float]) -> float:
    """The median of the finalists' times over their times as trials, 1 where none has a time."""
    both = zip(timings, before, strict=True)
    return median([t.seconds / s for t, s in both if t.seconds is not None] or [1.0])


def _first_right(timings: Sequence[MeasureResult]) -> MeasureResult:
    """Of one finalist: that it was at fault, or what the first of these attempts gave, or another
    if that one was lost."""
    kept = next((t for t in timings if t.status in _AT_FAULT), timings[0])
    if kept.status in (Status.DEVICE_LOST, Status.RUN_TIMEOUT):
        return next((t for t in timings if t.status == OK), kept)
    return kept


def best_of_lost(
    finalists: Sequence[Record], timings: Sequence[MeasureResult]
) -> tuple[Record, str]:
    """The fastest trial of those that were lost with their device, as nothing is known against it,
    and why it has to be taken. Raises TuningError if there is none."""
    lost = [r for r, t in zip(finalists, timings, strict=True) if t.status is Status.DEVICE_LOST]
    why = f"{timings[0].status}: {timings[0].error}"
    text = f"none of the {len(finalists)} finalists could be measured again: {why}"
    if not lost:
        raise TuningError(text)
    return min(lost, key=lambda r: r.seconds or math.inf), text


def why_nothing(title: str, records: Iterable[Record]) -> str:
    """Why none of a task's records gave a right result."""
    found = list(records)
    candidates = [r for r in found if r.kind == TRIAL]
    trials = candidates or found
    counts = ", ".join(f"{n} {s}" for s, n in Counter(r.status for r in trials).most_common())
    first = next((r.error for r in trials if r.error), "none recorded")
    what = "candidate" if candidates else "baseline"
    return (
        f"no {what} of {title} gave a right result in {len(trials)}: {counts}\n"
        f"first error: {quoted_text(first)}"
    )
