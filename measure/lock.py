"""One lock a device slot on this host: timing excludes everybody, building excludes timing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from autosched.errors import MeasureError


class SlotLock:
    """The lock of one slot. `timing()` is held alone; `building()` is shared with other builders.

    A file lock: it vanishes with its process. Not reentrant, and for one thread at a time.
    """

    def __init__(self, slot: str = "cpu", folder: Path | None = None) -> None:
        self.folder = folder or runtime_folder()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = self.folder / f"slot-{re.sub(r'[^A-Za-z0-9_.-]', '_', slot)}.lock"
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    @contextlib.contextmanager
    def timing(self) -> Iterator[float]:
        """Hold the slot alone; gives the seconds waited."""
        with self._held(fcntl.LOCK_EX) as waited:
            yield waited

    @contextlib.contextmanager
    def building(self) -> Iterator[float]:
        """Keep others from timing; gives the seconds waited."""
        with self._held(fcntl.LOCK_SH) as waited:
            yield waited

    @contextlib.contextmanager
    def _held(self, kind: int) -> Iterator[float]:
        began = time.monotonic()
        fcntl.flock(self._fd, kind)
        try:
            yield time.monotonic() - began
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give up the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def runtime_folder() -> Path:
    """This user's folder for locks, which does not depend on where a process was started from.

    Raises MeasureError if somebody else owns it.
    """
    standard = Path(f"/run/user/{os.getuid()}")
    if standard.is_dir() and os.access(standard, os.W_OK):
        return standard / "autosched"
    folder = Path(tempfile.gettempdir()) / f"autosched-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise MeasureError(f"{folder} does not belong to this user; remove it or set TMPDIR")
    return folder
