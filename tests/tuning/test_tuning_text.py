"""The printed schedule: a module that stands alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tuning_doubles import FakePool

import autosched as at
from autosched import te
from autosched.errors import TuningError
from records import RecordError

SOURCE = '''
import math
import numpy as np
import os.path as where

import autosched as at
from autosched import te

SCALE = 3.0

@at.register_workload(name="{prefix}.scaled_rows", override=True)
def scaled_rows(n, m, dtype="float32"):
    """Rows, scaled."""
    a = te.placeholder((n, m), name="a", dtype=dtype)
    # A comment stays.
    scale = np.dtype(dtype).itemsize * math.sqrt(n) + len(where.join("a", "b"))
    return [a, te.compute((n, m), lambda i, j: a[i, j] * scale + 1.0, name="c")]

def needs_its_file(n, m):
    a = te.placeholder((n, m), name="a")
    return [a, te.compute((n, m), lambda i, j: a[i, j] * SCALE, name="c")]
'''


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
        [sys.executable, file.name], cwd=folder, capture_output=True, text=True, timeout=100
    )


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    file = tmp_path / "user" / f"ops_{tmp_path.name}.py"
    file.parent.mkdir()
    file.write_text(SOURCE.format(prefix=tmp_path.name))
    return file


def test_of_a_library_operator_runs(tmp_path: Path) -> None:
    task, log = at.SearchTask("matmul_add", (12, 10, 14, "float64")), tmp_path / "a.json"
    text = tune(task, log)
    check_apply(task, log, text)
    for line in (
        '"""matmul_add(12, 10, 14, float64): the fastest schedule found.',
        f"workload {task.workload_key}",
        f"target   {task.target}",
        '    return at.SearchTask(func="matmul_add", args=(12, 10, 14, "float64"), ',
    ):
        assert line in text
    done = run_module(text, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("right result, ")


def test_of_a_users_function_stands_alone(user_file: Path, tmp_path: Path) -> None:
    task, log = at.SearchTask(load(user_file).scaled_rows, (6, 10)), tmp_path / "a.json"
    text = tune(task, log)
    user_file.unlink()
    assert "@at.register_workload" not in text
    assert "    # A comment stays.\n" in text
    for line in ("import math", "import numpy as np", "from autosched import te"):
        assert f"\n{line}\n" in text
    names = check_apply(task, log, text)
    assert names["make_task"]().workload_key == task.workload_key
    done = run_module(text, tmp_path)
    assert done.returncode == 0, done.stderr


def test_of_a_function_that_needs_its_file_names_the_file(user_file: Path, tmp_path: Path) -> None:
    task, log = at.SearchTask(f"{user_file}:needs_its_file", (6, 10)), tmp_path / "a.json"
    text = tune(task, log)
    assert f'func="{user_file}:needs_its_file"' in text
    check_apply(task, log, text)
    assert run_module(text, tmp_path).returncode == 0
    user_file.write_text(user_file.read_text().replace("3.0", "4.0"))
    changed = run_module(text, tmp_path)
    assert changed.returncode == 1
    assert "another workload than the one that was tuned" in changed.stderr


def _prim_func() -> Any:
    a = te.placeholder((6, 10), name="a")
    return te.create_prim_func([a, te.compute((6, 10), lambda i, j: a[i, j] + 1.0, name="c")])


def _closure(n: int) -> Any:
    def inner(m: int) -> Any:
        a = te.placeholder((n, m), name="a")
        return [a, te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="c")]

    return inner


@pytest.mark.parametrize("kind", ["prim_func", "closure", "lambda"])
def test_of_what_cannot_be_named_says_what_to_do(kind: str, tmp_path: Path) -> None:
    makers: dict[str, Any] = {
        "prim_func": lambda: at.SearchTask(prim_func=_prim_func()),
        "closure": lambda: at.SearchTask(_closure(6), (10,)),
        "lambda": lambda: at.SearchTask(lambda m: _closure(6)(m), (10,)),
    }
    task, log = makers[kind](), tmp_path / "a.json"
    text = tune(task, log)
    check_apply(task, log, text)
    done = run_module(text, tmp_path)
    assert done.returncode == 1
    assert "return at.SearchTask(prim_func=...) of the workload from make_task" in done.stderr


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
    with pytest.raises(TuningError, match=r"print_mode is 'cuda'; expected one of schedule, .*asm"):
        task.print_best(tmp_path / "none.db", "cuda")  # type: ignore[arg-type]
    with pytest.raises(RecordError, match="there is no such file"):
        task.print_best(tmp_path / "none.db")
