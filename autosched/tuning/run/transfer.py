"""What a task's search knows of the other tasks of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from autosched.tuning.models import XGBModel
from autosched.tuning.policy import SketchPolicy
from cost_model.dataset import dataset_of
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
        trials: list[Record] = []
        programs = {}
        for state in self.states():
            key = state.task.workload_key
            if state.task is task:
                continue
            session = state.session
            known = self.recorded.get(key, ()) if session is None else session.records.trials()
            found = [
                r for r in known if r.kind == TRIAL and (begin is None or r.created_at < begin)
            ]
            if found:
                programs[key] = state.task.prim_func
                trials += sorted(found, key=lambda r: (r.round, r.slot))
        model = XGBModel(self.seed)
        if trials:
            model.train(dataset_of(programs, trials)[0])
        return SketchPolicy(task, model, seed=self.seed)
