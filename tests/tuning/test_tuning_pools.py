"""Pools by address."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tuning_doubles import FakePool, Recorder, proposals

import autosched as at
from autosched.errors import AutoschedError, TuningError
from autosched.target import Target
from autosched.tuning.pools import PoolAddress, pool_from, pool_of
from autosched.tuning.run.session import AHEAD
from measure.local.pool import LocalPool
from measure.pool import Pool
from measure.replay import ReplayPool
from measure.status import MeasureResult
from records import RecordError, Store

TARGET = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
TASK = at.SearchTask("matmul", (24, 20, 36), target=TARGET)


def tune(pool: str, *callbacks: Any, **more: Any) -> Any:
    options = at.TuningOptions(
        num_measure_trials=12, measure_callbacks=callbacks, pool=pool, verbose=0, **more
    )
    return TASK.tune(options)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("local", ("local", "", {})),
        ("replay:model", ("replay", "model", {})),
        ("replay:model?seconds=0.05", ("replay", "model", {"seconds": "0.05"})),
        ("replay:a/b.db?seconds=1", ("replay", "a/b.db", {"seconds": "1"})),
        (
            "replay:postgresql://h/db?sslmode=require",
            ("replay", "postgresql://h/db?sslmode=require", {}),
        ),
        (
            "replay:postgresql://h/db?sslmode=require?seconds=1",
            ("replay", "postgresql://h/db?sslmode=require", {"seconds": "1"}),
        ),
        ("tls://a.b:8786?label=x", ("tls", "//a.b:8786", {"label": "x"})),
        ("tcp://127.0.0.1:8786", ("tcp", "//127.0.0.1:8786", {})),
    ],
)
def test_addresses(text: str, found: tuple[str, str, dict[str, str]]) -> None:
    address = PoolAddress.parse(text)
    assert (address.scheme, address.rest, dict(address.options)) == found
    assert address.is_local == (text == "local")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "'' is no pool's address; expected local, replay:model"),
        ("here", "'here' is no pool's address"),
        ("local:2", "no pool's address"),
        ("replay:", "no pool's address"),
        ("tls:host", "no pool's address"),
        ("local?seconds=1", "unknown option seconds; it has device"),
        ("replay:model?second=1", "unknown option second; it has seconds"),
        ("replay:model?seconds", "expected options as name=value"),
        ("replay:model?seconds=soon", "seconds is 'soon'; expected what a candidate takes"),
        ("replay:model?seconds=-1", "seconds is '-1'"),
        ("replay:nowhere.db", "there is no such file"),
    ],
)
def test_what_is_no_address_is_refused(text: str, error: str) -> None:
    with pytest.raises((AutoschedError, RecordError), match=error):
        pool_from(text, TARGET)


def test_options_refuse_wrong_addresses_at_once() -> None:
    with pytest.raises(TuningError, match="no pool's address"):
        at.TuningOptions(pool="nowhere")
    with pytest.raises(TuningError, match="builder and runner are options of the local pool"):
        at.TuningOptions(pool="replay:model", builder=at.LocalBuilder())
    with pytest.raises(TuningError, match="builder and runner are options of the local pool"):
        pool_from("replay:model", TARGET, builder=at.LocalBuilder())
    assert at.TuningOptions(pool="local", builder=at.LocalBuilder()).builder is not None


def test_the_local_pool_by_address() -> None:
    builder = at.LocalBuilder(n_parallel=1)
    pool = pool_from("local", Target("llvm"), builder, seed=3)
    assert isinstance(pool, LocalPool)
    assert (pool.builder, pool.seed) == (builder, 3)
    assert not pool.runner.aligned
    pool.close()


@pytest.mark.parametrize(("asked", "given"), [(True, False), (False, True), (True, True)])
def test_the_local_pool_of_a_model_has_aligned_arguments(asked: bool, given: bool) -> None:
    options = at.TuningOptions(runner=at.LocalRunner(aligned=given, repeat=7))
    with pool_of(options, Target("llvm"), asked) as pool:
        assert isinstance(pool, LocalPool)
        assert (pool.runner.aligned, pool.runner.repeat) == (True, 7)


def test_the_predecessors_runner_may_be_of_a_model() -> None:
    runner = at.auto_scheduler.LocalRunner(timeout=20, cooldown_interval=0.5)
    with pool_of(at.TuningOptions(runner=runner), Target("llvm"), aligned=True) as pool:
        assert isinstance(pool, LocalPool)
        found = pool.runner
        assert (found.aligned, found.timeout, found.cooldown_ms) == (True, 20, 500.0)


class _Together(FakePool):
    """Hands over what it measured seven at a time."""

    def measure(self, job: Any, traces: Any, *rest: Any, **more: Any) -> list[MeasureResult]:
        best_seconds, on_results = rest if rest else (None, None)
        results = super().measure(job, traces, best_seconds)
        found = list(enumerate(results))
        for start in range(0, len(found) if on_results else 0, 7):
            on_results(found[start : start + 7])
        return results


def test_results_that_come_together_are_stored_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[list[tuple[int, int]]] = []
    add_records = Store.add_records

    def counted(store: Store, records: Any, **more: Any) -> Any:
        stored.append([(r.round, r.slot) for r in records])
        return add_records(store, records, **more)

    monkeypatch.setattr(Store, "add_records", counted)
    recorders = Recorder(), Recorder()
    for pool, recorder in zip((_Together(), FakePool()), recorders, strict=True):
        before = len(stored)
        options = at.TuningOptions(
            num_measure_trials=24, num_measures_per_round=12, pool=pool, verbose=0,
            measure_callbacks=[at.RecordToStore(tmp_path / f"{before}.db"), recorder],
        )  # fmt: skip
        TASK.tune(options)
    together, singly = stored[:6], stored[6:]
    assert [len(s) for s in together] == [1, 1, 7, 5, 7, 5]
    assert [key for some in together for key in some] == [key for (key,) in singly]
    assert proposals(recorders[0].records) == proposals(recorders[1].records)


def test_a_model_answers_the_same_in_every_pool(tmp_path: Path) -> None:
    first, again = Recorder(), Recorder()
    tune("replay:model", first, at.RecordToStore(tmp_path / "a.db"))
    tune("replay:model", again)
    assert [r.seconds for r in first.records] == [r.seconds for r in again.records]
    assert len({r.seconds for r in first.records}) > 8
    # And so do the records of it, to a search that asks for the same programs.
    recorded = Recorder()
    tune(f"replay:{tmp_path / 'a.db'}", recorded)
    assert [r.seconds for r in recorded.records] == [r.seconds for r in first.records]
    devices = {r.device for r in (*first.records, *recorded.records)}
    assert len(devices) == 2
    with LocalPool(Target("llvm")) as local:
        assert local.device.fingerprint not in devices


def test_a_replay_takes_the_time_that_it_is_told() -> None:
    pool = pool_from("replay:model?seconds=0.05", TARGET)
    assert isinstance(pool, ReplayPool)
    assert isinstance(pool, Pool)
    assert pool.seconds == 0.05
    job = pool.open_job(TASK.prim_func)
    traces = [TASK.space.trace(*TASK.space.default())] * 4
    began = time.monotonic()
    pool.measure(job, traces)
    assert time.monotonic() - began >= 4 * 0.05


def test_a_replay_that_waits_can_be_cancelled() -> None:
    pool = pool_from("replay:model?seconds=1000", TARGET)
    job = pool.open_job(TASK.prim_func)
    traces = [TASK.space.trace(*TASK.space.default())] * 2
    cancel = threading.Event()
    timer = threading.Timer(0.2, cancel.set)
    timer.start()
    found = pool.measure(job, traces, cancel=cancel)
    timer.join()
    assert [r.status for r in found] == ["ok", "cancelled"]


def test_a_scheduler_takes_an_address_too() -> None:
    tasks = [at.SearchTask("matmul", (n, 20, 36), target=TARGET) for n in (24, 40)]
    options = at.TuningOptions(num_measure_trials=16, pool="replay:model", verbose=0)
    assert at.TaskScheduler(tasks).tune(options).trials == 16


class _Here(ReplayPool):
    elsewhere = False


def test_proposing_while_others_measure_changes_nothing() -> None:
    """Rounds know those before the last one only, so that the next can be made meanwhile."""
    other = pool_from("replay:model?seconds=0.002", TARGET)
    assert isinstance(other, ReplayPool)
    here = _Here(other.device, other.answer)
    first, second = Recorder(), Recorder()
    phases = []
    for pool, recorder in ((here, first), (other, second)):
        options = at.TuningOptions(
            num_measure_trials=40, measure_callbacks=[recorder], pool=pool, verbose=0
        )
        result = TASK.tune(options)
        assert sum(result.phases.values()) == pytest.approx(result.elapsed_s, rel=0.02)
        phases.append(result.phases)
    assert [(r.round, r.slot, r.decisions, r.seconds) for r in first.records] == [
        (r.round, r.slot, r.decisions, r.seconds) for r in second.records
    ]
    assert phases[0]["training"] > 0.0
    assert phases[1].get("training", 0.0) == 0.0  # in the background
    assert not [t for t in threading.enumerate() if t.name.startswith(AHEAD)]
