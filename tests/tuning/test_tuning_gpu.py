"""Tuning for OpenCL from end to end on PoCL: baselines, trials, finalists, records, resume."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import autosched as at
from autosched.tir.canonical import program_hash
from records import BASELINE, open_records

TUNE = (sys.executable, "-m", "autosched.cli", "tune")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_gpu_is_tuned_resumed_and_applied(tmp_path: Path) -> None:
    """What is handed out is the best record's program, and it runs as the printed module."""
    db = tmp_path / "tuning.db"
    task = at.SearchTask("matmul_add", (16, 16, 16), target="opencl")
    builder, runner = at.LocalBuilder(timeout=100), at.LocalRunner(baseline_timeout=30)
    for trials in (2, 4):
        options = at.TuningOptions(
            num_measure_trials=trials,
            num_measures_per_round=2,
            measure_callbacks=[at.RecordToStore(str(db))],
            builder=builder,
            runner=runner,
            resume=True,
            verbose=0,
        )
        result = task.tune(options)
    with open_records(str(db)) as store:
        found = list(store.records(target="opencl"))
    assert len({r.job_id for r in found}) == 1, "resumed"
    assert [r.status for r in found if r.kind == BASELINE] == ["ok", "ok"]
    assert len([r for r in found if r.kind != BASELINE]) == 4
    with at.LocalPool("opencl", runner=runner) as pool:
        assert {r.device for r in found} == {pool.device.fingerprint}
    schedule, _ = task.apply_best(str(db))
    assert program_hash(schedule.func) == result.best.program_hash
    assert "__kernel" in task.print_best(str(db), print_mode="opencl")
    module = tmp_path / "best.py"
    module.write_text(task.print_best(str(db)))
    done = subprocess.run(
        [sys.executable, str(module)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "right result" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_check_of_whichever_gpu_is_here() -> None:
    command = [sys.executable, str(EXAMPLES / "gpu_check.py"), "--target", "opencl", "--trials"]
    done = subprocess.run([*command, "2"], capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything is right" in done.stdout


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    """The command line says so, with what there is."""
    options = ("matmul", "8", "8", "8", "--target", "opencl", "--pool", "local?device=77")
    done = subprocess.run(
        [*TUNE, *options, "--db", str(tmp_path / "t.db"), "--trials", "1"],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode != 0
    assert "OpenCL has no device 77 here; it has 0 " in done.stderr
    assert "Traceback" not in done.stderr
