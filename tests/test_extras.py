"""What a plain install does without the optional packages, and what it says where it needs them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from autosched.errors import AutoschedError, MissingPackage
from autosched.extras import EXTRA_OF, missing, require

ROOT = Path(__file__).parent.parent
PACKAGES = ("autosched", "measure", "cost_model", "records", "server")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = {"numpy", "llvmlite"}
DISTRIBUTION = {
    "cuda": "cuda-bindings",
    "dask": "distributed",
    "google": "onnx",
    "anyio": "starlette",
    "markupsafe": "jinja2",
    "prometheus_client": "prometheus-client",
    "xgboost": "xgboost-cpu",
}
"""Imported name -> the distribution that brings it, where their names differ."""
WITHOUT = f"import sys\nfor name in {sorted(EXTRA_OF)}:\n    sys.modules[name] = None\n"
"""The program's first lines: no optional package can be imported from then on."""


def imported() -> set[tuple[str, str]]:
    """(file, top-level name) of every import of a package that is neither ours nor Python's."""
    found = set()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [a.name for a in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                for name in {n.partition(".")[0] for n in names} - {*PACKAGES}:
                    if name not in sys.stdlib_module_names:
                        found.add((str(file.relative_to(ROOT)), name))
    return found


def test_every_import_is_declared() -> None:
    all_imports = imported()
    unknown = {(f, n) for f, n in all_imports if n not in BASE | EXTRA_OF.keys()}
    assert not unknown, f"say in autosched/extras.py what installs these: {sorted(unknown)}"
    by_name = {"psycopg", "plotly", "uvloop"}  # SQLAlchemy, a file of it, and uvicorn take these
    assert EXTRA_OF.keys() <= {n for _, n in all_imports} | by_name, "nothing imports these"
    declared = {re.split(r"[>=<\[]", d)[0] for d in PROJECT["dependencies"]}
    assert declared == BASE
    for name, extra in EXTRA_OF.items():
        within = {re.split(r"[>=<\[]", d)[0] for d in PROJECT["optional-dependencies"][extra]}
        assert DISTRIBUTION.get(name, name) in within, (name, extra)


def test_make_setup_installs_all_that_the_packages_import() -> None:
    """README's way: `make setup` takes the extra `dev`."""
    extras = PROJECT["optional-dependencies"]
    found, left = set(), ["dev"]
    while left:
        found.add(name := left.pop())
        named = re.findall(r"autosched\[([\w,]*)\]", " ".join(extras[name]))
        left += [n for text in named for n in text.split(",") if n not in found]
    assert found >= set(EXTRA_OF.values())


def without(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program that finds no optional package."""
    command = [sys.executable, "-c", WITHOUT + code]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=200)


BUILD_AND_TUNE = """
import numpy as np, autosched as at
from autosched import graph, te
for name in at.__all__:
    getattr(at, name)
A = te.placeholder((6, 4), name="A")
sch = at.Schedule(te.create_prim_func([A, te.compute((6, 4), lambda i, j: A[i, j] + 1, name="B")]))
a, b = np.ones((6, 4), "float32"), np.zeros((6, 4), "float32")
at.build(sch)(a, b)
assert (b == 2).all()
x = graph.var("x", (2, 3))
model = graph.build(graph.module(main=graph.function([x], x + x)))
(y,) = model(np.ones((2, 3), "float32"))
assert (y == 2).all()
model.save("model/")
assert (graph.load("model/")(np.ones((2, 3), "float32"))[0] == 2).all()
task = at.SearchTask("matmul", (4, 3, 5))
log = at.TuningOptions(num_measure_trials=4, measure_callbacks=[at.RecordToFile("a.json")],
                       pool="replay:model", verbose=0)
task.tune(log, at.SketchPolicy(task, at.RandomModel()))
assert task.apply_best("a.json")
print("done")
"""


def test_programs_are_built_and_logs_are_tuned_without_extras(tmp_path: Path) -> None:
    done = without(BUILD_AND_TUNE, tmp_path)
    assert done.stdout == "done\n", done.stderr


SQL = "RecordError: a database of records needs the package sqlalchemy"
SERVICE = "MissingPackage: the service needs the package pydantic"
REFUSED = [
    ("import autosched as at; at.XGBModel()", "MissingPackage: .* needs the package xgb", "tune"),
    ("import records; records.Store", SQL, "tune"),
    ("from records.opening import open_store; open_store('a.db')", SQL, "tune"),
    ("import autosched as at; at.RecordToStore('a.db').open()", SQL, "tune"),
    ("import server.client", SERVICE, "service"),
    ("from autosched import graph; graph.from_onnx('a.onnx')", "needs the package onnx", "onnx"),
]


@pytest.mark.parametrize(("code", "error", "extra"), REFUSED, ids=[c for c, _, _ in REFUSED])
def test_what_needs_an_extra_says_which(code: str, error: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"")
    last = without(code, tmp_path).stderr.splitlines()[-1]
    assert re.search(error, last), last
    assert f"pip install 'autosched[{extra}]'" in last


COMMANDS = [
    ("tune matmul 4 3 5 --trials 4", "tune"),
    ("tune matmul 4 3 5 --trials 4 --db a.json", "tune"),
    ("serve", "service"),
    ("jobs list", "service"),
    ("token list --db a.db", "tune"),
    ("db check", "tune"),
    ("cluster local", "cluster"),
]


@pytest.mark.parametrize(("command", "extra"), COMMANDS, ids=[c for c, _ in COMMANDS])
def test_a_command_that_needs_an_extra_says_which(command: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "autosched.db").write_bytes(b"SQLite format 3\0")
    code = f"from autosched.cli.main import main\nsys.exit(main({command.split()}))"
    done = without(code, tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()[-1:]
    assert line.startswith(f"autosched {command.split()[0]}: "), done.stderr
    assert f"pip install 'autosched[{extra}]'" in line
    assert "Traceback" not in done.stderr


def test_require_and_missing() -> None:
    require("this test", "numpy", "pytest")
    with pytest.raises(MissingPackage, match=r"this test needs the package onnx: pip install 'a"):
        raise missing("this test", "onnx")
    assert issubclass(MissingPackage, AutoschedError)
    assert issubclass(MissingPackage, ImportError)
