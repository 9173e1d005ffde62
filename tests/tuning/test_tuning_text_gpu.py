"""A program tuned for a GPU as text: both languages of either, and no others."""

from __future__ import annotations

import pytest

import autosched as at
from autosched.codegen.cuda import compile_cuda
from autosched.errors import TuningError
from autosched.sketch.default import default_schedule
from autosched.tuning.report.text import program_text, source_mode
from records import Record

GPUS = {"opencl": "opencl", "cuda": "cuda -arch=sm_90"}


def text(target: str, mode: str) -> str:
    task = at.SearchTask("softmax", (4, 300), target=target)
    schedule = default_schedule(task.prim_func, task.target)
    record = Record(
        job_id="job",
        kind="trial",
        round=0,
        slot=0,
        workload_key=task.workload_key,
        target=target,
        device="a device",
        status="ok",
        trace=(),
        decisions={},
        program_hash="",
        seconds=1e-3,
    )
    return program_text(task, schedule, record, mode)


@pytest.mark.parametrize("target", GPUS)
def test_kernels_in_both_languages(target: str) -> None:
    """What was tuned for one is shown in the other with the same threads."""
    opencl, cuda = text(GPUS[target], "opencl"), text(GPUS[target], "cuda")
    assert "__kernel" in opencl
    assert "reqd_work_group_size(128, 1, 1)" in opencl
    assert "__launch_bounds__(128)" in cuda
    assert compile_cuda(cuda, "sm_90")


def test_schedules_bind_loops() -> None:
    assert "sch.bind(" in text("opencl", "schedule")
    assert "T.thread_binding(" in text("opencl", "script")


@pytest.mark.parametrize(
    ("target", "mode", "message"),
    [
        ("opencl", "llvm", "'llvm': the program is scheduled for opencl and runs on a GPU; it has"),
        (GPUS["cuda"], "asm", "scheduled for cuda and runs on a GPU; .* 'cuda' and 'opencl'"),
        ("llvm", "cuda", "for llvm and has no loop bound to a GPU's threads; .* 'llvm' and 'asm'"),
        ("llvm", "opencl", "has no loop bound to a GPU's threads"),
    ],
)
def test_modes_of_the_other_kind_are_refused(target: str, mode: str, message: str) -> None:
    with pytest.raises(TuningError, match=message):
        text(target, mode)


def test_source_is_the_mode_of_the_target() -> None:
    found = [source_mode(at.Target(t)) for t in ("llvm", "opencl", GPUS["cuda"])]
    assert found == ["llvm", "opencl", "cuda"]
