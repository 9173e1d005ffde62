"""What a loop logs while its database is away."""

from __future__ import annotations

import logging

import pytest

from records import RecordError
from records.errors import StoreDamaged
from server.storage import outage
from server.storage.outage import Outage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(outage, "monotonic", lambda: now[0])
    return now


def test_an_outage_is_told_at_growing_intervals_and_its_end_once(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """Of a day with two failures a second 32 lines stay."""
    caplog.set_level(logging.INFO)
    told = Outage(logging.getLogger("test"), "the queue cannot be looked at")
    told.over()
    assert not caplog.records
    at = []
    for _ in range(24 * 3600 * 2):
        before = len(caplog.records)
        told.failed(RecordError("away"))
        if len(caplog.records) > before:
            at.append(clock[0] - 100)
        clock[0] += 0.5
    assert at[:4] == [0, 10, 30, 70]
    assert at[-1] - at[-2] == 3600
    assert len(at) == 32
    for _ in range(2):
        told.over()
    assert len(caplog.records) == len(at) + 1
    assert caplog.messages[-1] == "the queue cannot be looked at: no longer, after 86400 s"


def test_another_kind_of_error_and_another_outage_are_told_at_once(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    told = Outage(logging.getLogger("test"), "events cannot be read")
    told.failed(RecordError("away"))
    told.failed(StoreDamaged("broken"))
    told.over()
    told.failed(StoreDamaged("broken"))
    assert len(caplog.messages) == 3
