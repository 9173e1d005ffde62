"""Reductions whose elements are set before their loops, in a nest of their own."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_run import cuda, inputs_of, run, source

from autosched.schedule import Schedule
from autosched.script import parse
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc

CHOSEN = """
@T.prim_func
def main(I: T.Buffer((4,), "int64"), A: T.Buffer((4, 3), "int32"), B: T.Buffer((2, 4), "int32")):
    for z, y in T.grid(2, 4):
        with T.block("fill"):
            w = T.axis.spatial(2, z)
            x = T.axis.spatial(4, y)
            B[w, x] = T.int32(1)
    for i, k in T.grid(4, 3):
        with T.block("r"):
            v = T.axis.spatial(4, i)
            c = T.axis.reduce(3, k)
            with T.init():
                B[T.max(T.min(I[v], 1), 0), v] = T.int32(0)
            B[T.max(T.min(I[v], 1), 0), v] = B[T.max(T.min(I[v], 1), 0), v] + A[v, c]
"""
BAND = """
@T.prim_func
def main(A: T.Buffer((10, 3), "int32"), B: T.Buffer((10,), "int32")):
    for z in T.serial(10):
        with T.block("fill"):
            w = T.axis.spatial(10, z)
            B[w] = T.int32(7)
    for i, k in T.grid(10, 3):
        with T.block("r"):
            v = T.axis.spatial(10, i)
            c = T.axis.reduce(3, k)
            T.where(i + k < 7)
            with T.init():
                B[v] = T.int32(0)
            B[v] = B[v] + A[v, c]
"""
BEYOND = """
@T.prim_func
def main(A: T.Buffer((7, 3), "int32"), B: T.Buffer((7,), "int32")):
    for i, k in T.grid(10, 3):
        with T.block("r"):
            v = T.axis.spatial(7, i)
            c = T.axis.reduce(3, k)
            T.where(i + k < 7)
            with T.init():
                B[v] = T.int32(0)
            B[v] = B[v] + A[v, c]
"""


def bound(text: str, outside: bool) -> PrimFunc:
    """Two elements a block; `outside`: the reduction loop around those."""
    sch = Schedule(parse(text))
    for block in sch.get_blocks():
        loop, *rest = sch.get_loops(block)
        outer, inner = sch.split(loop, [None, 2])
        sch.bind(outer, "blockIdx.x")
        if outside:
            sch.reorder(*rest, inner)
    return sch.func


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("text", [CHOSEN, BAND, BEYOND])
def test_each_element_is_set_where_its_first_point_is(text: str, outside: bool) -> None:
    """Elements that data choose; those of no point, which keep what they held; and no others."""
    func = bound(text, outside)
    assert ("acc" in source(func, cuda())) != outside  # where they are set, if not in memory
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, b.shape).astype(b.dtype) for b in inputs_of(func)]
    wanted = np.zeros(func.params[-1].shape, "int32")
    interp.run(func, [*arrays, wanted])
    assert np.array_equal(run(func, arrays)[0], wanted)


def test_nothing_is_set_behind_a_buffer() -> None:
    text = source(bound(BEYOND, True), cuda())
    before = text[: text.index("] = 0;")]
    assert "if (bx * 2 + i_1 < 7)" in before
