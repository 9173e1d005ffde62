"""Schedules over symbolic sizes whose text reads back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.errors import VerifyError
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.tir import interp

Step = tuple[str, str, int, object]
"""A block, a primitive, a number of a loop of the block, and factors."""
APART: dict[str, tuple[Step, ...]] = {
    "a sum of sizes tells iterations apart": (
        ("C", "split", 1, [None, 2]),
        ("C", "decompose_reduction", 1, None),
        ("C", "split", 0, [None, 3]),
        ("C_init", "fuse", 0, None),
        ("C_init", "split", 0, [2, None]),
    ),
    "a digit times what divides its divisor": (
        ("C", "split", 0, [None, 8]),
        ("C", "decompose_reduction", 2, None),
        ("C_init", "split", 0, [3, None]),
        ("C_init", "fuse", 1, None),
        ("C_init", "fuse", 0, None),
    ),
    "a digit that is less than its divisor": (
        ("C", "decompose_reduction", 0, None),
        ("C_init", "split", 0, [4, None]),
        ("C_init", "split", 1, [None, 3]),
        ("C_init", "fuse", 0, None),
    ),
}


@pytest.mark.parametrize("name", APART)
def test_an_initial_value_apart_over_symbolic_sizes_is_read_back(name: str) -> None:
    n, m = te.var("n"), te.var("m")
    a, k = te.placeholder((n, m), name="A", dtype="int64"), te.reduce_axis((0, m), name="k")
    c = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    for block, primitive, at, factors in APART[name]:
        loops = sch.get_loops(block)
        if primitive == "split":
            sch.split(loops[at], factors)  # type: ignore[arg-type]
        elif primitive == "fuse":
            sch.fuse(*loops[at : at + 2])
        else:
            sch.decompose_reduction(block, loops[at])
    assert parse(sch.func.script()).same(sch.func)
    x = np.arange(35).reshape(7, 5)
    y = np.zeros(7, np.int64)
    interp.run(sch.func, [x, y])
    assert np.array_equal(y, x.sum(axis=1))


FLATTENED = ([[[0, 1]]], [[[1, 0]]], [[[0, 1], 8], [[0, 1], 1, 8]], [[[0, 1], 1, 8], [[0, 1], 8]])


@pytest.mark.parametrize("layout", FLATTENED)
@pytest.mark.parametrize("copied", [False, True])
def test_a_row_of_a_parameter_times_its_rows_is_limited_by_memory(
    layout: Any, copied: bool
) -> None:
    """Indices of flattened layouts do not leave the 64-bit integers: the text reads back."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), "int32", "A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2, "B")
    func = te.create_prim_func([a, te.compute((n, m), lambda i, j: b[i, j] + 1, "C")])
    sch = Schedule(func)
    if copied:
        sch.cache_read("C", "B", "global", layout)
    else:
        sch.transform_layout("B", ("write", 0), layout)
    assert parse(sch.func.script()).same(sch.func)
    for shape in ((1, 1), (3, 5), (8, 2)):
        x = np.arange(shape[0] * shape[1], dtype="int32").reshape(shape)
        y = np.zeros_like(x)
        interp.run(sch.func, [x, y])
        np.testing.assert_array_equal(y, x * 2 + 1)


def test_a_product_of_sizes_that_no_parameter_has_may_be_large() -> None:
    """Extents of two parameters are limited, their product is not: the index may wrap around."""
    n, m = te.var("n"), te.var("m")
    a, c = te.placeholder((n,), "int32", "A"), te.placeholder((m,), "int32", "C")
    b = te.compute((n, m), lambda i, j: a[i] * c[j], "B")
    k = te.reduce_axis((0, m), "k")
    sch = Schedule(
        te.create_prim_func([a, c, te.compute((n,), lambda i: te.sum(b[i, k], axis=k), "D")])
    )
    sch.transform_layout("B", ("write", 0), [[[0, 1]]])
    with pytest.raises(VerifyError, match=r"vi \* m \+ vj may reach beyond 2\*\*62"):
        parse(sch.func.script())
