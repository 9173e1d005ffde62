"""The finalists' times: measured again where the machine was slower, and not where they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tuning_doubles import FakePool

import autosched as at
from autosched.tuning.finale import ATTEMPTS
from measure.status import Distribution


class _Spells(FakePool):
    """Slower by `factors[n]` in the n-th finale, by the last of them from then on."""

    def __init__(self, factors: Sequence[float]) -> None:
        super().__init__()
        self.factors = factors
        self.finales = 0

    def remeasure(self, *args: Any, **more: Any) -> list[Distribution]:
        factor = self.factors[min(self.finales, len(self.factors) - 1)]
        self.finales += 1
        return [
            replace(d, seconds=d.seconds and factor * d.seconds)
            for d in super().remeasure(*args, **more)
        ]


@pytest.mark.parametrize(
    ("factors", "finales", "kept"),
    [
        ((1.0,), 1, 1.0),
        ((1.2,), 1, 1.2),  # what noise does: the time stands
        ((2.0, 1.0), 2, 1.0),
        ((2.0, 2.2, 1.1), 3, 1.1),
        ((2.0, 1.9, 2.1), ATTEMPTS, 1.9),  # it is as slow as that now
    ],
    ids=["steady", "noise", "one spell", "a long spell", "for good"],
)
def test_a_slow_spell_is_waited_for(factors: Sequence[float], finales: int, kept: float) -> None:
    pool = _Spells(factors)
    task = at.SearchTask("matmul", (8, 9, 10))
    result = task.tune(at.TuningOptions(num_measure_trials=8, pool=pool, verbose=0))
    assert pool.finales == finales
    assert result.best.seconds is not None
    assert result.best_seconds == pytest.approx(kept * result.best.seconds)
