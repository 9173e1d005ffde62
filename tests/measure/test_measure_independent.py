"""The reference comes from a second implementation, or is checked by one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scatter_programs import COL2IM, HISTOGRAM, PROGRAMS

import autosched as at
from autosched.errors import MeasureError
from autosched.script import parse_func
from autosched.tir import whole
from autosched.tir.nodes import PrimFunc, outputs_of
from autosched.tuning.best import schedule_of
from autosched.workloads import prim_func_of
from measure.local.build import BuildReply
from measure.local.pool import LocalPool, LocalRunner
from measure.verify import independent
from measure.verify.independent import Examined, check, is_unusual
from measure.verify.tolerance import tolerance_of

OPERATORS = {
    "matmul": (96, 64, 80),
    "softmax": (40, 120),
    "conv2d_transpose": (7, 7, 8, 12, 4, 2, 1),
    "argmax": (30, 50),
    "cumsum": (4, 60),
    "lstm": (2, 4, 8, 8),
}


def right(func: PrimFunc) -> list[np.ndarray]:
    """Arguments with what the program gives."""
    rng = np.random.default_rng(3)
    arrays = []
    for b in func.params:
        shape = tuple(int(n) for n in b.shape)
        values = rng.integers(0, 5, shape) if "int" in b.dtype else rng.standard_normal(shape)
        arrays.append(values.astype(b.dtype))
    whole.reference(func, arrays)
    return arrays


@pytest.mark.parametrize("name", [*OPERATORS, *PROGRAMS])
def test_what_is_right_passes_and_what_is_wrong_does_not(name: str) -> None:
    func = PROGRAMS[name].func() if name in PROGRAMS else prim_func_of(name, OPERATORS[name])
    assert is_unusual(func) == (name in PROGRAMS)
    arrays, tolerance = right(func), tolerance_of(func)
    found = check(func, arrays, tolerance)
    assert not found.fault
    assert not found.missing
    assert found.elements
    output = outputs_of(func)[-1]
    place = next(n for n, b in enumerate(func.params) if b is output)
    wrong = [a.copy() for a in arrays]
    wrong[place][...] = np.roll(wrong[place].reshape(-1) * 2 + 1, 1).reshape(wrong[place].shape)
    found = check(func, wrong, tolerance)
    assert f"disagree on element {output.name}[" in found.fault
    assert func.name in found.fault


def test_one_wrong_element_of_an_unusual_program_is_found() -> None:
    func = COL2IM.func()
    arrays = right(func)
    arrays[-1][7, 5] += 1
    found = check(func, arrays, tolerance_of(func))
    assert "disagree on element Y[7, 5] of col2im" in found.fault
    assert "1 of 120 elements" in found.fault


def test_work_is_bounded_and_what_it_does_not_pay_for_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    func = prim_func_of("two_matmuls", (64, 64, 64, 64))
    arrays, tolerance = right(func), tolerance_of(func)
    assert check(func, arrays, tolerance).elements
    monkeypatch.setattr(independent, "ALLOWED", 80_000)
    found = check(func, arrays, tolerance)
    assert found == Examined(missing=found.missing)
    assert "no element of" in found.missing
    assert "80,000 operations" in found.missing
    monkeypatch.setattr(independent, "WHOLE_WORK", 10)
    arrays = right(HISTOGRAM.func())
    arrays[-1][...] += 1
    monkeypatch.setattr(independent, "ALLOWED", 5_000_000)
    assert "disagree" in check(HISTOGRAM.func(), arrays, tolerance).fault


class Miscompiling(LocalPool):
    """Its code generator takes every program for another one, `made`."""

    made: PrimFunc

    def _build(self, work: Sequence[Any], cancel: Any = None) -> list[BuildReply]:
        func = pickle.dumps(self.made)
        return super()._build([replace(w, func_pickle=func) for w in work], cancel)


def changed(func: PrimFunc, change: Callable[[str], str]) -> PrimFunc:
    text = func.script()
    assert change(text) != text
    return parse_func(change(text))


WRONG = {
    "histogram": (HISTOGRAM.func(), lambda t: t.replace("4)", "3)")),
    "matmul": (prim_func_of("matmul", (24, 20, 36)), lambda t: t.replace(" * ", " - ")),
}


@pytest.mark.parametrize("name", WRONG)
def test_tuning_refuses_what_the_code_generator_gets_wrong(name: str, tmp_path: Path) -> None:
    func, change = WRONG[name]
    runner = LocalRunner(threads=1, slot="independent", lock_folder=tmp_path)
    with Miscompiling(runner=runner) as pool:
        pool.made = changed(func, change)
        task = at.SearchTask(prim_func=func, target=pool.target)
        options = at.TuningOptions(num_measure_trials=2, pool=pool, verbose=0)
        with pytest.raises(MeasureError, match="the code generator and the interpreter disagree"):
            task.tune(options)


def test_a_histogram_is_tuned(tmp_path: Path) -> None:
    func = HISTOGRAM.func()
    runner = LocalRunner(threads=1, slot="independent", lock_folder=tmp_path)
    with LocalPool(runner=runner) as pool:
        task = at.SearchTask(prim_func=func, target=pool.target)
        result = task.tune(at.TuningOptions(num_measure_trials=4, pool=pool, verbose=0))
    arrays = HISTOGRAM.arrays()
    at.build(schedule_of(func, result.best), target=pool.target)(*arrays)
    np.testing.assert_array_equal(arrays[-1], HISTOGRAM.oracle(*HISTOGRAM.arrays()))


def test_a_job_says_what_was_not_recomputed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from measure.local.slot import Slot

    text = "the interpreter has recomputed no element of Y"
    monkeypatch.setattr(Slot, "examine", lambda self, job: Examined(missing=text))
    runner = LocalRunner(threads=1, slot="independent", lock_folder=tmp_path)
    with LocalPool(runner=runner) as pool:
        job = pool.open_job(HISTOGRAM.func())
        assert job.baseline.seconds is not None
        assert job.baseline.error == text
