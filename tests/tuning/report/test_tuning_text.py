"""The printed schedule: a module that stands alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuning_doubles import FakePool

import autosched as at
from autosched import te
from autosched.errors import TuningError
from autosched.script import parse_func
from autosched.tir.canonical import program_hash
from autosched.tir.equal import first_difference
from autosched.tir.nodes import PrimFunc
from records import RecordError

SOURCE = """
from autosched import te

SCALE = 3.0

def needs_its_file(n, m):
    a = te.placeholder((n, m), name="a")
    return [a, te.compute((n, m), lambda i, j: a[i, j] * SCALE, name="c")]
"""


def tune(task: at.SearchTask, log: Path, trials: int = 4) -> str:
    options = at.TuningOptions(
        num_measure_trials=trials,
        measure_callbacks=[at.RecordToFile(log)],
        pool=FakePool(),
        verbose=0,
    )
    task.tune(options)
    return task.print_best(log)


def check_apply(task: at.SearchTask, log: Path, text: str) -> dict[str, Any]:
    """`apply` makes the program that apply_best gives; the module's names."""
    names: dict[str, Any] = {}
    exec(text, names)
    schedule = at.Schedule(task.prim_func)
    names["apply"](schedule)
    assert schedule.mod.script() == task.apply_best(log)[0].mod.script()
    return names


def run_module(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "printed.py"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, file.name], cwd=folder, capture_output=True, text=True, timeout=250
    )


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    file = tmp_path / "user" / "ops.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    return file


def test_of_a_library_operator_runs(tmp_path: Path) -> None:
    task, log = at.SearchTask("matmul_add", (12, 10, 14, "float64")), tmp_path / "a.json"
    text = tune(task, log)
    names = check_apply(task, log, text)
    for line in (
        '"""matmul_add(12, 10, 14, float64): the fastest schedule found.',
        f"workload {task.workload_key}",
        f"target   {task.target}",
        '        with T.block("matmul"):',
    ):
        assert line in text
    assert first_difference(names["workload"], task.prim_func) is None
    assert names["task"].workload_key == task.workload_key
    done = run_module(text, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("right result, ")


def test_of_a_users_function_needs_neither_it_nor_its_file(user_file: Path, tmp_path: Path) -> None:
    task, log = at.SearchTask(f"{user_file}:needs_its_file", (6, 10)), tmp_path / "a.json"
    text = tune(task, log)
    user_file.unlink()
    names = check_apply(task, log, text)
    assert names["task"].workload_key == task.workload_key
    done = run_module(text, tmp_path)
    assert done.returncode == 0, done.stderr


def _prim_func() -> PrimFunc:
    a = te.placeholder((6, 10), name="a")
    return te.create_prim_func([a, te.compute((6, 10), lambda i, j: a[i, j] + 1.0, name="c")])


def _closure(n: int) -> Any:
    def inner(m: int) -> Any:
        a = te.placeholder((n, m), name="a")
        return [a, te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="c")]

    return inner


@pytest.mark.parametrize("kind", ["prim_func", "closure", "lambda", "parsed"])
def test_of_what_has_no_name_runs_as_well(kind: str, tmp_path: Path) -> None:
    makers: dict[str, Any] = {
        "prim_func": lambda: at.SearchTask(prim_func=_prim_func()),
        "closure": lambda: at.SearchTask(_closure(6), (10,)),
        "lambda": lambda: at.SearchTask(lambda m: _closure(6)(m), (10,)),
        "parsed": lambda: at.SearchTask(prim_func=parse_func(_prim_func().script())),
    }
    task, log = makers[kind](), tmp_path / "a.json"
    text = tune(task, log)
    names = check_apply(task, log, text)
    # `apply` makes the same program of the workload that the module brings along.
    schedule = at.Schedule(names["workload"])
    names["apply"](schedule)
    assert program_hash(schedule.func) == program_hash(task.apply_best(log)[0].func)
    if kind == "parsed":
        assert run_module(text, tmp_path).returncode == 0


@pytest.mark.parametrize("name", ['a"""b', "a\\", "a{0}'''", "a \u00e9'"])
def test_odd_names_and_descriptions_stay_text(name: str, tmp_path: Path) -> None:
    a = te.placeholder((4,), name=name)
    func = te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0, name="c")])
    task, log = at.SearchTask(prim_func=replace(func, name=name), desc=name), tmp_path / "a.json"
    text = tune(task, log)
    names = check_apply(task, log, text)
    assert names["task"].workload_key == task.workload_key
    assert names["task"].desc == name
    assert names["workload"].params[0].name == name
    assert names["__doc__"].startswith(f"{name}: the fastest schedule found.")


def test_a_program_that_is_wrong_is_reported(tmp_path: Path) -> None:
    task, log = at.SearchTask("matmul", (4, 3, 5)), tmp_path / "a.json"
    text = tune(task, log).replace("apply(sch)\n    with", "pass\n    with")
    text = text.replace("pool.measure(job, [sch.trace])", "pool.measure(job, [broken(sch)])")
    text = text.replace("\nif __name__", WRONG + "\nif __name__")
    done = run_module(text, tmp_path)
    assert done.returncode == 1
    assert "instantiation_error" in done.stderr


WRONG = """
def broken(sch):
    from autosched.schedule import Trace

    return Trace.from_json('{"dialect": 1, "steps": [["get_block", ["none"], {}, ["b0"]]]}')

"""


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    task = at.SearchTask("matmul", (4, 3, 5))
    with pytest.raises(TuningError, match=r"print_mode is 'sass'; expected one of schedule, .*asm"):
        task.print_best(tmp_path / "none.db", "sass")  # type: ignore[arg-type]
    with pytest.raises(RecordError, match="there is no such file"):
        task.print_best(tmp_path / "none.db")
