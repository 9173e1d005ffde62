"""Visits: a candidate in the race is timed several times, with others in between.

What disturbs a timing without showing in it (a neighbour on the same host that wears out shared
caches, a core that is taken away for half a second, what a kernel finds in the caches when it
begins) lasts longer than one candidate's samples, so nothing can be made of these. The same
candidate some groups later mostly lies outside. So all visits after the first are taken beside the
job's yardstick, and the candidate's time is the lower quartile of what they gave without what
slowed that: many short ones, until their error is small, and the most near the best, where the
order counts.

That error, over the last candidates, is also the honest measure of how much a time that is taken
again moves: the noise figure. Visits that were disturbed count only where none was not.

A candidate that was verified and timed keeps that when a later visit fails, with a note; unless it
is the candidate that fails: twice in a row, the second time in a process of its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import fmean, median, stdev

from measure.machine import Code
from measure.status import MeasureResult, Status
from measure.timing import Estimate, TimingPlan, quantile, relative_range
from measure.yardstick import Here

KEPT = 32
LEVEL = 0.25
"""Quantile of the visits: what is left of disturbances makes them slower, never faster."""
UNSEEN = 1.6
"""Times as far as the visits of one pool tell do the times of two pools lie apart: 1.2 to 2.2 times
in nine sets of three to seven repetitions of convolution, product and softmax, 4 times in one."""
EQUAL = 1.645 * sqrt(2.0) * UNSEEN
"""Standard errors by which two times of equal programs differ at most, nine times in ten."""
DISTURBED = 0.05
"""A visit that is noisier than this says nothing."""
UNSURE = 0.5
"""The noise of a time of which a later visit failed."""


@dataclass(frozen=True)
class Turn:
    """A visit of a verified candidate: what was found, and the `seconds` that the runner took.

    `found`: times, a failure, or None if the device was lost. `to_blame`: the failure is the
    candidate's own. `note`: what went wrong on the way, empty if nothing did. `yardstick`: what the
    times are taken beside.
    """

    found: Estimate | MeasureResult | None
    seconds: float = 0.0
    to_blame: bool = False
    note: str = ""
    yardstick: Here | None = None


@dataclass(frozen=True)
class Pair:
    """One visit: seconds a call of the candidate, and of the yardstick beside it, that it took at
    most as well."""

    kernel: float
    own: float
    slowest: float
    yardstick: Here
    noise: float

    @property
    def seconds(self) -> float:
        """The candidate's, as they usually are, by what is known of the yardstick by now."""
        return self.yardstick.cancelled(self.kernel, self.own)

    @property
    def calm(self) -> bool:
        """Whether others hardly used the memory, by what is known by now."""
        return self.slowest <= self.yardstick.calm_seconds


