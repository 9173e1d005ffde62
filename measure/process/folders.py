"""Private folders that are always removed, at the latest by whoever comes next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "autosched-measure-"
_OWNER = "owner"


def own_folder() -> tuple[Path, int]:
    """A new private folder, and a descriptor that marks it as in use for as long as it is open."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    fresh = folder / "new"
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    fresh.rename(folder / _OWNER)  # only now do others look at it, and it is locked already
    return folder, fd


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A private folder for as long as the context lasts."""
    sweep()
    folder, fd = own_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(fd)


def sweep() -> None:
    """Remove the folders of processes that were killed together with their template."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            fd = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # somebody else's, or gone by now, or just being made
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(fd)
