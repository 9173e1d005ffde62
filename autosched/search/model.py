"""What the search asks of a cost model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from autosched.checks import instance
from autosched.errors import TuningError
from autosched.sketch.space import Population, Space

Scores = npt.NDArray[np.float32]
Seconds = npt.NDArray[np.float64]


class HasSpace(Protocol):
    """A task, or a space, which stands for itself."""

    @property
    def space(self) -> Space:
        """All candidates of the workload on the target."""
        ...


@runtime_checkable
class CostModel(Protocol):
    """Scores candidates of a task; higher is better. Scores are only compared within one call."""

    def predict(self, task: HasSpace, population: Population) -> Scores:
        """float32 of shape (N,); minus infinity marks candidates that are not worth building."""
        ...

    def fit(self, task: HasSpace, population: Population, seconds: Seconds) -> CostModel:
        """A model that has also learned from these measurements; this one is left as it is.

        `seconds` is float64 of shape (N,), infinite for candidates that failed. Must be a pure
        function of its arguments, so that a resumed search proposes what the first run did.
        """
        ...


class Doubts(Protocol):
    """How far the scores of N candidates may be off."""

    @property
    def deviations(self) -> Seconds:
        """Standard deviations of the scores, float64 (N,), 0 or more."""
        ...

    def expect(self, row: int) -> None:
        """One of them is going to be measured: so much less will be in doubt of what is like it."""
        ...


class NoDoubts:
    """What a model that does not know says of N scores."""

    def __init__(self, n: int) -> None:
        self.deviations = np.zeros(n)

    def expect(self, row: int) -> None:
        """It changes nothing."""


@runtime_checkable
class Estimator(Protocol):
    """A cost model that also knows how far its scores may be off."""

    def doubts(self, task: HasSpace, population: Population) -> Doubts:
        """What is in doubt of the candidates, before any of them is going to be measured."""
        ...


class CheckedModel:
    """A model of anybody's, held to what `CostModel` says: TuningError names its class, what it
    gave, and what was expected. `clock` is told the seconds that each training takes."""

    def __init__(self, model: CostModel, clock: Callable[[float], None] | None = None) -> None:
        self.model, self.clock = model, clock

    @property
    def name(self) -> str:
        """The class of the model."""
        return type(self.model).__name__

    def predict(self, task: HasSpace, population: Population) -> Scores:
        """The model's scores, of a floating type; a list of them will do."""
        return self._scores(lambda: self.model.predict(task, population), "predict", population)

    def doubts(self, task: HasSpace, population: Population) -> Doubts:
        """How far the scores may be off: 0 of a model that does not know."""
        found: list[Doubts] = []
        model = self.model
        if not isinstance(model, Estimator):
            return NoDoubts(len(population))

        def ask() -> Seconds:
            found.append(model.doubts(task, population))
            return found[0].deviations

        self._scores(ask, "doubts", population)
        return found[0]

    def _scores(self, ask: Callable[[], Any], what: str, population: Population) -> Scores:
        n, source = len(population), f"{what} of the cost model {self.name}"
        expected = f"expected {n} numbers, one a candidate: float32 of shape ({n},)"
        try:
            given: Any = ask()
        except Exception as e:
            raise TuningError(f"{source} raised {type(e).__name__}: {e}; {expected}") from e
        found = _array(given)
        if found is None or found.dtype.kind not in "iuf":
            kind = type(given).__name__ if found is None else f"{found.dtype} values"
            raise TuningError(f"{source} returned {kind}; {expected}")
        if found.shape != (n,):
            raise TuningError(f"{source} returned the shape {found.shape}; {expected}")
        wrong = np.flatnonzero(np.isnan(found) | (found == np.inf))
        if len(wrong):
            raise TuningError(
                f"{source} returned {found[wrong[0]]} for candidate {wrong[0]}, and {len(wrong)} "
                f"such of {n}; expected finite numbers, or minus infinity for what is not worth "
                "building"
            )
        return found if found.dtype.kind == "f" else found.astype(np.float64)

    def fit(self, task: HasSpace, population: Population, seconds: Seconds) -> CheckedModel:
        """The model that the model returns."""
        began = time.perf_counter()
        expected = "expected a model with predict and fit, such as itself"
        try:
            found: Any = self.model.fit(task, population, seconds)
        except Exception as e:
            raise TuningError(
                f"fit of the cost model {self.name} raised {type(e).__name__}: {e}; {expected}"
            ) from e
        if not is_model(found):
            raise TuningError(
                f"fit of the cost model {self.name} returned {type(found).__name__}; {expected}"
            )
        if self.clock is not None:
            self.clock(time.perf_counter() - began)
        return CheckedModel(found, self.clock)


def is_model(value: object) -> bool:
    """Whether something can be asked as a `CostModel`; a class of models is none."""
    return isinstance(value, CostModel) and not isinstance(value, type)


def _array(given: Any) -> npt.NDArray[Any] | None:
    """Scores as an array; None for what is none."""
    try:
        return np.asarray(given)
    except (TypeError, ValueError):
        return None


def check_asked(task: object, population: object) -> None:
    """Raise TuningError for what no model can be asked of."""
    expected = "a SearchTask, or a space"
    if not isinstance(task, Space):
        instance("task", getattr(task, "space", task), Space, expected, TuningError)
    instance("population", population, Population, "a Population of candidates", TuningError)
