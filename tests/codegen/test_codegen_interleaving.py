"""Copies that put 2 to 4 rows side by side, element by element, such as an image's channels."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guarded import HOST, TARGETS, arguments, compiled

from autosched import te
from autosched.codegen.build import generate_ir
from autosched.schedule import Schedule
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

DTYPES = ["uint8", "int8", "float32", "float64"]
LLVM = {"uint8": "i8", "int8": "i8", "float32": "float", "float64": "double"}
COLUMNS = [2, 3, 4]


def program(dtype: str, rows: int, columns: int, pad: int = 0) -> PrimFunc:
    """out (rows, columns) of a (columns, rows), with `pad` rows of 7 before it and behind."""
    a = te.placeholder((columns, rows), name="a", dtype=dtype)

    def element(i, c):
        if not pad:
            return a[c, i]
        inside = te.all(i >= pad, i < rows + pad)
        return te.if_then_else(inside, a[c, i - pad], te.const(7, dtype))

    out = te.compute((rows + 2 * pad, columns), element, name="out")
    return te.create_prim_func([a, out])


def vectorized(func: PrimFunc, *factors: int | None, unrolled: bool = False) -> Schedule:
    """The columns as vectors; rows split by factors, the outer loop unrolled."""
    schedule = Schedule(func)
    rows, columns = schedule.get_loops(schedule.get_block("out"))
    if factors:
        outer, _ = schedule.split(rows, list(factors))
        if unrolled:
            schedule.unroll(outer)
    schedule.vectorize(columns)
    return schedule


def stores(schedule: Schedule, dtype: str, target: str = "llvm") -> list[int]:
    """Lanes of what is stored as vectors, in order."""
    ir = generate_ir(schedule.func, Target(target)).ir
    return [int(n) for n in re.findall(rf"store <(\d+) x {LLVM[dtype]}>", ir)]


def check(func: PrimFunc, schedule: Schedule, pad: int = 0, target: str = "llvm") -> None:
    """The compiled copy is NumPy's, with numbers of every byte."""
    (shape, dtype), *_ = [(tuple(map(int, p.shape)), p.dtype) for p in func.params]
    x = np.random.default_rng(0).integers(0, 256, shape).astype("u1").astype(dtype)
    arrays = arguments(func, [x])
    want = np.pad(x.T, ((pad, pad), (0, 0)), constant_values=7)
    np.testing.assert_array_equal(compiled(schedule, arrays, target)[1], want)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_side_by_side(dtype: str, columns: int) -> None:
    """Whole vectors, and those with a rest, are the transposed rows."""
    for rows in (16, 32, 37, 51):
        func = program(dtype, rows, columns)
        check(func, vectorized(func))


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_vectors_are_stored_once(dtype: str, columns: int) -> None:
    """One store for all columns of as many rows as a vector has, on each target."""
    for target in TARGETS:
        if dtype == "float64" and "avx2" not in Target(target).features:
            continue  # a vector has two: fewer than a square's side
        found = stores(vectorized(program(dtype, 48, columns)), dtype, target)
        assert len(found) == 1
        assert found[0] in [columns * n for n in (4, 8, 16)]


@pytest.mark.parametrize("target", TARGETS)
def test_each_target(target: str) -> None:
    for columns in COLUMNS:
        func = program("uint8", 37, columns)
        check(func, vectorized(func), target=target)


@pytest.mark.parametrize("pad", [1, 5])
@pytest.mark.parametrize("columns", COLUMNS)
def test_padded_rows(columns: int, pad: int) -> None:
    """Elements under a condition are read only where there are any; whole vectors are stored."""
    for dtype in ("uint8", "float32"):
        for rows in (32, 39):
            func = program(dtype, rows, columns, pad)
            check(func, vectorized(func), pad)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("target", TARGETS)
def test_rows_as_parts_of_a_dimension(target: str, columns: int, pad: int) -> None:
    """Pixels and their channels as one axis, by the default schedule: whole vectors are stored."""
    for dtype in ("uint8", "float32"):
        for width in (32, 39):
            x = te.placeholder((columns, 5, width), name="x", dtype=dtype)
            wide = width + 2 * pad

            def element(i, j, x=x, width=width, dtype=dtype):
                place = j // columns
                e = x[j % columns, i, place - pad]
                inside = te.all(place >= pad, place < width + pad)
                return te.if_then_else(inside, e, te.const(7, dtype)) if pad else e

            func = te.create_prim_func([x, te.compute((5, wide * columns), element, name="out")])
            value = np.random.default_rng(3).integers(0, 256, (columns, 5, width)).astype(dtype)
            schedule = default_schedule(func, Target(target + " -num-cores=1"))
            found = compiled(schedule, arguments(func, [value]), target)[1]
            around = ((0, 0), (0, 0), (pad, pad))
            want = np.pad(value, around, constant_values=7).transpose(1, 2, 0)
            np.testing.assert_array_equal(found, want.reshape(5, -1))
            if Target(target).vector_bytes >= 32:
                lanes = Target(target).vector_bytes // np.dtype("f4").itemsize
                assert columns * lanes in stores(schedule, dtype, target) or dtype == "uint8"


