"""The interference probe: two small codes, timed to see whether cores are shared, or lie apart.

Two hardware threads of one core share what fetches and dispatches instructions (SMT). While the
other one is busy, with work of this machine or of another guest of its host, kernels take 1.05 to
1.7 times as long, sample for sample, for tenths of a second to tens of seconds; the system counts
that nowhere, and the clock probe, whose few instructions wait for one another, does not show it. A
row of instructions that do nothing does: it takes as many cycles as it takes to dispatch them, and
on a shared core 1.2 to 2.1 times as many (Zen 5, where a loop of one taken branch takes 1.04 to 1.8
times as many, most often 1.1 times). A chain of exclusive ors, each of which takes one cycle in any
company, tells how long a cycle is.

A host may also put a guest's cores, for seconds or minutes, under different last-level caches. What
one thread wrote and another reads then takes long: kernels of two threads took 1.0 to 1.6 times as
long, and a barrier between them 190 instead of 37 ns. So a barrier is timed as well.

The timing protocol used both until `timing_replay.py` said what they are worth.
"""

from __future__ import annotations

from functools import cache

from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime import parallel
from autosched.runtime.call import time_calls
from autosched.runtime.link import Library, link
from autosched.target import Target

ROW = 96
ITERATIONS = 5_000  # about 18 microseconds at 3.9 GHz
MANY = 8
SHARED = 1.15
"""Times as long as alone: of single looks at a core of one's own, 1 % took 1.1 times."""
CHAIN, LINKS = 300, 64  # about 5 microseconds
BARRIERS = 200
_ROW = "\\0A".join(["nop"] * ROW)
_LINK = """
  %x{n} = call i64 asm sideeffect "", "=r,0"(i64 %y{n})
  %y{m} = xor i64 %x{n}, %mask"""
_IR = f"""
declare void @{parallel.SYMBOL}(ptr, ptr, i64, i64, i32)
declare void @{parallel.TEAM_SYMBOL}(ptr, ptr, i32)
declare void @{parallel.BARRIER_SYMBOL}(i64, i64)

define internal void @body(ptr %none, i64 %begin, i64 %end, i32 %thread) {{
entry:
  br label %rows
rows:
  %n = phi i64 [ %begin, %entry ], [ %n1, %next ]
  br label %loop
loop:
  %i = phi i64 [ 0, %rows ], [ %i1, %loop ]
  call void asm sideeffect "{_ROW}", ""()
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {ITERATIONS}
  br i1 %more, label %loop, label %next
next:
  %n1 = add i64 %n, 1
  %rest = icmp slt i64 %n1, %end
  br i1 %rest, label %rows, label %done
done:
  ret void
}}

define void @probe(ptr %args, ptr %workspace, i32 %threads) {{
  %n = zext i32 %threads to i64
  %each = ptrtoint ptr %args to i64
  %all = mul i64 %n, %each
  call void @{parallel.SYMBOL}(ptr @body, ptr null, i64 %all, i64 %each, i32 %threads)
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


def cycles(threads: int) -> float:
    """Cycles that a row takes on so many threads, the slowest of them: one look."""
    code = load()
    # One chain before and one after: where the clock moves meanwhile, the row seems to take more.
    before = time_calls(code["chain"], 0, 0, 1, 1)
    # To start many threads takes longer.
    each = max(1, threads // MANY)
    row = time_calls(code["probe"], each, 0, threads, 1) / (each * ITERATIONS)
    link = min(before, time_calls(code["chain"], 0, 0, 1, 1)) / (CHAIN * LINKS)
    return row / link


def barrier_seconds(threads: int, tries: int = 1) -> float:
    """Seconds of a barrier between so many threads, the best of a few tries."""
    meet = load()["meet"]
    return min(time_calls(meet, 0, 0, threads, 1) for _ in range(tries)) * 1e-9 / BARRIERS


def shared_by(seen: float, alone: float) -> float:
    """How many more cycles than `alone` were seen, as a fraction; 0 up to `SHARED`."""
    return seen / alone - 1.0 if seen > SHARED * alone else 0.0


@cache
def load() -> Library:
    """The code, compiled once a process."""
    return link(compile_ir(_IR, Target("llvm")), ("probe", "chain", "meet"), parallel.imports())
