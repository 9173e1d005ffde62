"""Serial loops around parallel ones: one team of threads, which wait where they must."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import codegen_fuzz as fuzz
import numpy as np
import numpy.typing as npt
import pytest
from bounded import Budget, at_most
from guarded import TARGETS, arguments, compiled, same, story
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from interleaved import Interleaved

from autosched import te
from autosched.codegen.build import Level, generate_ir
from autosched.errors import AutoschedError, ScheduleError
from autosched.lowering.lower import lower
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.target import Target
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc, sites

Array = npt.NDArray[Any]

# h[t, j] = clip(x[t, j] + sum over k of h[t - 1, k] * w[k, j]); columns over the threads.
RNN = """
@T.prim_func
def main(X: T.Buffer((6, 21), "int32"), W: T.Buffer((21, 21), "int32"),
         S: T.Buffer((6, 21), "int32")):
    acc = T.alloc_buffer((5, 21), "int32")
    for j in T.serial(21):
        with T.block("init"):
            vj = T.axis.spatial(21, j)
            S[0, vj] = X[0, vj]
    for t in T.serial(5):
        for j0 in T.parallel(3):
            for k in T.serial(21):
                for j1 in T.vectorized(8):
                    with T.block("acc"):
                        vt = T.axis.sequential(5, t)
                        vj = T.axis.spatial(21, j0 * 8 + j1)
                        vk = T.axis.reduce(21, k)
                        T.where(j0 * 8 + j1 < 21)
                        with T.init():
                            acc[vt, vj] = 0
                        acc[vt, vj] = acc[vt, vj] + S[vt, vk] * W[vk, vj]
            for j1 in T.vectorized(8):
                with T.block("update"):
                    vt = T.axis.sequential(5, t)
                    vj = T.axis.spatial(21, j0 * 8 + j1)
                    T.where(j0 * 8 + j1 < 21)
                    S[vt + 1, vj] = T.max(T.min(X[vt + 1, vj] + acc[vt, vj], 9), -9)
"""

# The same in two loops over the threads, cut differently: two waits a step.
TWO_PHASES = """
@T.prim_func
def main(X: T.Buffer((6, 21), "int32"), W: T.Buffer((21, 21), "int32"),
         S: T.Buffer((6, 21), "int32")):
    acc = T.alloc_buffer((5, 21), "int32")
    for j in T.serial(21):
        with T.block("init"):
            vj = T.axis.spatial(21, j)
            S[0, vj] = X[0, vj]
    for t in T.serial(5):
        for j in T.parallel(21):
            for k in T.serial(21):
                with T.block("acc"):
                    vt = T.axis.sequential(5, t)
                    vj = T.axis.spatial(21, j)
                    vk = T.axis.reduce(21, k)
                    with T.init():
                        acc[vt, vj] = 0
                    acc[vt, vj] = acc[vt, vj] + S[vt, vk] * W[vk, vj]
        for j0 in T.parallel(7):
            for j1 in T.vectorized(3):
                with T.block("update"):
                    vt = T.axis.sequential(5, t)
                    vj = T.axis.spatial(21, j0 * 3 + j1)
                    S[vt + 1, vj] = T.max(T.min(X[vt + 1, vj] + acc[vt, vj], 9), -9)
"""
SAME_SHARES = TWO_PHASES.replace(
    """        for j0 in T.parallel(7):
            for j1 in T.vectorized(3):
                with""",
    """        for j0 in T.parallel(21):
            for j1 in T.vectorized(1):
                with""",
).replace("j0 * 3 + j1", "j0")

# Rows are recurrences of their own: no thread waits for another.
APART = """
@T.prim_func
def main(X: T.Buffer((7, 5, 9), "int32"), S: T.Buffer((7, 5, 9), "int32")):
    for i, j in T.grid(5, 9):
        with T.block("init"):
            vi, vj = T.axis.remap("SS", [i, j])
            S[0, vi, vj] = X[0, vi, vj]
    for t in T.serial(6):
        for i in T.parallel(5):
            for j in T.vectorized(9):
                with T.block("update"):
                    vt = T.axis.sequential(6, t)
                    vi, vj = T.axis.remap("SS", [i, j])
                    S[vt + 1, vi, vj] = S[vt, vi, 8 - vj] + X[vt + 1, vi, vj]
"""

# One thread sums what all have written, and all read the sum.
ALONE = """
@T.prim_func
def main(X: T.Buffer((6, 40), "int32"), S: T.Buffer((6, 40), "int32")):
    total = T.alloc_buffer((5,), "int32")
    for j in T.serial(40):
        with T.block("init"):
            vj = T.axis.spatial(40, j)
            S[0, vj] = X[0, vj]
    for t in T.serial(5):
        for k in T.serial(40):
            with T.block("total"):
                vt = T.axis.sequential(5, t)
                vk = T.axis.reduce(40, k)
                with T.init():
                    total[vt] = 0
                total[vt] = total[vt] + S[vt, vk]
        for j in T.parallel(40):
            with T.block("update"):
                vt = T.axis.sequential(5, t)
                vj = T.axis.spatial(40, j)
                S[vt + 1, vj] = X[vt + 1, vj] + total[vt] % 7
