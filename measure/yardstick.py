"""The yardstick: a job's candidate that every visit of the others is taken beside.

A machine that is shared is slower at times, by a few per cent to a few times, for milliseconds to
minutes, and nothing tells by how much but another kernel of the same program: it reads and writes
the same arrays, and takes about as long. So what it takes beside a candidate, c and y seconds, is
made use of as a control variate (Lavenberg and Welch 1981):

    seconds = c (usual / y)^share

Where in memory the arguments lie makes a difference of its own, so what is usual is known for each
place by itself. `share` is how much of what slows the yardstick slows others too, by the visits of
those that are through: 0.1 to 0.6 where all is in a core's own caches, 0.6 to 1.4 where memory
limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from statistics import fmean

from measure.machine import Code
from measure.timing import quantile

FASTER = 2.0
"""A candidate that is faster by this takes its place, so that visits stay short."""
ENOUGH = 12
"""Undisturbed visits after which its time is known."""
SHARE = 2 / 3
"""As good as known before anything is seen, by as much as `WEIGHT` squared fractions say."""
WEIGHT = 2e-3
MOST = 1.5
KEPT = 64
FEW = 3
CALM = 1.06
"""Times as long as at best."""


@dataclass(eq=False)
class Yardstick:
    """`seconds` is what it took first, alone."""

    artifact: Code
    seconds: float
    _both: float = SHARE * WEIGHT
    _own: float = WEIGHT
    _places: dict[int, Here] = field(default_factory=dict)

    def at(self, place: int) -> Here:
        """It on the arguments in one of their places in memory: see `JobSpec.places`."""
        if place not in self._places:
            self._places[place] = Here(self, self.seconds)
        return self._places[place]

    @property
    def share(self) -> float:
        """The slope of others' logarithms over its own."""
        return min(MOST, max(0.0, self._both / self._own))

    def learn(self, visits: Sequence[tuple[float, float]]) -> None:
        """Undisturbed visits of one candidate: its seconds and its own in each."""
        kernels, own = ([log(s) for s in side] for side in zip(*visits, strict=True))
        kernel_mean, own_mean = fmean(kernels), fmean(own)
        for k, o in zip(kernels, own, strict=True):
            self._both += (k - kernel_mean) * (o - own_mean)
            self._own += (o - own_mean) ** 2

    def replaced_by(self, artifact: Code, seconds: float) -> Yardstick | None:
        """A candidate in its place, if that is so much faster and this one is known."""
        known = [here.seconds for here in self._places.values() if here.known]
        if not known or seconds * FASTER > min(known):
            return None
        return Yardstick(artifact, seconds, self._both, self._own)


@dataclass(eq=False)
class Here:
    """A yardstick in one place. `seconds` is what it takes there usually, as far as is known: the
    lower quartile of `ENOUGH` visits, and then always the same, since candidates are compared that
    were timed in other moments."""

    yardstick: Yardstick
    seconds: float
    known: bool = False
    _seen: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def cancelled(self, kernel: float, own: float) -> float:
        """Seconds of a kernel that took `kernel` where this took `own`, as they usually are."""
        return kernel * float((self.seconds / own) ** self.yardstick.share)

    def unusual(self, own: float) -> float:
        """How much slower than usual the machine is where it takes `own`, as a fraction."""
        return max(0.0, own / self.seconds - 1.0) if self.known else 0.0

    @property
    def calm_seconds(self) -> float:
        """Up to what time of its own the caches and the memory are hardly used by others: close to
        the best of the last visits. 0 as long as that is not known."""
        return CALM * quantile(self._seen, 0.1) if len(self._seen) >= FEW else 0.0

    def note(self, own: float) -> None:
        """What it took in an undisturbed visit."""
        self._seen.append(own)
        if not self.known:
            self.seconds = quantile(self._seen, 0.25)
            self.known = len(self._seen) >= ENOUGH
