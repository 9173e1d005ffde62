"""What a task's search knows of the other tasks of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from autosched.search.evolution import UNTOLD
from autosched.tuning.models import XGBModel
from autosched.tuning.policy import SketchPolicy
from cost_model.dataset import Dataset, dataset_of
from records import TRIAL, Record

if TYPE_CHECKING:
    from autosched.tuning.run.task_state import TaskState
    from autosched.tuning.task import SearchTask


class Transfer:
    """Makes the policy of each task of a scheduler when its first round begins: its cost model has
    learned from all that was measured of the other tasks until then.

    `states` gives the scheduler's states. `recorded`: records of the jobs that are resumed, by
    workload. A resumed task's model learns from what was measured before its own first trial, so
    that it proposes what the first run would have.
    """

    def __init__(
        self,
        states: Callable[[], Sequence[TaskState]],
        seed: int,
        recorded: Mapping[str, Sequence[Record]],
    ) -> None:
        self.states, self.seed, self.recorded = states, seed, recorded

    def __call__(self, task: SearchTask) -> SketchPolicy:
        """The policy of a task of the scheduler."""
        own = self.recorded.get(task.workload_key, ())
        begin = min((r.created_at for r in own if r.kind == TRIAL), default=None)
        others = [s for s in self.states() if s.task is not task]
        known = Dataset.concat(self._measured(s, begin) for s in others)
        model = XGBModel(self.seed)
        if len(known):
            model.train(known)
        return SketchPolicy(task, model, seed=self.seed)

    def _measured(self, state: TaskState, begin: datetime | None) -> Dataset:
        """What was measured of a task: before `begin`, if given."""
        key, session = state.task.workload_key, state.session
        if session is None or not session.measured:  # recorded, and not resumed yet, or complete
            known = self.recorded.get(key, ()) if session is None else session.records.values()
            found = sorted(_before(known, begin), key=lambda r: (r.round, r.slot))
            return dataset_of({key: state.task.prim_func}, found)[0]
        before = {(r.round, r.slot) for r in _before(session.records.values(), begin)}
        told = [
            m
            for place, m in sorted(session.measured.items())
            if place in before and m.status not in UNTOLD
        ]
        if not told:
            return Dataset.empty()
        # The session's search has looked at all of them: no trace is replayed again.
        population = session.space.population([(m.variant, dict(m.values)) for m in told])
        return Dataset.of(session.space, population, np.array([m.seconds for m in told]), key)


def _before(records: Iterable[Record], begin: datetime | None) -> list[Record]:
    """The trials that were made before `begin`; all, if it is None."""
    return [r for r in records if r.kind == TRIAL and (begin is None or r.created_at < begin)]
