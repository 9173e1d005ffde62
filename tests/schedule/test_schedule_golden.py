"""Each primitive on a small program: text before and after, and the same results."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from golden_cases import CASES
from schedule_outcome import concurrent

import autosched.schedule
from autosched.schedule import Schedule
from autosched.schedule.replay import PRIMITIVES
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc, inputs_of


def run(func: PrimFunc, like: PrimFunc) -> list[np.ndarray]:
    """Outputs on random inputs; integers are small, so that sums are exact in every order."""
    rng = np.random.default_rng(7)
    inputs = {b.name for b in inputs_of(like)}
    arrays = []
    for b in func.params:
        shape = tuple(int(n) for n in b.shape)
        whole = rng.integers(-8, 9, shape) if b.name in inputs else np.full(shape, 99)
        arrays.append(whole.astype(b.dtype))
    interp.run(func, arrays)
    return [x for x, b in zip(arrays, func.params, strict=True) if b.name not in inputs]


@pytest.mark.parametrize("name", CASES)
def test_primitive(name: str, golden: Callable[[str, str], None]) -> None:
    """The text is the golden one; results equal those of the untransformed program, iterations of
    parallel and vectorised loops interleaved or not."""
    func, apply = CASES[name]
    schedule = Schedule(func)
    apply(schedule)
    text = schedule.trace.bind(schedule.decisions).as_python()  # runs as it stands
    golden(name, f"{func.script()}\n{text}\n{schedule.func.script()}")
    expected = run(func, func)
    for program in (schedule.func, concurrent(schedule.func)):
        for x, y in zip(run(program, func), expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(n for n in PRIMITIVES if not n.startswith("get_")))
def test_every_primitive_is_specified_and_shown(name: str) -> None:
    """One function each, with its legality and a rewrite; and a golden file that has it."""
    folder = Path(autosched.schedule.__file__).parent
    # What stands in more.py are methods, which name the function that specifies them.
    files = (f for f in folder.glob("[!_]*.py") if f.stem != "more")
    modules = (import_module(f"autosched.schedule.{f.stem}") for f in files)
    text = next(
        inspect.getdoc(function) or ""
        for module in modules
        for key, function in vars(module).items()
        if key == name and inspect.isfunction(function) and function.__module__ == module.__name__
    )
    assert "Legality:" in text
    assert "rewrite:" in text
    shown = (Path(__file__).parent / "golden").glob("*.txt")
    assert any(f"sch.{name}(" in file.read_text("utf-8") for file in shown)
