"""Packed copies, and buffers that live in loops."""

from __future__ import annotations

import pytest
from guarded import TARGETS, check

from autosched import ops, te
from autosched.codegen.build import generate_ir
from autosched.schedule import Schedule
from autosched.target import Target


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("place", [0, 1, 2, None])
@pytest.mark.parametrize("cols", [3, 16, 20])
def test_packed_panels(cols: int, place: int | None, target: str) -> None:
    """Both operands in packed layouts that pad, computed at every level or once."""
    func = te.create_prim_func(ops.matmul(13, 11, 37))
    sch = Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, cols])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, j0, k0, k1, i1, j1)
    b = sch.cache_read(block, "B", "local", [[1, cols], [0], [1, 1, cols]])
    a = sch.cache_read(block, "A", "local", [[0, 4], [1], [0, 1, 4]])
    if place is not None:
        for panel in (a, b):
            sch.compute_at(panel, (i0, j0, k0)[place])
    for panel in (a, b):
        sch.vectorize(sch.get_loops(panel)[-1])
    sch.unroll(i1)
    sch.unroll(k1)
    sch.vectorize(j1)
    check(sch, func, target=target)


@pytest.mark.parametrize("scope", ["local", "global"])
def test_plain_copies(scope: str) -> None:
    """cache_read and cache_write without a layout, at each level."""
    func = te.create_prim_func(ops.matmul(13, 11, 37))
    for level in (0, 1, 2):
        sch = Schedule(func)
        block = sch.get_block("C")
        i, j, k = sch.get_loops(block)
        i0, i1 = sch.split(i, [None, 4])
        j0, j1 = sch.split(j, [None, 16])
        sch.reorder(i0, j0, k, i1, j1)
        out = sch.cache_write(block, 0, scope)
        copy = sch.cache_read(block, "B", scope)
        sch.compute_at(copy, (i0, j0, k)[level])
        sch.reverse_compute_at(out, (i0, j0)[min(level, 1)])
        sch.vectorize(sch.get_loops(out)[-1])
        sch.unroll(i1)
        sch.vectorize(j1)
        check(sch, func)


def test_chain_of_windows() -> None:
    """Three windows in a chain, each computed at the next: halos of halos, vectors, threads."""
    a = te.placeholder((23, 30), name="a", dtype="int32")
    stages, last = [a], a
    for n in range(3):
        r = te.reduce_axis((0, 3), name="r")
        rows = last.shape[0] - 2
        last = te.compute(
            (rows, 30),
            lambda i, j, t=last, r=r: te.sum(t[i + r, (j + r) % 30], axis=r),
            name=f"s{n}",
        )
        stages.append(last)
    func = te.create_prim_func([a, last])
    for rows, vector in ((1, False), (4, True), (5, True), (17, True)):
        sch = Schedule(func)
        s0, s1, s2 = sch.get_blocks()
        i, _, _ = sch.get_loops(s2)
        i0, _ = sch.split(i, [None, rows])
        sch.compute_at(s1, i0)
        sch.compute_at(s0, i0)
        sch.parallel(i0)
        if vector:
            for block in (s0, s1, s2):
                j, r = sch.get_loops(block)[-2:]
                sch.reorder(r, j)
                sch.vectorize(j)
        check(sch, func)


def test_buffer_of_a_vectorised_loop() -> None:
    """A value of each lane's own, computed inside the vectorised loop."""
    a = te.placeholder((6, 21), name="a", dtype="float32")
    twice = te.compute((6, 21), lambda i, j: a[i, j] * 2 + 1, name="twice")
    out = te.compute((6, 21), lambda i, j: twice[i, j] * twice[i, j], name="out")
    func = te.create_prim_func([a, out])
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("out"))
    twice_block = sch.get_block("twice")
    sch.compute_at(twice_block, j)
    for loop in sch.get_loops(twice_block)[2:]:
        sch.unroll(loop)
    sch.vectorize(j)
    sch.parallel(i)
    check(sch, func)


def test_reduction_below_lanes_with_another_block() -> None:
    """A vectorised loop over two blocks, one of which sums in copies: no register tile there."""
    a = te.placeholder((6, 21), name="a", dtype="float32")
    w = te.placeholder((3, 21), name="w", dtype="float32")
    k = te.reduce_axis((0, 3), name="k")
    twice = te.compute((6, 21), lambda i, j: a[i, j] * 2 + 1, name="twice")
    out = te.compute((6, 21), lambda i, j: te.sum(twice[i, j] * w[k, j], axis=k), name="out")
    func = te.create_prim_func([a, w, out])
    sch = Schedule(func)
    _, j, r = sch.get_loops(sch.get_block("out"))
    sch.unroll(r)
    producer = sch.get_block("twice")
    sch.compute_at(producer, j)
    for loop in sch.get_loops(producer)[2:]:
        sch.unroll(loop)
    sch.vectorize(j)
    check(sch, func)


def test_buffers_of_copies_share_their_memory() -> None:
    """An unrolled loop of many copies, each with its buffer, must not need a buffer a copy."""
    a = te.placeholder((512, 300), name="a", dtype="float32")
    twice = te.compute((512, 300), lambda i, j: a[i, j] * 2, name="twice")
    out = te.compute((512, 300), lambda i, j: twice[i, 299 - j] + 1, name="out")
    func = te.create_prim_func([a, out])
    sch = Schedule(func)
    i, _ = sch.get_loops(sch.get_block("out"))
    sch.compute_at(sch.get_block("twice"), i)
    sch.unroll(i)
    text = generate_ir(sch.func, Target("llvm")).ir
    assert text.count("= alloca [") == 1
    check(sch, func)


def test_scratch_of_threads() -> None:
    """A buffer too large for the stack in each of two nested parallel loops, with other threads' at
    the same time; and one around both that is shared."""
    a = te.placeholder((7, 9, 400), name="a", dtype="int32")
    whole = te.compute((7, 9, 400), lambda i, j, k: a[i, j, k] + 1, name="whole")
    mine = te.compute((7, 9, 400), lambda i, j, k: whole[i, j, 399 - k] * 3, name="mine")
    out = te.compute(
        (7, 9, 400), lambda i, j, k: mine[i, j, 399 - k] + whole[6 - i, j, k], name="out"
    )
    func = te.create_prim_func([a, out])
    for fused in (False, True):
        sch = Schedule(func)
        i, j, k = sch.get_loops(sch.get_block("out"))
        sch.compute_at(sch.get_block("mine"), j)
        sch.vectorize(k)
        sch.parallel(sch.fuse(i, j)) if fused else (sch.parallel(i), sch.parallel(j))
        outer = sch.get_loops(sch.get_block("whole"))[0]
        sch.parallel(outer)
        sch.annotate(outer, "chunk", 2)
        for threads in (1, 2, 5):
            check(sch, func, threads=threads)