"""

# A chain of parallel loops, and serial loops in serial ones.
NESTED = """
@T.prim_func
def main(A: T.Buffer((2, 3, 5, 11), "int32"), C: T.Buffer((2, 3, 5, 11), "int32")):
    B = T.alloc_buffer((2, 3, 5, 11), "int32")
    for u in T.serial(2):
        for v in T.serial(3):
            for i in T.parallel(5):
                for j in T.parallel(11):
                    with T.block("B"):
                        vu, vv, vi, vj = T.axis.remap("SSSS", [u, v, i, j])
                        B[vu, vv, vi, vj] = A[vu, vv, vi, vj] + 1
            for i in T.parallel(5):
                for j in T.vectorized(11):
                    with T.block("C"):
                        vu, vv, vi, vj = T.axis.remap("SSSS", [u, v, i, j])
                        C[vu, vv, vi, vj] = B[vu, vv, vi, 10 - vj] * 2
"""

PROGRAMS = {
    "rnn": (RNN, 1),
    "two phases": (TWO_PHASES, 2),
    "same shares": (SAME_SHARES, 1),
    "rows apart": (APART, 0),
    "one alone": (ALONE, 2),
    "nested": (NESTED, 2),
}


def waits_in(func: PrimFunc) -> int:
    """Barriers in the code of one step."""
    ir = generate_ir(func, Target("llvm")).ir
    assert "@autosched_parallel_for(" not in ir
    assert ir.count("call void @autosched_parallel_team(") == 1
    return ir.count("call void @autosched_parallel_barrier(")


def expected(func: PrimFunc, arrays: Sequence[Array]) -> list[Array]:
    out = [a.copy() for a in arrays]
    interp.run(func, out)
    return out


def check_orders(func: PrimFunc, arrays: Sequence[Array], want: Sequence[Array], seed: int) -> int:
    """Run the threads of every team in several orders; returns how often they waited."""
    lowered = lower(func)
    for n, threads in enumerate((2, 3, 5)):
        found = [a.copy() for a in arrays]
        run = Interleaved(lowered, found, threads, np.random.default_rng(seed + n))
        run.run()
        for a, b in zip(found, want, strict=True):
            same(a, b)
    return run.waits


@pytest.mark.parametrize("name", PROGRAMS)
def test_waits(name: str) -> None:
    """As many as are needed, and enough for every order of the threads."""
    text, waits = PROGRAMS[name]
    func = parse(text)
    assert waits_in(func) == waits
    arrays = arguments(func)
    want = expected(func, arrays)
    for seed in range(4):
        check_orders(func, arrays, want, seed)


def test_a_missing_wait_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle of these tests can fail."""
    monkeypatch.setattr("autosched.codegen.llvm.phases.Waits.__contains__", lambda *_: False)
    for name in ("rnn", "two phases", "same shares", "one alone", "nested"):
        func = parse(PROGRAMS[name][0])
        arrays = arguments(func)
        want = expected(func, arrays)

        def try_orders(func: PrimFunc = func, arrays: Any = arrays, want: Any = want) -> None:
            for seed in range(8):
                check_orders(func, arrays, want, seed)

        with pytest.raises(AssertionError):
            try_orders()


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("name", PROGRAMS)
def test_teams_compute_the_same(name: str, threads: int) -> None:
    func = parse(PROGRAMS[name][0])
    arrays = arguments(func)
    want = expected(func, arrays)
    for n, target in enumerate(TARGETS):
        found = compiled(func, arrays, target, "full" if (n + threads) % 2 else "search", threads)
        for a, b in zip(found, want, strict=True):
            same(a, b)


def test_more_threads_than_cores_and_many_steps() -> None:
    """Threads that are descheduled at a barrier sleep, and wake."""
    func = parse(
        RNN.replace("(6, 21)", "(401, 21)")
        .replace("(5, 21)", "(400, 21)")
        .replace("sequential(5", "sequential(400")
        .replace("serial(5)", "serial(400)")
    )
    arrays = arguments(func)
    found = compiled(func, arrays, threads=8)
    x, w, _ = arrays
    h = [x[0]]
    for t in range(1, 401):
        h.append(np.clip(x[t] + h[-1] @ w, -9, 9))
    same(found[2], np.stack(h))


def test_small_shared_buffers_are_shared() -> None:
    """A buffer that fits a stack must not stand on each thread's own."""
    func = parse(TWO_PHASES)
    assert generate_ir(func, Target("llvm")).info.workspace_bytes >= 21 * 4


# Random recurrences and schedules


