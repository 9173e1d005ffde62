"""What the search asks of a cost model."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

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
