"""The final re-measurement: finalists that are lost, late or wrong there."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tuning_doubles import FakePool

import autosched as at
from autosched.errors import TuningError
from autosched.tuning.run.finalists import remeasure
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing


class _Endings(FakePool):
    """Whose finalists all end in a status."""

    def __init__(self, *statuses: Status) -> None:
        super().__init__()
        self.statuses = statuses

    def remeasure(self, *args: Any, **more: Any) -> list[MeasureResult]:
        found = super().remeasure(*args, **more)
        ends = [self.statuses[min(n, len(self.statuses) - 1)] for n in range(len(found))]
        return [MeasureResult(status, "on purpose") for status in ends]


def test_the_best_trial_stands_where_all_finalists_are_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """But for one that was found to be wrong."""
    options = {"num_measure_trials": 8, "verbose": 1}
    task = at.SearchTask("matmul", (8, 9, 10))
    usual = task.tune(at.TuningOptions(pool=FakePool(), **options))
    capsys.readouterr()
    lost = task.tune(at.TuningOptions(pool=_Endings(Status.DEVICE_LOST), **options))
    assert (lost.best.kind, lost.best.slot) == (usual.best.kind, usual.best.slot)
    assert lost.best_seconds == lost.best.seconds
    assert lost.best.remeasured_seconds is None
    assert "finalists could be measured again: device_lost" in capsys.readouterr().err
    wrong = _Endings(Status.WRONG_RESULT, Status.DEVICE_LOST)
    other = task.tune(at.TuningOptions(pool=wrong, **options)).best
    assert (other.kind, other.slot) != (usual.best.kind, usual.best.slot)
    with pytest.raises(TuningError, match="could be measured again: wrong_result"):
        task.tune(at.TuningOptions(pool=_Endings(Status.WRONG_RESULT), **options))


class _Attempts:
    """Finales whose outcomes are told: seconds, or a status."""

    def __init__(self, *attempts: Sequence[float | Status]) -> None:
        self.attempts = list(attempts)

    def remeasure(self, *args: Any) -> list[MeasureResult]:
        return [
            MeasureResult(found, str(found))
            if isinstance(found, Status)
            else MeasureResult(Status.OK, timing=Timing(found, found))
            for found in self.attempts.pop(0)
        ]


LOST, LATE, WRONG = Status.DEVICE_LOST, Status.RUN_TIMEOUT, Status.WRONG_RESULT


@pytest.mark.parametrize(
    ("attempts", "kept"),
    [
        (((1.0, LOST), (1.1, 2.1)), (1.0, 2.1)),
        (((LOST, LOST), (1.0, 2.0)), (1.0, 2.0)),
        (((1.0, LOST), (1.1, LOST)), (1.0, LOST)),
        (((LOST, LOST), (LOST, LOST)), (LOST, LOST)),
        (((1.0, LATE),), (1.0, LATE)),
        (((1.0, LOST), (WRONG, 2.1)), (WRONG, 2.1)),
        (((WRONG, WRONG),), (WRONG, WRONG)),
    ],
)
def test_a_finalist_lost_with_its_device_is_measured_once_more(
    attempts: Sequence[Sequence[float | Status]], kept: Sequence[float | Status]
) -> None:
    _assert_kept(attempts, kept)


@pytest.mark.parametrize(
    ("attempts", "kept"),
    [
        (((1.2, 2.4),), (1.2, 2.4)),
        (((1.8, 2.6), (1.1, 2.1)), (1.1, 2.1)),
        (((1.8, 2.6), (1.9, 2.7), (1.0, 2.2)), (1.0, 2.2)),
        (((1.8, 2.6), (1.9, 2.7), (1.7, 2.5), (1.9, 2.8)), (1.7, 2.5)),
        (((1.8, 2.6), (1.1, LOST)), (1.1, 2.6)),
        (((1.8, 2.6), (1.1, WRONG)), (1.1, WRONG)),
        (((1.8, WRONG), (1.1, 2.1)), (1.1, WRONG)),
    ],
)
def test_finalists_slower_than_their_trials_are_measured_again(
    attempts: Sequence[Sequence[float | Status]], kept: Sequence[float | Status]
) -> None:
    """The attempt that was disturbed least counts, as programs do not suffer alike."""
    _assert_kept(attempts, kept)


def _assert_kept(
    attempts: Sequence[Sequence[float | Status]], kept: Sequence[float | Status]
) -> None:
    """What finalists that took 1 and 2 seconds as trials have, and that no attempt is left out."""
    pool = _Attempts(*attempts)
    trials = [SimpleNamespace(seconds=s) for s in (1.0, 2.0)]
    found = remeasure(pool, None, [None, None], trials)  # type: ignore[arg-type,list-item]
    assert tuple(d.seconds or d.status for d in found) == tuple(kept)
    assert pool.attempts == []
