"""Counts for monitoring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from records_factory import baseline, failure, trial, with_job

from records import JobQueue, Store
from records.operations import census


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    sqlite = request.param == "sqlite"
    with Store(tmp_path / "x.db" if sqlite else request.getfixturevalue("postgres_url")) as s:
        yield s


def test_trials_are_counted_once_and_none_of_before(store: Store) -> None:
    with_job(store)
    store.add_records([trial(0), baseline(0, 1e-3)])
    first = census.take(store, None)
    assert (first.trials, first.last_id) == ({}, 2)
    assert census.take(store, first.last_id).trials == {}
    store.add_records([trial(1), trial(2), failure(3), baseline(1, 1e-3)])
    second = census.take(store, first.last_id)
    assert second.trials == {"ok": 2, "build_error": 1}
    assert census.take(store, second.last_id).trials == {}
    assert second.jobs["queued"] == 1


def test_the_age_of_a_queue_is_that_of_its_oldest_job(store: Store) -> None:
    with_job(store)
    with store._db.transaction(writes=True) as connection:
        connection.exec_driver_sql("UPDATE jobs SET updated_at = '2026-01-01 00:00:00.000'")
    assert census.take(store, None).queue_seconds > 86400
    assert JobQueue(store).claim("w", 60) is not None
    assert census.take(store, None).queue_seconds == 0
