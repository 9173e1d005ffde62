"""A process that runs kernels between forbidden pages, so that touching a byte too much kills it.

Reads pickled requests from standard input and answers each on standard output: see `guarded.py`.
Every array is placed twice: flush against the page behind it, and flush against the page before.
Inputs are read-only. What is left of an array's pages holds a pattern that must survive.
"""

from __future__ import annotations

import ctypes
import mmap
import pickle
import signal
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.codegen.artifact import KernelInfo
from autosched.codegen.build import Level
from autosched.codegen.llvm.assemble import compile_ir
from autosched.codegen.llvm.generate import Generated
from autosched.runtime import parallel
from autosched.runtime.link import link
from autosched.target import Target

Array = npt.NDArray[Any]
PAGE = mmap.PAGESIZE
PATTERN = 0xA5
NOTHING, READ, WRITE = 0, 1, 3

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Region:
    """`size` bytes between forbidden pages, flush with the one behind (`at_end`) or before."""

    def __init__(self, size: int, at_end: bool) -> None:
        self.inside = max(1, -(-size // PAGE)) * PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.base = _libc.mmap(None, self.inside + 2 * PAGE, WRITE, flags, -1, 0)
        self.start = self.base + PAGE
        self.protect(NOTHING, self.base, PAGE)
        self.protect(NOTHING, self.start + self.inside, PAGE)
        self.all = np.ctypeslib.as_array((ctypes.c_uint8 * self.inside).from_address(self.start))
        self.all[:] = PATTERN
        self.offset = self.inside - size if at_end else 0
        self.data = self.all[self.offset : self.offset + size]

    @property
    def address(self) -> int:
        return int(self.start + self.offset)

    def protect(self, access: int, at: int | None = None, size: int | None = None) -> None:
        at, size = at or self.start, size or self.inside
        if _libc.mprotect(at, size, access):
            raise OSError(ctypes.get_errno(), "mprotect")

    def intact(self) -> bool:
        """Whether the bytes around the data are as they were."""
        end = self.offset + self.data.size
        return bool(
            np.all(self.all[: self.offset] == PATTERN) and np.all(self.all[end:] == PATTERN)
        )

    def free(self) -> None:
        _libc.munmap(self.base, self.inside + 2 * PAGE)


def run_once(
    entry: int, info: KernelInfo, arrays: Sequence[Array], threads: int, at_end: bool
) -> list[Array]:
    """The arrays after one call. Raises RuntimeError if something else was written."""
    regions = [Region(a.nbytes, at_end) for a in arrays]
    for region, array, param in zip(regions, arrays, info.params, strict=True):
        region.data[:] = np.frombuffer(array.tobytes(), np.uint8)
        if not param.written:
            region.protect(READ)
    sizes = info.solve([a.shape for a in arrays])
    info = info.at(sizes)
    # The workspace is aligned to cache lines and a multiple of them long.
    scratch = Region(info.workspace_bytes + threads * info.thread_bytes, at_end)
    scratch.data[:] = 0xFF  # NaN for floats
    words = [*(r.address for r in regions), *sizes.values()]
    pointers = (ctypes.c_void_p * len(words))(*words)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(entry)
    kernel(ctypes.addressof(pointers), scratch.address, threads)
    names = [*(p.name for p in info.params), "the workspace"]
    for name, region in zip(names, (*regions, scratch), strict=True):
        if not region.intact():
            side = "before" if at_end else "behind"
            raise RuntimeError(f"wrote {side} {name}")
    results = [
        np.frombuffer(r.data.tobytes(), a.dtype).reshape(a.shape)
        for r, a in zip(regions, arrays, strict=True)
    ]
    for region in (*regions, scratch):
        region.free()
    return results


@lru_cache(maxsize=1)
def compiled(ir: str, target: str, level: Level) -> bytes:
    """Object code; what has just been built for other arrays is not built again."""
    return compile_ir(ir, Target(target), level)


def run(
    generated: Generated, target: Target, level: Level, arrays: Sequence[Array], threads: int
) -> list[Array]:
    """The arrays after a call; both placements must agree in every bit."""
    missing = target.missing_here()
    if missing:
        raise RuntimeError(f"this machine lacks {', '.join(missing)}")
    info = generated.info
    code = compiled(generated.ir, str(target), level)
    imports = parallel.imports() if info.parallel else {}
    library = link(code, (info.entry,), imports)
    entry = library[info.entry]
    first, second = (run_once(entry, info, arrays, threads, at_end) for at_end in (True, False))
    for a, b, param in zip(first, second, info.params, strict=True):
        if a.tobytes() != b.tobytes():
            raise RuntimeError(f"two calls with the same inputs differ in {param.name}")
    return first


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    # Whoever started this process may have blocked or ignored the alarm.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    while True:
        try:
            seconds, generated, target, level, arrays, threads = pickle.load(requests)
        except EOFError:
            return
        signal.alarm(seconds)
        try:
            result = run(generated, Target(target), level, arrays, threads)
            answer: tuple[str, Any] = ("ok", result)
        except Exception as e:  # every failure is the parent's to report
            answer = ("failed", f"{type(e).__name__}: {e}")
        signal.alarm(0)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
