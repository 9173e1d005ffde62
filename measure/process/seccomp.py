"""What code that is measured may not ask of the system: a seccomp filter, for root as well.

Such code computes on memory that it is given, and starts threads. What else would be felt outside
of its process or outlive it is refused: processes, signals, files, memory that is shared by name,
the clock. So a signal that ends it from outside is not of its own making.
"""

from __future__ import annotations

import ctypes
import platform
import signal
import struct
from errno import EAGAIN, ENOSYS, EPERM

from measure.process.containment import prctl

PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""Signals that end a process, and that no fault of its code raises."""

# How seccomp names the architecture, and which column of numbers is its.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# Numbers on x86_64 and on aarch64, -1 where there is no such call.
_REFUSED = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "creat": (85, -1),
    "truncate": (76, 45),
    "rename": (82, -1),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, -1),
    "mkdirat": (258, 34),
    "rmdir": (84, -1),
    "unlink": (87, -1),
    "unlinkat": (263, 35),
    "link": (86, -1),
    "linkat": (265, 37),
    "symlink": (88, -1),
    "symlinkat": (266, 36),
    "mknod": (133, -1),
    "mknodat": (259, 33),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
}
_FORKS = {"fork": (57, -1), "vfork": (58, -1)}
# What they are to do is in memory, which a filter cannot read; the C library asks the older ones.
_UNKNOWN = {"clone3": (435, 435), "openat2": (437, 437)}
_CLONE, _CLONE_THREAD = (56, 220), 0x10000
_OPEN, _OPENAT = (2, -1), (257, 56)
_WRITES = 0x243  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
_TGKILL = (234, 131)  # what raise(3) is made of
_PRLIMIT, _SETPRIORITY = (302, 261), (141, 140)

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_Step = tuple[int, int, int, int]


def confine() -> bool:
    """Refuse all that from now on. False where the system has no seccomp."""
    arch, column = _ARCHITECTURES.get(platform.machine(), (0, 0))
    if not arch:
        return False
    program = _program(arch, column)
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


def _program(arch: int, column: int) -> list[_Step]:
    """The filter: of every call the architecture, then its number, then perhaps an argument."""
    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | EPERM)
    no_process = (_RETURN, 0, 0, _ERRNO | EAGAIN)
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, arch), allow, (_LOAD, 0, 0, 0)]

    def on(numbers: tuple[int, int], *steps: _Step) -> None:
        """`steps`, the last of which returns, for one call."""
        if numbers[column] >= 0:
            program.extend([(_EQUAL, 0, len(steps), numbers[column]), *steps])

    for table, answer in ((_REFUSED, refuse), (_FORKS, no_process)):
        for numbers in table.values():
            on(numbers, answer)
    for numbers in _UNKNOWN.values():
        on(numbers, (_RETURN, 0, 0, _ERRNO | ENOSYS))
    on(_CLONE, _argument(0), (_ANY_BIT, 0, 1, _CLONE_THREAD), allow, no_process)
    for numbers, flags in ((_OPEN, 1), (_OPENAT, 2)):
        on(numbers, _argument(flags), (_ANY_BIT, 0, 1, _WRITES), refuse, allow)
    for numbers, who in ((_PRLIMIT, 0), (_SETPRIORITY, 1)):
        on(numbers, _argument(who), (_EQUAL, 0, 1, 0), allow, refuse)
    sent = sorted(FROM_OUTSIDE | {signal.SIGSTOP})
    checks = [step for n in sent for step in ((_EQUAL, 0, 1, int(n)), refuse)]
    on(_TGKILL, _argument(2), *checks, allow)
    return [*program, allow]


def _argument(place: int) -> _Step:
    """Load the lower half of an argument."""
    return (_LOAD, 0, 0, 16 + 8 * place)
