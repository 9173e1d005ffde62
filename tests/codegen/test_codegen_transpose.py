"""Copies that turn rows into columns: squares of every shape, under conditions and predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from guarded import TARGETS, check

from autosched import te
from autosched.codegen.build import generate_ir
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

BODIES: dict[str, Callable[..., Any]] = {
    "copy": lambda a, b, i, j: a[j, i],
    "sum of two": lambda a, b, i, j: a[j, i] + b[j] * a[j, i],
    "padded": lambda a, b, i, j: te.if_then_else(
        te.all(j >= 2, i >= 3), a[j - 2, i - 3], te.const(7, a.dtype)
    ),
    "shifted rows": lambda a, b, i, j: te.if_then_else(
        i < 21, a[(j + 1) % 40, i + 16], te.const(7, a.dtype)
    ),
}


def program(name: str, dtype: str = "float32", rows: int = 40, columns: int = 37) -> PrimFunc:
    """out (columns, rows) of a (rows, columns) and b (rows,)."""
    a = te.placeholder((rows, columns), name="a", dtype=dtype)
    b = te.placeholder((rows,), name="b", dtype=dtype)
    out = te.compute((columns, rows), lambda i, j: BODIES[name](a, b, i, j), name="out")
    return te.create_prim_func([a, b, out])


def gathers(sch: Schedule, target: str) -> bool:
    """Whether some element is loaded one by one."""
    return "masked.gather" in generate_ir(sch.func, Target(target)).ir


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BODIES)
def test_squares(name: str, target: str) -> None:
    """Whole squares, what is left of rows and columns, tiles with an overhang, loops between."""
    func = program(name)
    for form in ("plain", "overhang", "between", "unrolled", "parallel"):
        sch = Schedule(func)
        i, j = sch.get_loops(sch.get_block("out"))
        if form == "plain":
            sch.vectorize(j)
        elif form in ("overhang", "parallel"):
            j0, j1 = sch.split(j, [None, 24])
            i0, i1 = sch.split(i, [None, 17])
            sch.reorder(j0, i0, i1, j1)
            sch.vectorize(j1)
            if form == "parallel":
                sch.parallel(j0)
        else:
            j0, j1 = sch.split(j, [None, 16])
            sch.vectorize(j1)
            if form == "unrolled":
                sch.unroll(j0)
        check(sch, func, target=target)
        if name in ("copy", "sum of two"):
            assert not gathers(sch, target), form


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "int32", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    """Sides of 8 and 16 elements of any size."""
    name = "copy" if dtype == "bfloat16" else "sum of two"
    func = program(name, dtype)
    sch = Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("out"))[1])
    check(sch, func)
    assert not gathers(sch, "llvm")


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 40), (40, 1), (5, 40), (9, 8), (16, 16), (40, 3)]
)
def test_narrow(rows: int, columns: int) -> None:
    """Less than a square in one direction."""
    func = program("copy", rows=rows, columns=columns)
    sch = Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("out"))[1])
    check(sch, func)


def test_packed_across() -> None:
    """A weight matrix whose rows are the outputs is packed into panels without a gather."""
    a = te.placeholder((12, 37), name="a")
    w = te.placeholder((50, 37), name="w")
    k = te.reduce_axis((0, 37), name="k")
    out = te.compute((12, 50), lambda i, j: te.sum(a[i, k] * w[j, k], axis=k), name="out")
    func = te.create_prim_func([a, w, out])
    sch = Schedule(func)
    block = sch.get_block("out")
    i, j, r = sch.get_loops(block)
    j0, j1 = sch.split(j, [None, 32])
    sch.reorder(j0, i, r, j1)
    panel = sch.cache_read(block, 1, "global", [[0, 32], [1], [0, 1, 32]])
    sch.vectorize(sch.get_loops(panel)[-1])
    check(sch, func)
    sch.compute_at(panel, j0)
    sch.vectorize(j1)
    check(sch, func)
    assert not gathers(sch, "llvm")
