"""Reduction loops over padded operands: they leave out what adds nothing, and nothing else."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from guarded import HOST, check

import autosched as at
from autosched import te
from autosched.codegen.build import generate_ir
from autosched.graph.ops.conv import conv_transpose
from autosched.graph.ops.tensors import computed, within
from autosched.schedule import Schedule
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

SHAPES = [
    # n, taps, stride, padding, dilation
    (9, 3, 1, 1, 1),
    (10, 5, 2, 2, 1),
    (7, 3, 1, 6, 1),  # whole tiles of padding
    (11, 4, 3, 5, 2),
    (5, 7, 1, 3, 1),
    (1, 7, 2, 3, 1),
    (2, 4, 3, 5, 2),
    (24, 15, 1, 7, 1),  # most taps meet data in all rows of a tile
    (40, 11, 2, 9, 1),
    (9, 15, 1, 7, 1),
    (30, 9, 1, 8, 2),
]


def conv(n: int, taps: int, stride: int, pad: int, dilation: int, reducer: str = "sum") -> PrimFunc:
    """A row of 32 channels, each filtered by itself, its padding inlined."""
    out = (n + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
    a = te.placeholder((n, 32), name="A")
    w = te.placeholder((taps, 32), name="W")
    r = te.reduce_axis((0, taps), name="r")

    def padded(x: te.Expr, c: te.Expr, otherwise: float) -> te.Expr:
        inside = te.all(x >= pad, x < n + pad)
        return te.if_then_else(inside, a[x - pad, c], otherwise)

    def term(i: te.Expr, c: te.Expr) -> te.Expr:
        at_ = i * stride + r * dilation
        if reducer == "max":
            return te.max(padded(at_, c, -np.inf), axis=r)
        return te.sum(padded(at_, c, 0.0) * w[r, c], axis=r)

    b = te.compute((out, 32), term, name="B")
    return te.create_prim_func([a, w, b] if reducer == "sum" else [a, b])


def tiled(func: PrimFunc, rows: int, order: str) -> Schedule:
    """`rows` outputs in registers at a time; the rows inside the loops over taps, between them, or
    outside."""
    sch = Schedule(func)
    block = sch.get_block("B")
    i, c, r = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, rows])
    r0, r1 = sch.split(r, [None, 2])
    orders = {
        "in": (i0, r0, r1, i1, c),
        "between": (i0, r0, i1, r1, c),
        "out": (i0, i1, r0, r1, c),
    }
    sch.reorder(*orders[order])
    if order != "out":
        sch.unroll(i1)
    sch.vectorize(c)
    return sch


@pytest.mark.sampled(5)
@pytest.mark.parametrize("order", ["in", "between", "out"])
@pytest.mark.parametrize("reducer", ["sum", "max"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_that_counts_is_added(
    shape: tuple[int, int, int, int, int], reducer: str, order: str
) -> None:
    func = conv(*shape, reducer=reducer)
    for rows in (1, 2, 3):
        check(tiled(func, rows, order), func, rtol=1e-5, atol=1e-5)


def test_taps_that_all_rows_of_a_tile_have_stand_apart() -> None:
    """Those before and after ask each row whether its tap meets data, those between ask nothing."""
    sch = Schedule(conv(24, 15, 1, 7, 1))
    i, c, r = sch.get_loops(sch.get_block("B"))
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, r, i1, c)
    sch.unroll(i1)
    sch.vectorize(c)
    check(sch, conv(24, 15, 1, 7, 1), rtol=1e-5, atol=1e-5)
    text = generate_ir(sch.func, HOST).ir
    sums = [n for part in re.split(r"^\w+:", text, flags=re.M) if (n := part.count("llvm.fma."))]
    *sums, _ = sums  # the last part holds the declaration
    assert max(sums) == 4 * min(sums)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_copied_taps_stand_apart_too(shape: tuple[int, int, int, int, int]) -> None:
    """Three taps beside each other in a loop over taps, of which some are left over."""
    func = conv(*shape)
    for rows in (2, 5):
        sch = Schedule(func)
        i, c, r = sch.get_loops(sch.get_block("B"))
        i0, i1 = sch.split(i, [None, rows])
        r0, r1 = sch.split(r, [None, 3])
        sch.reorder(i0, r0, r1, i1, c)
        sch.unroll(r1)
        sch.unroll(i1)
        sch.vectorize(c)
        check(sch, func, rtol=1e-5, atol=1e-5)


def test_rows_past_the_end_read_nothing_under_a_condition() -> None:
    """Two outputs in a tile of four, all unrolled: the condition holds for the third, but not for
    the second, where what overhangs is read otherwise. (LLVM leaves what nobody uses in a loop in a
    loop.)"""
    a = te.placeholder((2, 5, 32), name="A")
    q, r, k = (te.reduce_axis((0, n), name=x) for n, x in ((2, "q"), (3, "r"), (5, "k")))

    def term(i: te.Expr, c: te.Expr) -> te.Expr:
        x = i * 2 + r * 2
        inside = te.all(x >= 3, x < 5)
        return te.sum(te.if_then_else(inside, a[x - 3, k, c], 0.0), axis=[q, r, k])

    func = te.create_prim_func([a, te.compute((2, 32), term, name="B")])
    sch = Schedule(func)
    i, c, twice, taps, depth = sch.get_loops(sch.get_block("B"))
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, twice, taps, i1, depth, c)
    sch.unroll(taps)
    sch.unroll(i1)
    sch.vectorize(c)
    check(sch, func)


def test_taps_that_meet_only_padding_are_left_out() -> None:
    """Visible where a weight is infinite: 0 times it would be no number."""
    n, pad = 6, 2
    func = conv(n, 5, 1, pad, 1)
    data = np.ones((n, 32), np.float32)
    out = {}
    for rows, order in itertools.product((1, 3), ("out", "in")):
        weight = np.ones((5, 32), np.float32)
        weight[0] = np.inf
        result = np.empty((n, 32), np.float32)
        at.build(tiled(func, rows, order), target=HOST)(data, weight, result)
        out[rows, order] = np.isfinite(result).all(axis=1)
        assert not np.isnan(result[pad:]).any()
    # The first tap meets padding in the first two rows; where they are in a tile with the third,
    # all three are computed.
    assert out[1, "out"].tolist() == [True, True, False, False, False, False]
    assert out[3, "out"].tolist() == [True, True, False, False, False, False]
    assert out[1, "in"].tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize("rows", [2, 3, 4, 6])
def test_rows_of_a_tile_leave_their_own_padding_out(rows: int) -> None:
    """Taps and rows unrolled: the first tile and the last skip what the others compute. Visible
    where the outer taps are infinite: a row that multiplies padding by them is no number."""
    n, taps, pad = 12, 5, 2
    func = conv(n, taps, 1, pad, 1)
    sch = Schedule(func)
    i, c, r = sch.get_loops(sch.get_block("B"))
    i0, i1 = sch.split(i, [None, rows])
    sch.reorder(i0, r, i1, c)
    sch.unroll(r)
    sch.unroll(i1)
    sch.vectorize(c)
    check(sch, func, rtol=1e-5, atol=1e-5)
    data, result = np.ones((n, 32), np.float32), np.empty((n, 32), np.float32)
    for tap, padded in ((0, slice(None, pad)), (taps - 1, slice(n - pad, None))):
        weight = np.ones((taps, 32), np.float32)
        weight[tap] = np.inf
        at.build(sch, target=HOST)(data, weight, result)
        finite = np.isfinite(result).all(axis=1)
        assert finite[padded].all()
        assert finite.sum() == pad
        assert not np.isnan(result).any()


def test_a_phase_of_a_transposed_convolution_has_its_own_taps() -> None:
    """Of 3 x 3 taps at stride 2 the four phases have 9, of 4 x 4 taps 4 each: so many products are
    in the code, for each row of the tile."""

    def products(kernel: int) -> int:
        x = te.placeholder((1, 16, 8, 8), name="x")
        w = te.placeholder((16, 8, kernel, kernel), name="w")
        with within({4: (0, 2, 3, 1)}):
            made = conv_transpose(x, w, strides=(2, 2), output_padding=(4 - kernel,) * 2)
        func = te.create_prim_func([x, w, computed(made, (0, 2, 3, 1))])
        target = Target("llvm -mcpu=skylake-avx512 -num-cores=1")
        text = generate_ir(default_schedule(func, target).func, target).ir
        return sum("call" in line and "@llvm.fma.v8f32(" in line for line in text.splitlines())

    assert 4 * products(3) == 9 * products(4)
