"""Memory that lies alone: whoever writes or reads far past its ends is stopped by the processor."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os

import numpy as np
import numpy.typing as npt

STEP = 2 << 20
"""Fences are multiples of a large page."""
MOST = 16 << 20
_PROT_NONE = 0
_LARGE = 4 << 20
"""From here on NumPy asks for large pages, and so do we: users' arrays are NumPy's."""


def fenced(nbytes: int) -> npt.NDArray[np.uint8]:
    """At least `nbytes` bytes of zeros, in pages of their own, between two guard areas that are as
    wide as the memory, within limits. Raises MemoryError."""
    size = max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE
    guard = min(-(-size // STEP) * STEP, MOST)
    try:
        area = mmap.mmap(-1, guard + size + guard, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as e:
        raise MemoryError(f"Unable to allocate {size / 2**30:.3g} GiB: {e}") from e
    whole = np.frombuffer(area, np.uint8)
    for start in (0, guard + size):
        _forbid(whole.ctypes.data + start, guard)
    if size >= _LARGE:
        with contextlib.suppress(OSError):  # a system without large pages
            area.madvise(mmap.MADV_HUGEPAGE, guard, size)
    return whole[guard : guard + size]


def _forbid(address: int, nbytes: int) -> None:
    where, size = ctypes.c_void_p(address), ctypes.c_size_t(nbytes)
    if ctypes.CDLL(None, use_errno=True).mprotect(where, size, _PROT_NONE) != 0:
        code = ctypes.get_errno()
        raise MemoryError(f"memory cannot be fenced: {os.strerror(code)}")
