"""The roofline as a cost model, corrected by what has been measured."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from autosched.search.model import HasSpace, Scores, Seconds
from autosched.sketch.space import Population
from cost_model.correction import Correction, fit_correction
from cost_model.evaluation import RAW, evaluator_of, summary


class AnalyticModel:
    """Predicts -log(seconds). `fit` gives a model that corrects itself by measurements."""

    def __init__(self, correction: Correction | None = None) -> None:
        self.correction = correction

    def seconds(
        self, task: HasSpace, population: Population
    ) -> tuple[Seconds, npt.NDArray[np.float64]]:
        """(predicted seconds (N,), infinite where not legal; features (N, F) of the correction)."""
        space = task.space
        seconds = np.full(len(population), np.inf)
        table = np.zeros((len(population), RAW + len(space.variants)))
        for part in evaluator_of(space).parts(population):
            found, valid, raw = part.results[0], part.results[1], part.results[2:]
            seconds[part.rows] = np.where(valid > 0.0, found, np.inf)
            table[part.rows, :RAW] = summary(found, raw)
            table[part.rows, RAW + part.variant] = 1.0
        return seconds, table

    def predict(self, task: HasSpace, population: Population) -> Scores:
        """float32 (N,): -log(seconds), minus infinity where a candidate is not legal."""
        seconds, features = self.seconds(task, population)
        with np.errstate(divide="ignore"):
            scores = -np.log(seconds)
        if self.correction is not None:
            scores = scores - self.correction.residual(features)
        return scores.astype(np.float32)

    def fit(self, task: HasSpace, population: Population, seconds: Seconds) -> AnalyticModel:
        """A model whose errors on the candidates measured are taken out, near them and along
        features."""
        if not len(population):
            return AnalyticModel()
        predicted, features = self.seconds(task, population)
        known = np.isfinite(predicted)
        return AnalyticModel(fit_correction(features[known], predicted[known], seconds[known]))
