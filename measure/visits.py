"""Visits: a candidate in the race is timed several times, with others in between.

What disturbs a timing without showing in it (a neighbour on the same host that wears out shared
caches, a core that is taken away for half a second) lasts longer than one candidate's samples, so
nothing can be made of these: all of them take 1.1 to 2 times as long. The same candidate some
groups later mostly lies outside. A candidate is settled when the two best of its visits agree; one
near the best gets more visits, and the most while they do not agree, since there the order counts.
How far apart the two best visits lie is also the honest measure of how much a time that is taken
again moves: the noise figure.

A candidate that was verified and timed keeps that when a later visit fails, with a note; unless it
is the candidate that fails: twice in a row, the second time in a process of its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from measure.machine import Code
from measure.status import MeasureResult, Status
from measure.timing import Estimate, TimingPlan, quantile, relative_range

KEPT = 32
SHARE = 0.9
DISTURBED = 0.05
"""A visit that is noisier than this says nothing."""
UNSURE = 0.5
"""The noise of a time of which a later visit failed."""


@dataclass(frozen=True)
class Turn:
    """A visit of a verified candidate: what was found, and the `seconds` that the runner took.

    `found`: times, a failure, or None if the device was lost. `to_blame`: the failure is the
    candidate's own. `note`: what went wrong on the way, empty if nothing did.
    """

    found: Estimate | MeasureResult | None
    seconds: float = 0.0
    to_blame: bool = False
    note: str = ""


@dataclass(eq=False)
class Visited:
    """A candidate with what its visits gave so far. `artifact`: None where it did not build."""

    place: int
    artifact: Code | None
    result: MeasureResult
    quiet: list[float] = field(default_factory=list)
    """Drift-cancelled seconds, one a visit that nothing disturbed, as far as can be seen."""
    tried: int = 1
    troubled: bool = False
    """Whether a visit failed and the earlier ones stand."""

    def __post_init__(self) -> None:
        self._keep(self.result)

    def _keep(self, found: MeasureResult | Estimate) -> None:
        if found.seconds is not None and (found.noise or 0.0) <= DISTURBED:
            self.quiet.append(found.seconds)

    def add(self, turn: Turn) -> None:
        """Another visit."""
        self.tried += 1
        found, before = turn.found, self.result
        self.result = replace(before, run_wall_seconds=before.run_wall_seconds + turn.seconds)
        if isinstance(found, Estimate):
            self._keep(found)
            self.result = joined(self.result, found)
        elif found is not None and turn.to_blame:
            text = f"timed before, and failed when it ran again:\n{found.error}"
            self.result = failed(self.result, found.status, text)
        if self.result.ok and turn.note:
            self.troubled = True
            self.result = replace(self.result, error=turn.note)

    @property
    def known(self) -> float | None:
        """The best undisturbed visit's seconds; None where there is none."""
        return min(self.quiet, default=None)

    @property
    def gap(self) -> float | None:
        """How far the second best quiet visit lies above the best, as a fraction; None for one."""
        if len(self.quiet) < 2:
            return None
        best, second = sorted(self.quiet)[:2]
        return second / best - 1

    def unsettled(self, best_seconds: float, plan: TimingPlan) -> bool:
        """Whether it is worth another visit, where the fastest so far takes `best_seconds`."""
        seconds, gap = self.result.seconds, self.gap
        if seconds is None or self.artifact is None:
            return False
        near = seconds <= plan.near_best * best_seconds
        if self.tried >= (plan.most_near_visits if near else plan.most_visits):
            return False
        if self.troubled or seconds > plan.long_factor * plan.budget_ms * 1e-3:
            return False
        if seconds > plan.out_of_race * best_seconds:
            return False
        if not self.quiet and self.tried >= plan.near_visits:
            return False  # whatever it is, it lasts
        far = seconds > plan.near_race * best_seconds
        if gap is None:
            return not (far and self.quiet and seconds > plan.long_ms * 1e-3)
        return gap > (plan.far_agreement if far else plan.agreement) or (
            near and self.tried < plan.near_visits
        )


class Noise:
    """The noise figure: of the last candidates, what `SHARE` of the gaps lie below."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=KEPT)

    def note(self, visited: Visited) -> MeasureResult:
        """The final result of a candidate, its noise at least the figure with it counted in."""
        if visited.result.noise is None:
            return visited.result
        if visited.gap is not None:
            self._gaps.append(visited.gap)
        least = max(self.figure(), UNSURE if visited.troubled else 0.0)
        return replace(visited.result, noise=max(visited.result.noise, least))

    def figure(self) -> float:
        """As a fraction; 0 where no candidate was visited twice yet."""
        return quantile(self._gaps, SHARE) if self._gaps else 0.0


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


def joined(result: MeasureResult, visit: Estimate) -> MeasureResult:
    """A result that is ok, with one more visit."""
    samples = (*result.samples, *visit.samples)
    return replace(
        result,
        seconds=min(result.seconds or visit.seconds, visit.seconds),
        noise=min(result.noise or 0.0, visit.noise),
        raw_seconds=min(samples),
        spread=relative_range(samples),
        runs=result.runs + visit.runs,
        samples=samples,
    )
