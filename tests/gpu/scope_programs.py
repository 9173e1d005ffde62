"""Intermediates in the scopes "shared.dyn" and "warp"."""

from __future__ import annotations

from collections.abc import Callable

from gpu_programs import tiled_matmul
from uneven_programs import shared_by_more

from autosched import te
from autosched.schedule import Schedule
from autosched.tir.nodes import PrimFunc

Pair = tuple[PrimFunc, PrimFunc]
"""(plain, scheduled)"""


def rows_of_warps(reverse: bool, warps: int = 4, lanes: int = 16) -> Pair:
    """Each warp, of `lanes` threads along x, has a row of B; a thread reads what it wrote, or what
    another one did."""
    n = 2 * lanes
    a = te.placeholder((10, n), name="A")
    b = te.compute((10, n), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((10, n), lambda i, j: b[i, n - 1 - j if reverse else j] + 1, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    outer, warp = sch.split(sch.get_loops("C")[0], [None, warps])
    sch.bind(outer, "blockIdx.x")
    sch.bind(warp, "threadIdx.y")
    sch.set_scope("B", 0, "warp")
    sch.compute_at("B", warp)
    for name in "BC":
        lane, _ = sch.split(sch.get_loops(name)[-1], [lanes, None])
        sch.bind(lane, "threadIdx.x")
    return func, sch.func


def table_of_warps() -> Pair:
    """Every warp reads the same copy, which does not depend on the warp."""
    a = te.placeholder((16,), name="A")
    c = te.compute((6, 16), lambda i, j: a[15 - j] * i, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    copy = sch.cache_read("C", "A", "warp")
    row, lane = sch.get_loops("C")
    sch.bind(row, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    sch.compute_at(copy, row)
    sch.bind(sch.get_loops(copy)[-1], "threadIdx.x")
    return func, sch.func


def copy_of_a_warp() -> Pair:
    """TVM's own test of the scope: 32 elements copied by 16 threads, each of which reads its own
    two."""
    a = te.placeholder((128,), name="A")
    b = te.compute((128,), lambda i: a[i] + 3, name="B")
    s = te.create_schedule(b.op)
    copy = s.cache_read(a, "warp", [b])
    outer, inner = s[b].split(b.op.axis[0], factor=32)
    _, lane = s[b].split(inner, factor=16)
    tx = te.thread_axis("threadIdx.x")
    s[b].bind(lane, tx)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[copy].compute_at(s[b], outer)
    _, lane = s[copy].split(s[copy].op.axis[0], factor=16)
    s[copy].bind(lane, tx)
    return te.create_prim_func([a, b]), s.replay([a, b], "main").func


def computed_in_threads() -> Pair:
    """Computed inside the loop over lanes, for all of them: threads share the work out."""
    a = te.placeholder((4, 16), name="A")
    b = te.compute((4, 16), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((4, 16), lambda i, j: b[i, (j + 1) % 16] + b[i, j], name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    row, lane = sch.get_loops("C")
    sch.bind(row, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    sch.set_scope("B", 0, "warp")
    sch.compute_at("B", lane)
    sch.bind(sch.get_loops("B")[-1], "threadIdx.x")
    return func, sch.func


DYNAMIC: dict[str, Callable[[], Pair]] = {
    "tiled": lambda: tiled_matmul(scope="shared.dyn"),
    "doubled": lambda: tiled_matmul(doubled="AB", scope="shared.dyn"),
    "rows": lambda: shared_by_more(16, 16, "shared.dyn"),
}
WARPS: dict[str, Callable[[], Pair]] = {
    "own elements": lambda: rows_of_warps(False),
    "elements of others": lambda: rows_of_warps(True),
    "elements of others, one warp": lambda: rows_of_warps(True, 1, 32),
    "more than a warp": lambda: rows_of_warps(True, 1, 64),
    "a table": table_of_warps,
    "a copy": copy_of_a_warp,
    "inside the threads": computed_in_threads,
    "filled by more": lambda: shared_by_more(32, 8, "warp"),
}
