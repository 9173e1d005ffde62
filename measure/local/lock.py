"""One lock a device slot on this host: timing excludes everybody, building excludes timing."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from autosched.errors import MeasureError

NOTICE_SECONDS = 10.0
"""Of waiting before a warning says who has the slot; a process that was stopped keeps it."""
_log = logging.getLogger(__name__)


class SlotLock:
    """The lock of one slot. `timing()` is held alone; `building()` is shared with other builders.

    A slot that is part of another, such as "cpu/0" of "cpu", holds the whole's lock shared while it
    builds or times: parts may be busy at the same time, but never a part and the whole's timing.

    File locks: they vanish with their process. Whoever wants the slot first gets hold of its turn,
    and waits for the slot with that in hand: without it, one that builds again and again would
    leave no gap for a timing. Not reentrant, and for one thread at a time. Raises MeasureError
    where no files can be made.
    """

    def __init__(self, slot: str = "cpu", folder: Path | None = None) -> None:
        self.folder = Path(folder) if folder else runtime_folder()
        self.path = _path(self.folder, f"slot-{slot}.lock")
        try:
            self._fd = open_lock(self.folder, f"slot-{slot}.lock")
            self._turn = open_lock(self.folder, f"slot-{slot}.turn")
        except OSError as e:
            raise MeasureError(f"there can be no lock of {slot} in {self.folder}: {e}") from e
        whole, part, _ = slot.rpartition("/")
        self._whole = SlotLock(whole, folder) if part else None

    def timing(self) -> AbstractContextManager[float]:
        """Hold the slot alone; gives the seconds waited."""
        return self._held(fcntl.LOCK_EX)

    def building(self) -> AbstractContextManager[float]:
        """Keep others from timing; gives the seconds waited."""
        return self._held(fcntl.LOCK_SH)

    @contextlib.contextmanager
    def _held(self, kind: int) -> Iterator[float]:
        began = time.monotonic()
        with self._whole.building() if self._whole is not None else contextlib.nullcontext():
            self._take(kind)
            try:
                yield time.monotonic() - began
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _take(self, kind: int) -> None:
        notice = threading.Timer(NOTICE_SECONDS, self._say_who)
        notice.daemon = True
        try:
            if not at_once(self._turn, fcntl.LOCK_EX) or not at_once(self._fd, kind):
                notice.start()
                fcntl.flock(self._turn, fcntl.LOCK_EX)
                fcntl.flock(self._fd, kind)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
            notice.cancel()

    def _say_who(self) -> None:
        held = ", ".join(f"{what} by process {pid}" for what, pid in self.holders())
        _log.warning("still waiting for %s: %s", self.path, held or "free by now")

    def holders(self) -> list[tuple[str, int]]:
        """Who has the slot now: ("timing" or "building", process id); 0 for one that is not ours
        to see, as outside of a container."""
        made = os.fstat(self._fd)
        place = f"{os.major(made.st_dev):02x}:{os.minor(made.st_dev):02x}:{made.st_ino}"
        found = []
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            # Whoever waits stands behind an arrow.
            if words[1] == "FLOCK" and words[5] == place:
                found.append(("timing" if words[3] == "WRITE" else "building", int(words[4])))
        return found

    def close(self) -> None:
        """Give up the files."""
        if self._whole is not None:
            self._whole.close()
        for fd in {self._fd, self._turn} - {-1}:
            os.close(fd)
        self._fd = self._turn = -1


def _path(folder: Path, name: str) -> Path:
    return folder / re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def open_lock(folder: Path, name: str) -> int:
    """A file that a lock is held by, made where it is not there; `name` may hold anything."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(_path(folder, name), flags, 0o600)


def at_once(fd: int, kind: int) -> bool:
    """Whether a lock was to be had at once."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
