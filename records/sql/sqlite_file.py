"""The file of an SQLite database: opening it, and noticing that it is not at its path any more."""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, event

from records.errors import NoRecord, StoreUnavailable

CACHE_KB = 8_000
LOG_PAGES = 8_000
"""Of SQLite's write-ahead log (32 MB), after which it is moved into the file. The indexes of many
records are changed all over, each page by many batches: moved together they are moved once. At two
million records a batch of 500 took 1.5 times as long with SQLite's own numbers, 2 MB and 1,000."""


class SqliteFile:
    """The file that the connections of one engine have open.

    A connection goes on with the file that it opened when that was moved, deleted or replaced, and
    what it writes then is lost for everybody else; so each transaction compares (`check`).

    With `make` false, raises NoRecord for an empty file, and a file that is not there is not made.
    """

    def __init__(self, path: str, busy_seconds: float, *, make: bool) -> None:
        self.path = os.path.abspath(path)
        self._busy_seconds = busy_seconds
        self._mode = "rwc" if make else "rw"
        self._opened: tuple[int, int] | None = None
        if make:
            return
        try:
            size = os.stat(self.path).st_size
        except OSError as e:
            raise StoreUnavailable(
                f"{self.path} cannot be used now: expected a database: {e}"
            ) from e
        if not size:
            raise NoRecord(f"no records at {self.path}: the file is empty")
        if is_read_only(self.path) and not _log_size(self.path):
            # The write-ahead log needs a file beside the database, even to read. No process can
            # change the database on a read-only file system, so SQLite may read without locks.
            self._mode = "ro&immutable=1"

    def listen(self, engine: Engine) -> None:
        """Have the engine open its connections here."""
        event.listen(engine, "do_connect", self._address)
        event.listen(engine, "connect", self._prepare)

    def check(self) -> None:
        """Raises StoreUnavailable if another file, or none, is at the path now."""
        try:
            found = os.stat(self.path)
        except OSError as e:
            raise StoreUnavailable(
                f"{self.path} cannot be used now: the file that was opened was moved or deleted "
                f"({e.strerror}); put it back, or start anew"
            ) from e
        if (found.st_dev, found.st_ino) != self._opened:
            raise StoreUnavailable(
                f"{self.path} cannot be used now: it is another file than the one that was opened; "
                "put that back, or start anew with this one"
            )

    def _address(self, dialect: Any, record: Any, args: list[Any], options: dict[str, Any]) -> None:
        """What to connect to, in the place of a mere path, by which SQLite would make a file."""
        if self._opened is not None:
            self.check()
        args[0] = f"file://{quote(os.fsencode(self.path))}?mode={self._mode}"
        options["uri"] = True

    def _prepare(self, connection: sqlite3.Connection, record: Any) -> None:
        if self._opened is None:
            found = os.stat(self.path)
            self._opened = found.st_dev, found.st_ino
            if self._mode == "rwc":
                self._mode = "rw"
        connection.isolation_level = None  # transactions begin where the Database says, only there
        connection.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1000)}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = {-CACHE_KB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        if self._mode == "rw":
            self._keep_log(connection)

    def _keep_log(self, connection: sqlite3.Connection) -> None:
        """Turn the write-ahead log on, which does not wait for others who do the same, whatever the
        timeout."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as e:
                if "locked" not in str(e) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)  # another process sets the mode, and signals nothing


def is_read_only(path: str) -> bool:
    """Whether a file is on a file system on which nothing can be written."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _log_size(path: str) -> int:
    """The size of what an SQLite database's write-ahead log still holds."""
    try:
        return os.stat(path + "-wal").st_size
    except FileNotFoundError:
        return 0
