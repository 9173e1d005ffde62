"""rolling_buffer: what iterations of a loop share is computed once and kept, in a ring of rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import guarded
import numpy as np
import pytest
from bounded import Budget
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from rolling_programs import chain, rolled
from schedule_outcome import concurrent, outputs
from schedule_programs import matmul_add, padded_conv, softmax

from autosched import te
from autosched.errors import NotBatchable, ScheduleError
from autosched.lowering.lower import lower
from autosched.schedule import Decision, Schedule
from autosched.script import parse
from autosched.tir.nodes import PrimFunc, loops_of, site_of
from autosched.tir.verify import verify

NUMBERS = st.integers(0, 999)
PROGRAMS = st.lists(NUMBERS, min_size=20, max_size=30)
TRACES = st.lists(NUMBERS, min_size=18, max_size=60)
QUICK = settings(
    max_examples=16, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
BUDGET = Budget(50)


@pytest.fixture(autouse=True, scope="module")
def _child() -> Iterator[None]:
    yield
    guarded.child.stop()


def windows(rows: int = 23, size: int = 3, stride: int = 1, dtype: str = "int64") -> PrimFunc:
    """B = A * A + 1; C = sums of rows of B."""
    a = te.placeholder((rows, 6), name="A", dtype=dtype)
    b = te.compute(a.shape, lambda i, j: a[i, j] * a[i, j] + 1, name="B")
    r = te.reduce_axis((0, size), name="r")
    c = te.compute(
        ((rows - size) // stride + 1, 6), lambda i, j: te.sum(b[i * stride + r, j], axis=r), "C"
    )
    return te.create_prim_func([a, c])


def cascade() -> PrimFunc:
    """The program of `sums`."""
    a, *_, d = sums()
    return te.create_prim_func([a, d])


def sums() -> list[te.Tensor]:
    """A matrix and three sums of three rows, one after the other."""
    made = [te.placeholder((12, 6), name="A", dtype="int64")]
    for name in "BCD":
        r = te.reduce_axis((0, 3), name="r")
        t = made[-1]
        shape = (t.shape[0] - 2, 6)
        made.append(
            te.compute(shape, lambda i, j, t=t, r=r: te.sum(t[i + r, j], axis=r), name=name)
        )
    return made


def same(sch: Schedule, func: PrimFunc) -> None:
    """The text gives the program back, and it computes what `func` does: scheduled, interleaved,
    lowered, and compiled."""
    verify(sch.func)
    assert parse(sch.func.script()).same(sch.func)
    wanted = outputs(func, func, 3)
    for program in (sch.func, concurrent(sch.func), lower(sch.func)):
        for x, y in zip(outputs(program, func, 3), wanted, strict=True):
            assert np.array_equal(x, y)
    guarded.check(sch, func)


def kept(func: PrimFunc) -> dict[str, tuple[int, ...]]:
    """Shapes of the intermediates of the lowered program."""
    low = lower(func)
    buffers = [*low.allocs, *(b for loop in loops_of(low) for b in loop.allocs)]
    return {b.name: tuple(int(n) for n in b.shape) for b in buffers}


def visits(func: PrimFunc, block: str) -> int:
    """How often a block runs."""
    site = site_of(func, block)
    points = np.indices([int(x.extent) for x in site.loops]).reshape(len(site.loops), -1)
    values = {x.var: p for x, p in zip(site.loops, points, strict=True)}
    runs = np.ones(points.shape[1], bool)
    for p in site.block.predicates:
        runs &= np.asarray(p.form.evaluate(values) < p.bound)
    return int(runs.sum())


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (5, 2), (4, 3), (2, 1)])
def test_each_row_is_computed_once_and_a_window_of_rows_is_kept(size: int, stride: int) -> None:
    func = windows(23, size, stride)
    sch = Schedule(func)
    sch.compute_at("B", sch.get_loops("C")[0])
    first = sch.rolling_buffer("B")
    sch.vectorize(sch.get_loops("B")[-1])
    sch.vectorize(sch.get_loops(first)[-1])
    same(sch, func)
    steps = (23 - size) // stride + 1
    rows = (steps - 1) * stride + size
    assert visits(sch.func, "B") + visits(sch.func, "B_first") == rows * 6
    assert kept(sch.func) == {"B": (size, 6)}


def test_strips_of_rows_run_in_parallel_and_roll_each_for_itself() -> None:
    func = windows()
    sch = Schedule(func)
    strip, row = sch.split(sch.get_loops("C")[0], [None, 4])
    sch.compute_at("B", row)
    sch.rolling_buffer("B")
    sch.parallel(strip)
    same(sch, func)
    assert kept(sch.func) == {"B": (3, 6)}
    with pytest.raises(ScheduleError, match="loop i_1 runs over a sequential axis of B"):
        sch.parallel(row)
    with pytest.raises(ScheduleError, match="loop i_1 runs over a sequential axis of B"):
        sch.vectorize(row)


def test_stages_of_a_cascade_roll_producers_first() -> None:
    func = cascade()
    sch = Schedule(func)
    row = sch.get_loops("D")[0]
    sch.compute_at("C", row)
    sch.compute_at("B", row)
    other = sch.copy()
    sch.rolling_buffer("B")
    sch.rolling_buffer("C")
    same(sch, func)
    assert kept(sch.func) == {"B": (4, 6), "C": (3, 6)}
    with pytest.raises(ScheduleError, match=r"reads B before|writes B after"):
        other.rolling_buffer("C")


def test_a_window_in_a_batch_lives_in_the_batch() -> None:
    a = te.placeholder((2, 10, 10), name="A", dtype="int64")
    b = te.compute(a.shape, lambda n, i, j: a[n, i, j] * 2, name="B")
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="q")
    c = te.compute((2, 8, 8), lambda n, i, j: te.sum(b[n, i + r, j + q], axis=[r, q]), name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    batch, row, *_ = sch.get_loops("C")
    sch.compute_at("B", row)
    sch.rolling_buffer("B", "B")
    sch.parallel(batch)
    same(sch, func)
    assert kept(sch.func) == {"B": (1, 3, 10)}


def tiles(rows: int = 12, columns: int = 14, two: bool = False) -> PrimFunc:
    """Sums of 3 by 3 elements of what is computed of A; of two consumers, their first terms too."""
    a = te.placeholder((rows, columns), name="A", dtype="int64")
    b = te.compute(a.shape, lambda i, j: a[i, j] * a[i, j] + j, name="B")
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="q")
    shape = (rows - 2, columns - 2)
    c = te.compute(shape, lambda i, j: te.sum(b[i + r, j + q], axis=[r, q]), name="C")
    if not two:
        return te.create_prim_func([a, c])
    d = te.compute(shape, lambda i, j: b[i, j] - b[i + 1, j + 2] + c[i, j], name="D")
    return te.create_prim_func([a, d])


@pytest.mark.parametrize("tile", [1, 2, 3])
def test_rows_and_columns_roll_together(tile: int) -> None:
    func = tiles()
    sch = Schedule(func)
    i, j, r, q = sch.get_loops("C")
    j0, j1 = sch.split(j, [None, tile])
    sch.reorder(i, j0, j1, r, q)
    sch.compute_at("B", j0)
    first = sch.rolling_buffer("B", loops=[i, j0])
    assert sch.get(first).name == "B_first"
    same(sch, func)
    parts = ("B", "B_first", "B_first_1")
    assert sum(visits(sch.func, b) for b in parts) == 12 * 14
    again = Schedule(func)
    again.replay(sch.trace)
    assert again.func.same(sch.func)


def test_rows_roll_where_columns_share_nothing() -> None:
    """The innermost loop of which iterations share something is that of the rows."""
    func = windows()
    sch = _computed(func, "B", "C", 1)
    sch.rolling_buffer("B")
    same(sch, func)
    assert visits(sch.func, "B") + visits(sch.func, "B_first") == 23 * 6


def test_several_consumers_in_the_loop() -> None:
    func = tiles(two=True)
    sch = Schedule(func)
    row = sch.get_loops("D")[0]
    sch.compute_at("C", row)
    sch.compute_at("B", row)
    sch.rolling_buffer("B")
    same(sch, func)
    assert visits(sch.func, "B") + visits(sch.func, "B_first") == 12 * 14
    assert kept(sch.func)["B"] == (3, 14)


def test_loops_that_cannot_be_rolled_along_are_refused() -> None:
    sch = _computed(tiles(), "B", "C", 1)
    row, column, r, _ = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="loop r is not around the block and its consumers; i,"):
        sch.rolling_buffer("B", loops=[r])
    with pytest.raises(ScheduleError, match=r"loops is l\d; expected a list of loops"):
        sch.rolling_buffer("B", loops=row)  # type: ignore[arg-type]
    strip, row = sch.split(row, [None, 5])
    with pytest.raises(ScheduleError, match="loop i_1, inside loop i_0, moves along vi, too"):
        sch.rolling_buffer("B", loops=[strip])
    sch.rolling_buffer("B", loops=[row, column])
    sch.parallel(strip)
    same(sch, tiles())


def test_steps_are_split_and_unrolled_afterwards() -> None:
    func = windows()
    sch = Schedule(func)
    row = sch.get_loops("C")[0]
    sch.compute_at("B", row)
    sch.rolling_buffer("B")
    _, inner = sch.split(row, [None, 3])
    sch.unroll(inner)
    same(sch, func)
    assert kept(sch.func) == {"B": (3, 6)}


def test_steps_of_strips_are_split_where_nothing_divides() -> None:
    """The proof that a row is computed before needs what is known of the loop outside."""
    a = te.placeholder((13, 5), name="A", dtype="int64")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 3 + 1, name="B")
    c = te.compute(a.shape, lambda i, j: b[i, j] * 2 - j, name="C")
    r = te.reduce_axis((0, 3), name="r")
    d = te.compute((6, 5), lambda i, j: te.sum(c[i * 2 + r, j], axis=r), name="D")
    func = te.create_prim_func([a, d])
    sch = Schedule(func)
    _, row = sch.split(sch.get_loops("D")[0], [None, 5])
    sch.compute_at("C", row)
    sch.compute_at("B", row)
    sch.rolling_buffer("B")
    sch.split(row, [None, 4])
    same(sch, func)


def _computed(func: PrimFunc, producer: str, consumer: str, depth: int = 0) -> Schedule:
    sch = Schedule(func)
    sch.compute_at(producer, sch.get_loops(consumer)[depth])
    return sch


def _rolled_twice() -> Schedule:
    sch = _computed(windows(), "B", "C")
    sch.rolling_buffer("B")
    return sch


def _vectorized() -> Schedule:
    sch = _computed(windows(), "B", "C")
    sch.vectorize(sch.get_loops("B")[-1])
    return sch


def _bound() -> Schedule:
    sch = _computed(windows(), "B", "C")
    sch.bind(sch.get_loops("C")[0], "blockIdx.x")
    return sch


REFUSED: dict[str, tuple[Callable[[], Schedule], str, str]] = {
    "at the root": (lambda: Schedule(windows()), "B", "no loop is around the block and its"),
    "an output": (lambda: Schedule(windows()), "C", "C is an argument of main"),
    "no shared rows": (
        lambda: _computed(windows(23, 2, 2), "B", "C"),
        "B",
        "reads 2 elements along vi, 2 further on than the one before; iterations share",
    ),
    "no movement": (
        lambda: _computed(windows(23, 2, 2), "B", "C", 1),
        "B",
        "reads 1 elements along vj, 1 further on",
    ),
    "two consumers": (
        lambda: Schedule(softmax()),
        "e",
        "no loop is around the block and its consumers, total, out",
    ),
    "a row at a time": (lambda: _computed(matmul_add(), "matmul", "out"), "matmul", "1 further on"),
    "twice": (_rolled_twice, "B", "B is also written by B_first"),
    "vectors": (_vectorized, "B", "vectorize, unroll and annotate afterwards"),
    "threads": (_bound, "B", "loop i is bound to a thread; expected loops of a CPU"),
    "a reduction": (
        lambda: _computed(padded_conv(), "pad", "conv", 2),
        "pad",
        "conv reduces over r, which is around the block and its consumer",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_certain_is_refused(name: str) -> None:
    make, block, message = REFUSED[name]
    sch = make()
    before, trace = sch.func, sch.trace
    with pytest.raises(ScheduleError, match=message):
        sch.rolling_buffer(block)
    assert sch.func is before
    assert sch.trace == trace


def test_a_population_is_rolled_candidate_by_candidate() -> None:
    sch = Schedule(windows(), {"t": np.array([2, 4])})
    _, row = sch.split(sch.get_loops("C")[0], [None, Decision("t")])
    sch.compute_at("B", row)
    with pytest.raises(NotBatchable, match="one candidate at a time"):
        sch.rolling_buffer("B")


def test_axes_are_made_anew_only_where_loops_run_over_all_of_them() -> None:
    """The first rows are a part of an axis, and so is what loop_partition makes."""
    sch = _computed(windows(24), "B", "C")
    sch.rolling_buffer("B")
    with pytest.raises(ScheduleError, match="runs over 2 of the 24 points of axis vi"):
        sch.split_axis("B_first", 0, 2)
    with pytest.raises(ScheduleError, match="the loop of vi runs over a part of it"):
        sch.transform_block_layout("B_first", [1, 0])


def test_a_layout_of_a_rolled_buffer_has_no_swizzle() -> None:
    sch = _rolled_twice()
    with pytest.raises(ScheduleError, match="B writes B step by step"):
        sch.transform_layout("B", "B", lambda i, j: ((i + j) % 23, j))
    sch.transform_layout("B", "B", lambda i, j: (j, i))
    same(sch, windows())


def test_parts_of_a_loop_have_intermediates_of_their_own() -> None:
    func = windows()
    sch = _computed(func, "B", "C")
    sch.loop_partition(sch.get_loops("C")[0], [4])
    same(sch, func)
    assert kept(sch.func) == {"B": (3, 6), "B_1": (3, 6)}
    rolled_ = _rolled_twice()
    with pytest.raises(ScheduleError, match="stands inside the steps of B"):
        rolled_.loop_partition(rolled_.get_loops("B")[-1], [2])


def test_the_stage_view_rolls_and_schedules_the_new_part() -> None:
    a, b, c, d = sums()
    s = te.create_schedule(d.op)
    row = s[d].op.axis[0]
    for t in (b, c):
        s[t].compute_at(s[d], row)
        s[t].rolling_buffer()
        outer, _ = s[t].split(t.op.axis[1], factor=4)
        s[t].reorder(outer, t.op.axis[0])
        s[t].unroll(t.op.reduce_axis[0])
    sch = s.replay([a, d])
    same(sch, te.create_prim_func([a, d]))
    assert kept(sch.func) == {"B": (4, 6), "C": (3, 6)}


def test_the_stage_view_says_what_cannot_be_rolled() -> None:
    a, b, c, d = sums()
    s = te.create_schedule(d.op)
    with pytest.raises(ScheduleError, match=r"s\[B\].rolling_buffer: stage B is computed at no"):
        s[b].rolling_buffer()
    with pytest.raises(ScheduleError, match=r"s\[D\].rolling_buffer: D is an output"):
        s[d].rolling_buffer()
    s[c].compute_at(s[d], d.op.axis[0])
    s[c].rolling_buffer()
    s[b].compute_at(s[c], c.op.axis[0])
    with pytest.raises(ScheduleError, match=r"s\[B\].compute_at.* stage C is rolled, so that its"):
        s.replay([a, d])


def check(program: list[int], trace: list[int], compiled: bool = False) -> None:
    func = chain(program)
    sch, _ = rolled(func, trace)
    note(f"{func.script()}\n{sch.trace.bind(sch.decisions)}\n{sch.func.script()}")
    verify(sch.func)
    assert parse(sch.func.script()).same(sch.func)
    wanted = outputs(func, func, len(trace))
    for one in (sch.func, concurrent(sch.func), lower(sch.func)):
        for x, y in zip(outputs(one, func, len(trace)), wanted, strict=True):
            assert np.array_equal(x, y)
    if compiled:
        guarded.check(sch, func)


@QUICK
@given(PROGRAMS, TRACES)
def test_random_chains(program: list[int], trace: list[int]) -> None:
    check(program, trace)


@pytest.mark.long
@pytest.mark.timeout(900)
@settings(QUICK, max_examples=4000)
@given(PROGRAMS, TRACES)
def test_random_chains_long(program: list[int], trace: list[int]) -> None:
    BUDGET.run(check, program, trace, len(program) % 4 == 0)


def test_the_fuzz_rolls() -> None:
    rng = random.Random(0)
    counts = []
    for _ in range(40):
        func = chain([rng.randrange(1000) for _ in range(24)])
        counts.append(rolled(func, [rng.randrange(1000) for _ in range(24)])[1])
    assert sum(counts) >= 15
    assert max(counts) >= 2
