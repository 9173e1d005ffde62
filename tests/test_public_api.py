"""The public names: there, lazy, and enough for the program that the documentation shows."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import autosched as at

EXAMPLE = Path(__file__).parent.parent / "examples" / "matmul.py"


def words(text: str) -> list[str]:
    return text.split()


TOP = words(
    """
    ApplyHistoryBest AutoschedError ClusterPool HardwareParams IRModule LocalBuilder LocalPool
    LocalRunner auto_scheduler ir
    PreloadCustomSketchRule PreloadMeasuredStates RandomModel RecordReader RecordToFile c_source
    RecordToStore Schedule
    SearchTask SketchPolicy Target graph TaskScheduler TensorIntrin TuningOptions XGBModel build
    LayoutRewriteOption load_best_record lower ops passes register_workload te
    """
)
TE = words(
    """
    placeholder compute reduce_axis sum max min prod comm_reducer if_then_else all any
    create_prim_func create_schedule thread_axis exp log sqrt tanh erf
    """
)
SCHEDULE = words(
    """
    get_block get_loops split reorder fuse parallel vectorize unroll compute_at
    reverse_compute_at compute_inline reverse_compute_inline cache_read cache_write rfactor
    decompose_reduction annotate mod trace show
    """
)
OPERATORS = {
    "matmul": "N L M dtype",
    "matmul_add": "N L M dtype",
    "conv2d": "H W CI CO K S P D G dtype",
    "conv2d_transpose": "H W CI CO K S P dtype",
    "conv2d_capsule": "H W CI CO K S P CAP dtype",
    "softmax": "N M dtype",
    "layer_norm": "N M dtype",
}
SIGNATURES = {
    at.SearchTask: {
        "func",
        "args",
        "workload_key",
        "prim_func",
        "target",
        "hardware_params",
        "layout_rewrite_option",
        "desc",
    },
    at.TuningOptions: {
        "num_measure_trials",
        "early_stopping",
        "num_measures_per_round",
        "time_budget_s",
        "measure_callbacks",
        "builder",
        "runner",
        "pool",
        "resume",
        "seed",
        "verbose",
    },
    at.LocalBuilder: {"timeout", "n_parallel", "build_func"},
    at.build: {"args", "target", "compile_only"},
    at.lower: {"args"},
}


def loaded_after(*statements: str) -> set[str]:
    """Top-level modules that are loaded once `statements` have run."""
    code = "; ".join([*statements, "import sys, json", "print(json.dumps(list(sys.modules)))"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize("name", TOP)
def test_names_of_the_package(name: str) -> None:
    assert getattr(at, name) is not None
    assert name in at.__all__
    assert name in dir(at)


def test_nothing_else_is_promised() -> None:
    assert sorted(at.__all__) == sorted(TOP)
    with pytest.raises(AttributeError, match="module 'autosched' has no attribute 'nothing'"):
        at.nothing  # noqa: B018


@pytest.mark.parametrize("name", TE)
def test_names_of_te(name: str) -> None:
    assert callable(getattr(at.te, name))


@pytest.mark.parametrize("name", SCHEDULE)
def test_names_of_schedules(name: str) -> None:
    assert hasattr(at.Schedule, name)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_and_their_arguments(name: str) -> None:
    parameters = inspect.signature(getattr(at.ops, name)).parameters
    assert list(parameters) == OPERATORS[name].split()
    assert parameters["dtype"].default == "float32"


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__name__)
def test_arguments(function: object) -> None:
    assert callable(function)
    assert SIGNATURES[function] <= set(inspect.signature(function).parameters)  # type: ignore[index]


def test_the_package_is_cheap_to_import() -> None:
    heavy = {"llvmlite", "xgboost", "sqlalchemy", "rich", "measure", "cost_model", "records"}
    assert not loaded_after("import autosched") & (heavy | {"numpy"})
    assert not loaded_after("import autosched as at", "at.te", "at.ops", "at.Schedule") & heavy


@pytest.mark.parametrize("package", ["measure", "records", "cost_model", "autosched.cli.main"])
def test_each_package_can_be_imported_first(package: str) -> None:
    assert package.partition(".")[0] in loaded_after(f"import {package}", "import autosched")


def test_logs_need_no_database_library() -> None:
    used = loaded_after("import autosched as at", "at.RecordToFile('a.json')", "at.SearchTask")
    assert "sqlalchemy" not in used


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "24", "20", "28", "8"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    for text in (
        "A = PLACEHOLDER [24, 20]",
        "matmul(i, j) += (A[i, k]*B[k, j])",
        "@T.prim_func",
        " ms\n",
        "def apply(sch):",
    ):
        assert text in done.stdout
    assert (tmp_path / "matmul.json").exists()
    # Again: the records are there, and more come to them.
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("arguments", ["24 20", "24 20 x", "24 20 28 0", "24 20 28 8 9", "--help"])
def test_the_example_explains_its_arguments(arguments: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "usage: matmul.py" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if arguments == "--help" else 2)
