"""The parallel runtime: every index once, nesting, sharing, forking, sleeping."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from autosched.codegen.llvm.assemble import assembly, compile_ir
from autosched.errors import TargetError
from autosched.runtime import parallel
from autosched.runtime.link import Library, link
from autosched.target import Target

# Bodies over a context of int32: add one to context[i]; or note the thread and the piece.
BODIES = """
%nest = type { ptr, ptr, i64, i32 }
declare void @autosched_parallel_for(ptr, ptr, i64, i64, i32)
declare i32 @usleep(i32)

define void @bump(ptr %context, i64 %begin, i64 %end, i32 %thread) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr i32, ptr %context, i64 %i
  %x = load i32, ptr %p
  %y = add i32 %x, 1
  store i32 %y, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

; context[i] = thread, slowly, so that every thread gets some
define void @who(ptr %context, i64 %begin, i64 %end, i32 %thread) {
entry:
  %rc = call i32 @usleep(i32 300)
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr i32, ptr %context, i64 %i
  store i32 %thread, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

; context[begin] = end
define void @pieces(ptr %context, i64 %begin, i64 %end, i32 %thread) {
  %p = getelementptr i32, ptr %context, i64 %begin
  %e = trunc i64 %end to i32
  store i32 %e, ptr %p
  ret void
}

; For each i, a parallel loop of its own over row i of 16 columns: 100 * outer + inner thread.
define void @inner(ptr %row, i64 %begin, i64 %end, i32 %thread) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr i32, ptr %row, i64 %i
  %x = load i32, ptr %p
  %y = add i32 %x, %thread
  store i32 %y, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @nested(ptr %context, i64 %begin, i64 %end, i32 %thread) {
entry:
  %rc = call i32 @usleep(i32 200)
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %fill ]
  %first = mul i64 %i, 16
  %row = getelementptr i32, ptr %context, i64 %first
  %outer = mul i32 %thread, 100
  br label %set
set:
  %j = phi i64 [ 0, %loop ], [ %j1, %set ]
  %p = getelementptr i32, ptr %row, i64 %j
  store i32 %outer, ptr %p
  %j1 = add i64 %j, 1
  %jmore = icmp slt i64 %j1, 16
  br i1 %jmore, label %set, label %fill
fill:
  call void @autosched_parallel_for(ptr @inner, ptr %row, i64 16, i64 1, i32 4)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
NAMES = ("bump", "who", "pieces", "nested")


@cache
def bodies() -> Library:
    return link(compile_ir(BODIES, Target("llvm")), NAMES, {parallel.SYMBOL: parallel.address()})


def run(body: str, context: npt.NDArray[np.int32], extent: int, chunk: int, threads: int) -> None:
    prototype = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
    )
    prototype(parallel.address())(bodies()[body], context.ctypes.data, extent, chunk, threads)


def check_random_loops(count: int, seed: int, most_threads: int = 8) -> bool:
    rng = np.random.default_rng(seed)
    context = np.zeros(3000, np.int32)
    for _ in range(count):
        extent = int(rng.integers(-2, 3000) if rng.random() < 0.5 else rng.integers(-2, 20))
        context[:] = 0
        run("bump", context, extent, int(rng.integers(-1, 40)), int(rng.integers(-1, most_threads)))
        done = max(extent, 0)
        if not ((context[:done] == 1).all() and (context[done:] == 0).all()):
            return False
    return True


def test_every_index_once() -> None:
    assert check_random_loops(3000, seed=0)


def test_more_threads_than_cores() -> None:
    assert check_random_loops(60, seed=1, most_threads=64)


@pytest.mark.parametrize(
    ("extent", "chunk", "threads", "size"),
    [(100, 7, 2, 7), (100, 1000, 2, 100), (160, 0, 2, 2), (5, 0, 4, 1), (100, 3, 1, 100)],
)
def test_pieces(extent: int, chunk: int, threads: int, size: int) -> None:
    context = np.zeros(extent, np.int32)
    run("pieces", context, extent, chunk, threads)
    ends = np.zeros(extent, np.int32)
    for begin in range(0, extent, size):
        ends[begin] = min(begin + size, extent)
    np.testing.assert_array_equal(context, ends)


def until_workers_take_part(loop: Callable[[], set[int]]) -> set[int]:
    """Threads that took part in `loop`, repeated until they are two: where others have the cores,
    no worker may get one during a whole loop."""
    seen = loop()
    end = time.monotonic() + 100
    while len(seen) < 2 and time.monotonic() < end:
        seen |= loop()
    return seen


def who(threads: int) -> set[int]:
    """Threads that took part in one loop of slow pieces."""
    context = np.full(40, -1, np.int32)
    run("who", context, 40, 1, threads)
    return set(context.tolist())


def test_thread_numbers_are_below_the_count() -> None:
    assert who(1) == {0}
    for threads in (2, 3, 5):
        seen = until_workers_take_part(lambda threads=threads: who(threads))
        assert seen <= set(range(threads))
        assert len(seen) > 1, "no worker took part"