@pytest.mark.parametrize("unrolled", [False, True])
@pytest.mark.parametrize(
    ("rows", "factors"),
    [(37, (None, 16)), (10, (None, 16)), (20, (2, 16)), (20, (None, 32)), (48, (3, 16)),
     (15, (None, 16)), (33, (3, 16)), (5, (None, 8))],
)  # fmt: skip
@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_beyond_the_end(columns: int, rows: int, factors, unrolled: bool) -> None:
    """Tiles that hang over the end write nothing there, where the first row of a tile is known when
    the code is made, too."""
    for dtype in ("uint8", "float32"):
        func = program(dtype, rows, columns)
        check(func, vectorized(func, *factors, unrolled=unrolled))


def test_rows_of_an_image() -> None:
    """(channels, height, width) to (height, width, channels), padded in height and width."""
    x = te.placeholder((3, 6, 20), name="x", dtype="uint8")
    inside = [lambda i, n, p: i >= p, lambda i, n, p: i < n + p]
    out = te.compute(
        (8, 24, 3),
        lambda i, j, c: te.if_then_else(
            te.all(*(f(i, 6, 1) for f in inside), *(f(j, 20, 2) for f in inside)),
            x[c, i - 1, j - 2], te.const(9, "uint8"),
        ),
        name="out",
    )  # fmt: skip
    func = te.create_prim_func([x, out])
    schedule = Schedule(func)
    schedule.vectorize(schedule.get_loops(schedule.get_block("out"))[-1])
    value = np.random.default_rng(1).integers(0, 256, (3, 6, 20)).astype("u1")
    found = compiled(schedule, arguments(func, [value]))[1]
    want = np.pad(value.transpose(1, 2, 0), ((1, 1), (2, 2), (0, 0)), constant_values=9)
    np.testing.assert_array_equal(found, want)


OTHERS = {
    "rows in reverse": ((40, 3), lambda a, i, c: a[c, 39 - i]),
    "every other row": ((20, 3), lambda a, i, c: a[c, 2 * i]),
    "columns in reverse": ((40, 3), lambda a, i, c: a[2 - c, i]),
    "part of the columns": ((40, 5), lambda a, i, c: a[c % 3, i]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_orders(name: str) -> None:
    """Copies that look alike."""
    shape, body = OTHERS[name]
    a = te.placeholder((3, 40), name="a", dtype="uint8")
    func = te.create_prim_func([a, te.compute(shape, lambda i, c: body(a, i, c), name="out")])
    x = np.random.default_rng(2).integers(0, 256, (3, 40)).astype("u1")
    want = [
        [int(x[v]) for v in row]
        for row in (
            [[(c, 39 - i) for c in range(3)] for i in range(40)],
            [[(c, 2 * i) for c in range(3)] for i in range(20)],
            [[(2 - c, i) for c in range(3)] for i in range(40)],
            [[(c % 3, i) for c in range(5)] for i in range(40)],
        )[list(OTHERS).index(name)]
    ]
    found = compiled(vectorized(func), arguments(func, [x]))[1]
    np.testing.assert_array_equal(found, np.array(want, "u1"))


def test_rows_of_fused_loops() -> None:
    """One loop of both axes of an image; a row of it ends a line of memory."""
    a = te.placeholder((3, 5, 8), name="a", dtype="uint8")
    func = te.create_prim_func(
        [a, te.compute((5, 8, 3), lambda i, j, c: a[c, i, j], name="out")]
    )  # fmt: skip
    schedule = Schedule(func)
    i, j, c = schedule.get_loops(schedule.get_block("out"))
    schedule.fuse(i, j)
    schedule.vectorize(c)
    x = np.random.default_rng(3).integers(0, 256, (3, 5, 8)).astype("u1")
    found = compiled(schedule, arguments(func, [x]))[1]
    np.testing.assert_array_equal(found, x.transpose(1, 2, 0))


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_that_lie_apart(columns: int) -> None:
    """An intermediate whose rows begin at multiples of eight elements."""
    a = te.placeholder((columns, 40), name="a", dtype="uint8")
    t = te.compute((40, columns), lambda i, c: a[c, i], name="t")
    out = te.compute((40, columns), lambda i, c: t[i, c] + te.const(1, "uint8"), name="out")
    func = te.create_prim_func([a, out])
    schedule = Schedule(func)
    block = schedule.get_block("t")
    schedule.storage_align(block, 0, 0, 8, 0)
    schedule.vectorize(schedule.get_loops(block)[-1])
    x = np.random.default_rng(4).integers(0, 255, (columns, 40)).astype("u1")
    found = compiled(schedule, arguments(func, [x]))[1]
    np.testing.assert_array_equal(found, x.T + 1)


def test_this_machine_stores_wide_vectors() -> None:
    """The path is taken here."""
    if "avx2" in HOST.features:
        assert stores(vectorized(program("uint8", 64, 3)), "uint8") == [48]
