"""Recurrences written as script: no primitive loses the order of their steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from schedule_outcome import concurrent, outputs

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Schedule
from autosched.script import parse_func
from autosched.tir import verify as verifier
from autosched.tir.nodes import PrimFunc


def rows() -> PrimFunc:
    """Running sums along the rows' dimension, doubled."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((6, 4), "int64"), B: T.Buffer((6, 4), "int64")):
    C = T.alloc_buffer((6, 4), "int64")
    for i, j in T.grid(6, 4):
        with T.block("C"):
            vi = T.axis.sequential(6, i)
            vj = T.axis.spatial(4, j)
            C[vi, vj] = T.if_then_else(vi > 0, C[vi - 1, vj], 0) + A[vi, vj]
    for i, j in T.grid(6, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] * 2
""")


def inner() -> PrimFunc:
    """Running sums along the inner dimension."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((4, 6), "int64"), B: T.Buffer((4, 6), "int64")):
    C = T.alloc_buffer((4, 6), "int64")
    for i, j in T.grid(4, 6):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.sequential(6, j)
            C[vi, vj] = T.if_then_else(vj > 0, C[vi, vj - 1], 0) + A[vi, vj]
    for i, j in T.grid(4, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] * 2
""")


def two_stages() -> PrimFunc:
    """A stage in the body of the recurrence, which is none itself."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((6, 4), "int64"), B: T.Buffer((6, 4), "int64")):
    C = T.alloc_buffer((6, 4), "int64")
    D = T.alloc_buffer((6, 4), "int64")
    for i, j in T.grid(6, 4):
        with T.block("D"):
            vi = T.axis.sequential(6, i)
            vj = T.axis.spatial(4, j)
            D[vi, vj] = A[vi, vj] * 2
        with T.block("C"):
            vi = T.axis.sequential(6, i)
            vj = T.axis.spatial(4, j)
            C[vi, vj] = T.if_then_else(vi > 0, C[vi - 1, vj], 0) + D[vi, vj]
    for i, j in T.grid(6, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] * 2
""")


def reduced() -> PrimFunc:
    """Each step sums over the states of the step before."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((5, 4), "int64"), B: T.Buffer((5, 4), "int64")):
    C = T.alloc_buffer((5, 4), "int64")
    for i, j, k in T.grid(5, 4, 4):
        with T.block("C"):
            vi = T.axis.sequential(5, i)
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + T.if_then_else(vi > 0, C[vi - 1, vk], A[vi, vk])
    for i, j in T.grid(5, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] * 2
""")


def products() -> PrimFunc:
    """Each step is the product of the step before and a matrix; the first is given."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((5, 4), "int64"), W: T.Buffer((4, 4), "int64"), B: T.Buffer((5, 4), "int64")):
    C = T.alloc_buffer((5, 4), "int64")
    for j in range(4):
        with T.block("first"):
            vj = T.axis.spatial(4, j)
            C[0, vj] = A[0, vj]
    for i, j, k in T.grid(4, 4, 4):
        with T.block("C"):
            vi = T.axis.sequential(4, i)
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                C[vi + 1, vj] = 0
            C[vi + 1, vj] = C[vi + 1, vj] + C[vi, vk] * W[vk, vj]
    for i, j in T.grid(5, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] * 2
""")


def scanned() -> PrimFunc:
    """Running sums, the first step in a block of its own."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((7, 4), "int64"), B: T.Buffer((7, 4), "int64")):
    C = T.alloc_buffer((7, 4), "int64")
    for j in range(4):
        with T.block("first"):
            vj = T.axis.spatial(4, j)
            C[0, vj] = A[0, vj]
    for i, j in T.grid(6, 4):
        with T.block("C"):
            vi = T.axis.sequential(6, i)
            vj = T.axis.spatial(4, j)
            C[vi + 1, vj] = C[vi, vj] + A[vi + 1, vj]
    for i, j in T.grid(7, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] * 2
