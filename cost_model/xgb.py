"""The cost model: a roofline, gradient-boosted trees for what it gets wrong, and a correction.

A candidate's score is the logarithm of the share of the task's bound that it is expected to reach:
what the roofline predicts, plus the sum over its stores of what trees say of their features
(XGBoost, Chen and Guestrin, KDD 2016; the sum is Ansor's pack-sum), less what a Gaussian process
over a dozen features of the program and its decisions learned of this task's errors.

Without data it is the roofline alone. Trees grown on what many tasks have in common (`train`)
correct it for all. What a task's own measurements say is learned twice, by the Gaussian process,
which a few points suffice for, and by trees of its own once there are `enough`; the two err
differently, so their mean is taken. Failures are data.

Trees are few and shallow, since thousands of candidates are scored a round; see `Boosting`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from autosched.checks import instance, path_text, shown
from autosched.errors import AutoschedError
from autosched.extras import require
from autosched.integers import integer
from autosched.search.evaluate import Part
from autosched.search.model import HasSpace, Scores, Seconds, check_asked
from autosched.sketch.space import Population, Space
from autosched.tir.affine import IntArray
from cost_model.boosting import Boosting, Forest, held_out_of, telling
from cost_model.correction import Correction, Expected, fit_correction
from cost_model.dataset import Dataset, Floats, log_share
from cost_model.evaluation import RAW, evaluator_of, summary
from cost_model.features import NAMES, WIDTH
from cost_model.objective import Pack
from cost_model.roofline import bound_seconds

if TYPE_CHECKING:
    import xgboost

T = TypeVar("T")
DECISIONS = 0.5
"""Distance in feature space of two candidates one of whose tile factors is twice the other's."""
OWN, CHOICE = 1.0, 3.0
"""Values of the features that say which variant a candidate is and which choices it is made of.
CHOICE is larger, so that what is not known of a choice is known of no candidate made with it."""
_UNREADABLE = (BadZipFile, zlib.error, EOFError, RuntimeError)
"""What reading a damaged archive raises, besides ValueError; the last one for its flags."""
FORMAT = 5
"""Version of the files that `save` writes. What a model learned is of the roofline and the features
of one version, so no other is read."""


