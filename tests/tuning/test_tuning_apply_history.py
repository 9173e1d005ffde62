"""`ApplyHistoryBest`, and search policies of one's own for many tasks."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched.building.build import BuiltFunction
from autosched.errors import TuningError
from autosched.lowering.layout_rewrite import LayoutRewriteOption
from records import RecordError

TASK = at.SearchTask("matmul", (24, 20, 36))
OTHER = at.SearchTask("softmax", (16, 24))


def tuned(task: at.SearchTask, db: Path) -> Path:
    options = at.TuningOptions(
        num_measure_trials=8,
        measure_callbacks=[at.RecordToStore(db)],
        pool="replay:model",
        verbose=0,
    )
    task.tune(options)
    return db


def source_of(task: at.SearchTask) -> str:
    found = at.build(task.prim_func, target=task.target)
    assert isinstance(found, BuiltFunction)
    return found.source


def test_functions_are_built_as_the_best_record_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = tuned(TASK, tmp_path / "a.db")
    plain = source_of(TASK)
    best, _ = TASK.apply_best(db)
    built = at.build(best, target=TASK.target)
    assert isinstance(built, BuiltFunction)
    assert built.source != plain
    with at.ApplyHistoryBest(db) as history, caplog.at_level(logging.WARNING):
        assert source_of(TASK) == built.source
        module = at.build(at.IRModule({"main": TASK.prim_func}), target=TASK.target)
        assert not history.missing
        # A schedule is a choice made, and what was never tuned stands as it is.
        default = at.build(at.Schedule(TASK.prim_func), target=TASK.target)
        source_of(OTHER)
    assert isinstance(module, BuiltFunction)
    assert isinstance(default, BuiltFunction)
    assert (module.source, default.source) == (built.source, plain)
    assert list(history.missing) == [OTHER.workload_key]
    assert f"has no schedule here: no record of workload {OTHER.workload_key}" in caplog.text
    assert source_of(TASK) == plain
    a, b, c = (np.ones(s, np.float32) for s in ((24, 20), (20, 36), (24, 36)))
    module(a, b, c)
    assert (c == 20).all()


def test_several_records_are_asked_in_order(tmp_path: Path) -> None:
    first, second = tuned(TASK, tmp_path / "a.db"), tuned(OTHER, tmp_path / "b.db")
    plain = source_of(TASK), source_of(OTHER)
    with at.ApplyHistoryBest([first, second]) as history:
        found = source_of(TASK), source_of(OTHER)
    assert not history.missing
    assert found[0] != plain[0]
    with at.ApplyHistoryBest(first), at.ApplyHistoryBest(second):
        assert source_of(TASK) == found[0]  # the outer one has it


def test_records_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    plain = source_of(TASK)
    with pytest.raises(RecordError, match="there is no such file"):
        at.ApplyHistoryBest(tmp_path / "none.db").__enter__()
    assert source_of(TASK) == plain


def test_a_scheduler_searches_by_the_policies_it_is_given() -> None:
    asked: list[str] = []

    def policy(task: at.SearchTask) -> at.SketchPolicy:
        asked.append(task.title)
        return at.SketchPolicy(task, at.RandomModel(1))

    options = at.TuningOptions(num_measure_trials=16, pool="replay:model", verbose=0)
    tasks = [TASK, OTHER]
    result = at.TaskScheduler(tasks).tune(options, policy)
    assert asked == [t.title for t in tasks]
    assert [r is not None for r in result.results] == [True, True]


def test_a_policy_for_another_task_is_refused() -> None:
    policy = at.SketchPolicy(OTHER)
    with pytest.raises(
        TuningError, match=r"for softmax\(16, 24\); expected one for each task: matmul\(24, 20"
    ):
        TASK.tune(at.TuningOptions(pool="replay:model", verbose=0), policy)


def test_layouts_are_workloads_of_their_own(tmp_path: Path) -> None:
    option = LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
    prepared = at.SearchTask("matmul_add", (64, 48, 64), layout_rewrite_option=option)
    db = tuned(prepared, tmp_path / "a.db")
    with at.ApplyHistoryBest(db) as history:
        source_of(prepared)
        plain = at.SearchTask("matmul_add", (64, 48, 64))
        source_of(plain)
    assert list(history.missing) == [plain.workload_key]


def test_the_best_record_of_a_target_or_its_text(tmp_path: Path) -> None:
    db = tuned(TASK, tmp_path / "a.db")
    wanted = at.load_best_record(db, TASK.workload_key)
    for target in (TASK.target, str(TASK.target), "llvm", None):
        assert at.load_best_record(db, TASK.workload_key, target) == wanted
    with pytest.raises(RecordError, match=r"on target 'cuda .*there are records of:\n  target 'll"):
        at.load_best_record(db, TASK.workload_key, at.Target("cuda -arch=sm_90"))
    with pytest.raises(
        RecordError, match=r"no record of .* on target 'no such'; there are records"
    ):
        at.load_best_record(db, TASK.workload_key, "no such")
    with at.ApplyHistoryBest(db) as history:
        assert history.query(TASK.prim_func, "llvm") is not None


@pytest.mark.parametrize("records", [None, 3, [None], object()])
def test_what_holds_no_records_is_refused_at_once(records: Any) -> None:
    with pytest.raises(TuningError, match=r"records are .*; expected a log file"):
        at.ApplyHistoryBest(records)
    with pytest.raises(TuningError, match=r"records are .*; expected a log file"):
        at.PreloadMeasuredStates(records)