""")


def started() -> PrimFunc:
    """The first step is a constant."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((6, 4), "int64"), B: T.Buffer((6, 4), "int64")):
    C = T.alloc_buffer((6, 4), "int64")
    for i, j in T.grid(6, 4):
        with T.block("C"):
            vi = T.axis.sequential(6, i)
            vj = T.axis.spatial(4, j)
            C[vi, vj] = T.if_then_else(vi > 0, C[vi - 1, vj] * 3 + A[vi, vj], 1)
    for i, j in T.grid(6, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] * 2
""")


Step = Callable[[Schedule], object]
PROGRAMS: tuple[Callable[[], PrimFunc], ...] = (
    rows,
    inner,
    two_stages,
    reduced,
    products,
    scanned,
    started,
)
STEPS: dict[str, Step] = {
    "nothing": lambda s: None,
    "compute_inline": lambda s: s.compute_inline("C"),
    "compute_inline of the first block": lambda s: s.compute_inline(s.get_blocks()[0]),
    "reverse_compute_inline": lambda s: s.reverse_compute_inline("B"),
    "compute_at": lambda s: s.compute_at("C", s.get_loops("B")[0]),
    "compute_at of the first block": lambda s: s.compute_at(s.get_blocks()[0], s.get_loops("C")[1]),
    "reverse_compute_at": lambda s: s.reverse_compute_at("B", s.get_loops("C")[0]),
    "transform_layout": lambda s: s.transform_layout("C", ("write", 0), [1, 0]),
    "transform_layout, digits": lambda s: s.transform_layout(
        "C", ("write", 0), [[0, 4], 1, [0, 1, 4]]
    ),
    "transform_layout, padded": lambda s: s.transform_layout(
        "C", ("write", 0), [[0, 4], 1, [0, 1, 4]], 7
    ),
    "transform_layout, padded inside": lambda s: s.transform_layout(
        "C", ("write", 0), [0, [1, 4], [1, 1, 4]], 7
    ),
    "transform_layout, turned": lambda s: s.transform_layout("C", ("write", 0), [1, 0], 7),
    "transform_block_layout": lambda s: s.transform_block_layout(
        "C", [1, 0, 2][: len(s.get("C").iters)]
    ),
    "transform_block_layout, digits": lambda s: s.transform_block_layout(
        "C", [[0, 2], 1, [0, 1, 2], 2][: len(s.get("C").iters) + 1]
    ),
    "reindex": lambda s: s.reindex("C", ("write", 0)),
    "reindex of a read": lambda s: s.reindex("C", ("read", 0)),
    "reindex of another read": lambda s: s.reindex("C", ("read", 1)),
    "cache_write": lambda s: s.cache_write("C", 0),
    "cache_read": lambda s: s.cache_read("B", "C"),
    "cache_read of an input": lambda s: s.cache_read(s.get_blocks()[0], "A"),
    "cache_index": lambda s: s.cache_index("C"),
    "split_axis": lambda s: s.split_axis("C", 0, 2),
    "split_axis, second": lambda s: s.split_axis("C", 1, 2),
    "pad_axis": lambda s: s.pad_axis(s.get_loops("C")[0], 4),
    "pad_axis, second": lambda s: s.pad_axis(s.get_loops("C")[1], 4),
    "pad_einsum": lambda s: s.pad_einsum("C", [4, 4, 4][: len(s.get("C").iters)]),
    "pad_read": lambda s: s.pad_read("C", 0),
    "decompose_padding": lambda s: s.decompose_padding("C", s.get_loops("C")[0]),
    "decompose_reduction": lambda s: s.decompose_reduction("C", s.get_loops("C")[-1]),
    "rfactor": lambda s: s.rfactor(s.get_loops("C")[-1]),
    "blockize": lambda s: s.blockize(s.get_loops("C")[0]),
    "blockize, inner": lambda s: s.blockize(s.get_loops("C")[1]),
    "merge": lambda s: s.merge(s.get_loops("C")[0], s.get_loops("B")[0]),
    "loop_partition": lambda s: s.loop_partition(s.get_loops("C")[0], [2]),
    "rolling_buffer": lambda s: s.rolling_buffer("C"),
    "rolling_buffer beside the consumer": lambda s: (
        s.reverse_compute_at("B", s.get_loops("C")[0]),
        s.rolling_buffer("C"),
    ),
    "parallel_scan": lambda s: s.parallel_scan("C", 2),
}
ALL = tuple(p.__name__ for p in PROGRAMS)
ACCEPTED: dict[str, tuple[str, ...]] = {
    "nothing": ALL,
    "compute_inline of the first block": ("two_stages",),
    "compute_at of the first block": ("two_stages",),
    "reverse_compute_at": ("inner",),
    "transform_layout": ALL,
    "transform_layout, digits": ALL,
    "reindex of another read": ("rows", "inner", "reduced", "products", "scanned", "started"),
    "cache_read": ALL,
    "cache_read of an input": ALL,
    "cache_index": ("scanned",),
    "split_axis": ("inner",),
    "split_axis, second": ("rows", "reduced", "products", "scanned", "started"),
    "pad_axis": ("inner", "products"),
    "pad_axis, second": ("rows", "reduced", "products", "scanned", "started"),
    "blockize": ("rows", "inner", "reduced", "products", "scanned", "started"),
    "blockize, inner": ("rows", "inner", "reduced", "products", "scanned", "started"),
    "merge": ("inner",),
    "parallel_scan": ("scanned",),
}
"""The programs on which each step is legal; on the others it is refused."""
REASON = r"^\w+(\(| of |:)"
"""A refusal is the primitive's own, and not of a name that no block has."""


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_keeps_the_order_of_a_recurrence(program, name):
    """Whatever the loops are made to do afterwards."""
    func = program()
    schedule = Schedule(func)
    if program.__name__ not in ACCEPTED.get(name, ()):
        with pytest.raises(ScheduleError, match=REASON):
            STEPS[name](schedule)
        return
    STEPS[name](schedule)
    same(schedule.func, func)
    verifier.verify(schedule.func)
    for block in schedule.get_blocks():
        for order in permutations(range(len(schedule.get_loops(block)))):
            arranged(schedule.copy(), block, order, func)


