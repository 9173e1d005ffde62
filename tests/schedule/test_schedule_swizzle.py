"""Layouts that turn one dimension by others: `(i, (i + j) % 16)`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from schedule_programs import matmul_add

import autosched as at
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.admit import admitted
from autosched.tir.affine import Affine, Digit, Int
from autosched.tir.apart import injective
from autosched.tir.expr import Var
from autosched.tir.nodes import PrimFunc

LAYOUTS: dict[str, Any] = {
    "sum": lambda i, j: (i, (i + j) % 16),
    "data": [0, [1, 1, 16, 0]],
    "digit": lambda i, j: (i, (j + i // 2) % 16),
    "two digits": lambda i, j: (i, (j + i // 2 % 4) % 16),
    "rows": lambda i, j: ((i + j) % 8, j),
    "transposed": lambda i, j: ((j + i) % 16, i),
    "tiles": [[0, 4], [0, 1, 4], [1, 1, 16, [0, 1, 4]]],
}


def program() -> PrimFunc:
    return matmul_add(8, 16, 4)


def run(func: PrimFunc, compiled: bool) -> None:
    """What `func` computes equals NumPy."""
    rng = np.random.default_rng(3)
    a, b, c = (rng.random(s, "float32") for s in ((8, 4), (4, 16), (8, 16)))
    out = np.full((8, 16), 9, "float32")
    if compiled:
        at.build(func, target="llvm")(a, b, c, out)
    else:
        interp.run(func, [a, b, c, out])
    np.testing.assert_allclose(out, a @ b + c, rtol=1e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_results_stay(name: str) -> None:
    """Loops in parallel and in vectors before and after; the verifier takes what comes out."""
    sch = Schedule(program())
    i, j, k = sch.get_loops("matmul")
    sch.reorder(i, k, j)
    sch.vectorize(j)
    sch.transform_layout("matmul", "matmul", LAYOUTS[name])
    sch.parallel(i)
    sch.vectorize(sch.get_loops("out")[1])
    func = parse_func(sch.func.script())
    assert func.same(admitted(sch.func))
    for compiled in (False, True):
        run(sch.func, compiled)
    assert sch.trace.apply(program()).func.same(sch.func)


@pytest.mark.parametrize("name", LAYOUTS)
def test_copies_are_turned_back(name: str) -> None:
    sch = Schedule(program())
    copy = sch.cache_read("out", "matmul", "local", LAYOUTS[name])
    if name in ("sum", "digit"):
        sch.compute_at(copy, sch.get_loops("out")[0])
    assert parse_func(sch.func.script()).same(sch.func)
    for compiled in (False, True):
        run(sch.func, compiled)


REFUSED: dict[str, tuple[Any, str]] = {
    "modulus": ([0, [1, 1, 8, 0]], "a swizzle [d, 1, mod, by] turns one whole dimension"),
    "digit": ([0, [1, 2, 16, 0]], "does not determine the index of dimension 1"),
    "itself": ([0, [1, 1, 16, 1]], "dimension 1 is turned by [1]; expected dimensions that are"),
    "both": ([[0, 1, 8, 1], [1, 1, 16, 0]], "expected dimensions that are not swizzled themselves"),
    "twice": ([0, [1, 1, 16, [0, 1, 4, 1]]], "a layout dimension is d, [d, div] or [d, div, mod]"),
    "no rows": (lambda i, j: ((i + j) % 16, j), "does not determine the index of dimension 0"),
    "function": (lambda i, j: (i, (i + j) % 12), "or a swizzle (x + digit of others) % extent of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    layout, message = REFUSED[name]
    sch = Schedule(program())
    with pytest.raises(ScheduleError, match=re.escape(message)):
        sch.transform_layout("matmul", "matmul", layout)


SQUARE: dict[str, Any] = {
    "sum": (lambda i, j: (i, (i + j) % 16), [0, [1, 1, 16, 0]]),
    "rows": (lambda i, j: ((i + j) % 16, j), [[0, 1, 16, 1], 1]),
    "tiles": (lambda i, j: (i // 4, i % 4, (j + i) % 16), [[0, 4], [0, 1, 4], [1, 1, 16, 0]]),
}


@pytest.mark.parametrize("name", SQUARE)
def test_the_turned_dimension_is_the_one_that_nothing_else_tells(name: str) -> None:
    """Where both extents are the modulus, either addend may be the turned one."""
    function, data = SQUARE[name]
    made = [Schedule(matmul_add(16, 16, 4)) for _ in range(2)]
    for sch, layout in zip(made, (function, data), strict=True):
        sch.transform_layout("matmul", "matmul", layout)
    assert made[0].func.same(made[1].func)
    sch = Schedule(matmul_add(16, 16, 4))
    with pytest.raises(ScheduleError, match="does not determine the index of dimension"):
        sch.transform_layout("matmul", "matmul", lambda i, j: ((i + j) % 16, (i + j) % 16))


def test_axes_are_not_swizzled() -> None:
    sch = Schedule(program())
    with pytest.raises(ScheduleError, match="a swizzle is a layout of buffers"):
        sch.transform_block_layout("out", [0, [1, 1, 16, 0]])


def test_what_a_turned_index_tells() -> None:
    """`(i + j) % m` and i tell j, if j has at most m values; without i, or cut once more, not."""
    i, j = Var("i"), Var("j")
    extents: dict[Var, Int] = {i: 5, j: 8}
    row, both = Affine.of(i), Affine.of(i) + Affine.of(j)

    def told(forms: list[Affine], over: list[Var], sizes: dict[Var, Int] = extents) -> bool:
        return bool(injective(forms, over, sizes))

    turned = Affine.of(Digit(both, 1, 8))
    assert told([row, turned], [i, j])
    assert told([turned, row], [i, j])
    assert told([turned], [j])  # i is fixed
    assert not told([turned], [i, j])
    assert not told([row, turned], [i, j], {i: 5, j: 9})
    assert not told([row, Affine.of(Digit(both, 2, 8))], [i, j])
    assert not told([row, Affine.of(Digit(both + Affine.of(j), 1, 8))], [i, j])
    assert told([row, Affine.of(Digit(both + Affine.of(j), 1, 16))], [i, j])
