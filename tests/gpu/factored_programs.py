"""Reductions whose partial results are computed inside the loop that runs over threads."""

from __future__ import annotations

from collections.abc import Callable

from autosched import te
from autosched.schedule import Schedule
from autosched.te.stage.schedule import StageSchedule
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

Pair = tuple[PrimFunc, PrimFunc]
"""(plain, scheduled)"""


def rows_summed(n: te.Tensor | int, m: te.Tensor | int) -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    return a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")


def tutorial(b: te.Tensor, rows: int = 4, lanes: int = 16) -> StageSchedule:
    """The schedule of TVM's tutorial on reductions, as it stands there."""
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.reduce_axis[0], factor=lanes)
    partial = s.rfactor(b, inner)
    outer, row = s[b].split(s[b].op.axis[0], factor=rows)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(row, te.thread_axis("threadIdx.y"))
    tx = te.thread_axis("threadIdx.x")
    s[b].bind(s[b].op.reduce_axis[0], tx)
    s[partial].compute_at(s[b], s[b].op.reduce_axis[0])
    s[b].set_store_predicate(tx.var.equal(0))
    return s


def by_stages(n: int = 10, m: int = 50, rows: int = 4, lanes: int = 16) -> Pair:
    a, b = rows_summed(n, m)
    return te.create_prim_func([a, b]), tutorial(b, rows, lanes).replay([a, b], "main").func


def by_primitives(func: PrimFunc, lanes: int = 16, rounds: int = 1) -> Pair:
    """Partial results of `rounds` * `lanes` parts of a row, `lanes` of them at a time."""
    sch = Schedule(func)
    block = sch.get_blocks()[0]
    row, k = sch.get_loops(block)
    _, part = sch.split(k, [None, rounds * lanes])
    partial = sch.rfactor(part)
    row, part = sch.get_loops(block)
    sch.bind(row, "blockIdx.x")
    _, lane = sch.split(part, [rounds, lanes])
    sch.compute_at(partial, lane)
    sch.bind(lane, "threadIdx.x")
    return func, sch.func


def copied_first(lanes: int = 8) -> Pair:
    """Each thread copies what it adds up into registers, in the loop over threads."""
    a, b = rows_summed(6, 32)
    func = te.create_prim_func([a, b])
    sch = Schedule(func)
    block = sch.get_block("B")
    copy = sch.cache_read(block, "A", "local")
    row, k = sch.get_loops(block)
    lane, _ = sch.split(k, [lanes, None])
    sch.bind(row, "blockIdx.x")
    sch.bind(lane, "threadIdx.x")
    sch.compute_at(copy, lane)
    return func, sch.func


def rounds_outside() -> Pair:
    """A loop over elements between the rounds of a reduction and the threads that do each."""
    a, b = te.placeholder((4, 32), name="A"), te.placeholder((32, 6), name="B")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((4, 6), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    func = te.create_prim_func([a, b, c])
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    outer, lane = sch.split(k, [None, 8])
    sch.reorder(i, outer, j, lane)
    sch.bind(lane, "threadIdx.x")
    return func, sch.func


def norm_of_rows() -> Pair:
    """Two reductions of one loop over threads, and a block that uses both for the whole row."""
    a = te.placeholder((3, 40), name="A")
    k = te.reduce_axis((0, 40), "k")
    r = te.reduce_axis((0, 40), "r")
    total = te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="total")
    most = te.compute((3,), lambda i: te.max(a[i, r], axis=r), name="most")
    out = te.compute((3, 40), lambda i, j: (a[i, j] - most[i]) * total[i], name="out")
    func = te.create_prim_func([a, out])
    sch = Schedule(func)
    row = sch.get_loops("out")[0]
    sch.bind(row, "blockIdx.x")
    for name in ("total", "most"):
        _, lane = sch.split(sch.get_loops(name)[1], [None, 16])
        partial = sch.rfactor(lane)
        sch.compute_at(sch.get_block(name), row)
        lane = sch.get_loops(name)[-1]
        sch.compute_at(partial, lane)
        sch.bind(lane, "threadIdx.x")
    _, lane = sch.split(sch.get_loops("out")[1], [None, 16])
    sch.bind(lane, "threadIdx.x")
    return func, sch.func


FACTORED: dict[str, Callable[[], Pair]] = {
    "tutorial": by_stages,
    "tutorial, whole tiles": lambda: by_stages(8, 64),
    "tutorial, lanes without a term": lambda: by_stages(7, 5),
    "a warp": lambda: by_stages(6, 100, rows=2, lanes=32),
    "several warps": lambda: by_stages(3, 300, rows=1, lanes=64),
    "no power of two": lambda: by_stages(5, 50, rows=3, lanes=12),
    "argmax": lambda: by_primitives(prim_func_of("argmax", (5, 40, "float32"))),
    "argmax in rounds": lambda: by_primitives(prim_func_of("argmax", (5, 100, "float32")), 16, 2),
    "sum in rounds": lambda: by_primitives(te.create_prim_func(list(rows_summed(4, 70))), 8, 3),
    "copied first": copied_first,
    "rounds outside": rounds_outside,
    "two reductions": norm_of_rows,
}
