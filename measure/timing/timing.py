"""The one shape of a time, from the runner to the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, stdev

LEVEL = 0.25
"""Quantile of its blocks that is a candidate's time: disturbances only ever make blocks slower."""
DISTURBED = 0.05
"""Noise from which a block counts only where no other is better."""


@dataclass(frozen=True)
class Timing:
    """What a kernel takes, by one block of samples or by several. Times are in seconds a call.

    `seconds`: the estimate, the lower quartile of the blocks, each without the drift of the clock.
    `raw_seconds`: the fastest sample as read from the clock, `samples` all of them. `spread`: their
    interquartile range over the fastest. `noise`: a fraction below which a difference says nothing;
    of a block, the clock probe's interquartile range, or how long even the best sample waited for a
    core. `runs`: timed calls. `blocks`: the estimate of each block alone, disturbed ones last.
    `error`: standard error of `seconds` as a fraction, None where a single block counts.
    `clock_seconds`: the fastest run of the clock probe meanwhile.
    """

    seconds: float
    raw_seconds: float
    spread: float = 0.0
    noise: float = 0.0
    runs: int = 1
    samples: tuple[float, ...] = ()
    blocks: tuple[float, ...] = ()
    error: float | None = None
    clock_seconds: float = inf


def combine(blocks: Sequence[Timing]) -> Timing:
    """One timing of those of at least one block each."""
    counted = [b for b in blocks if b.noise <= DISTURBED] or blocks
    times = [b.seconds for b in counted]
    samples = tuple(s for b in blocks for s in b.samples)
    apart = stdev(times) / fmean(times) / sqrt(len(times)) if len(times) > 1 else None
    return Timing(
        seconds=quantile(times, LEVEL),
        raw_seconds=min(samples),
        spread=relative_range(samples),
        noise=min(b.noise for b in counted),
        runs=sum(b.runs for b in blocks),
        samples=samples,
        blocks=tuple(b.seconds for b in sorted(blocks, key=lambda b: b.noise > DISTURBED)),
        error=apart,
    )


def relative_range(samples: Sequence[float]) -> float:
    """Interquartile range as a fraction of the minimum."""
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / min(samples)


def quantile(samples: Sequence[float], q: float) -> float:
    """Linear between the order statistics."""
    ordered = sorted(samples)
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
