"""One task as a `TaskScheduler` sees it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from autosched.tuning.report.result import DEFAULT, TuningResult
from autosched.tuning.run.session import Session
from autosched.tuning.task import SearchTask
from records import BASELINE_ROUND

GOLDEN = 1.618
"""Tasks of one operator whose work differs by less than about this factor count as similar."""


@dataclass
class TaskState:
    """One task in the scheduler. `history[t]` is its best time in seconds after t rounds, baselines
    counted as none; `dead` says why it gets no more rounds; `group` which tasks are similar."""

    task: SearchTask
    weight: float
    group: tuple[str, int]
    session: Session | None = None
    history: list[float] = field(default_factory=list)
    dead: str | None = None
    result: TuningResult | None = None
    estimate: float = math.inf
    """Seconds that it is taken to need until anything is measured."""

    @property
    def rounds(self) -> int:
        """Rounds measured."""
        return max(len(self.history) - 1, 0)

    @property
    def trials(self) -> int:
        """Candidates measured."""
        return len(self.session.records.trials()) if self.session is not None else 0

    @property
    def best(self) -> float:
        """Best time so far in seconds; infinite without a right result."""
        return self.history[-1] if self.history else math.inf

    @property
    def baseline(self) -> float:
        """Time of its faster baseline in seconds; infinite where none was measured."""
        return math.inf if self.session is None else self.session.records.baseline_seconds()

    @property
    def default(self) -> float:
        """Time of its default schedule in seconds; infinite where it was not measured."""
        if self.session is None:
            return math.inf
        found = self.session.records.get((BASELINE_ROUND, DEFAULT))
        return math.inf if found is None else found.final_seconds or math.inf

    @property
    def seconds(self) -> float:
        """The best that is known of it: measured, a baseline's time among that, or estimated."""
        if self.result is not None:
            return self.result.best_seconds
        known = min(self.best, self.baseline)
        return known if math.isfinite(known) else self.estimate

    @property
    def gain(self) -> float | None:
        """Time of the faster baseline over the best; None where one of them is not known."""
        known = math.isfinite(self.baseline) and math.isfinite(self.seconds)
        return self.baseline / self.seconds if known else None

    @property
    def flop(self) -> float:
        """Floating-point operations of one call."""
        return float(self.task.compute_dag.flop_ct)


def similarity_group(task: SearchTask) -> tuple[str, int]:
    """Operator and order of magnitude of the work. Kernels of a model that have the same operators
    are numbered."""
    flop = float(task.compute_dag.flop_ct)
    return re.sub(r"_\d+\b", "", task.name), int(math.log(flop + 1.0, GOLDEN))
