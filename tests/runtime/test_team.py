"""Teams of threads and their barrier: nobody passes before all have come."""

from __future__ import annotations

import ctypes
import threading
import time
from functools import cache

import numpy as np
import pytest
from test_parallel import run as run_loop

from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime import parallel
from autosched.runtime.link import Library, link
from autosched.target import Target

# context: steps, count seen, errors, thread numbers[8], then lines of 64 bytes, one a rank.
# Each step every thread writes its line, waits, and looks at all lines; waits again.
BODIES = """
declare void @autosched_parallel_team(ptr, ptr, i32)
declare void @autosched_parallel_barrier(i64, i64)
declare void @autosched_parallel_for(ptr, ptr, i64, i64, i32)
declare i32 @usleep(i32)

define void @steps(ptr %context, i64 %rank, i64 %count, i32 %thread) {
entry:
  %steps = load i64, ptr %context
  %p1 = getelementptr i64, ptr %context, i64 1
  store atomic i64 %count, ptr %p1 monotonic, align 8
  %bad = getelementptr i64, ptr %context, i64 2
  %numbers = getelementptr i64, ptr %context, i64 3
  %slot = getelementptr i64, ptr %numbers, i64 %rank
  %number = zext i32 %thread to i64
  store i64 %number, ptr %slot
  %lines = getelementptr i64, ptr %context, i64 64
  %at = mul i64 %rank, 8
  %mine = getelementptr i64, ptr %lines, i64 %at
  br label %step
step:
  %s = phi i64 [ 0, %entry ], [ %s1, %after ]
  %s1 = add i64 %s, 1
  %value = mul i64 %s1, 3
  store i64 %value, ptr %mine
  call void @autosched_parallel_barrier(i64 %rank, i64 %count)
  br label %look
look:
  %r = phi i64 [ 0, %step ], [ %r1, %seen ]
  %o = mul i64 %r, 8
  %line = getelementptr i64, ptr %lines, i64 %o
  %v = load i64, ptr %line
  %right = icmp eq i64 %v, %value
  br i1 %right, label %seen, label %wrong
wrong:
  %n = atomicrmw add ptr %bad, i64 1 monotonic
  br label %seen
seen:
  %r1 = add i64 %r, 1
  %others = icmp ult i64 %r1, %count
  br i1 %others, label %look, label %after
after:
  call void @autosched_parallel_barrier(i64 %rank, i64 %count)
  %more = icmp ult i64 %s1, %steps
  br i1 %more, label %step, label %done
done:
  ret void
}

; Rank 0 comes late, so that the others sleep.
define void @late(ptr %context, i64 %rank, i64 %count, i32 %thread) {
  %first = icmp eq i64 %rank, 0
  br i1 %first, label %sleep, label %go
sleep:
  %rc = call i32 @usleep(i32 3000)
  br label %go
go:
  call void @steps(ptr %context, i64 %rank, i64 %count, i32 %thread)
  ret void
}

; No barrier at all: each counts itself.
define void @apart(ptr %context, i64 %rank, i64 %count, i32 %thread) {
  %p = getelementptr i64, ptr %context, i64 2
  %n = atomicrmw add ptr %p, i64 1 monotonic
  %p1 = getelementptr i64, ptr %context, i64 1
  store atomic i64 %count, ptr %p1 monotonic, align 8
  ret void
}

; A team within a parallel loop of one piece a thread.
define void @inside(ptr %contexts, i64 %begin, i64 %end, i32 %thread) {
  %rc = call i32 @usleep(i32 300)
  %o = mul i64 %begin, 512
  %context = getelementptr i64, ptr %contexts, i64 %o
  call void @autosched_parallel_team(ptr @steps, ptr %context, i32 4)
  ret void
}
"""
NAMES = ("steps", "late", "apart", "inside")


@cache
def bodies() -> Library:
    return link(compile_ir(BODIES, Target("llvm")), NAMES, parallel.imports())


def run(body: str, steps: int, threads: int) -> np.ndarray:
    """The context after a team ran: steps, count, errors, the number of each rank."""
    context = np.zeros(512, np.int64)
    context[0] = steps
    context[3:11] = -1
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
    team = parallel.imports()[parallel.TEAM_SYMBOL]
    prototype(team)(bodies()[body], context.ctypes.data, threads)
    return context


@pytest.mark.parametrize("threads", [-1, 0, 1, 2, 3, 5, 8])
def test_nobody_is_ahead(threads: int) -> None:
    for steps in (1, 2, 300):
        context = run("steps", steps, threads)
        count = max(threads, 1)
        assert context[1] == count
        assert context[2] == 0
        assert list(context[3 : 3 + count]) == list(range(count))


def test_many_short_teams() -> None:
    for n in range(3000):
        threads = 1 + n % 4
        context = run("steps", 1 + n % 3, threads)
        assert (context[1], context[2]) == (threads, 0)


def test_more_threads_than_cores() -> None:
    assert run("steps", 500, 8)[2] == 0


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_sleepers_wake(threads: int) -> None:
    for _ in range(3):
        context = run("late", 3, threads)
        assert (context[1], context[2]) == (threads, 0)


def test_every_thread_takes_part_without_a_barrier() -> None:
    parallel.set_spin(0)  # workers sleep at once, and are slow to come
    try:
        for n in range(200):
            context = run("apart", 0, 1 + n % 4)
            assert context[1] == context[2] == 1 + n % 4
            if n % 10 == 0:
                time.sleep(0.001)
    finally:
        parallel.set_spin(parallel.SPIN_NS)


def test_teams_of_several_python_threads() -> None:
    """One has the pool; the teams of the others are their callers alone."""
    wrong: list[int] = []
    counts: set[int] = set()

    def work() -> None:
        for _ in range(400):
            context = run("steps", 5, 3)
            wrong.append(int(context[2]))
            counts.add(int(context[1]))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == [0] * 1200
    assert counts <= {1, 3}
    assert 3 in counts


def test_a_team_inside_a_parallel_loop_is_its_caller() -> None:
    run_raw = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
    )
    # It runs under the number of the loop's thread; on a busy machine one may take the whole loop.
    ranks: set[int] = set()
    until = time.monotonic() + 60
    while len(ranks) < 2 and time.monotonic() < until:
        contexts = np.zeros((8, 512), np.int64)
        contexts[:, 0] = 4
        run_raw(parallel.address())(bodies()["inside"], contexts.ctypes.data, 8, 1, 3)
        np.testing.assert_array_equal(contexts[:, 1:3], np.tile([1, 0], (8, 1)))
        ranks |= set(contexts[:, 3].tolist())
    assert ranks <= {0, 1, 2}
    assert len(ranks) > 1


def test_loops_and_teams_in_turn() -> None:
    for n in range(500):
        assert run("steps", 2, 1 + n % 3)[2] == 0
        bumped = np.zeros(100, np.int32)
        run_loop("bump", bumped, len(bumped), 7, 3)
        assert (bumped == 1).all()
