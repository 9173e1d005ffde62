"""Ranges of activations, from samples: what a quantised tensor's 256 steps cover.

minmax      all that the samples have
percentile  all but a share of them, at both ends
entropy     the range whose quantised distribution says most of the true one: the least
            Kullback-Leibler divergence (Migacz, "8-bit inference with TensorRT", 2017)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

SCHEMES = ("minmax", "percentile", "entropy")
BINS = 2048
"""Of a histogram over the range of all samples."""
_STRIDE = 8
"""Bins between two ranges that entropy compares."""
Array = npt.NDArray[Any]


@dataclass
class Observer:
    """What has been seen of one tensor: its range, then, within it, a histogram."""

    low: float = 0.0
    high: float = 0.0
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def widen(self, values: Array) -> None:
        """Take values into the range; 0 is always in it, so that it has a step of its own."""
        if values.size:
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))

    def count(self, values: Array) -> None:
        """Count values, when the range is that of all."""
        if self.high > self.low:
            self.counts += np.histogram(values, BINS, (self.low, self.high))[0]

    def range(self, scheme: str, percentile: float) -> tuple[float, float]:
        """The ends of the range that is quantised; 0 lies in it. `percentile`: the share of values,
        in percent, that the scheme of this name keeps."""
        if scheme == "minmax" or not self.counts.any():
            return self.low, self.high
        edges = np.linspace(self.low, self.high, BINS + 1)
        if scheme == "percentile":
            below = np.cumsum(self.counts) / self.counts.sum()
            left = (1 - percentile / 100) / 2
            low = edges[int(np.searchsorted(below, left, side="right"))]
            high = edges[min(int(np.searchsorted(below, 1 - left)) + 1, BINS)]
            return min(float(low), 0.0), max(float(high), 0.0)
        bound = self._least_divergence(edges)
        return max(self.low, -bound), min(self.high, bound)

    def _least_divergence(self, edges: Array) -> float:
        """The magnitude at which clipping loses least."""
        largest = max(-self.low, self.high)
        centres = np.abs((edges[:-1] + edges[1:]) / 2)
        sizes = np.histogram(centres, BINS, (0, largest), weights=self.counts)[0]
        levels = 255 if self.low == 0 else 128
        best, bound = np.inf, largest
        for kept in range(levels, BINS + 1, _STRIDE):
            found = divergence(sizes, kept, levels)
            if found < best:
                best, bound = found, largest * kept / BINS
        return bound


def divergence(sizes: Array, kept: int, levels: int) -> float:
    """Kullback-Leibler divergence of a histogram, what lies beyond its first `kept` bins put into
    the last of these, from the same in `levels` steps."""
    true = sizes[:kept].astype(np.float64)
    level = np.minimum(np.arange(kept) * levels // kept, levels - 1)
    filled = true > 0
    totals = np.bincount(level, true, levels)
    shares = np.bincount(level, filled, levels)
    stepped = np.where(filled, totals[level] / np.maximum(shares[level], 1), 0.0)
    true[-1] += sizes[kept:].sum()
    if not stepped.any():
        return float("inf")
    p, q = true / true.sum(), stepped / stepped.sum()
    seen = p > 0
    # A bin that is filled from beyond alone has no steps: that costs as much as one value does.
    return float(np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12))))


def has_steps(low: float, high: float) -> bool:
    """Whether a range is so wide that a step of it is a normal float32."""
    return bool(np.float32((high - low) / 255) >= np.finfo(np.float32).tiny)


def steps_of(low: float, high: float) -> tuple[np.float32, np.uint8]:
    """Scale and zero point of uint8 steps from `low` to `high`, of which one is 0."""
    if not has_steps(low, high):
        return np.float32(1), np.uint8(0)
    scale = np.float32((high - low) / 255)
    return scale, np.uint8(np.clip(np.rint(-low / scale), 0, 255))
