"""Tile registers (AMX) of x86: whether Linux has them for a process, and asking for them.

Their state is 8 KiB a thread, which Linux saves only for processes that have asked for it once, by
arch_prctl. Children of a fork have what their parent has; a new program asks anew. Code without
the permission ends by SIGILL, so generated kernels ask as well (`codegen/llvm/permission.py`).
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

ARCH_PRCTL = 158
"""The number of the system call on x86-64."""
SUPPORTED, REQUEST = 0x1021, 0x1023
"""ARCH_GET_XCOMP_SUPP gives a mask of the kinds of state there are, ARCH_REQ_XCOMP_PERM asks."""
TILE_DATA = 18
"""XFEATURE_XTILEDATA, the state of the tile registers."""


@cache
def supported() -> bool:
    """Whether this system hands out tile registers; asks for none."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    mask = ctypes.c_uint64()
    status = ctypes.CDLL(None).syscall(ARCH_PRCTL, SUPPORTED, ctypes.byref(mask))
    return status == 0 and bool(mask.value >> TILE_DATA & 1)


@cache
def permitted() -> bool:
    """Ask for tile registers; whether this process has them now."""
    return supported() and ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST, TILE_DATA) == 0
