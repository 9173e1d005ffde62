"""What primitives refuse, with the message; a refusal leaves the schedule as it was."""

from __future__ import annotations

import re

import numpy as np
import pytest
from refusals import (
    OF_LOOPS,
    Case,
    loops,
    redundant,
    summed_backwards,
    summed_out_of_order,
)
from schedule_outcome import assert_same_program
from schedule_programs import (
    add_one,
    argmax,
    grouped,
    matmul,
    matmul_add,
    outer_product,
    padded_after,
    padded_conv,
    reversed_rows,
    row_sum,
    softmax,
    squared,
    windows,
)

from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule import Decision, Schedule
from autosched.schedule.population import candidate

CASES: dict[str, Case] = OF_LOOPS | {
    "compute_at output": (
        matmul_add,
        lambda s: s.compute_at(s.get_block("out"), loops(s, "matmul")[0]),
        "out is an argument of main and must be written in full",
    ),
    "compute_at elsewhere": (
        softmax,
        lambda s: s.compute_at(s.get_block("e"), loops(s, "total")[0]),
        "its consumer out is not below loop i",
    ),
    "reverse reduction loop": (
        matmul_add,
        lambda s: s.reverse_compute_at(s.get_block("out"), loops(s, "matmul")[2]),
        "loop k runs over a reduction axis of matmul",
    ),
    "reverse window": (
        padded_conv,
        lambda s: s.reverse_compute_at(s.get_block("conv"), loops(s, "pad")[0]),
        "tell none of its spatial axes",
    ),
    "reverse padding": (
        padded_after,
        lambda s: s.reverse_compute_at(s.get_block("P"), loops(s, "B")[0]),
        "axis vi has 18 points, of which what is written below the loop is read by 0 to 15 only",
    ),
    "reverse no producer": (
        softmax,
        lambda s: s.reverse_compute_at(s.get_block("e"), loops(s, "total")[0]),
        "no producer of e is below loop i; its producers: top",
    ),
    "reverse late producer": (
        softmax,
        lambda s: s.reverse_compute_at(s.get_block("out"), loops(s, "e")[0]),
        "its producer total comes after loop i; move total first",
    ),
    "reverse past a reader": (
        softmax,
        lambda s: s.reverse_compute_at(s.get_block("top"), loops(s, "e")[0]),
        "no producer of top is below loop i",
    ),
    "reverse diagonal": (
        outer_product,
        lambda s: s.reverse_compute_at(s.get_block("O"), s.split(loops(s, "P")[0], [None, 4])[0]),
        "a loop outside moves two axes of the block at once, or leaves gaps",
    ),
    "reverse diagonal of a reduction": (
        squared,
        lambda s: s.reverse_compute_at(s.get_block("Q"), loops(s, "P")[0]),
        "a loop outside moves two axes of the block at once, or leaves gaps",
    ),
    "reverse from the end": (
        summed_backwards,
        lambda s: s.reverse_compute_at(s.get_block("S"), s.split(loops(s, "B")[0], [None, 4])[0]),
        "along axis vk its producer does not begin with the first element",
    ),
    "reverse out of order": (
        softmax,
        summed_out_of_order,
        "along axis vr its producer does not begin with the first element",
    ),
    "inline reduction": (
        matmul_add,
        lambda s: s.compute_inline(s.get_block("matmul")),
        "matmul is a reduction or a recurrence",
    ),
    "inline output": (
        add_one,
        lambda s: s.compute_inline(s.get_block("C")),
        "C is an argument of main and must be written",
    ),
    "reverse inline": (
        matmul_add,
        lambda s: s.reverse_compute_inline(s.get_block("out")),
        "matmul is a reduction or a recurrence",
    ),
    "cache no read": (
        matmul,
        lambda s: s.cache_read(s.get_block("C"), "D"),
        "the block does not read D; it reads A, B",
    ),
    "cache number": (matmul, lambda s: s.cache_read(s.get_block("C"), 5), "no read number 5"),
    "cache scope": (matmul, lambda s: s.cache_read(s.get_block("C"), 0, "warm"), "no scope 'warm'"),
    "cache layout": (
        matmul,
        lambda s: s.cache_read(s.get_block("C"), 0, "local", [0, [1, 4]]),
        "does not determine the index of dimension 1 of A",
    ),
    "cache rank": (
        matmul,
        lambda s: s.cache_read(s.get_block("C"), 0, "local", [0, 2]),
        "with d below 2, or a list of such in the place of d; found [2]",
    ),
    "cache_write number": (matmul, lambda s: s.cache_write(s.get_block("C"), 1), "found index 1"),
    "rfactor spatial": (row_sum, lambda s: s.rfactor(loops(s, "S")[0]), "no reduction axis of S"),
    "rfactor axis": (row_sum, lambda s: s.rfactor(loops(s, "S")[1], 2), "between 0 and 1; found 2"),
    "decompose inside": (
        row_sum,
        lambda s: s.decompose_reduction(s.get_block("S"), s.split(loops(s, "S")[1], [None, 4])[1]),
        "initialised in the middle",
    ),
    "decompose twice": (
        row_sum,
        lambda s: [s.decompose_reduction(s.get_block("S"), loops(s, "S")[1]) for _ in range(2)],
        "decomposed already",
    ),
    "decompose pointwise": (
        add_one,
        lambda s: s.decompose_reduction(s.get_block("B"), loops(s, "B")[0]),
        "block B is no reduction",
    ),
    "decompose redundant": (softmax, redundant, "compute the same elements again"),
    "compute_at decomposed": (
        matmul_add,
        lambda s: [
            s.decompose_reduction(s.get_block("matmul"), loops(s, "matmul")[2]),
            s.compute_at(s.get_block("matmul"), loops(s, "out")[0]),
        ],
        "matmul is also written by matmul_init",
    ),
    "scope of argument": (
        add_one,
        lambda s: s.set_scope(s.get_block("C"), 0, "local"),
        "C is an argument of main; expected an intermediate",
    ),
    "pad an argument": (
        matmul,
        lambda s: s.pad_axis(loops(s, "C")[1], 48),
        "C is an argument, whose shape is the caller's; cache_write first",
    ),
    "pad after a split": (
        matmul,
        lambda s: s.pad_axis(s.split(loops(s, "C")[2], [None, 4])[0], 3),
        "is not that of one whole axis; pad before splitting",
    ),
    "pad what windows slide along": (
        windows,
        lambda s: s.pad_axis(loops(s, "C")[1], 4),
        "vk is no bare index of one dimension of A",
    ),
    "pad what is read backwards": (
        reversed_rows,
        lambda s: s.pad_axis(loops(s, "C")[0], 5),
        "vi is no bare index of one dimension of A",
    ),
    "pad what is read by parts": (
        grouped,
        lambda s: s.pad_axis(loops(s, "C")[1], 4),
        "vj is no bare index of one dimension of A",
    ),
    "pad what is no sum of products": (
        row_sum,
        lambda s: s.pad_axis(loops(s, "S")[1], 3),
        "padding a reduction is for a sum of products of two elements, both along it",
    ),
    "layout of argument": (
        matmul,
        lambda s: s.transform_layout(s.get_block("C"), "B", [1, 0]),
        "B is an argument of main, whose layout is the caller's; cache_read(block, 'B', layout=",
    ),
    "layout that loses": (
        matmul_add,
        lambda s: s.transform_layout(s.get_block("matmul"), ("write", 0), lambda i, j: (i, j // 4)),
        "does not determine the index of dimension 1 of matmul",
    ),
    "layout twice": (
        matmul_add,
        lambda s: s.transform_layout(s.get_block("matmul"), ("write", 0), [0, 1, [[0, 1]]]),
        "does not determine the index of dimension 0 of matmul",
    ),
    "layout with holes": (
        matmul_add,
        lambda s: s.transform_layout(s.get_block("matmul"), ("write", 0), lambda i, j: (i * 2, j)),
        "each new index is x, x // a, x % b or x // a % b of one index x, or of several fused "
        "row-major such as i * 16 + j, or a swizzle (x + digit of others) % extent of x; found "
        "i0 * 2",
    ),
    "layout of three": (
        matmul_add,
        lambda s: s.transform_layout(s.get_block("matmul"), ("write", 0), lambda i, j, k: (i, j)),
        "the index map does not take 2 indices",
    ),
    "layout of no access": (
        matmul_add,
        lambda s: s.transform_layout(s.get_block("out"), ("write", 1), [0, 1]),
        "the block has 1 writes; found number 1",
    ),
    "layout of odd access": (
        matmul_add,
        lambda s: s.transform_layout(s.get_block("out"), ("reads", 1), [0, 1]),
        'a buffer is ("read", n), ("write", n) or a name',
    ),
    "layout after align": (
        matmul_add,
        lambda s: [
            s.storage_align(s.get_block("matmul"), 0, 0, 32, 1),
            s.transform_layout(s.get_block("matmul"), "matmul", [1, 0]),
        ],
        "matmul has strides of its own; do storage_align afterwards",
    ),
    "padded reduction": (
        matmul_add,
        lambda s: s.transform_layout(s.get_block("matmul"), "matmul", [1, [0, 3], [0, 1, 3]], 0),
        "pad_value is for a block that writes one value for each element; cache_write matmul",
    ),
    "padded inside": (
        add_one,
        lambda s: [
            s.compute_at(s.get_block("B"), s.split(loops(s, "C")[0], [None, 4])[0]),
            s.transform_layout(s.get_block("B"), "B", [[0, 3], [0, 1, 3]], 0),
        ],
        "B stands inside loops of other blocks; transform it before",
    ),
    "padding that does not fit": (
        lambda: add_one(16, "int32"),
        lambda s: s.transform_layout(s.get_block("B"), "B", [[0, 3], [0, 1, 3]], 0.5),
        "pad_value: constant 0.5 is no int32",
    ),
    "align last": (
        matmul_add,
        lambda s: s.storage_align(s.get_block("matmul"), 0, 1, 32, 1),
        "matmul has 2 dimensions; axis is one before the last, whose stride is 1; found 1",
    ),
    "align offset": (
        matmul_add,
        lambda s: s.storage_align(s.get_block("matmul"), 0, -2, 32, 32),
        "offset is from 0 to factor - 1; found 32 of 32",
    ),
    "align output": (
        matmul_add,
        lambda s: s.storage_align(s.get_block("out"), 0, 0, 32, 1),
        "out is an argument of main; expected an intermediate",
    ),
    "align factor": (
        matmul_add,
        lambda s: s.storage_align(s.get_block("matmul"), 0, 0, None, 1),
        "factor is an int or a Decision; found None",
    ),
    "unannotate": (
        add_one,
        lambda s: s.unannotate(s.get_block("C"), "x"),
        "no annotation 'x' there; it has none",
    ),
    "annotate object": (
        add_one,
        lambda s: s.annotate(s.get_block("C"), "x", object()),
        "a step holds numbers, texts and lists of them; found object",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refusal(name: str) -> None:
    make, apply, message = CASES[name]
    schedule = Schedule(make())
    with pytest.raises(ScheduleError, match=re.escape(message)):
        apply(schedule)


@pytest.mark.parametrize("name", ["short", "compute_at output", "cache layout", "annotate object"])
def test_a_refusal_changes_nothing(name: str) -> None:
    make, apply, _ = CASES[name]
    schedule = Schedule(make())
    before, block = schedule.func, schedule.func.body[0]
    with pytest.raises(ScheduleError):
        apply(schedule)
    assert schedule.func is before
    assert schedule.func.body[0] is block
    assert all(step.op.startswith("get_") for step in schedule.trace.steps)


def test_a_condition_that_some_candidates_break() -> None:
    """Not a refusal of all: the candidates go one at a time."""
    schedule = Schedule(row_sum(8, 16), {"f": np.array([4, 32])})
    _, k = loops(schedule, "S")
    _, lanes = schedule.split(k, [None, Decision("f")])
    with pytest.raises(NotBatchable, match="no term differs by candidate"):
        schedule.rfactor(lanes)


def test_padding_of_an_extent_that_differs_by_candidate() -> None:
    """The zeros' condition names the extent, which no expression of a population can."""
    schedule = Schedule(matmul_add(6, 6, 6), {"d": np.array([2, 3, 6])})
    block = schedule.get_block("matmul")
    schedule.cache_read(
        block, 0, scope="local", layout=[[1, Decision("d")], 0, [1, 1, Decision("d")]]
    )
    unpacked = schedule.cache_read(block, 0, scope="local")
    with pytest.raises(NotBatchable, match="differs by candidate"):
        schedule.pad_axis(schedule.get_loops(unpacked)[0], 5)


@pytest.mark.parametrize("factors", [[2, 5], [3, 5], [5, 2]])
def test_readers_of_packed_tiles_that_differ_by_candidate(factors: list[int]) -> None:
    """With a tile of 5 alone the reader's `vi // 5` is 0, and its nest another one."""
    schedule = Schedule(row_sum(3, 3), {"d": np.array(factors)})
    block = schedule.get_block("S")
    packed = schedule.cache_read(
        block, 0, scope="local", layout=[[1, Decision("d")], 0, [1, 1, Decision("d")]]
    )
    with pytest.raises(NotBatchable, match=r"differs by candidate|has not written"):
        schedule.reverse_compute_at(block, schedule.get_loops(packed)[0])


def test_padding_that_some_candidates_need() -> None:
    """An axis of 3 stays as it is and one of 1 becomes 3: the steps that follow differ."""
    schedule = Schedule(matmul_add(3, 3, 3), {"d": np.array([1, 3])})
    block = schedule.get_block("matmul")
    packed = schedule.cache_read(
        block, 0, scope="local", layout=[[1, Decision("d")], 0, [1, 1, Decision("d")]]
    )
    with pytest.raises(NotBatchable, match="whether v2 is padded differs by candidate"):
        schedule.pad_axis(schedule.get_loops(packed)[2], 3)


def test_an_axis_in_the_body_may_be_an_array() -> None:
    """argmax names its axis in the body; its partial results read what differs by candidate."""
    factors = np.array([2, 3])
    schedule = Schedule(argmax(), {"f": factors})
    _, k = loops(schedule, "best")
    schedule.rfactor(schedule.split(k, [None, Decision("f")])[0])
    for n, factor in enumerate(factors):
        alone = schedule.trace.apply(argmax(), {"f": int(factor)})
        assert_same_program(candidate(schedule.func, n), alone.func)
