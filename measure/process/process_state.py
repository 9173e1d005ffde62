"""What code leaves changed in its process, and what runs there next would feel.

A candidate may be right and yet lower its priority, bind itself to one core, block a signal, leave
a thread at work, or make its processor take denormals for zero: then later ones would be timed, or
would compute, otherwise than in a process of their own. So this is looked at before and after.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from functools import cache
from pathlib import Path

from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime import parallel
from autosched.runtime.call import time_calls
from autosched.runtime.link import Library, link
from autosched.target import Target

MODES = "floating-point mode"
LONGEST = 1000
_PROCESS = "/proc/self"
_SAFETY = {"Uid", "Gid", "Groups", "CapEff", "NoNewPrivs", "Seccomp"}
_FIELDS = _SAFETY | {"Umask", "SigBlk", "SigIgn", "SigCgt", "VmLck", "THP_enabled"}
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_WORDS = 16
"""Of 32 bits, which a `fenv_t` fits into."""
CONTROL = {"x86_64": ((0, 0xFFFF), (7, 0xFFC0)), "aarch64": ((0, 0xFFFFFFFF),)}
"""Its words that hold modes, and which bits of them do; others say what has happened so far."""
_IR = f"""
declare i32 @fegetenv(ptr)
declare void @{parallel.TEAM_SYMBOL}(ptr, ptr, i32)
define internal void @member(ptr %room, i64 %rank, i64 %count, i32 %thread) {{
  %own = getelementptr [{_WORDS} x i32], ptr %room, i64 %rank
  %r = call i32 @fegetenv(ptr %own)
  ret void
}}
define void @modes(ptr %args, ptr %workspace, i32 %threads) {{
  call void @{parallel.TEAM_SYMBOL}(ptr @member, ptr %workspace, i32 %threads)
  ret void
}}
"""


def state(threads: int) -> dict[str, str]:
    """This process as it is now: what of it, and how that is. `threads`: of the runtime's pool, as
    many as the code to be run uses."""
    status = (line.partition(":") for line in Path(f"{_PROCESS}/status").read_text().splitlines())
    found = {name: value.strip() for name, _, value in status if name in _FIELDS}
    found["working folder"] = os.readlink(f"{_PROCESS}/cwd")
    found["limits"] = Path(f"{_PROCESS}/limits").read_text()
    found["timers"] = str([any(signal.getitimer(which)) for which in _TIMERS])
    for name in os.listdir(f"{_PROCESS}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found[f"descriptor {name}"] = os.readlink(f"{_PROCESS}/fd/{name}")
    for name in os.listdir(f"{_PROCESS}/task"):
        with contextlib.suppress(ProcessLookupError):  # the thread has ended
            found[f"thread {name}"] = _scheduled(int(name))
    found[MODES] = _modes(threads)
    return found


def changes(before: dict[str, str], now: dict[str, str]) -> str:
    """What differs, as text; empty if nothing does."""
    names = sorted(n for n in before | now if before.get(n) != now.get(n))
    words = (f"{n}: {before.get(n, 'none')} → {now.get(n, 'none')}" for n in names)
    return "\n".join(words)[:LONGEST]


def _scheduled(thread: int) -> str:
    """Where and how urgently a thread runs. Raises ProcessLookupError."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(thread))))
    nice = os.getpriority(os.PRIO_PROCESS, thread)
    return f"cores {cores}, nice {nice}, policy {os.sched_getscheduler(thread)}"


def _modes(threads: int) -> str:
    """How each thread rounds, treats denormals, and traps; empty where that is not known."""
    control = CONTROL.get(platform.machine(), ())
    room = (ctypes.c_uint32 * (_WORDS * threads))()
    time_calls(load()["modes"], 0, ctypes.addressof(room), threads, 1)
    found = [[room[n + word] & bits for word, bits in control] for n in range(0, len(room), _WORDS)]
    return str(found)


@cache
def load() -> Library:
    """The code; compiled in the template, whose children have it."""
    return link(compile_ir(_IR, Target("llvm")), ("modes",), parallel.imports())
