"""Kernels whose nests are spread over different numbers of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpu_programs import plain_matmul, spread

from autosched import te
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

Pair = tuple[PrimFunc, PrimFunc]
"""(plain, scheduled)"""


def rows(name: str, args: Sequence[int], threads: Sequence[int], axis: str = "x") -> Pair:
    """A block of threads a row; each nest across threads of its own number, in turn."""
    func = prim_func_of(name, (*args, "float32"))
    sch = Schedule(func)
    *others, out = sch.get_blocks()
    row = sch.get_loops(out)[0]
    for block in reversed(others):
        sch.compute_at(block, row)
    sch.bind(row, "blockIdx.x")
    for n, block in enumerate((*others, out)):
        outer, lane = sch.split(sch.get_loops(block)[-1], [None, threads[n % len(threads)]])
        sch.reorder(lane, outer)
        sch.bind(lane, f"threadIdx.{axis}")
    return func, sch.func


def shared_by_more(fill: int, use: int, scope: str = "shared") -> Pair:
    """B is filled by `fill` threads and read, backwards, by `use`."""
    a = te.placeholder((3, 40), name="A")
    b = te.compute((3, 40), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((3, 40), lambda i, j: b[i, 39 - j] + 1, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    first, second = sch.get_blocks()
    row = sch.get_loops(second)[0]
    sch.set_scope(first, 0, scope)
    sch.compute_at(first, row)
    sch.bind(row, "blockIdx.x")
    spread(sch, first, fill)
    spread(sch, second, use)
    return func, sch.func


def fetched_by_more(tile: int = 8, fetch: int = 32, together: str = "") -> Pair:
    """A product by `tile` * `tile` threads, whose operands `fetch` threads along x bring; the one
    named in `together` is brought by all threads."""
    a, b, c = plain_matmul(24, 40, 20)
    s = te.create_schedule(c.op)
    copies = [s.cache_read(x, "shared", [c]) for x in (a, b)]
    local = s.cache_write(c, "local")
    tx, ty = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")
    by, bx, y, x = s[c].tile(*s[c].op.axis, tile, tile)
    s[c].bind(by, te.thread_axis("blockIdx.y"))
    s[c].bind(bx, te.thread_axis("blockIdx.x"))
    s[c].bind(y, ty)
    s[c].bind(x, tx)
    s[local].compute_at(s[c], x)
    outer, inner = s[local].split(s[local].op.reduce_axis[0], factor=4)
    s[local].reorder(outer, inner, *s[local].op.axis)
    for copy in copies:
        s[copy].compute_at(s[local], outer)
        if copy.name == f"{together}_shared":
            continue
        _, lane = s[copy].split(s[copy].fuse(*s[copy].op.axis), factor=fetch)
        s[copy].bind(lane, tx)
    sch = s.replay([a, b, c], "main")
    if together:
        sch.annotate(f"{together}_shared", "cooperative", 2)
    return te.create_prim_func([a, b, c]), sch.func


def parts_of_one_axis() -> Pair:
    """Two loops bound to one axis, 4 by 8, beside one of 20."""
    a = te.placeholder((32,), name="A")
    b = te.compute((32,), lambda i: a[i] * 2, name="B")
    c = te.compute((20,), lambda i: b[i] + b[31 - i], name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    unit, _ = sch.split(sch.get_loops("C")[0], [1, None])
    sch.set_scope("B", 0, "shared")
    sch.compute_at("B", unit)
    sch.bind(unit, "blockIdx.x")
    for loop in sch.split(sch.get_loops("B")[-1], [4, 8]):
        sch.bind(loop, "threadIdx.x")
    sch.bind(sch.get_loops("C")[-1], "threadIdx.x")
    return func, sch.func


def blocks_of_two_nests() -> Pair:
    """Two outputs of one root nest, on different numbers of blocks."""
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2, name="B")
    c = te.compute((2, 3), lambda i, j: a[i * 3 + j] + 1, name="C")
    sch = Schedule(
        parse_func("""
@T.prim_func
def main(
    A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((2, 3), "float32")
):
    for u in T.serial(1):
        for i, j in T.grid(4, 2):
            with T.block("B"):
                v = T.axis.spatial(8, i * 2 + j)
                B[v] = A[v] * T.float32(2.0)
        for i, j in T.grid(2, 3):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi * 3 + vj] + T.float32(1.0)
""")
    )
    for name in "BC":
        _, blocks, threads = sch.get_loops(name)
        sch.bind(blocks, "blockIdx.x")
        sch.bind(threads, "threadIdx.x")
    return te.create_prim_func([a, b, c]), sch.func


UNEVEN: dict[str, Callable[[], Pair]] = {
    "softmax": lambda: rows("softmax", (4, 100), (64, 32, 16)),
    "softmax, the last widest": lambda: rows("softmax", (4, 100), (8, 32, 16, 128)),
    "softmax along y": lambda: rows("softmax", (4, 100), (12, 32), "y"),
    "layer norm, no powers of two": lambda: rows("layer_norm", (3, 100), (48, 20, 96)),
    "argmax": lambda: rows("argmax", (3, 100), (64, 48)),
    "filled by more": lambda: shared_by_more(40, 16),
    "filled by fewer": lambda: shared_by_more(8, 40),
    "filled by one": lambda: shared_by_more(1, 16),
    "no scope": lambda: shared_by_more(32, 16, "global"),
    "fetched by more": fetched_by_more,
    "fetched by fewer": lambda: fetched_by_more(8, 4),
    "fetched by all": lambda: fetched_by_more(together="A"),
    "blocks": blocks_of_two_nests,
    "parts of one axis": parts_of_one_axis,
}