def random_scan(c: fuzz.Choices) -> PrimFunc:
    """One or two states; stages that mix columns or rows; one output or two."""
    steps, rows, cols = 3 + c.next(4), c.of((1, 2, 3, 5)), c.of((4, 7, 16, 17))
    x = te.placeholder((steps, rows, cols), "int64", name="X")
    w = te.placeholder((cols, cols), "int64", name="W")
    first = 1 + c.next(2)
    count = 1 + c.next(2)
    states = [te.placeholder((steps, rows, cols), "int64", name=f"S{n}") for n in range(count)]
    inits = [
        te.compute((first, rows, cols), lambda t, i, j, n=n: x[t, i, j] - n, name=f"init{n}")
        for n in range(count)
    ]
    back = 1 + c.next(first)

    def clip(e: Any) -> Any:
        return te.max(te.min(e, te.const(9, "int64")), te.const(-9, "int64"))

    stages = []
    for n in range(1 + c.next(2)):
        s, kind = states[c.next(count)], c.next(4)
        k = te.reduce_axis((0, cols), name="k")
        forms = (
            lambda t, i, j, s=s, k=k: te.sum(s[t - back, i, k] * w[k, j], axis=k),
            lambda t, i, j, s=s: s[t - back, rows - 1 - i, j] + x[t, i, j],
            lambda t, i, j, s=s: s[t - 1, i, cols - 1 - j] * 2,
            lambda t, i, j, s=s: s[t - back, i, j] + w[i % cols, j],
        )
        stages.append(te.compute((steps, rows, cols), forms[kind], name=f"stage{n}"))
    updates = []
    for n in range(count):
        a, b = stages[c.next(len(stages))], states[c.next(count)]
        updates.append(
            te.compute(
                (steps, rows, cols),
                lambda t, i, j, a=a, b=b: clip(a[t, i, j] + x[t, i, j] - b[t - 1, i, j]),
                name=f"update{n}",
            )
        )
    result = te.scan(inits, updates, states)
    results = result if isinstance(result, (list, tuple)) else [result]
    return te.create_prim_func([x, w, *results])


NUMBERS = st.lists(st.integers(0, 999), min_size=16, max_size=16)
TRACE = st.lists(
    st.lists(st.integers(0, 999), min_size=fuzz.STEP, max_size=fuzz.STEP), min_size=1, max_size=7
)
PROGRAM = st.lists(st.integers(0, 999), min_size=24, max_size=24)
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def teams_schedule(func: PrimFunc, trace: Sequence[Sequence[int]]) -> Schedule:
    """A random schedule, then parallel loops inside what stayed serial."""
    sch = fuzz.random_schedule(func, trace[1:])
    c = fuzz.Choices(trace[0])
    for site in list(sites(sch.func)):
        block = sch.get_block(site.block.name)
        loops = sch.get_loops(block)
        for loop in loops[1 + c.next(3) :]:
            if c.next(4):
                try:
                    sch.parallel(loop)
                except ScheduleError:
                    continue
                break
    return sch


def compare(func: PrimFunc, trace: Sequence[Sequence[int]], seed: int) -> None:
    """The threads in any order, and compiled code on this machine: both as unscheduled."""
    arrays = arguments(func, seed=seed)
    scan = any(it.kind == "sequential" for s in sites(func) for it in s.block.iters)
    assume(scan or fuzz.is_exact(func, arrays))  # scans are clipped integers
    want = expected(func, arrays)
    sch = teams_schedule(func, trace)
    target = TARGETS[seed % len(TARGETS)]
    try:
        check_orders(sch.func, arrays, want, seed)
        level: Level = "full" if seed % 5 == 0 else "search"
        found = compiled(sch, arrays, target, level, threads=1 + seed % 4)
        for a, b in zip(found, want, strict=True):
            same(a, b)
    except (AssertionError, AutoschedError) as e:
        raise AssertionError(f"{e}\n{story(sch, func, target)}") from e


@given(NUMBERS, TRACE, st.integers(0, 999))
@settings(max_examples=8, deadline=None, suppress_health_check=QUIET)
def test_random_recurrences(numbers: list[int], trace: list[list[int]], seed: int) -> None:
    compare(random_scan(fuzz.Choices(numbers)), trace, seed)


@given(PROGRAM, TRACE, st.integers(0, 999))
@settings(max_examples=8, deadline=None, suppress_health_check=QUIET)
def test_random_programs(program: list[int], trace: list[list[int]], seed: int) -> None:
    compare(fuzz.random_program(program), trace, seed)


MANY = Budget(75)


@pytest.mark.long
@pytest.mark.timeout(1200)
@given(NUMBERS, PROGRAM, TRACE, st.integers(0, 999))
@settings(max_examples=1_000, deadline=None, suppress_health_check=QUIET)
def test_many_random_teams(
    numbers: list[int], program: list[int], trace: list[list[int]], seed: int
) -> None:
    MANY.run(compare_one, numbers, program, trace, seed)


def compare_one(numbers: list[int], program: list[int], trace: list[list[int]], seed: int) -> None:
    scan = seed % 3 > 0
    func = random_scan(fuzz.Choices(numbers)) if scan else fuzz.random_program(program)
    with at_most(300, lambda: f"{func.script()}\ntrace {trace}, seed {seed}"):
        compare(func, trace, seed)