@dataclass(eq=False)
class Visited:
    """A candidate with what its visits gave so far. `artifact`: None where it did not build.
    `result`: its time is that of the first visit until there is a better one."""

    place: int
    artifact: Code | None
    result: MeasureResult
    quiet: list[Pair] = field(default_factory=list)
    """Visits that nothing disturbed, as far as can be seen."""
    disturbed: list[Pair] = field(default_factory=list)
    tried: int = 0
    spent: float = 0.0
    """Seconds of all visits after the first."""
    troubled: bool = False
    """Whether a visit failed and the earlier ones stand."""

    def add(self, turn: Turn) -> None:
        """Another visit."""
        self.tried += 1
        self.spent += turn.seconds
        found, before = turn.found, self.result
        self.result = replace(before, run_wall_seconds=before.run_wall_seconds + turn.seconds)
        if isinstance(found, Estimate):
            self._keep(found, turn.yardstick)
        elif found is not None and turn.to_blame:
            text = f"timed before, and failed when it ran again:\\n{found.error}"
            self.result = failed(self.result, found.status, text)
        if self.result.ok and turn.note:
            self.troubled = True
            self.result = replace(self.result, error=turn.note)

    def _keep(self, found: Estimate, yardstick: Here | None) -> None:
        if found.beside is not None and yardstick is not None:
            kernel, own, slowest = found.beside
            noise = max(found.noise, yardstick.unusual(own))
            kind = self.quiet if noise <= DISTURBED else self.disturbed
            kind.append(Pair(kernel, own, slowest, yardstick, noise))
        samples = (*self.result.samples, *found.samples)
        self.result = replace(
            self.result,
            raw_seconds=min(samples),
            spread=relative_range(samples),
            runs=self.result.runs + found.runs,
            samples=samples,
        )

    @property
    def _counted(self) -> list[Pair]:
        calm = [visit for visit in self.quiet if visit.calm]
        return calm if len(calm) > 1 else self.quiet or self.disturbed

    @property
    def seconds(self) -> float | None:
        """The estimate as of now; the first visit's where there is no other, None if it failed."""
        if not self.result.ok or not self._counted:
            return self.result.seconds
        return quantile([visit.seconds for visit in self._counted], LEVEL)

    @property
    def rounds(self) -> tuple[float, ...]:
        """Seconds by each visit alone, those that were disturbed behind the others."""
        return tuple(visit.seconds for visit in (*self.quiet, *self.disturbed))

    @property
    def error(self) -> float | None:
        """Standard error of the visits, as a fraction; None for fewer than two."""
        times = [visit.seconds for visit in self._counted]
        return stdev(times) / fmean(times) / sqrt(len(times)) if len(times) > 1 else None

    def unsettled(self, best_seconds: float, plan: TimingPlan) -> bool:
        """Whether it is worth another visit, where the fastest so far takes `best_seconds`."""
        seconds = self.seconds
        if seconds is None or self.artifact is None or self.troubled:
            return False
        if seconds > plan.long_factor * plan.budget_ms * 1e-3:
            return False
        # Who was disturbed may be as much faster as that.
        doubt = 0.0 if self.quiet else self.result.noise or 0.0
        # A visit that something slowed to many times its time does not put anybody out.
        least = min(seconds, self.result.raw_seconds or seconds)
        if least > plan.out_of_race * best_seconds * (1.0 + doubt):
            return False
        if not self.quiet:
            return True
        far = least > plan.near_race * best_seconds
        near = seconds <= plan.near_best * best_seconds
        most_ms = plan.most_near_ms if near else plan.most_ms
        wanted = plan.far_visits if far else plan.least_visits
        if least > plan.long_ms * 1e-3:
            wanted -= 1
        if self.tried >= plan.most_visits:
            return False
        if len(self.quiet) < wanted:
            return True
        if self.spent > most_ms * 1e-3:
            return False
        error = self.error
        return error is not None and error > (plan.far_agreement if far else plan.agreement)

    def restless(self, plan: TimingPlan) -> bool:
        """Whether all of its visits were disturbed, so that whatever it is lasts."""
        return not self.quiet and self.tried >= plan.least_visits

    def cancel(self, error: str) -> None:
        """Its times do not count: there was no time for all."""
        self.result = failed(self.result, Status.CANCELLED, error)

    def final(self) -> MeasureResult:
        """The result with the estimate as of now."""
        if not self.result.ok:
            return self.result
        noise = min((visit.noise for visit in self._counted), default=self.result.noise)
        return replace(self.result, seconds=self.seconds, noise=noise)


class Noise:
    """The noise figure: how far two times of equal programs lie apart at most, nine times in ten,
    by the errors of the last candidates."""

    def __init__(self) -> None:
        self._errors: deque[float] = deque(maxlen=KEPT)

    def note(self, visited: Visited) -> MeasureResult:
        """The final result of a candidate, its noise at least the figure with it counted in."""
        result = visited.final()
        if result.noise is None:
            return result
        if visited.error is not None:
            self._errors.append(visited.error)
        least = max(self.figure(), UNSURE if visited.troubled else 0.0)
        return replace(result, noise=max(result.noise, least))

    def figure(self) -> float:
        """As a fraction; 0 where no candidate was visited twice yet."""
        return EQUAL * median(self._errors) if self._errors else 0.0


def failed(result: MeasureResult, status: Status, error: str) -> MeasureResult:
    """A result whose times do not count any more."""
    return replace(
        result,
        status=status,
        error=error,
        seconds=None,
        raw_seconds=None,
        spread=None,
        noise=None,
        runs=0,
        samples=(),
    )
