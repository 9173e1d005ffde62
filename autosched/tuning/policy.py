"""`SketchPolicy`: how candidates are found: sketches, a cost model, and evolutionary search."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autosched.search.evolution import EvolutionarySearch, Measured, SearchParams
from autosched.search.model import CostModel
from autosched.sketch.space import Candidate, Population, Variant
from autosched.tuning.best import RecordsLike
from autosched.tuning.history import Reading
from records import TRIAL, open_records

if TYPE_CHECKING:
    from autosched.tuning.task import SearchTask

PRELOADED_ROUND = -2
"""The round of what was measured before the search began: all rounds may use it."""


class PreloadMeasuredStates:
    """What `records` (a log, a SQLite file, a database URL, an open source) holds of a task: its
    search starts from the best of them, learns from all, and measures none again."""

    def __init__(self, records: RecordsLike) -> None:
        self.records = records

    def measured(self, task: SearchTask) -> list[Measured]:
        """The task's trials that are candidates of its space, in the order of their ids."""
        if isinstance(self.records, (str, os.PathLike)):
            with open_records(self.records) as source:
                return PreloadMeasuredStates(source).measured(task)
        found = self.records.records(
            workload_key=task.workload_key, target=str(task.target), kind=TRIAL
        )
        return Reading(task.space).measured(found, PRELOADED_ROUND)


class SketchPolicy:
    """Evolutionary search over the sketches of a task, guided by a cost model.

    `cost_model` is the default model where left out. `seed` governs everything random; tuning
    takes the seed of its options instead. `init_search_callbacks`: what is known beforehand.
    """

    def __init__(
        self,
        task: SearchTask,
        cost_model: CostModel | None = None,
        params: SearchParams | None = None,
        seed: int = 0,
        init_search_callbacks: Sequence[PreloadMeasuredStates] = (),
    ) -> None:
        from autosched.tuning.models import default_model

        self.task = task
        self.cost_model = default_model(seed) if cost_model is None else cost_model
        self.params = params or SearchParams()
        self.seed = seed
        self.init_search_callbacks = tuple(init_search_callbacks)

    def generate_sketches(self) -> tuple[Variant, ...]:
        """The sketches: structures whose integers are still free, by name and as traces."""
        return self.task.space.variants

    def sample_initial_population(self, n: int) -> Population:
        """`n` random candidates; fewer where the space is small and they would repeat."""
        return self.search(self.seed, self.params.round_size).sample(n)

    def evolutionary_search(self, n: int | None = None) -> list[Candidate]:
        """The `n` candidates (default: a round) that would be measured first, best first."""
        size = self.params.round_size if n is None else n
        return self.search(self.seed, size).propose(0, size, self.preloaded())

    def search(
        self, seed: int, round_size: int, model: CostModel | None = None
    ) -> EvolutionarySearch:
        """The search of a run with rounds of `round_size` candidates, by `model` in place of the
        policy's where given."""
        params = replace(self.params, round_size=round_size)
        return EvolutionarySearch(self.task.space, model or self.cost_model, seed, params)

    def preloaded(self) -> list[Measured]:
        """What is known before the first round."""
        return [m for c in self.init_search_callbacks for m in c.measured(self.task)]
