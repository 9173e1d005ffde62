"""Parallel loops: a pool of threads written in LLVM IR, on libc and nothing else.

`void autosched_parallel_for(ptr body, ptr context, i64 extent, i64 chunk, i32 threads)` calls
`body(context, begin, end, thread)` over pieces of [0, extent). Each thread begins with a range of
its own, the same in each loop of that extent, and helps the others when it is through, by their
atomic counters (affinity scheduling: Markatos and LeBlanc, IEEE TPDS 5(4), 1994): caches stay warm
from loop to loop, and a thread that is late delays no loop. The caller is thread 0; worker w has
a mailbox of its own:

    0 idle --post--> 1 posted --worker--> 2 running --worker--> 0 idle
    0 idle --worker, after a while--> 3 asleep on a futex --post, wake--> 1

The caller takes back what is still only posted when the pieces have run out, so it never waits for
a worker that slept through the loop. One that is awake and misses several in a row is kept off the
caller's processor: a system with other work may leave it queued there for as long as the caller is
busy, and the caller would be alone. A loop started inside another, or while another Python thread
has the pool, runs in its caller, under that thread's own number.

`void autosched_parallel_team(ptr body, ptr context, i32 threads)` calls `body(context, rank, count,
thread)` once on each of `count <= threads` threads at the same time; the threads may wait for each
other with `void autosched_parallel_barrier(i64 rank, i64 count)`, which all of them pass equally
often. A waiting thread spins for a few microseconds, then lets others run, then sleeps. Where the
pool is taken the team is the caller alone: rank 0 of 1, under its own number.

Workers compute floats as their caller does: the same rounding, denormals or none.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache

from autosched.errors import TargetError
from autosched.runtime.affinity_ir import AFFINITY
from autosched.runtime.float_mode import float_mode_ir
from autosched.runtime.link import Library, link
from autosched.runtime.pool_ir import POOL
from autosched.runtime.team_ir import TEAM
from autosched.target import Target

SYMBOL = "autosched_parallel_for"
TEAM_SYMBOL = "autosched_parallel_team"
BARRIER_SYMBOL = "autosched_parallel_barrier"
MAX_THREADS = 256
SPIN_NS = 1_000_000
"""How long an idle worker spins before it sleeps, in nanoseconds."""

PAUSES, YIELDS = 64, 400
"""How often a thread at a barrier looks with a pause, then giving way to others, before it sleeps:
about 1 and 100 microseconds. Longer would hurt where two threads share a core."""

MISSES, AGAIN = 8, -64
"""Loops in a row that a worker misses, awake, until it is moved away from the caller's processor,
and where counting starts after that: such a call costs a microsecond or two."""

_RESET = "autosched_parallel_reset"
_SPIN = "autosched_parallel_spin_ns"

# Per architecture: number of the futex system call, and how to wait a moment without one.
_FUTEX = {"x86_64": 202, "aarch64": 98}
_PAUSE = {
    "x86_64": ("llvm.x86.sse2.pause", "", ""),
    # `isb` holds an Arm core back for about as long as `pause` does; `yield` does nothing on most.
    "aarch64": ("llvm.aarch64.isb", "i32", "i32 15"),
}


def runtime_ir(triple: str, spin_ns: int = SPIN_NS) -> str:
    """LLVM IR of the runtime for a Linux triple: a whole module, for export next to a kernel's.

    A program that forks calls `autosched_parallel_reset()` in the child.
    """
    arch = triple.split("-")[0].replace("amd64", "x86_64").replace("arm64", "aarch64")
    if arch not in _FUTEX:
        known = ", ".join(_FUTEX)
        raise TargetError(f"no parallel runtime for {triple!r}; there is one for {known}")
    name, types, arguments = _PAUSE[arch]
    values = {
        "@PAUSE_TYPE@": types,
        "@PAUSE_ARGS@": arguments,
        "@PAUSE@": name,
        "@FUTEX@": str(_FUTEX[arch]),
        "@MAX@": str(MAX_THREADS),
        "@SLOT_BYTES@": str(64 * MAX_THREADS),
        "@SPIN@": str(spin_ns),
        "@MISSES@": str(MISSES),
        "@AGAIN@": str(AGAIN),
        "@PAUSES@": str(PAUSES),
        "@YIELDS@": str(YIELDS),
    }
    text = f'target triple = "{triple}"\n{float_mode_ir(arch)}{POOL}{AFFINITY}{TEAM}'
    for key, value in values.items():
        text = text.replace(key, value)
    return text


_start_lock = threading.Lock()


def address() -> int:
    """Address of `autosched_parallel_for` in this process; made on first use."""
    return _runtime()[SYMBOL]


def imports() -> dict[str, int]:
    """What parallel kernels are linked against: symbol -> address in this process."""
    library = _runtime()
    return {name: library[name] for name in (SYMBOL, TEAM_SYMBOL, BARRIER_SYMBOL)}


def set_spin(ns: int) -> None:
    """How long idle workers of this process spin before they sleep, in nanoseconds."""
    if ns < 0:
        raise ValueError(f"workers cannot spin for {ns} ns; expected 0 or more")
    ctypes.c_int64.from_address(_runtime()[_SPIN]).value = ns


def _runtime() -> Library:
    with _start_lock:
        return _load()


@cache
def _load() -> Library:
    from autosched.codegen.llvm.assemble import compile_ir

    host = Target("llvm")
    symbols = (SYMBOL, TEAM_SYMBOL, BARRIER_SYMBOL, _RESET, _SPIN)
    library = link(compile_ir(runtime_ir(host.triple), host, "full"), symbols)
    # Workers do not survive a fork; the child starts its own when it needs them.
    os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(library[_RESET]))
    return library
