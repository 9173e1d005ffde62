"""Extents that are prime, 1, below a vector and around every tile size, for each kind of loop."""

from __future__ import annotations

import itertools

import pytest
from guarded import HOST, MANY, Target, check

from autosched import te
from autosched.codegen.build import generate_ir
from autosched.schedule import Schedule
from autosched.tir.nodes import PrimFunc


def matmul(n: int, k: int, m: int, dtype: str = "float32") -> PrimFunc:
    a = te.placeholder((n, k), name="A", dtype=dtype)
    b = te.placeholder((k, m), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, c])


def tiled(
    func: PrimFunc,
    rows: int,
    cols: int,
    depth: int,
    *,
    pack: bool = False,
    order: str = "ijk",
    unroll_depth: bool = True,
) -> Schedule:
    """Register tiles of `rows` x `cols`, `depth` terms at a time; `order` of the loops around."""
    sch = Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, cols])
    k0, k1 = sch.split(k, [None, depth])
    outer = {"i": i0, "j": j0, "k": k0}
    sch.reorder(*(outer[x] for x in order), k1, i1, j1)
    if pack:
        panel = sch.cache_read(block, "B", "local", [[1, cols], [0], [1, 1, cols]])
        sch.compute_at(panel, outer[order[0]])
        sch.vectorize(sch.get_loops(panel)[-1])
    sch.unroll(i1)
    if unroll_depth:
        sch.unroll(k1)
    sch.vectorize(j1)
    if order[0] != "k":
        sch.parallel(outer[order[0]])
    return sch


def around(size: int) -> list[int]:
    """1, and what lies around one and two times `size`."""
    return sorted({1, 2, size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1} - {0})


@MANY
@pytest.mark.parametrize("m", around(Target("llvm").vector_bytes // 4) + [3, 5, 47])
def test_lanes(m: int, target: str) -> None:
    """The vectorised axis of a tile, one and two vectors wide."""
    for vectors in (1, 2):
        cols = vectors * HOST.vector_bytes // 4
        func = matmul(6, 5, m)
        for pack in (False, True):
            check(tiled(func, 3, cols, 2, pack=pack), func, target=target)


@MANY
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 13])
def test_rows(n: int, target: str) -> None:
    """The unrolled axis of a tile: rows that overhang read a valid row and are not stored."""
    for rows in (1, 4, 8):
        func = matmul(n, 3, 20)
        check(tiled(func, rows, 16, 2), func, target=target)


@MANY
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7, 8, 9, 11])
def test_depth(k: int, target: str) -> None:
    """The reduction axis: copies and a remainder, or a shorter trip."""
    for depth, unroll in itertools.product((1, 3, 4), (False, True)):
        func = matmul(5, k, 18)
        check(tiled(func, 4, 16, depth, unroll_depth=unroll), func, target=target)


@pytest.mark.parametrize("order", ["ijk", "jik", "kij", "ikj", "kji"])
def test_all_at_once(order: str) -> None:
    """Every axis overhangs its tile, in every order; with `k` outside, C holds partial results."""
    for n, k, m in ((1, 1, 1), (7, 5, 19), (9, 7, 33), (13, 11, 37), (2, 3, 100)):
        func = matmul(n, k, m)
        for pack in (False, True):
            check(tiled(func, 4, 32, 3, pack=pack, order=order), func)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int32", "uint8"])
def test_dtypes(dtype: str) -> None:
    for n, k, m in ((1, 1, 1), (5, 4, 17), (7, 3, 65), (3, 5, 131)):
        func = matmul(n, k, m, dtype)
        check(tiled(func, 4, 32, 2, pack=True), func)
        check(tiled(func, 3, 80, 3), func)


@pytest.mark.parametrize("extent", [1, 2, 3, 7, 16, 17, 31, 64, 65, 100, 257])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bool"])
def test_vectorised_loops(dtype: str, extent: int) -> None:
    """Whole rows in vectors: a loop over vectors, whole vectors, narrower and partial ones."""
    a = te.placeholder((3, extent), name="A", dtype=dtype)
    out = te.compute((3, extent), lambda i, j: te.max(a[i, j], a[2 - i, j]), name="C")
    func = te.create_prim_func([a, out])
    sch = Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("C"))[1])
    check(sch, func)
    sch = Schedule(func)
    sch.vectorize(sch.fuse(*sch.get_loops(sch.get_block("C"))))
    check(sch, func)


