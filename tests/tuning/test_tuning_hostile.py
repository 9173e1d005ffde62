"""Records that anybody may have written: replayed, or refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from autosched.errors import AutoschedError
from autosched.tuning import SearchTask
from autosched.tuning.best import schedule_of
from autosched.tuning.report.text import MODES, program_text
from records import Record


def record_of(task: SearchTask, steps: list[Any]) -> Record:
    return Record(
        job_id="j", kind="trial", round=0, slot=0, workload_key=task.workload_key,
        target=str(task.target), device="d", status="ok", seconds=1e-3, trace=steps, decisions={},
        program_hash="",
    )  # fmt: skip


def splits(count: int) -> list[Any]:
    """One loop split again and again."""
    steps: list[Any] = [
        ["get_block", ["#0"], {}, ["b0"]],
        ["get_loops", [{"ref": "b0"}], {}, ["l0", "x"]],
    ]
    factors = {"factors": [None, 1]}
    return steps + [
        ["split", [{"ref": f"l{n}"}], factors, [f"l{n + 1}", f"m{n}"]] for n in range(count)
    ]


TASK = SearchTask("softmax", (8, 8))


def test_thousands_of_splits_end_in_a_reason() -> None:
    """Never in a RecursionError."""
    with pytest.raises(AutoschedError, match="has 3002 steps, and its program nests too deeply"):
        schedule_of(TASK.prim_func, record_of(TASK, splits(3000)))


@pytest.mark.parametrize("mode", MODES[:2])
def test_a_program_that_can_be_made_but_hardly_walked(mode: str) -> None:
    record = record_of(TASK, splits(150))
    schedule = schedule_of(TASK.prim_func, record)
    try:
        text = program_text(TASK, schedule, record, mode)
    except AutoschedError as e:
        text = str(e)
    assert text
