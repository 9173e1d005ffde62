"""How a reduction may be written: the element among several terms, on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched.errors import ScriptError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp

TEXT = """
@T.prim_func
def main(a: T.Buffer((6, 8), "{1}"), b: T.Buffer((6, 8), "{1}"), C: T.Buffer((6,), "{1}")):
    for i, k in T.grid(6, 8):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = {2}
            {0}
"""
A, B, C = "a[vi, vk]", "b[vi, vk]", "C[vi]"
Oracle = Callable[[Any, Any], Any]
FORMS: dict[str, tuple[str, Oracle, str]] = {
    f"{C} = {C} + {A} + {B}": ("0", lambda a, b: (a + b).sum(1), f"{C} + ({A} + {B})"),
    f"{C} = {A} + {C} + {B}": ("0", lambda a, b: (a + b).sum(1), f"{C} + ({A} + {B})"),
    f"{C} = {A} + {B} + {C}": ("0", lambda a, b: (a + b).sum(1), f"{C} + ({A} + {B})"),
    f"{C} = {A} + ({B} + {C})": ("0", lambda a, b: (a + b).sum(1), f"{C} + ({A} + {B})"),
    f"{C} = {C} + {A} - {B}": ("0", lambda a, b: (a - b).sum(1), f"{C} + ({A} - {B})"),
    f"{C} = {C} - {A} + {B}": ("0", lambda a, b: (b - a).sum(1), f"{C} + (T.neg({A}) + {B})"),
    f"{C} -= {A} * {B}": ("0", lambda a, b: -(a * b).sum(1), f"{C} + (T.neg({A} * {B}))"),
    f"{C} = {C} * {A} * {B}": ("1", lambda a, b: (a * b).prod(1), f"{C} * ({A} * {B})"),
    f"{C} = T.max(T.max({C}, {A}), {B})": (
        "lowest",
        lambda a, b: np.maximum(a, b).max(1),
        f"T.max({C}, T.max({A}, {B}))",
    ),
}


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("form", FORMS)
def test_terms_in_any_order_are_one_reduction(form: str, dtype: str) -> None:
    start, oracle, printed = FORMS[form]
    lowest = 'T.float32("-inf")' if dtype == "float32" else "-2147483648"
    number = lowest if start == "lowest" else f"{start}.0" if dtype == "float32" else start
    func = parse_func(TEXT.format(form, dtype, number))
    assert f"{C} = {printed}\n" in func.script(), func.script()
    assert parse_func(func.script()).same(func)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (6, 8)).astype(dtype) for _ in range(2))
    expected = oracle(a, b).astype(dtype)
    ours, built, parts = (np.zeros(6, dtype) for _ in range(3))
    interp.run(func, [a, b, ours])
    at.build(func, target="llvm")(a, b, built)
    schedule = Schedule(func)
    schedule.rfactor(schedule.split(schedule.get_loops("C")[1], [None, 4])[1])
    at.build(schedule.func, target="llvm")(a, b, parts)
    for found in (ours, built, parts):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "form",
    [f"{C} = {A} - {C}", f"{C} = {A} - ({C} + {B})", f"{C} = ({C} + {A}) * {B}", f"{C} = {A}"],
)
def test_what_does_not_combine_is_refused(form: str) -> None:
    with pytest.raises(ScriptError, match="a reduction combines the element once"):
        parse_func(TEXT.format(form, "float32", "0.0"))