@pytest.mark.parametrize("factor", [1, 2, 3, 5, 16, 20, 40])
@pytest.mark.parametrize("kind", ["serial", "unroll", "vectorize", "parallel"])
def test_splits_that_do_not_divide(kind: str, factor: int) -> None:
    """One and two levels, each kind of loop outside and inside."""
    n, m = 17, 23
    a = te.placeholder((n, m), name="A", dtype="int32")
    out = te.compute((n, m), lambda i, j: a[i, j] * 3 + 1, name="C")
    func = te.create_prim_func([a, out])
    for three in (False, True):
        for inside in (False, True):
            sch = Schedule(func)
            i, j = sch.get_loops(sch.get_block("C"))
            for loop in (i, j):
                parts = sch.split(loop, [None, 3, factor] if three else [None, factor])
            if kind != "serial":
                getattr(sch, kind)(parts[-1] if inside or kind == "vectorize" else parts[0])
            check(sch, func)


def test_nested_tails() -> None:
    """A tail of a tail: neither split divides, the second not even the first's factor."""
    func = matmul(23, 19, 41)
    for factors in itertools.product((2, 5), (3, 7)):
        sch = Schedule(func)
        i, j, k = sch.get_loops(sch.get_block("C"))
        i0, i1, i2 = sch.split(i, [None, *factors])
        j0, j1, j2 = sch.split(j, [None, 3, 16])
        k0, k1 = sch.split(k, [None, 4])
        k1, k2 = sch.split(k1, [None, 3])
        sch.reorder(i0, j0, k0, i1, j1, k1, k2, i2, j2)
        sch.unroll(i2)
        sch.unroll(k2)
        sch.vectorize(j2)
        check(sch, func)


def test_copies_do_not_share_what_they_know() -> None:
    """Tiles below an unrolled loop: the second copy's tails are its own."""
    func = matmul(6, 5, 21)
    for outer in (2, 3):
        sch = Schedule(func)
        i, j, k = sch.get_loops(sch.get_block("C"))
        i0, i1 = sch.split(i, [None, 2])
        j0, j1, j2 = sch.split(j, [None, outer, 8])
        sch.reorder(i0, j0, j1, k, i1, j2)
        sch.unroll(i0)
        sch.unroll(i1)
        sch.vectorize(j2)
        check(sch, func)
        sch = Schedule(func)
        i, j, k = sch.get_loops(sch.get_block("C"))
        i0, i1 = sch.split(i, [None, 3])
        j0, j1, j2 = sch.split(j, [None, 12, 1])
        sch.reorder(i0, j0, j1, k, j2, i1)
        sch.unroll(i0)
        sch.unroll(j0)
        sch.vectorize(i1)
        check(sch, func)


@MANY
@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("int64", "int32"), ("int64", "uint8"), ("int32", "int16"), ("float32", "int8")],
)
def test_a_tail_of_one_lane_leaves_its_neighbours(wide: str, narrow: str, target: str) -> None:
    """Truncated and stored as one lane of a vector, also before what is not the kernel's."""
    for width, extent in itertools.product((4, 8, 16), (1, 17)):
        a = te.placeholder((5, extent), name="A", dtype=wide)
        out = te.compute(a.shape, lambda i, j, a=a: a[i, j].astype(narrow), name="C")
        func = te.create_prim_func([a, out])
        sch = Schedule(func)
        sch.vectorize(sch.split(sch.get_loops(sch.get_block("C"))[1], [None, width])[1])
        check(sch, func, target=target)


def test_a_panel_below_the_bound_is_read_where_it_is() -> None:
    """Where three panels are run over by two times two, the first column of a tile says whether its
    panel is there. The loops around ask first, before that is known."""
    a, w = te.placeholder((4, 8), name="A"), te.placeholder((3, 8, 16), name="W")
    r = te.reduce_axis((0, 8), name="k")
    c = te.compute((4, 40), lambda i, j: te.sum(a[i, r] * w[j // 16, r, j % 16], axis=r), name="C")
    func = te.create_prim_func([a, w, c])
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    j0, j1, j2 = sch.split(j, [2, 2, 16])
    sch.reorder(j0, j1, k, i, j2)
    sch.unroll(i)
    sch.vectorize(j2)
    check(sch, func, rtol=1e-5)
    assert " select " not in generate_ir(sch.func, Target("llvm -mcpu=x86-64-v3")).ir  # no clamp
