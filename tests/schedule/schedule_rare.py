"""Random steps of a schedule by the primitives that few schedules use."""

from __future__ import annotations

from typing import Any

from schedule_fuzz import INTRIN, Action, Choices, drawn_block, drawn_decision, drawn_loop

from autosched.errors import ScheduleError
from autosched.schedule import LoopRV, Schedule
from autosched.schedule.pad_read import chosen
from autosched.tir.affine import Affine
from autosched.tir.intrin import TensorIntrin
from autosched.tir.nodes import sites


def _merge(sch: Schedule, c: Choices) -> None:
    """Loops at one depth of blocks that follow each other, more often than not."""
    names = [s.block.name for s in sites(sch.func)]
    start = c.next(len(names))
    chosen = names[start : start + 2 + c.next(2)]
    depth = c.next(3)
    if not all(sch.get_loops(b) for b in chosen):
        raise ScheduleError("no loops")
    sch.merge(*(sch.get_loops(b)[min(depth, len(sch.get_loops(b)) - 1)] for b in chosen))


def _partition(sch: Schedule, c: Choices) -> None:
    loop = drawn_loop(sch, c)
    sch.loop_partition(loop, [1 + c.next(3) for _ in range(1 + c.next(2))])


def _reindex(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    reads = len(sch.get(block).reads)
    sch.reindex(block, c.of([*(("read", n) for n in range(reads)), ("write", 0)]))


def _reindex_cache(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    first = [i for a in sch.get(block).reads[:1] for i in a.indices if isinstance(i, Affine)]
    used = {v for i in first for v in i.variables()}
    axes = [n for n, it in enumerate(sch.get(block).iters) if it.var in used]
    turned: list[Any] = [[axes[0], 2], *axes[:0:-1], [axes[0], 1, 2]] if axes else []
    if c.next(2):
        sch.reindex_cache_read(block, 0, c.of(["global", "local"]), turned)
    else:
        rank = len(sch.get(block).writes[0].buffer.shape)
        sch.reindex_cache_write(block, 0, "global", list(range(rank))[::-1])


def _cache_index(sch: Schedule, c: Choices) -> None:
    sch.cache_index(drawn_block(sch, c), c.of(["global", "local"]))


def _cache_inplace(sch: Schedule, c: Choices) -> None:
    """Of a reduction that is initialised apart, more often than not."""
    block = drawn_block(sch, c)
    if sch.get(block).init and c.next(4):
        sch.decompose_reduction(block, c.of(sch.get_loops(block) or [LoopRV(-1)]))
    sch.cache_inplace(block, 0, c.of(["global", "local"]))


def _block_layout(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    rank, t = len(sch.get(block).iters), 1 + c.next(3)
    plain: list[Any] = list(range(2, rank))
    layouts: list[Any] = [[[0, t], [0, 1, t], *range(1, rank)]]
    if rank >= 2:
        layouts += [[1, 0, *plain], [[[0, 1]], *plain], [[1, t], 0, [1, 1, t], *plain]]
    if rank == 3:
        layouts.append([2, 0, 1])
    sch.transform_block_layout(block, c.of(layouts))


def _reorder_axes(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    n = len(sch.get(block).iters)
    sch.reorder_block_iter_var(block, [*range(1, n), 0] if c.next(2) else list(range(n))[::-1])


def _tile(sch: Schedule, c: Choices) -> None:
    loop = drawn_loop(sch, c)
    sch.split(loop, sch.sample_perfect_tile(loop, 2 + c.next(2), 4))


def _sampled_place(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    place = sch.sample_compute_location(block)
    if place is not None:
        sch.compute_at(block, place)


def _decompose_padding(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    sch.decompose_padding(block, c.of(sch.get_loops(block) or [LoopRV(-1)]))


def _pad_einsum(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    sch.pad_einsum(block, [1 + c.next(4) for _ in sch.get(block).iters])


def pad_read(sch: Schedule, c: Choices) -> None:
    """Of a block that chooses, more often than not."""
    found = [
        (s.block.name, n)
        for s in sites(sch.func)
        for n in range(len(s.block.reads))
        if chosen(s.block, n) is not None
    ]
    block, n = c.of(found) if found and c.next(4) else (drawn_block(sch, c), c.next(3))
    sch.pad_read(block, n)


def roll(sch: Schedule, c: Choices) -> None:
    """A producer computed at a loop of its consumer, more often than not, and rolled along it."""
    block = drawn_block(sch, c)
    consumers = sch.get_consumers(block)
    if consumers and c.next(4):
        sch.compute_at(block, c.of(sch.get_loops(consumers[0])[:2]))
    around = sch.get_loops(block)[: 1 + c.next(2)] if c.next(3) == 0 else ()
    first = sch.rolling_buffer(block, loops=around)
    if c.next(4) == 0:
        sch.vectorize(sch.get_loops(first)[-1])


def _fetch_ahead(sch: Schedule, c: Choices) -> None:
    """A copy in shared memory that some step of its consumer is fetched ahead into."""
    block = drawn_block(sch, c)
    reads = sch.get(block).reads
    copy = sch.cache_read(block, c.next(len(reads) or 1), "shared")
    sch.compute_at(copy, c.of(sch.get_loops(block) or [LoopRV(-1)]))
    sch.double_buffer(copy, drawn_decision(sch, 1 + c.next(9)) if c.next(4) else 2)


FUNCTION = "fuzz_dot_2x2_by_function"
TensorIntrin.register(
    FUNCTION,
    TensorIntrin.get(INTRIN).meaning,
    """
@T.prim_func
def dot(A: T.Buffer((2,), "int64"), B: T.Buffer((2, 2), "int64"), C: T.Buffer((2,), "int64")):
    products = T.alloc_buffer((2, 2), "int64")
    for k, j in T.grid(2, 2):
        with T.block("products"):
            vk, vj = T.axis.remap("SS", [k, j])
            products[vk, vj] = A[vk] * B[vj, vk]
    for k in T.serial(2):
        for j in T.unroll(2):
            with T.block("dot"):
                vk, vj = T.axis.remap("RS", [k, j])
                C[vj] = C[vj] + products[vk, vj]
""",
)


def _tensorize_by_function(sch: Schedule, c: Choices) -> None:
    matmuls = [s for s in sites(sch.func) if s.block.is_reduction and len(s.block.reads) == 2]
    block = sch.get_block(c.of([s.block.name for s in matmuls] or ["none"]))
    loops = sch.get_loops(block)
    if len(loops) < 2:
        raise ScheduleError("no product")
    *_, j, k = loops
    j0, j1 = sch.split(j, [None, 2])
    k0, k1 = sch.split(k, [None, 2])
    sch.reorder(*((j0, k0) if c.next(2) else (k0, j0)), j1, k1)
    sch.decompose_reduction(block, c.of(sch.get_loops(block)))
    sch.tensorize(j1, FUNCTION)


MORE: tuple[Action, ...] = (
    _tensorize_by_function,
    _merge,
    _partition,
    _reindex,
    _reindex_cache,
    _cache_index,
    _cache_inplace,
    _block_layout,
    _reorder_axes,
    _tile,
    _sampled_place,
    _decompose_padding,
    _pad_einsum,
    pad_read,
    roll,
    _fetch_ahead,
    lambda s, c: s.blockize(drawn_loop(s, c)),
    lambda s, c: s.add_unit_loop(drawn_loop(s, c) if c.next(2) else drawn_block(s, c)),
)
"""The primitives that few schedules use."""
