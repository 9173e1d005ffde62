"""What a child is given up to: limits and priority. Linux only.

None of this is a wall against malice: it contains programs that are wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Container, Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
AHEAD = 20
"""Steps of niceness that a measuring process goes ahead of who started it: 85 times its share of a
core. With more, a kernel that never ends on all cores leaves its supervisor no time."""
HIGHEST_PRIORITY = -20


def prctl(option: int, *values: int) -> None:
    """prctl(2). Raises OSError."""
    arguments = [ctypes.c_ulong(n) for n in (*values, 0, 0, 0, 0)[:4]]
    if ctypes.CDLL(None, use_errno=True).prctl(option, *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def limit(what: int, value: int) -> None:
    """setrlimit(2), soft and hard, never above what we have ourselves."""
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def limit_processes(more: int) -> None:
    """Let this user have at most `more` tasks beyond those that there are now.

    The system counts all tasks of a user together, and never limits root.
    """
    uid = os.getuid()
    tasks = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, PermissionError, ProcessLookupError):  # ended
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                tasks += len(os.listdir(entry / "task"))
    limit(resource.RLIMIT_NPROC, tasks + more)


@contextlib.contextmanager
def ending_children() -> Iterator[None]:
    """Whatever the body starts is ended after it, what left its parent or its group included."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        end_children()


def end_children(spared: Container[int] = ()) -> None:
    """End all children of this process but these, and those that come to it when they do."""
    while pids := [pid for pid in _children() if pid not in spared]:
        for pid in pids:
            # Other threads may wait for them as well.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _children() -> list[int]:
    """Of all threads of this process; none where the system does not list them."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


@contextlib.contextmanager
def computing_at_most(seconds: float) -> Iterator[None]:
    """SIGPROF ends this process when all cores have computed for so long for it.

    What goes before all other work may keep those from ending it who are to watch it.
    """
    cores = os.sysconf("SC_NPROCESSORS_ONLN")  # os.cpu_count is what PYTHON_CPU_COUNT says
    signal.setitimer(signal.ITIMER_PROF, seconds * cores)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def go_first_for_memory() -> None:
    """Where memory runs out, be what the system ends, rather than who started us or a database."""
    with contextlib.suppress(OSError):  # nothing may be written below /proc here
        Path("/proc/self/oom_score_adj").write_text("1000")


def take_priority() -> bool:
    """Go before other work on this machine; False where the system does not allow it.

    Threads that are started later follow. A session may be scheduled as a group (autogroup), whose
    weight is set apart.
    """
    group = Path("/proc/self/autogroup")
    try:
        nice = max(os.getpriority(os.PRIO_PROCESS, 0) - AHEAD, HIGHEST_PRIORITY)
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        if group.exists():
            group.write_text(str(nice))
    except OSError:  # not permitted, or nothing may be written below /proc here
        return False
    return True
