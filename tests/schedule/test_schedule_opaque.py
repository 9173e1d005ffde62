"""Schedules of functions with opaque blocks: what moves, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from bounded import Budget
from hypothesis import given, note, settings
from opaque_programs import OPAQUE, prefix
from schedule_fuzz import ACTIONS, random_program, random_schedule
from schedule_outcome import concurrent, outputs
from test_schedule_property import PROGRAMS, QUICK, RARE, TRACES, check_texts

import autosched as at
from autosched import te
from autosched.errors import ScheduleError, WorkloadError
from autosched.script import parse_func
from autosched.tir.nodes import PrimFunc, inputs_of
from autosched.tir.opaque import has_opaque

RANDOM, MORE_RANDOM = Budget(30), Budget(30)
IN_PLACE = """
@T.prim_func
def main(x: T.Buffer((6, 4), "int64"), y: T.Buffer((6, 4), "int64")):
    t = T.alloc_buffer((6, 4), "int64")
    u = T.alloc_buffer((6, 4), "int64")
    for i, j in T.grid(6, 4):
        with T.block("t"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, vj] + 1
    for i, j in T.grid(6, 4):
        with T.block("u"):
            vi, vj = T.axis.remap("SS", [i, j])
            u[vi, vj] = t[vi, vj] * 3
    with T.opaque("doubled"):
        T.reads(t)
        T.writes(t)
        for i in range(6):
            for j in range(4):
                t[i, j] = t[i, j] * 2
    for i, j in T.grid(6, 4):
        with T.block("v"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = t[vi, vj] + u[vi, vj]
"""


def compiled(func: PrimFunc, like: PrimFunc, seed: int) -> list[np.ndarray]:
    """What the code of `func` computes, on the inputs of `outputs`."""
    rng = np.random.default_rng(seed)
    inputs = {b.name for b in inputs_of(like)}
    arrays = []
    for b in func.params:
        shape = tuple(int(n) for n in b.shape)
        full = rng.integers(-4, 5, shape) if b.name in inputs else np.full(shape, 10**15)
        arrays.append(np.ascontiguousarray(full.astype(b.dtype)))
    at.build(func, target="llvm", level="search")(*arrays)
    return [x for x, b in zip(arrays, func.params, strict=True) if b.name not in inputs]


def check(program: list[int], trace: list[int]) -> None:
    func = random_program(program, stages=OPAQUE)
    if not has_opaque(func):
        return
    schedule = random_schedule(func, trace, RARE if len(trace) % 2 else ACTIONS)
    note(f"{func.script()}\n{schedule.trace.bind(schedule.decisions)}\n{schedule.func.script()}")
    expected = outputs(func, func, len(trace))
    found = [outputs(f, func, len(trace)) for f in (schedule.func, at.lower(schedule))]
    found.append(outputs(concurrent(schedule.func), func, len(trace)))
    found.append(compiled(schedule.func, func, len(trace)))
    for results in found:
        for x, y in zip(results, expected, strict=True):
            assert np.array_equal(x, y), "the results differ"
    assert parse_func(schedule.func.script(), check=False).same(schedule.func)
    check_texts(schedule)


@QUICK
@given(PROGRAMS, TRACES)
def test_random_schedules_keep_results_around_opaque_blocks(
    program: list[int], trace: list[int]
) -> None:
    RANDOM.run(check, program, trace)


@pytest.mark.long
@settings(QUICK, max_examples=120)
@given(PROGRAMS, TRACES)
def test_more_schedules_keep_results_around_opaque_blocks(
    program: list[int], trace: list[int]
) -> None:
    MORE_RANDOM.run(check, program, trace)


def three(n: int = 8, m: int = 8) -> PrimFunc:
    a = te.placeholder((n, m), "int64", "A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1, name="B")
    c = te.extern((n, m), [b], prefix(n, m), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * b[j, i], name="D")
    return te.create_prim_func([a, d])


def test_nests_beside_an_opaque_block_are_scheduled() -> None:
    func = three()
    sch = at.Schedule(func)
    i, j = sch.get_loops("D")
    _, inner = sch.split(j, [None, 4])
    sch.vectorize(inner)
    sch.parallel(i)
    sch.cache_read("D", "C", "local")
    sch.annotate(sch.get_block("C"), "note", "kept")
    assert parse_func(sch.func.script()).same(sch.func)
    assert '"note"' in sch.func.script().replace("'", '"')
    for x, y in zip(compiled(sch.func, func, 3), outputs(func, func, 3), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.compute_at("C", s.get_loops("D")[0]),
        lambda s: s.reverse_compute_at("C", s.get_loops("B")[0]),
        lambda s: s.compute_inline("C"),
        lambda s: s.reverse_compute_inline("C"),
        lambda s: s.cache_write("C"),
        lambda s: s.cache_read("C", "B", "local"),
        lambda s: s.transform_layout("C", "B", lambda i, j: (j, i)),
        lambda s: s.set_scope(s.get_block("C"), 0, "local"),
        lambda s: s.storage_align("C", 0, 0, 8, 1),
        lambda s: s.tensorize("C", "dot"),
        lambda s: s.decompose_reduction("C", s.get_loops("B")[0]),
    ],
)
def test_nothing_of_an_opaque_block_is_scheduled(call: object) -> None:
    sch = at.Schedule(three())
    before = sch.func
    with pytest.raises(ScheduleError, match="block 'C' is opaque: it runs as it is written"):
        call(sch)  # type: ignore[operator]
    assert sch.func is before


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.transform_layout("B", "B", lambda i, j: (j, i)), "opaque block 'C' runs as"),
        (lambda s: s.set_scope("B", 0, "local"), "opaque block 'C' runs as"),
        (lambda s: s.storage_align("B", 0, 0, 8, 1), "opaque block 'C' runs as"),
        (lambda s: s.compute_inline("B"), "opaque block 'C' runs as"),
    ],
)
def test_the_buffers_of_an_opaque_block_stay_as_they_are(call: object, message: str) -> None:
    sch = at.Schedule(three())
    with pytest.raises(ScheduleError, match=message):
        call(sch)  # type: ignore[operator]


def test_what_an_opaque_block_changes_is_not_read_after_it() -> None:
    """`u` reads t before it is doubled: inlined into what stands after, it would read it after."""
    func = parse_func(IN_PLACE)
    sch = at.Schedule(func)
    with pytest.raises(ScheduleError, match="'u' would move across the opaque block 'doubled'"):
        sch.compute_inline("u")
    with pytest.raises(ScheduleError, match="doubled"):
        sch.compute_at("u", sch.get_loops("v")[0])
    with pytest.raises(ScheduleError, match="doubled"):
        sch.reverse_compute_at("v", sch.get_loops("u")[0])
    sch.parallel(sch.get_loops("u")[0])
    for x, y in zip(compiled(sch.func, func, 5), outputs(func, func, 5), strict=True):
        assert np.array_equal(x, y)


def test_nothing_moves_across_an_opaque_block() -> None:
    """Not even what it does not touch: of a C function, not all that it does is known."""
    func = parse_func(IN_PLACE.replace("t[vi, vj] * 3", "x[vi, vj] * 3"))
    sch = at.Schedule(func)
    across = "block 'u' would move across the opaque block 'doubled'"
    with pytest.raises(ScheduleError, match=across):
        sch.compute_inline("u")
    with pytest.raises(ScheduleError, match=across):
        sch.compute_at("u", sch.get_loops("v")[0])
    with pytest.raises(ScheduleError, match="doubled"):
        sch.reverse_compute_at("v", sch.get_loops("u")[0])
    assert sch.func is func


def test_a_function_with_an_opaque_block_is_not_tuned() -> None:
    with pytest.raises(WorkloadError, match="has the opaque block C, of which no candidate"):
        at.SearchTask(prim_func=three(), target="llvm")
    with pytest.raises(ScheduleError, match="there is no DAG"):
        at.auto_scheduler.ComputeDAG(three())
