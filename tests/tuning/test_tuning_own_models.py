"""Cost models of the user's own: what they may give, and what is said where they give another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tuning_doubles import FakePool

import autosched as at
from autosched.errors import TuningError
from autosched.search.model import NoDoubts


class OwnModel:
    """Gives what `make` makes of the number of candidates."""

    def __init__(self, make: Callable[[int], Any], fitted: Callable[[], Any] | None = None) -> None:
        self.make, self.fitted = make, fitted

    def predict(self, task: Any, population: Any) -> Any:
        return self.make(len(population))

    def fit(self, task: Any, population: Any, seconds: Any) -> Any:
        return self if self.fitted is None else self.fitted()


@pytest.fixture(scope="module")
def task() -> at.SearchTask:
    return at.SearchTask("matmul", (32, 24, 40))


def tune(task: at.SearchTask, model: Any) -> int:
    pool = FakePool()
    options = at.TuningOptions(24, pool=pool, num_measures_per_round=8, verbose=0)  # type: ignore[arg-type]
    task.tune(options, at.SketchPolicy(task, model))
    return len(pool.measured)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: [float(k) for k in range(n)],
        lambda n: list(range(n)),
        lambda n: np.arange(n, dtype=np.uint8),
        lambda n: np.arange(n, dtype=np.float64),
        lambda n: [-np.inf] * (n - 1) + [1.0],
    ],
    ids=["list", "ints", "uint8", "float64", "one alone"],
)
def test_numbers_one_a_candidate_are_accepted(
    task: at.SearchTask, make: Callable[[int], Any]
) -> None:
    assert tune(task, OwnModel(make)) > 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n: None, "predict of the cost model OwnModel returned object values; expected"),
        (lambda n: [1.0] * (n + 1), r"OwnModel returned the shape \(\d+,\); expected \d+ numbers"),
        (lambda n: [], r"OwnModel returned the shape \(0,\); expected"),
        (lambda n: 1.0, r"OwnModel returned the shape \(\); expected"),
        (lambda n: np.zeros((n, 1)), r"OwnModel returned the shape \(\d+, 1\); expected"),
        (lambda n: np.full(n, np.nan), "returned nan for candidate 0, and .* such of"),
        (lambda n: np.full(n, np.inf), "returned inf for candidate 0, .*; expected finite numbers"),
        (lambda n: ["a"] * n, "OwnModel returned <U1 values; expected"),
        (lambda n: [1j] * n, "OwnModel returned complex128 values; expected"),
        (lambda n: [[1.0], [1.0, 2.0]], "OwnModel returned list; expected"),
        (lambda n: {"a": 1}, "OwnModel returned object values"),
        (lambda n: 1 // 0, "predict of the cost model OwnModel raised ZeroDivisionError"),
    ],
    ids=[
        "None", "longer", "empty", "number", "matrix", "NaN", "infinite", "texts", "complex",
        "ragged", "dict", "raises",
    ],
)  # fmt: skip
def test_all_else_is_refused_by_the_name_of_the_class(
    task: at.SearchTask, make: Callable[[int], Any], message: str
) -> None:
    with pytest.raises(TuningError, match=message):
        tune(task, OwnModel(make))
    with pytest.raises(TuningError, match=message):
        at.SketchPolicy(task, OwnModel(make)).evolutionary_search()


@pytest.mark.parametrize(
    ("fitted", "message"),
    [
        (lambda: 5, "fit of the cost model OwnModel returned int; expected a model with predict"),
        (lambda: OwnModel, "fit of the cost model OwnModel returned type; expected a model"),
        (lambda: [][1], "fit of the cost model OwnModel raised IndexError: list index"),
    ],
)
def test_what_fit_returns_is_a_model(
    task: at.SearchTask, fitted: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TuningError, match=message):
        tune(task, OwnModel(lambda n: np.zeros(n), fitted))


def test_a_class_is_no_model(task: at.SearchTask) -> None:
    with pytest.raises(TuningError, match="expected a model with predict and fit"):
        at.SketchPolicy(task, at.XGBModel)  # type: ignore[arg-type]


def test_a_model_that_wants_nothing_built_is_named(
    task: at.SearchTask, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert tune(task, OwnModel(lambda n: np.full(n, -np.inf))) <= 1  # the baseline
    assert "the cost model OwnModel gives minus infinity to every candidate" in caplog.text


def test_doubts_that_are_not_one_a_candidate_are_refused(task: at.SearchTask) -> None:
    class Doubtful(OwnModel):
        def doubts(self, task: Any, population: Any) -> NoDoubts:
            return NoDoubts(len(population) + 1)

    with pytest.raises(TuningError, match=r"doubts of the cost model Doubtful returned the shape"):
        tune(task, Doubtful(lambda n: np.zeros(n)))