def arranged(schedule: Schedule, block: BlockRV, order: tuple[int, ...], func: PrimFunc) -> None:
    """Loops in another order, the outermost parallel and the innermost vectorised, as is legal."""
    accepted(schedule, lambda s: s.reorder(*(s.get_loops(block)[n] for n in order)), func)
    accepted(schedule, lambda s: s.parallel(s.get_loops(block)[0]), func)
    accepted(schedule, lambda s: s.vectorize(s.get_loops(block)[-1]), func)


def accepted(schedule: Schedule, step: Step, func: PrimFunc) -> None:
    """Take the step if it is legal; the program computes the same."""
    try:
        step(schedule)
    except ScheduleError:
        return
    same(schedule.func, func)
    same(concurrent(schedule.func), func)


def same(changed: PrimFunc, func: PrimFunc) -> None:
    for x, y in zip(outputs(changed, func, 3), outputs(func, func, 3), strict=True):
        assert np.array_equal(x, y), changed.script()


def test_the_consumer_of_a_recurrence_moves_and_not_the_recurrence():
    schedule = Schedule(inner())
    for loop in (*schedule.get_loops("B"), *schedule.get_loops("C")):
        with pytest.raises(ScheduleError, match="C reads what it wrote of C in earlier steps"):
            schedule.compute_at("C", loop)
    schedule.reverse_compute_at("B", schedule.get_loops("C")[0])  # around the steps
    same(schedule.func, inner())
