"""This process's threads: a core each where that can be had, and how long they had none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from measure.process.containment import take_priority
from measure.process.protocol import Request
from measure.process.seccomp import confine

_TASKS = Path("/proc/self/task")


class Threads:
    """The threads of a runner that is to be timed.

    A process that goes before all others (`containment.take_priority`) and has a thread for every
    core that it may use gives each a core of its own, since the system may else queue a worker
    behind its caller for milliseconds while other cores do less urgent work. With fewer threads, or
    without that priority, they stay free to go where a core is idle. So do those that a library
    has started and places itself, which are all that there are if they are not our `own`. What runs
    on a device of its own waits for no core, and no thread is `watched`.
    """

    def __init__(self, own: bool = True, watched: bool = True) -> None:
        self._watched = watched
        self._cores = sorted(os.sched_getaffinity(0))
        self._pin = own and os.getpriority(os.PRIO_PROCESS, 0) < 0
        self._counts: dict[str, int] = {}
        # Threads that were there before any kernel ran are of some library, and asleep.
        self._strangers = set(os.listdir(_TASKS)) - {str(os.getpid())} if own else set()
        self.follow()

    def follow(self) -> None:
        """Take in threads that were started meanwhile, and leave out those that ended."""
        if not self._watched:
            return
        now = set(os.listdir(_TASKS)) - self._strangers
        for name in set(self._counts) - now:
            os.close(self._counts.pop(name))
        new = now - set(self._counts)
        for name in new:
            with contextlib.suppress(FileNotFoundError):  # it has ended, or they are not counted
                self._counts[name] = os.open(_TASKS / name / "schedstat", os.O_RDONLY)
        if not new or not self._pin or len(self._counts) < len(self._cores):
            return
        # A new thread is born where its maker is bound.
        for core, name in zip(self._cores, sorted(self._counts, key=int), strict=False):
            os.sched_setaffinity(int(name), {core})

    def waited(self) -> float:
        """Seconds so far for which threads were ready to run and had no core, all together.

        From the scheduler's own count; 0 on a system that does not count.
        """
        total = 0
        for fd in self._counts.values():
            with contextlib.suppress(ProcessLookupError):  # the thread has ended
                total += int(os.pread(fd, 64, 0).split()[1])
        return total * 1e-9


def counted() -> bool:
    """Whether this system counts how long threads wait."""
    return (_TASKS / str(os.getpid()) / "schedstat").exists()


class Granted(Request[dict[str, bool]]):
    """What the system lets a process have; asked in a child, since it takes all of it."""

    def answer(self, fds: Sequence[int]) -> dict[str, bool]:
        return {
            "priority": take_priority(),
            "confined": confine(),
            "waiting": counted(),
        }