class BoostedModel:
    """Scores in logarithms of shares. Deterministic: the same data, order and seed give the same
    trees. Raises MissingPackage without XGBoost: at once, not in the middle of a run."""

    def __init__(self, seed: int = 0, boosting: Boosting | None = None) -> None:
        require("the cost model of tuning", "xgboost")
        self.seed = integer("seed", seed, 0, AutoschedError)
        kinds = (Boosting, type(None))
        instance("boosting", boosting, kinds, "a cost_model.xgb.Boosting", AutoschedError)
        self.boosting = Boosting() if boosting is None else boosting
        self.data = Dataset.empty()
        self._shared: xgboost.Booster | None = None
        self._own: xgboost.Booster | None = None
        self._correction: Correction | None = None

    # Scoring ----------------------------------------------------------------------------------

    def predict(self, task: HasSpace, population: Population) -> Scores:
        """float32 (N,): the logarithm of the share of the bound expected; minus infinity for
        candidates that are not legal. Raises AutoschedError where `fit` was given a task whose
        candidates are others."""
        check_asked(task, population)
        own, correction = self._own, self._correction

        def score(part: Part, found: Floats, features: Floats) -> Floats:
            learned = [] if own is None else [_of_stores(own, part)]
            if correction is not None:
                _check_fitted(correction, task.space, features)
                learned.append(-correction.excess(features))
            return found + sum(learned) / len(learned) if learned else found

        scores = np.full(len(population), -np.inf, dtype=np.float32)
        for rows, found in self._looked(task, population, score):
            scores[rows] = found
        return scores

    def doubts(self, task: HasSpace, population: Population) -> Expected:
        """How far scores may be off, by the Gaussian process. Raises AutoschedError as `predict`
        does."""
        check_asked(task, population)
        features = np.zeros((len(population), _width(task.space)))
        if self._correction is not None:
            _check_fitted(self._correction, task.space, features)
        for rows, found in self._looked(task, population, lambda _, __, table: table):
            features[rows] = found
        return Expected(features, self._correction)

    def _looked(
        self,
        task: HasSpace,
        population: Population,
        then: Callable[[Part, Floats, Floats], T],
    ) -> list[tuple[IntArray, T]]:
        """(rows, what `then` makes of a part, of the scores by what is shared, and of the features
        that corrections are a function of) for all candidates that replay."""
        space = task.space
        bound = bound_seconds(space.func, space.target)
        structures = _structures(space)
        start = RAW + structures.shape[1]
        decided = DECISIONS * np.log2(1.0 + population.values)

        def look(part: Part) -> tuple[IntArray, T]:
            seconds, valid, raw = part.results[0], part.results[1], part.results[2:]
            found = log_share(bound, seconds)
            if self._shared is not None:
                found = found + _of_stores(self._shared, part)
            features = np.zeros((len(part.rows), _width(space)))
            features[:, :RAW] = summary(seconds, raw)
            features[:, RAW:start] = structures[part.variant]
            features[:, start:] = decided[part.rows]
            return part.rows, then(part, np.where(valid > 0.0, found, -np.inf), features)

        return evaluator_of(space).map(population, look)

    def predict_data(self, data: Dataset) -> Floats:
        """Scores of a data set, shape (P,), by its prior and the shared trees."""
        instance("data", data, Dataset, "a cost_model.dataset.Dataset", AutoschedError)
        if self._shared is None or not len(data):
            return data.prior
        return data.prior + _summed(_said(self._shared, data.rows), data)

    # Learning ---------------------------------------------------------------------------------

    def fit(self, task: HasSpace, population: Population, seconds: Seconds) -> Self:
        """A model that has also learned from these measurements of one task, in addition to what
        this model, which is left as it is, learned from others."""
        check_asked(task, population)
        times = _seconds(seconds, len(population))
        found = copy.copy(self)
        found._own = None
        rows = telling(times, self.boosting.kept)
        population, seconds = population.take(rows), times[rows]
        if len(population) >= self.boosting.enough:
            mine = Dataset.of(task, population, seconds)
            rest = replace(mine, prior=self.predict_data(mine))
            found._own = self._grown(rest, self.boosting.own)
        found._correction = self._corrected(task, population, seconds)
        return found

    def _corrected(
        self, task: HasSpace, population: Population, seconds: Seconds
    ) -> Correction | None:
        space = task.space
        scores = np.full(len(population), -np.inf)
        features = np.zeros((len(population), _width(space)))
        for rows, (found, table) in self._looked(task, population, lambda _, s, f: (s, f)):
            scores[rows], features[rows] = found, table
        known = np.isfinite(scores)
        bound = bound_seconds(space.func, space.target)
        return fit_correction(
            features[known], scores[known], log_share(bound, np.asarray(seconds)[known])
        )

    def train(self, data: Dataset) -> Self:
        """Learn from a data set and all that was learned from before, afresh; returns itself."""
        instance("data", data, Dataset, "a cost_model.dataset.Dataset", AutoschedError)
        self.data = Dataset.concat([self.data, data])
        if len(self.data):
            self._shared = self._grown(self.data, self.boosting.shared)
        return self

    def _grown(self, data: Dataset, forest: Forest) -> xgboost.Booster:
        """Trees for what the prior gets wrong, grown on all of the data: as many as were best for a
        part of it that others, grown without it, were held against."""
        b = self.boosting
        held = held_out_of(data, b, np.random.default_rng(self.seed))
        trees = forest.trees
        if held.any():
            watched = Pack.of(data.take(held), b.weight)
            first = self._boosted(data.take(~held), forest, trees, watched)
            trees = first.best_iteration + 1
        return self._boosted(data, forest, trees)

    def _boosted(
        self, data: Dataset, forest: Forest, trees: int, watched: Pack | None = None
    ) -> xgboost.Booster:
        """So many trees; with `watched` no more than improve what is said of that."""
        import xgboost

        b = self.boosting
        learned = Pack.of(data, b.weight)
        matrix = learned.matrix()
        evals: list[tuple[xgboost.DMatrix, str]] = []
        packs = {id(matrix): learned}
        if watched is not None:
            evals = [(watched.matrix(), "held_out")]
            packs[id(evals[0][0])] = watched
        params = {
            "max_depth": forest.depth,
            "eta": forest.rate,
            "max_bin": b.bins,
            "min_child_weight": forest.smallest,
            "tree_method": "hist",
            "base_score": 0.0,
            "nthread": 1,
            "seed": self.seed,
            "disable_default_eval_metric": True,
            "verbosity": 1,
        }
        return xgboost.train(
            params,
            matrix,
            num_boost_round=trees,
            obj=lambda said, m: packs[id(m)].gradient(said),
            custom_metric=lambda said, m: ("error", packs[id(m)].error(said)),
            evals=evals,
            early_stopping_rounds=b.early_stopping_rounds if evals else None,
            verbose_eval=False,
        )

    # Files ------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `path`.json (trees and options) and `path`.npz (the data learned from, and what
        `fit` learned beside trees), all that predictions depend on. Raises AutoschedError for a
        path that is none, OSError where nothing can be written."""
        text, data = _files(path)
        arrays = self.data.arrays()
        if self._correction is not None:
            arrays |= self._correction.arrays()
        with data.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        saved = {
            "format": FORMAT,
            "features": list(NAMES),
            "seed": self.seed,
            "boosting": asdict(self.boosting),
            "trees": _trees(self._shared),
            "own": _trees(self._own),
            "corrected": self._correction is not None,
            "data": hashlib.sha256(data.read_bytes()).hexdigest(),
        }
        text.write_text(json.dumps(saved), encoding="utf-8")

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Become what `save` wrote; returns itself, unchanged where it raises: AutoschedError for
        files of another format or other features, damaged ones, and two of different models,
        OSError where there are none."""
        text, data = _files(path)
        written = text.read_bytes()
        try:
            saved = json.loads(written)
        except (ValueError, RecursionError) as e:
            raise _damaged(text, e) from e
        if not isinstance(saved, Mapping) or saved.get("format") != FORMAT:
            raise AutoschedError(
                f"{text} is no cost model of this version (format {FORMAT}); train the model again"
            )
        if saved.get("features") != list(NAMES):
            raise AutoschedError(
                f"{text} was trained on other features than this version has; train it again"
            )
        try:
            options = dict(saved["boosting"])
            shared, own = (Forest(**options.pop(name)) for name in ("shared", "own"))
            found = BoostedModel(saved["seed"], Boosting(shared, own, **options))
            found._shared, found._own = _booster(saved["trees"]), _booster(saved["own"])
            corrected, digest = saved["corrected"], saved["data"]
        except (LookupError, TypeError, ValueError, AutoschedError) as e:
            raise _damaged(text, e) from e
        if digest != hashlib.sha256(data.read_bytes()).hexdigest():
            raise _damaged(data, ValueError(f"it is not the one that {text} was written with"))
        try:
            with data.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                found.data = Dataset.from_arrays(arrays)
                found._correction = Correction.from_arrays(arrays) if corrected else None
        except (*_UNREADABLE, LookupError, TypeError, ValueError, AutoschedError) as e:
            raise _damaged(data, e) from e
        self.__dict__.update(found.__dict__)
        return self


