"""A buffer that is updated through a copy holds the same afterwards."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir.interp import run
from autosched.tir.nodes import PrimFunc

INPLACE_CALL = """
@T.prim_func
def inplace_call(data_io: T.Buffer((64,), "int32"), out: T.Buffer((64,), "int32")):
    for i0 in T.serial(1):
        with T.block("ext_call"):
            T.reads(data_io[0:64])
            T.writes(data_io[0:64])
            for i in T.serial(63):
                data_io[i + 1] = data_io[i + 1] + data_io[i]
    for i0 in T.serial(64):
        with T.block("out"):
            v0 = T.axis.remap("S", [i0])
            out[v0] = data_io[v0] * 2
"""
HISTOGRAM = """
@T.prim_func
def histogram(values: T.Buffer((50,), "int64"), bins: T.Buffer((16,), "int64")):
    for b in T.serial(16):
        with T.block("zero"):
            vb = T.axis.spatial(16, b)
            bins[vb] = vb
    for n in T.serial(50):
        with T.block("count"):
            vn = T.axis.reduce(50, n)
            bins[values[vn] % 16] += 1
"""


def same(sch: Schedule, before: PrimFunc) -> None:
    """Both programs leave the same in all parameters, interpreted and compiled; the text is read
    back, and the trace does the same again."""
    rng = np.random.default_rng(1)
    start = [rng.integers(0, 9, [int(n) for n in p.shape]).astype(p.dtype) for p in before.params]
    found = []
    for how in (
        lambda a: run(before, a),
        lambda a: run(sch.func, a),
        lambda a: at.build(sch.func)(*a),
    ):
        arrays = [x.copy() for x in start]
        how(arrays)
        found.append(arrays)
    for other in found[1:]:
        for x, y in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(x, y)
    assert parse_func(sch.func.script()).same(sch.func)
    again = Schedule(before)
    again.replay(sch.trace)
    assert again.func.same(sch.func)


def test_the_predecessors_program() -> None:
    before = parse_func(INPLACE_CALL)
    sch = Schedule(before)
    enter, leave = sch.cache_inplace("ext_call", 0, "global")
    sch.cache_read(enter, 0, "global")
    sch.cache_write(leave, 0, "global")
    same(sch, before)


def test_a_histogram_counts_in_a_copy() -> None:
    before = parse_func(HISTOGRAM)
    sch = Schedule(before)
    enter, leave = sch.cache_inplace("count", "bins", "local")
    assert [sch.get(b).name for b in (enter, leave)] == ["bins_local", "bins_out"]
    assert sch.get(enter).writes[0].buffer.scope == "local"
    same(sch, before)


def test_twice() -> None:
    before = parse_func(HISTOGRAM)
    sch = Schedule(before)
    sch.cache_inplace("count", 0)
    sch.cache_inplace("count", 0, "local")
    same(sch, before)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("tile", [None, 3, 9])
def test_a_sum_whose_start_is_apart(depth: int, tile: int | None) -> None:
    x = te.placeholder((6, 9, 4), "int64", "x")
    k = te.reduce_axis((0, 4), name="k")
    y = te.compute((6, 9), lambda i, j: te.sum(x[i, j, k], axis=k), name="y")
    z = te.compute((6, 9), lambda i, j: y[i, j] + 1, name="z")
    before = te.create_prim_func([x, z])
    sch = Schedule(before)
    i, j, k_ = sch.get_loops("y")
    if tile is not None:
        j0, j1 = sch.split(j, [None, tile])
        sch.reorder(i, j0, k_, j1)
        loops = [i, j0, k_]
    else:
        loops = [i, j, k_]
    sch.decompose_reduction("y", loops[depth])
    sch.cache_inplace("y", "y", "local")
    same(sch, before)


def test_what_it_refuses() -> None:
    a = te.placeholder((8,), name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1.0, name="B")]))
    with pytest.raises(ScheduleError, match="writes no buffer that it reads"):
        sch.cache_inplace("B", 0)
    matmul = at.SearchTask(func="matmul", args=(4, 4, 4), target="llvm").prim_func
    with pytest.raises(ScheduleError, match="decompose_reduction takes the initial value out"):
        Schedule(matmul).cache_inplace("C", 0)
    sch = Schedule(parse_func(HISTOGRAM))
    with pytest.raises(ScheduleError, match="expected a buffer that the block reads and writes, b"):
        sch.cache_inplace("count", "values")
    sch = Schedule(parse_func(INPLACE_CALL))
    with pytest.raises(ScheduleError, match="an opaque block runs on buffers in global memory"):
        sch.cache_inplace("ext_call", 0, "local")
    assert not sch.trace.steps or sch.trace.steps[-1].op != "cache_inplace"
