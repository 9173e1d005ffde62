"""What workers did by the minute, and which are drained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from records import Store
from records.operations.workers import DAY_HOURS, Activity, WorkerLog

NOON = 20_000 * 86400.0 + 12 * 3600


@pytest.fixture(params=["sqlite", "postgresql"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerLog]:
    sqlite = request.param == "sqlite"
    with Store(tmp_path / "x.db" if sqlite else request.getfixturevalue("postgres_url")) as s:
        yield WorkerLog(s)


def test_what_was_done_is_summed(log: WorkerLog) -> None:
    for at in (NOON, NOON + 10.0, NOON + 70.0):
        log.note({"a": Activity(15, 9.0, 1), "b": Activity(3, 1.5)}, at)
    log.note({}, NOON)
    past = log.past(NOON + 300.0)
    assert past["a"].trials_per_second == pytest.approx(45 / 300)
    assert past["a"].load == pytest.approx(27 / 300)
    assert past["a"].faults == (0,) * (DAY_HOURS - 1) + (3,)
    assert (past["b"].trials_per_second, sum(past["b"].faults)) == (pytest.approx(9 / 300), 0)


def test_faults_stay_for_a_day_and_load_for_minutes(log: WorkerLog) -> None:
    log.note({"a": Activity(60, 60.0, 2)}, NOON - 23 * 3600.0)
    log.note({"a": Activity(60, 60.0, 7)}, NOON - 25 * 3600.0)
    past = log.past(NOON)
    assert (past["a"].trials_per_second, past["a"].load) == (0.0, 0.0)
    assert past["a"].faults == (2,) + (0,) * (DAY_HOURS - 1)
    assert log.forget(0.0) == 2
    assert log.past(NOON) == {}


def test_draining_and_admitting_may_be_repeated(log: WorkerLog) -> None:
    assert log.drained() == frozenset()
    log.drain(["b", "a", "a"], "ann")
    log.drain(["a"], "bob")
    assert log.drained() == {"a", "b"}
    log.admit(["a", "nobody"])
    log.admit(["a"])
    assert log.drained() == {"b"}