def test_each_thread_begins_with_a_share_of_its_own() -> None:
    """What a thread wrote in one loop it finds in its cache in the next. A late worker's share
    others finish, so this is seen only where all come in time."""
    wanted = np.repeat([0, 1], 20)
    end = time.monotonic() + 100
    while time.monotonic() < end:
        context = np.full(40, -1, np.int32)
        run("who", context, 40, 1, 2)
        if (context == wanted).all():
            return
    pytest.fail(f"no loop was cut in two halves; the last one was {context.tolist()}")


def test_nested_loops_run_under_the_number_of_their_thread() -> None:
    def nested() -> set[int]:
        context = np.zeros((40, 16), np.int32)
        run("nested", context, 40, 1, 3)
        outer, inner = np.divmod(context, 100)
        assert (outer == outer[:, :1]).all()
        # Scratch memory of thread t stays with t inside the inner loop.
        np.testing.assert_array_equal(outer, inner)
        return set(outer.flat)

    assert len(until_workers_take_part(nested)) > 1


def test_two_python_threads_at_once() -> None:
    results: list[bool] = []
    workers = [
        threading.Thread(target=lambda seed=seed: results.append(check_random_loops(1500, seed)))
        for seed in (2, 3, 4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [True] * 3


def test_sleeping_workers_wake() -> None:
    parallel.set_spin(0)
    try:
        for _ in range(20):
            assert check_random_loops(5, seed=5)
            time.sleep(0.002)
        assert until_workers_take_part(lambda: who(2)) == {0, 1}
    finally:
        parallel.set_spin(parallel.SPIN_NS)


def test_fork_gives_the_child_a_pool_of_its_own() -> None:
    assert check_random_loops(10, seed=6)
    child = os.fork()
    if child == 0:
        seen = until_workers_take_part(lambda: who(2))
        os._exit(0 if check_random_loops(300, seed=7) and len(seen) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert check_random_loops(10, seed=8)


def of_worker(loops: int) -> set[int]:
    """The processors of the first worker, once they are fewer than at its start or after so many
    loops that end before it wakes."""
    parallel.set_spin(0)
    threads = set(os.listdir("/proc/self/task"))
    allowed = found = os.sched_getaffinity(0)
    counts = np.zeros(2, np.int32)
    for n in range(1, loops + 1):
        run("bump", counts, 2, 1, 2)
        assert (counts == n).all()
        for worker in set(os.listdir("/proc/self/task")) - threads:
            found = os.sched_getaffinity(int(worker))
        if found != allowed:
            break
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
@pytest.mark.parametrize("bound", [False, True])
def test_a_worker_that_misses_loops_is_moved_away_from_its_caller(bound: bool) -> None:
    """But stays where it is if its caller has only one processor."""
    child = os.fork()
    if child == 0:
        right = False
        try:
            if bound:
                os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            allowed = os.sched_getaffinity(0)
            found = of_worker(3000 if bound else 100_000)
            right = found == allowed if bound else len(found) == len(allowed) - 1
        finally:
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_more_workers_than_processors_stay_where_they_may_be() -> None:
    child = os.fork()
    if child == 0:
        right = False
        try:
            parallel.set_spin(0)
            allowed = os.sched_getaffinity(0)
            counts = np.zeros(len(allowed) + 2, np.int32)
            for _ in range(2000):
                run("bump", counts, len(counts), 1, len(counts))
            threads = os.listdir("/proc/self/task")
            right = all(os.sched_getaffinity(int(t)) == allowed for t in threads)
        finally:
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")
def test_a_child_that_the_c_library_forks_keeps_its_processors() -> None:
    """It has no workers, and what it knows of them is its parent's."""
    assert until_workers_take_part(lambda: who(2)) == {0, 1}
    child = ctypes.CDLL(None).fork()
    if child == 0:
        right = False
        try:
            allowed = os.sched_getaffinity(0)
            counts = np.zeros(2, np.int32)
            for _ in range(5000):
                run("bump", counts, 2, 1, 2)
            right = (counts == 5000).all() and os.sched_getaffinity(0) == allowed
        finally:
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_spin_is_a_duration() -> None:
    with pytest.raises(ValueError, match="workers cannot spin for -1 ns; expected 0 or more"):
        parallel.set_spin(-1)


@pytest.mark.parametrize(
    ("triple", "pause", "futex", "mode"),
    [
        ("x86_64-unknown-linux-gnu", "pause", "$202", "ldmxcsr"),
        ("aarch64-unknown-linux-gnu", "isb", "#98", "FPCR"),
    ],
)
def test_ir_for_export(triple: str, pause: str, futex: str, mode: str) -> None:
    target = Target(f"llvm -mtriple={triple}")
    text = assembly(parallel.runtime_ir(triple), target, "full")
    assert pause in text
    assert futex in text
    assert mode in text
    assert "@" + parallel.SYMBOL in parallel.runtime_ir(triple)


def test_no_runtime_for_other_machines() -> None:
    with pytest.raises(TargetError, match="no parallel runtime for 'riscv64-linux'; there is one"):
        parallel.runtime_ir("riscv64-linux")
