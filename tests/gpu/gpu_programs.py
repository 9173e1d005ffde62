"""Programs with schedules by hand, as a user writes them."""

from __future__ import annotations

from collections.abc import Sequence

from autosched import te
from autosched.schedule import BlockRV, Schedule
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of


def plain_matmul(n: int, m: int, k: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")


def tiled_matmul(
    n: int = 64,
    m: int = 64,
    k: int = 64,
    doubled: str = "",
    padding: int = 0,
    scope: str = "shared",
) -> tuple[PrimFunc, PrimFunc]:
    """(plain, scheduled): blocks of 32 x 32, 2 x 2 virtual threads, 8 x 8 threads, tiles of both
    inputs in shared memory, fetched together in vectors of 4; those of the inputs named in
    `doubled` alternate between two buffers, and rows of these are 8 and `padding` elements long."""
    a, b, c = plain_matmul(n, m, k)
    s = te.create_schedule(c.op)
    copies = [s.cache_read(x, scope, [c]) for x in (a, b)]
    local = s.cache_write(c, "local")
    ty, tx = (te.thread_axis((0, 8), f"threadIdx.{x}") for x in "yx")
    order = []
    for axis, size, t in zip(s[c].op.axis, "yx", (ty, tx), strict=True):
        block, rest = s[c].split(axis, factor=32)
        virtual, rest = s[c].split(rest, nparts=2)
        thread, inner = s[c].split(rest, nparts=8)
        s[c].bind(block, te.thread_axis(f"blockIdx.{size}"))
        s[c].bind(virtual, te.thread_axis((0, 2), "vthread"))
        s[c].bind(thread, t)
        order.append((block, virtual, thread, inner))
    s[c].reorder(*(x for level in zip(*order, strict=True) for x in level))
    s[local].compute_at(s[c], order[1][2])
    outer, inner = s[local].split(s[local].op.reduce_axis[0], factor=8)
    s[local].reorder(outer, inner, *s[local].op.axis)
    for axis in s[local].op.axis:
        s[local].unroll(axis)
    for copy in copies:
        s[copy].compute_at(s[local], outer)
        fused = s[copy].fuse(*s[copy].op.axis)
        rest, lanes = s[copy].split(fused, factor=4)
        rest, x = s[copy].split(rest, factor=8)
        _, y = s[copy].split(rest, factor=8)
        s[copy].bind(y, ty)
        s[copy].bind(x, tx)
        s[copy].vectorize(lanes)
        if copy.op.name[0] in doubled:
            s[copy].double_buffer()
    sch = s.replay([a, b, c], "main")
    if padding:
        sch.storage_align(sch.get_block(f"{doubled}_shared"), 0, 0, 8, padding)
    return te.create_prim_func([a, b, c]), sch.func


def rows_in_one_kernel(name: str, args: Sequence[int], threads: int) -> tuple[PrimFunc, PrimFunc]:
    """(plain, scheduled): a block of threads a row; reductions across its threads."""
    func = prim_func_of(name, (*args, "float32"))
    sch = Schedule(func)
    *others, out = sch.get_blocks()
    row = sch.get_loops(out)[0]
    for block in reversed(others):
        sch.compute_at(block, row)
    sch.bind(row, "blockIdx.x")
    for block in (*others, out):
        spread(sch, block, threads)
    return func, sch.func


def spread(sch: Schedule, block: BlockRV, threads: int) -> None:
    """The innermost loop of a block over the threads."""
    outer, lane = sch.split(sch.get_loops(block)[-1], [None, threads])
    sch.reorder(lane, outer)
    sch.bind(lane, "threadIdx.x")


def shared_rows(n: int, reverse: bool) -> tuple[PrimFunc, PrimFunc]:
    """(plain, scheduled): B in shared memory, read by the thread that wrote it, or by another."""
    a = te.placeholder((4, n), name="A")
    b = te.compute((4, n), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((4, n), lambda i, j: b[i, n - 1 - j if reverse else j] + 1, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    first, second = sch.get_blocks()
    row = sch.get_loops(second)[0]
    sch.set_scope(first, 0, "shared")
    sch.compute_at(first, row)
    sch.bind(row, "blockIdx.x")
    for block in (first, second):
        spread(sch, block, 16)
    return func, sch.func


def transposed(padding: int) -> tuple[PrimFunc, PrimFunc]:
    """(plain, scheduled): tiles of 32 x 32 through shared memory, read and written along rows; rows
    there are `padding` elements longer than they need to be."""
    a = te.placeholder((96, 64), name="A")
    func = te.create_prim_func([a, te.compute((64, 96), lambda i, j: a[j, i], name="B")])
    sch = Schedule(func)
    block = sch.get_block("B")
    copy = sch.cache_read(block, "A", "shared")
    i, j = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 32])
    j0, j1 = sch.split(j, [None, 32])
    sch.reorder(i0, j0, i1, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sch.compute_at(copy, j0)
    for b in (block, copy):
        *_, rows, lane = sch.get_loops(b)
        _, row = sch.split(rows, [None, 8])
        sch.bind(row, "threadIdx.y")
        sch.bind(lane, "threadIdx.x")
    if padding:
        sch.storage_align(copy, 0, 0, 32, padding)
    return func, sch.func
