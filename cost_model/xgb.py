"""Gradient-boosted trees over the features of stores (Chen and Guestrin, XGBoost, KDD 2016).

A candidate's score is what the roofline predicts as its share of the task's bound, plus the sum
over its stores of what the trees say (Ansor's pack-sum). So a model without data is the roofline,
and trees learn what it gets wrong. Failures are data: candidates with a share of 0.

Trees are few and shallow, since thousands of candidates are scored a round; see `Boosting`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from autosched.errors import AutoschedError
from autosched.search.evaluate import Part
from autosched.search.model import HasSpace, Scores, Seconds
from autosched.sketch.space import Population
from cost_model.dataset import Dataset, share_of
from cost_model.evaluation import MACHINE, evaluator_of
from cost_model.features import NAMES, WIDTH
from cost_model.roofline import bound_seconds

if TYPE_CHECKING:
    import xgboost

FORMAT = 1
"""Version of the files that `save` writes."""


@dataclass(frozen=True)
class Boosting:
    """How trees are grown.

    `trees` are at most grown on a data set, fewer where the held-out part stops improving; a search
    adds at most `own_trees` for its own task to those of a pretrained model. `held_out`: share of
    the candidates held out, once there are `enough` of them. `weight`: of a candidate with a share
    of nothing; the best of its task weighs 1.
    """

    trees: int = 64
    own_trees: int = 48
    depth: int = 6
    rate: float = 0.15
    bins: int = 64
    smallest: float = 2.0
    held_out: float = 0.2
    patience: int = 8
    enough: int = 64
    weight: float = 0.25
    first: int = 8
    """Candidates below which nothing is learned."""


class BoostedModel:
    """Scores shares of the bound. Deterministic: the same data, order and seed give the same
    trees."""

    def __init__(self, seed: int = 0, boosting: Boosting | None = None) -> None:
        self.seed = seed
        self.boosting = boosting or Boosting()
        self.data = Dataset.empty()
        self._booster: xgboost.Booster | None = None

    # Scoring ----------------------------------------------------------------------------------

    def predict(self, task: HasSpace, population: Population) -> Scores:
        """float32 (N,): the share of the bound expected; minus infinity for candidates that are not
        legal."""
        space = task.space
        bound = bound_seconds(space.func, space.target, MACHINE)

        def score(part: Part) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
            found = share_of(bound, part.results[0])
            if self._booster is not None:
                stores = part.table.shape[1] // WIDTH
                said = self._said(part.table.reshape(-1, WIDTH))
                found = found + said.reshape(-1, stores).sum(axis=1, dtype=np.float64)
            return part.rows, np.where(part.results[1] > 0.0, found, -np.inf)

        scores = np.full(len(population), -np.inf, dtype=np.float32)
        for rows, found in evaluator_of(space).map(population, score):
            scores[rows] = found
        return scores

    def predict_data(self, data: Dataset) -> npt.NDArray[np.float64]:
        """The same for a data set, shape (P,)."""
        if self._booster is None or not len(data):
            return data.prior
        return data.prior + np.add.reduceat(self._said(data.rows), data.starts[:-1])

    def _said(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What the trees say of every store."""
        assert self._booster is not None
        found: npt.NDArray[np.float32] = self._booster.inplace_predict(
            rows, predict_type="margin", validate_features=False
        )
        return found

    # Learning ---------------------------------------------------------------------------------

    def fit(self, task: HasSpace, population: Population, seconds: Seconds) -> BoostedModel:
        """A model that has also learned from these measurements of one task. Its trees come after
        those of this model, which is left as it is."""
        found = self._copy()
        if len(population) >= self.boosting.first:
            mine = Dataset.of(task, population, seconds)
            found._booster = self._grown(mine, self.boosting.own_trees, self._booster)
        return found

    def train(self, data: Dataset) -> Self:
        """Learn from a data set and all that was learned from before, afresh; returns itself."""
        self.data = Dataset.concat([self.data, data])
        if len(self.data) >= self.boosting.first:
            self._booster = self._grown(self.data, self.boosting.trees, None)
        return self

    def _copy(self) -> BoostedModel:
        found = BoostedModel(self.seed, self.boosting)
        found._booster = self._booster
        return found

    def _grown(self, data: Dataset, trees: int, before: xgboost.Booster | None) -> xgboost.Booster:
        """Trees for what the prior and the trees `before` get wrong."""
        import xgboost

        b = self.boosting
        rng = np.random.default_rng(self.seed)
        held = rng.random(len(data)) < b.held_out
        if len(data) < b.enough or not held.any():
            held[:] = False
        learned = _Pack.of(data.take(~held), b.weight)
        matrix = learned.matrix()
        watched = [_Pack.of(data.take(held), b.weight)] if held.any() else []
        evals = [(w.matrix(), "held_out") for w in watched]
        packs = {id(m): w for (m, _), w in zip(evals, watched, strict=True)} | {id(matrix): learned}
        params = {
            "max_depth": b.depth,
            "eta": b.rate,
            "max_bin": b.bins,
            "min_child_weight": b.smallest,
            "tree_method": "hist",
            "base_score": 0.0,
            "nthread": 1,
            "seed": self.seed,
            "disable_default_eval_metric": True,
            "verbosity": 1,
        }
        found = xgboost.train(
            params,
            matrix,
            num_boost_round=trees,
            obj=lambda said, m: packs[id(m)].gradient(said),
            custom_metric=lambda said, m: ("error", packs[id(m)].error(said)),
            evals=evals,
            early_stopping_rounds=b.patience if evals else None,
            verbose_eval=False,
            xgb_model=before,
        )
        return found[: found.best_iteration + 1] if evals else found

    # Files ------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `path`.json (trees and options) and `path`.npz (the data learned from)."""
        booster = self._booster
        saved = {
            "format": FORMAT,
            "features": list(NAMES),
            "seed": self.seed,
            "boosting": asdict(self.boosting),
            "trees": None if booster is None else json.loads(bytes(booster.save_raw("json"))),
        }
        text, data = _files(path)
        with data.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.data.arrays())
        text.write_text(json.dumps(saved), encoding="utf-8")

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Become what `save` wrote; returns itself. Raises AutoschedError for another format or
        other features, OSError where there is no file."""
        text, data = _files(path)
        saved = json.loads(text.read_text(encoding="utf-8"))
        if not isinstance(saved, Mapping) or saved.get("format") != FORMAT:
            raise AutoschedError(
                f"{text} is no cost model of format {FORMAT}; train the model again"
            )
        if saved["features"] != list(NAMES):
            raise AutoschedError(
                f"{text} was trained on other features than this version has; train it again"
            )
        self.seed = int(saved["seed"])
        self.boosting = replace(Boosting(), **saved["boosting"])
        with np.load(data, allow_pickle=False) as arrays:
            self.data = Dataset.from_arrays(arrays)
        self._booster = None if saved["trees"] is None else _booster(saved["trees"])
        return self


def _files(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    base = Path(path)
    base = base.with_suffix("") if base.suffix in (".json", ".npz") else base
    return base.with_name(base.name + ".json"), base.with_name(base.name + ".npz")


def _booster(trees: Any) -> xgboost.Booster:
    import xgboost

    found = xgboost.Booster({"nthread": 1})
    found.load_model(bytearray(json.dumps(trees).encode()))
    return found


@dataclass(frozen=True)
class _Pack:
    """Candidates as the objective sees them: one error a candidate, shared by its stores."""

    data: Dataset
    weight: npt.NDArray[np.float64]

    @staticmethod
    def of(data: Dataset, least: float) -> _Pack:
        """Weights rise with the share of the best of the task: the ranking matters at the top."""
        best = np.zeros(max(len(data.tasks), 1))
        np.maximum.at(best, data.task, data.label)
        share = data.label / np.maximum(best[data.task], 1e-12)
        return _Pack(data, least + (1.0 - least) * share)

    def matrix(self) -> xgboost.DMatrix:
        """The stores' rows."""
        import xgboost

        return xgboost.DMatrix(self.data.rows, nthread=1)

    def missing(self, said: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """By how much each candidate's score is too high."""
        sums = np.add.reduceat(np.asarray(said, dtype=np.float64), self.data.starts[:-1])
        found: npt.NDArray[np.float64] = self.data.prior + sums - self.data.label
        return found

    def gradient(
        self, said: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """First and second derivative of half the weighted square error by each row's score."""
        counts = np.diff(self.data.starts)
        weight = np.repeat(self.weight, counts)
        first = np.repeat(self.missing(said), counts) * weight
        return first.astype(np.float32), weight.astype(np.float32)

    def error(self, said: npt.NDArray[Any]) -> float:
        """Weighted root mean square error."""
        off = self.missing(said) ** 2 * self.weight
        return float(np.sqrt(off.sum() / self.weight.sum()))
