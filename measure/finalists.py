"""Finalists: timed in turns, each built as it will be handed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from autosched.codegen.llvm.assemble import Level
from measure.machine import Code
from measure.runner import Pace
from measure.status import Distribution, Status
from measure.timing import Estimate, estimate
from measure.visits import UNSURE, Turn

SURE_AFTER = 3  # turns
MARGIN = 1.05


@dataclass
class Finalist:
    """A build at `level`, with what its turns gave so far."""

    level: Level
    artifact: Code | None = None
    status: Status = Status.OK
    error: str = ""
    turns: list[Estimate] = field(default_factory=list)
    note: str = ""
    """How a turn ended after which there are no more, and those before stand."""

    def add(self, turn: Turn) -> None:
        """What a turn gave: its times, or how it ended."""
        found = turn.found
        self.note = turn.note
        if isinstance(found, Estimate):
            self.turns.append(found)
        elif found is not None and (turn.to_blame or not self.turns):
            self.status, self.error = found.status, found.error

    def distribution(self, pace: Pace) -> Distribution:
        """All turns together."""
        if self.status is not Status.OK or not self.turns or self.artifact is None:
            status = self.status if self.status is not Status.OK else Status.DEVICE_LOST
            return Distribution(status, self.error or "no turn came to an end", level=self.level)
        samples = [s for turn in self.turns for s in turn.samples]
        paces = [s for turn in self.turns for s in turn.pacer_samples]
        nominal = pace.nominal(pace.threads_of(self.artifact))
        least = max(min(turn.noise for turn in self.turns), UNSURE if self.note else 0.0)
        whole = estimate(samples, paces, nominal, sum(turn.runs for turn in self.turns), least)
        return Distribution(
            Status.OK,
            self.note,
            seconds=whole.seconds,
            raw_seconds=whole.raw_seconds,
            spread=whole.spread,
            noise=whole.noise,
            rounds=tuple(turn.seconds for turn in self.turns),
            level=self.level,
            runs=whole.runs,
        )


def contenders(finalists: Sequence[Finalist]) -> list[Finalist]:
    """Those worth another turn: nothing went wrong, and not clearly slower than the fastest."""
    times = {id(f): min(t.seconds for t in f.turns) for f in finalists if f.turns}
    limit = MARGIN * min(times.values(), default=inf)
    return [
        f
        for f in finalists
        if f.status is Status.OK
        and f.artifact is not None
        and not f.note
        and (len(f.turns) < SURE_AFTER or times[id(f)] <= limit)
    ]
