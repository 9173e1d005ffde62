"""The pool that answers from records or a model."""

from __future__ import annotations

import threading
from pathlib import Path

import autosched as at
from autosched.search.analysis import analyse
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from autosched.tuning import TuningResult
from cost_model.roofline import roofline
from measure.devices import Device
from measure.pool import Pool
from measure.replay import ReplayPool, modelled, recorded
from measure.status import Status
from records import Record, Store

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")
DEVICE = Device("replayed", "x86_64", 2, (), "none")


def seconds(func: PrimFunc) -> float:
    return float(roofline(analyse(func, TARGET), TARGET).seconds)


def tune(pool: ReplayPool, store: Path) -> tuple[TuningResult, list[Record]]:
    task = at.SearchTask("matmul", (64, 48, 80), target=TARGET)
    options = at.TuningOptions(
        num_measure_trials=24, pool=pool, verbose=0, measure_callbacks=[at.RecordToStore(store)]
    )
    result = task.tune(options)
    with Store(store) as source:
        return result, list(source.records())


def test_a_tuning_run_on_a_model_and_again_on_its_records(tmp_path: Path) -> None:
    """The same seed and answers give the same proposals: every program of the second run was
    recorded by the first."""
    pool = ReplayPool(DEVICE, modelled(seconds))
    assert isinstance(pool, Pool)
    first, known = tune(pool, tmp_path / "a.db")
    second, again = tune(ReplayPool(DEVICE, recorded(known)), tmp_path / "b.db")
    assert [(r.round, r.slot, r.decisions, r.seconds) for r in known] == [
        (r.round, r.slot, r.decisions, r.seconds) for r in again
    ]
    assert first.best_seconds == second.best_seconds == min(r.seconds or 1.0 for r in known)
    assert {r.status for r in known} == {Status.OK}


def test_what_was_not_recorded_and_what_is_cancelled_says_so() -> None:
    task = at.SearchTask("matmul", (64, 48, 80), target=TARGET)
    trace = task.space.trace(*task.space.default())
    pool = ReplayPool(DEVICE, recorded([]))
    job = pool.open_job(task.prim_func)
    (result,) = pool.measure(job, [trace])
    assert (result.status, result.error) == (Status.CANCELLED, "not among the recorded programs")
    stop = threading.Event()
    stop.set()
    (result,) = ReplayPool(DEVICE, modelled(seconds)).measure(job, [trace], cancel=stop)
    assert result.status is Status.CANCELLED
