"""A model that knows nothing: the baseline of every comparison of searches."""

from __future__ import annotations

import numpy as np

from autosched.errors import AutoschedError
from autosched.integers import integer
from autosched.search.model import HasSpace, Scores, Seconds, check_asked
from autosched.sketch.space import Population
from cost_model.evaluation import evaluator_of


class RandomModel:
    """Uniform scores, drawn from a seed and from the candidate: equal candidates score the same."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = integer("seed", seed, 0, AutoschedError)

    def predict(self, task: HasSpace, population: Population) -> Scores:
        """float32 (N,) in [0, 1); minus infinity for candidates that are not legal."""
        check_asked(task, population)
        table = np.concatenate([population.variant[:, None], population.values], axis=1).astype(
            np.uint64
        )
        state = np.full(len(population), 0x9E3779B97F4A7C15 + self.seed, dtype=np.uint64)
        for column in table.T:  # splitmix64, a column at a time
            state = (state ^ column) * np.uint64(0xBF58476D1CE4E5B9)
            state ^= state >> np.uint64(31)
        scores = (state >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
        found = np.full(len(population), -np.inf, dtype=np.float32)
        for part in evaluator_of(task.space).parts(population):
            rows = part.rows[part.results[1] > 0.0]
            found[rows] = scores[rows]
        return found

    def fit(self, task: HasSpace, population: Population, seconds: Seconds) -> RandomModel:
        """Learns nothing."""
        check_asked(task, population)
        return self
