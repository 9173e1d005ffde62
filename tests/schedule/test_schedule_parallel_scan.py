"""Recurrences in chunks: every reducer, odd sizes, chunks of chunks; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scan_programs import cumsum, fibonacci, matvec

import autosched as at
from autosched import te
from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule import Decision, Schedule
from autosched.script import parse
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

Combine = Callable[[Any, Any], Any]
OPERATIONS: dict[str, tuple[Combine, Any]] = {
    "sum": (lambda s, x: s + x, np.add),
    "sum_from_the_right": (lambda s, x: x + s, np.add),
    "product": (lambda s, x: s * x, np.multiply),
    "max": (te.max, np.maximum),
    "min": (te.min, np.minimum),
}


def scan(combine: Combine, t: int, n: int, dtype: str = "int32") -> PrimFunc:
    x, s = te.placeholder((t, n), name="x", dtype=dtype), te.placeholder((t, n), dtype, "s")
    first = te.compute((1, n), lambda i, j: x[i, j], name="first")
    step = te.compute((t, n), lambda i, j: combine(s[i - 1, j], x[i, j]), name="step")
    return te.create_prim_func([x, te.scan(first, step, s, inputs=[x], name="out")])


def result(func: PrimFunc, *inputs: np.ndarray, run: Any = None) -> np.ndarray:
    out = np.full(func.params[-1].shape, 77, func.params[-1].dtype)
    (run or interp.run)(func, [*inputs, out])
    return out


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_combines(name: str) -> None:
    combine, expected = OPERATIONS[name]
    sch = Schedule(scan(combine, 14, 3))
    total, carry = sch.parallel_scan(sch.get_block("step"), 4)
    assert [sch.get(b).name for b in (total, carry)] == ["step_total", "step_carry"]
    x = np.random.default_rng(0).integers(-3, 4, (14, 3)).astype("int32")
    np.testing.assert_array_equal(result(sch.func, x), expected.accumulate(x, axis=0))


@pytest.mark.parametrize(
    ("t", "factor"), [(4, 2), (9, 2), (9, 4), (9, 5), (9, 7), (13, 3), (13, 4)]
)
def test_chunks_of_any_size(t: int, factor: int) -> None:
    """Whole ones, a short one at the end, one step at the end."""
    sch = Schedule(cumsum(t, 2, "int32"))
    sch.parallel_scan(sch.get_block("step"), factor)
    assert parse(sch.func.script()).same(sch.func)
    x = np.arange(2 * t, dtype="int32").reshape(t, 2)
    np.testing.assert_array_equal(result(sch.func, x), x.cumsum(0))


def test_what_carries_is_cut_again_and_runs_on_the_cpu() -> None:
    sch = Schedule(cumsum(200, 2, "int32"))
    _, carry = sch.parallel_scan(sch.get_block("step"), 4)
    sch.parallel_scan(carry, 7)
    for name in ("step_total", "step", "step_carry_total", "step_carry"):
        sch.parallel(sch.get_loops(sch.get_block(name))[0])
    assert parse(sch.func.script()).same(sch.func)
    x = np.arange(400, dtype="int32").reshape(200, 2)
    np.testing.assert_array_equal(result(sch.func, x), x.cumsum(0))
    out = np.empty_like(x)
    at.build(sch)(x, out)
    np.testing.assert_array_equal(out, x.cumsum(0))


def test_terms_are_any_expression_without_the_state() -> None:
    """Sums of several terms, one of them read at a place of its own, one an axis."""
    t, n = 11, 3
    x, s = te.placeholder((t, n), "int32", "x"), te.placeholder((t, n), "int32", "s")
    first = te.compute((1, n), lambda i, j: x[i, j], name="first")
    step = te.compute(
        (t, n),
        lambda i, j: x[i, j] * 2 + (s[i - 1, j] + x[t - 1 - i, n - 1 - j]) + i.astype("int32"),
        name="step",
    )
    func = te.create_prim_func([x, te.scan(first, step, s, inputs=[x], name="out")])
    values = np.arange(t * n, dtype="int32").reshape(t, n)
    expected = result(func, values)
    sch = Schedule(func)
    sch.parallel_scan(sch.get_block("step"), 3)
    np.testing.assert_array_equal(result(sch.func, values), expected)
    assert len(sch.get(sch.get_block("step_total")).reads) == 2


def test_a_population_of_chunks() -> None:
    func = cumsum(33, 2, "int32")
    factors = np.array([2, 5, 8, 31], np.int64)
    many = Schedule(func, {"factor": factors})
    many.parallel_scan(many.get_block("step"), Decision("factor"))
    from autosched.schedule.population import candidate

    for n, factor in enumerate(factors):
        one = Schedule(func)
        one.parallel_scan(one.get_block("step"), int(factor))
        x = np.arange(66, dtype="int32").reshape(33, 2)
        np.testing.assert_array_equal(result(candidate(many.func, n), x), x.cumsum(0))
        np.testing.assert_array_equal(result(one.func, x), x.cumsum(0))
    wrong = Schedule(func, {"factor": np.array([2, 40], np.int64)})
    with pytest.raises(NotBatchable, match="fewer than all 32 steps"):
        wrong.parallel_scan(wrong.get_block("step"), Decision("factor"))


def ema() -> PrimFunc:
    return prim_func_of("ema", (9, 2, "float32"))


def reading_itself() -> PrimFunc:
    return scan(lambda s, x: s + x * s, 9, 2)


def shifted() -> PrimFunc:
    s, x = te.placeholder((9, 4), "int32", "s"), te.placeholder((9, 4), "int32", "x")
    first = te.compute((1, 4), lambda i, j: x[i, j], name="first")
    step = te.compute((9, 4), lambda i, j: s[i - 1, 3 - j] + x[i, j], name="step")
    return te.create_prim_func([x, te.scan(first, step, s, inputs=[x], name="out")])


REFUSED: dict[str, tuple[Callable[[], PrimFunc], int, str]] = {
    "moving average": (ema, 3, "at the same place of the step before|is no sum, product"),
    "the state twice": (reading_itself, 3, "is no sum, product, maximum or minimum"),
    "difference": (lambda: scan(lambda s, x: x - s, 9, 2), 3, "is no sum, product, maximum"),
    "another column": (shifted, 3, "to read out once, at the same place of the step before"),
    "two steps back": (lambda: fibonacci(9, 3), 3, "to read out once, at the same place"),
    "a reduction": (lambda: matvec(9, 4), 3, "expected one sequential axis"),
    "one step": (lambda: cumsum(9, 2), 1, "at least 2 steps; found 1"),
    "all steps": (lambda: cumsum(9, 2), 8, "fewer than all 8 steps; found 8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, factor, message = REFUSED[name]
    sch = Schedule(make())
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        sch.parallel_scan(sch.get_block("step"), factor)
    assert sch.func is before


def test_loops_are_plain() -> None:
    sch = Schedule(cumsum(9, 4))
    step = sch.get_block("step")
    sch.split(sch.get_loops(step)[0], [None, 2])
    with pytest.raises(ScheduleError, match="in a nest of its own, of plain serial loops"):
        sch.parallel_scan(step, 3)
