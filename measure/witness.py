"""The witness: two small codes, timed to see whether cores are shared, or lie apart.

Two hardware threads of one core share what fetches and retires instructions. While the other one
is busy, with work of this machine or of another guest of its host, kernels take 1.1 to 1.7 times
as long, sample for sample, for tenths of a second to tens of seconds; no system counts that, and
the pacer, whose few instructions wait for one another, does not feel it. A loop of one taken branch
does: alone on its core it takes a cycle an iteration, else 1.5 to 1.9 (Zen 4). How long a cycle is,
a chain of exclusive ors tells, which takes one each in any company. A processor on which the loop
was never seen to take a cycle is not watched.

Where this process may itself run on both threads of a core, sharing is nothing out of the ordinary,
and it is not looked for.

A host may also put a guest's cores, for seconds or minutes, under different last-level caches. What
one thread wrote and another reads then takes long: kernels of two threads took 1.0 to 1.6 times as
long, and a barrier between them 190 instead of 37 ns. So the barrier is timed as well, and compared
with the best that was seen on this machine (`measure.host`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path

from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime import parallel
from autosched.runtime.call import time_calls
from autosched.runtime.link import Library, link
from autosched.target import Target
from measure.threads import Threads

ITERATIONS = 200_000  # about 55 microseconds at 3.7 GHz
CROWDED = 1.25
"""Times as long as alone; on many threads starting them takes a few per cent."""
CHAIN, LINKS = 1_000, 64
RUNS = 200
TRIES = 3
CALIBRATION = 20
ATTEMPTS, ATTEMPT_SECONDS = 100, 0.02
BARRIERS = 200
APART = 2.5
"""Times as long as the best, from which on cores count as lying apart."""
APART_NOISE = 0.2
"""What a time may be off by where cores lie apart: of 22 candidates of a convolution on two threads
nine in ten took at most 1.19 times as long, half of them 1.07 to 1.15 times, one 1.6 times."""
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"

_LINK = """
  %x{n} = call i64 asm sideeffect "", "=r,0"(i64 %y{n})
  %y{m} = xor i64 %x{n}, %mask"""
_IR = f"""
declare void @{parallel.SYMBOL}(ptr, ptr, i64, i64, i32)
declare void @{parallel.TEAM_SYMBOL}(ptr, ptr, i32)
declare void @{parallel.BARRIER_SYMBOL}(i64, i64)

define internal void @body(ptr %none, i64 %begin, i64 %end, i32 %thread) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void asm sideeffect "", ""()
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {ITERATIONS}
  br i1 %more, label %loop, label %done
done:
  ret void
}}

define void @witness(ptr %args, ptr %workspace, i32 %threads) {{
  %n = zext i32 %threads to i64
  call void @{parallel.SYMBOL}(ptr @body, ptr null, i64 %n, i64 1, i32 %threads)
  ret void
}}

define internal void @member(ptr %none, i64 %rank, i64 %count, i32 %thread) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void @{parallel.BARRIER_SYMBOL}(i64 %rank, i64 %count)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {BARRIERS}
  br i1 %more, label %loop, label %done
done:
  ret void
}}

define void @meet(ptr %args, ptr %workspace, i32 %threads) {{
  call void @{parallel.TEAM_SYMBOL}(ptr @member, ptr null, i32 %threads)
  ret void
}}

define void @chain(ptr %args, ptr %workspace, i32 %threads) {{
entry:
  %mask = call i64 asm sideeffect "", "=r,0"(i64 1)
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %y0 = phi i64 [ 0, %entry ], [ %y{LINKS}, %loop ]
{"".join(_LINK.format(n=n, m=n + 1) for n in range(LINKS))}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {CHAIN}
  br i1 %more, label %loop, label %done
done:
  call void asm sideeffect "", "r"(i64 %y{LINKS})
  ret void
}}
"""


def witness_seconds(threads: int) -> float:
    """Seconds of one run on so many threads."""
    return time_calls(load()["witness"], 0, 0, threads, 1) * 1e-9


def alone_seconds() -> float:
    """What a run takes on cores that nobody shares; 0 where sharing them is usual."""
    if shares_cores(sorted(os.sched_getaffinity(0))):
        return 0.0
    chain = load()["chain"]
    best = min(time_calls(chain, 0, 0, 1, 1) for _ in range(RUNS))
    return best * 1e-9 / (CHAIN * LINKS) * ITERATIONS


def is_right(
    alone: float,
    run: Callable[[], float] = lambda: witness_seconds(1),
    wait: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether a run takes about `alone` seconds, as it does on a processor where it can tell
    something; tried `ATTEMPTS` times, since somebody may share the core just now."""
    for _ in range(ATTEMPTS):
        if any(run() <= CROWDED * alone for _ in range(CALIBRATION)):
            return True
        wait(ATTEMPT_SECONDS)
    return False


def barrier_seconds(threads: int, tries: int = TRIES) -> float:
    """Seconds of a barrier between so many threads, the best of a few tries."""
    meet = load()["meet"]
    return min(time_calls(meet, 0, 0, threads, 1) for _ in range(tries)) * 1e-9 / BARRIERS


def crowding(run: Callable[[], float], alone: float) -> float:
    """How much longer than `alone` a run takes, as a fraction; 0 up to `CROWDED`.

    The best of `TRIES`: a thread that gave way to others for a moment says nothing. 0 where `alone`
    is not known.
    """
    if not alone:
        return 0.0
    best = inf
    for _ in range(TRIES):
        best = min(best, run())
        if best <= CROWDED * alone:
            return 0.0
    return best / alone - 1


def shares_cores(numbers: list[int], siblings: str = _SIBLINGS) -> bool:
    """Whether two of these logical cores are one, by the system's files named `siblings`."""
    for number in numbers:
        path = Path(siblings.format(number))
        if path.exists() and len(_numbers(path.read_text()) & set(numbers)) > 1:
            return True
    return False


def _numbers(text: str) -> set[int]:
    """ "0-1,8" as a set."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def watch(threads: int, seconds: float) -> tuple[float, float]:
    """(share of the time in which a core was shared, the best barrier in seconds), over `seconds`;
    the barrier is 0 on one thread."""
    own, alone = Threads(), alone_seconds()
    alone = alone if alone and is_right(alone) else 0.0
    witness_seconds(threads)
    own.follow()
    shared = count = 0
    best = inf
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        shared += crowding(lambda: witness_seconds(threads), alone) > 0
        count += 1
        if threads > 1:
            best = min(best, barrier_seconds(threads))
    return shared / max(1, count), best if threads > 1 else 0.0


@cache
def load() -> Library:
    """The code; compiled in the template, whose children have it."""
    return link(compile_ir(_IR, Target("llvm")), ("witness", "chain", "meet"), parallel.imports())
