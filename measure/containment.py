"""What a child is given up to: limits, priority, and processes that it may not start. Linux only.

None of this is a wall against malice: it contains programs that are wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

from measure import threads

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
HIGHEST_PRIORITY = -20

# Numbers of the system calls that start processes: clone, clone3, and fork and vfork where they
# are; and how seccomp names the architecture.
_CALLS = {
    "x86_64": (0xC000003E, 56, 435, (57, 58)),
    "aarch64": (0xC00000B7, 220, 435, ()),
}
_CLONE_THREAD = 0x10000
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EAGAIN, _ENOSYS = 11, 38
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06


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
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                tasks += len(os.listdir(entry / "task"))
        except (FileNotFoundError, PermissionError, ProcessLookupError):  # it has ended
            continue
    limit(resource.RLIMIT_NPROC, tasks + more)


def forbid_processes() -> bool:
    """Make every attempt to start a process fail from now on; threads may be started.

    Holds for root too. False where the system has no seccomp.
    """
    arch, clone, clone3, forks = _CALLS.get(platform.machine(), (0, 0, 0, ()))
    if not arch:
        return False
    refuse, unknown = _ERRNO | _EAGAIN, _ERRNO | _ENOSYS
    program = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, 0),  # the number of the call
    ]
    for number in forks:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    program += [
        # Its flags are in memory, which a filter cannot read; the C library then asks for clone.
        (_EQUAL, 0, 1, clone3),
        (_RETURN, 0, 0, unknown),
        (_EQUAL, 1, 0, clone),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, 16),  # the flags
        (_ANY_BIT, 0, 1, _CLONE_THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, refuse),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    head = ctypes.create_string_buffer(
        struct.pack("@HP", len(program), ctypes.addressof(code))  # struct sock_fprog
    )
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_SECCOMP, 2, ctypes.addressof(head))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def ending_children() -> Iterator[None]:
    """Whatever the body starts is ended after it, what left its parent or its group included."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        while pids := _children():
            for pid in pids:
                # Threads of the body may wait for them as well.
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


def granted() -> dict[str, bool]:
    """What the system lets this process have; to be asked in a child, since it takes all of it."""
    return {
        "priority": take_priority(),
        "no_processes": forbid_processes(),
        "waiting": threads.counted(),
    }


def go_first_for_memory() -> None:
    """Where memory runs out, be what the system ends, rather than who started us or a database."""
    with contextlib.suppress(OSError):  # nothing may be written below /proc here
        Path("/proc/self/oom_score_adj").write_text("1000")


def take_priority() -> bool:
    """Go before all other work on this machine; False where the system does not allow it.

    Threads that are started later follow. A session may be scheduled as a group (autogroup), whose
    weight is set apart.
    """
    group = Path("/proc/self/autogroup")
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
        if group.exists():
            group.write_text(str(HIGHEST_PRIORITY))
    except OSError:  # not permitted, or nothing may be written below /proc here
        return False
    return True
