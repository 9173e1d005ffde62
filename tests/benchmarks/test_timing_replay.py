"""The replayer of timed calls, over the records of the repository and over made-up ones."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("timing_replay")


def made_up(module: ModuleType, seconds: list[float]) -> object:
    """A record in which nothing is ever disturbed: 16 rounds of 8 samples."""
    samples = np.zeros((16, len(seconds), 8, 4))
    samples[..., 0] = np.array(seconds)[:, None]
    samples[..., 2:] = 50e-6, 10.0
    head = {"stretch_seconds": 1e-3, "alone_cycles": 10.0, "places": 8}
    return module.Record(head, samples, samples[:, :, 0, 0])


def test_the_best_wins_where_nothing_disturbs(module: ModuleType) -> None:
    record = made_up(module, [1e-3 * (1 + 0.02 * n) for n in range(20)])
    rng = np.random.default_rng(0)
    quality, seconds = module.replayed(record, module.Protocol(), rng)
    assert quality == 1.0
    # A block a candidate, at the least: its first call, its request and four samples.
    assert seconds > 1e-3 + 5e-3
    (row,) = module.judged([record], module.Protocol(), 2)[2]
    assert row[0] == 1.0


def test_constants_are_changed_one_at_a_time(module: ModuleType) -> None:
    named = dict(module.chosen(["search.least=1,probe=true"]))
    protocol = named["search.least=1,probe=true"]
    assert (protocol.search.least, protocol.probe, protocol.final) == (1, True, module.FINAL)
    assert {name.split(".")[0] for name, _ in module.variants()} == {
        "probe", "places", "plan", "search", "final",
    }  # fmt: skip


def test_records_of_the_repository_say_what_the_machine_did(module: ModuleType) -> None:
    records = module.load(module.RECORDS)
    assert {r.head["condition"] for r in records} == {"as-is", "busy", "memory"}
    assert {r.head["threads"] for r in records} == {1, 2}
    assert module.RECORDS.stat().st_size <= 5 << 20
    for record in records:
        assert len(record.head["load_average"]) == 2
        assert record.samples.shape[1] == len(record.truth)
        assert (record.truth > 0).all()
    quality, seconds = module.replayed(records[0], module.Protocol(), np.random.default_rng(0))
    assert 0.0 < quality <= 1.0 < 1e3 * seconds
