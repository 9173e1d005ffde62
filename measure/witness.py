"""The witness: an empty loop on every thread, timed to see whether a core is shared.

Two hardware threads of one core share what fetches and retires instructions. While the other one
is busy, with work of this machine or of another guest of its host, kernels take 1.1 to 1.7 times
as long, sample for sample, for tenths of a second to tens of seconds; no system counts that, and
the pacer, whose few instructions wait for one another, does not feel it. A loop of one taken branch
does: alone on its core it takes a cycle an iteration, on every processor that we know of, else 1.5
to 1.9 (Zen 4). How long a cycle is, a chain of exclusive ors tells, which takes one each in any
company.

Where this process may itself run on both threads of a core, sharing is nothing out of the ordinary,
and there is no witness.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path

from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime import parallel
from autosched.runtime.call import time_calls
from autosched.runtime.link import Library, link
from autosched.target import Target

ITERATIONS = 200_000  # about 55 microseconds at 3.7 GHz
CROWDED = 1.25
"""Times as long as alone; on many threads starting them takes a few per cent."""
CHAIN, LINKS = 1_000, 64
RUNS = 200
TRIES = 3
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"

_LINK = """
  %x{n} = call i64 asm sideeffect "", "=r,0"(i64 %y{n})
  %y{m} = xor i64 %x{n}, %mask"""
_IR = f"""
declare void @{parallel.SYMBOL}(ptr, ptr, i64, i64, i32)

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


def crowding(run: Callable[[], float], alone: float) -> float:
    """How much longer than `alone` a run takes, as a fraction; 0 up to `CROWDED`.

    The best of `TRIES`: a thread that gave way to others for a moment says nothing.
    """
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


@cache
def load() -> Library:
    """The code; compiled in the template, whose children have it."""
    return link(compile_ir(_IR, Target("llvm")), ("witness", "chain"), parallel.imports())