def _seconds(given: object, n: int) -> Seconds:
    """Measured times, one a candidate. Raises AutoschedError for what is none."""
    expected = f"expected the seconds of {n} candidates, infinite for those that failed"
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise AutoschedError(f"seconds is {shown(given)}; {expected}") from e
    if found.shape != (n,) or not np.all(found > 0):
        raise AutoschedError(f"seconds is {shown(given)}; {expected}, all above 0")
    return found


def _said(trees: xgboost.Booster, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What trees say of every store."""
    found: npt.NDArray[np.float32] = trees.inplace_predict(
        rows, predict_type="margin", validate_features=False
    )
    return found


def _summed(said: npt.NDArray[np.float32], data: Dataset) -> Floats:
    """The sum over the stores of each candidate, shape (P,)."""
    found: Floats = np.add.reduceat(said, data.starts[:-1], dtype=np.float64)
    return found


def _of_stores(trees: xgboost.Booster, part: Part) -> Floats:
    """The sum of what trees say of the stores of each candidate."""
    stores = part.table.shape[1] // WIDTH
    said = _said(trees, part.table.reshape(-1, WIDTH)).reshape(-1, stores)
    found: Floats = said.sum(axis=1, dtype=np.float64)
    return found


def _width(space: Space) -> int:
    """Features of a whole candidate: figures of its program, its structure, its decisions."""
    return RAW + len(space.variants) + int(space.choices.shape[1]) + len(space.names)


def _structures(space: Space) -> Floats:
    """Features of each variant: which one it is, and the choices that it is made of."""
    return np.concatenate([OWN * np.eye(len(space.variants)), CHOICE * space.choices], axis=1)


def _check_fitted(correction: Correction, space: Space, features: Floats) -> None:
    """Raise AutoschedError where a correction is not of these features: they hold which structure
    of the task a candidate has, and its decisions."""
    fitted, given = correction.points.shape[1], features.shape[1]
    if fitted != given:
        raise AutoschedError(
            "this model was fitted to a task whose structures, their choices and decisions are "
            f"{fitted - RAW} features, and is asked of one whose are {given - RAW}; ask the "
            "model that fit was called on, or fit that to this task"
        )


def _files(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    base = Path(path_text("path", path, AutoschedError))
    base = base.with_suffix("") if base.suffix in (".json", ".npz") else base
    if not base.name:
        raise AutoschedError(f"path is {path!r}; expected the name of a file, such as 'model'")
    return base.with_name(base.name + ".json"), base.with_name(base.name + ".npz")


def _damaged(path: Path, reason: Exception) -> AutoschedError:
    return AutoschedError(
        f"{path} is not what a cost model's save wrote: {type(reason).__name__}: "
        f"{str(reason).partition(chr(10))[0]}; save the model again, or train it again"
    )


def _trees(booster: xgboost.Booster | None) -> Any:
    """Trees as JSON values."""
    return None if booster is None else json.loads(bytes(booster.save_raw("json")))


def _booster(trees: Any) -> xgboost.Booster | None:
    """What `_trees` gave."""
    import xgboost

    if trees is None:
        return None
    found = xgboost.Booster({"nthread": 1})
    found.load_model(bytearray(json.dumps(trees).encode()))
    return found
