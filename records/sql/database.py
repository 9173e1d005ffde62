"""Opening a database: its address, how SQLite is used, transactions.

SQLite runs with a write-ahead log, so that readers never wait for the writer; a writer takes the
lock when its transaction begins, since one that starts by reading and then upgrades can fail
half-way; and a commit is on disk when it returns (synchronous=FULL).
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry

from records.arguments import file_of, path_of
from records.errors import NoRecord, RecordError, StoreDamaged, StoreUnavailable
from records.sql import versions
from records.sql.filesystem import refuse_network
from records.sql.sqlite_file import SqliteFile
from records.types import canonical_json

BUSY_SECONDS = 30.0
"""How long a writer waits for another one to finish before it gives up."""

LOOK_SECONDS = 0.001
"""How often it looks whether the other one has."""

POOL_SECONDS = 10.0
"""How long a thread waits for one of the connections to a server."""
IDLE_SECONDS = 60.0
"""A transaction that writes to a server and says nothing for so long is ended by it: whoever began
it was stopped or cut off, and what it holds (a job, the queue's entrance) others wait for."""
REST_SECONDS = 1.0
"""A connection that was not used for so long is tried before it is used again."""

ATTEMPTS = 5
"""How often a transaction is done that the server ends in favour of another one."""
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT: "restore it from a copy, or save what can be read: "
    "`sqlite3 FILE .recover | sqlite3 NEW.db`",
    sqlite3.SQLITE_NOTADB: "expected the file of an SQLite database",
}
"""What to do about a file that SQLite cannot read, by its code."""
_ADVICE = {
    sqlite3.SQLITE_READONLY: "its file and its folder have to be writable, also for reading",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_IOERR: "its disk is full, or fails",
    sqlite3.SQLITE_BUSY: "another process has been writing to it for long: wait for it, or end it",
    sqlite3.SQLITE_CANTOPEN: "expected a file, in a folder that can be written",
}
_VICTIM = ("40001", "40P01")
"""PostgreSQL's codes for that: a serialization failure, a deadlock."""
_IDLE = "25P03"
"""Its code for a transaction that was idle for too long."""

T = TypeVar("T")

_WRITES_UNTIL = "records_writes_until"
_SNAPSHOT = "records_snapshot"
_BUSY_TIMEOUT = f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}"
# A statement that psycopg has prepared is planned for any LIMIT, and then PostgreSQL reads a whole
# table for a page of it. (Nor would poolers such as PgBouncer like them.)
_SERVER: dict[str, Any] = {
    "connect_args": {"prepare_threshold": None},
    # Transactions begin where `Database` says, only there: switching a connection there and back
    # for each reader takes longer than what the driver does to ask.
    "isolation_level": "AUTOCOMMIT",
}


def address(url_or_path: str | os.PathLike[str]) -> URL:
    """The URL of a database, given as one or as the path of an SQLite file.

    Raises RecordError for what is none, and for an SQLite file on a network file system.
    """
    url_or_path = path_of("the database", url_or_path)
    if "://" in url_or_path:
        try:
            url = make_url(url_or_path)
        except (ArgumentError, ValueError) as e:
            shown = re.sub(r"//.*@", "//…@", url_or_path)  # it may have a password
            raise RecordError(
                f"{shown!r} is not the URL of a database; expected sqlite:///PATH or "
                "postgresql://USER@HOST:PORT/NAME"
            ) from e
        if file := file_of(url_or_path):
            url = url.set(database=os.fspath(file))
    else:
        url = URL.create("sqlite", database=str(Path(url_or_path).absolute()))
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise RecordError("a store in memory would be lost: name a file, as in sqlite:///x.db")
        if not (folder := Path(url.database).parent).is_dir():
            raise RecordError(f"no folder {folder} to keep {url.database} in")
        refuse_network(Path(url.database))
    elif url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    elif url.get_backend_name() != "postgresql":
        raise RecordError(
            f"{_name(url)}: no such kind of database; expected the path of an SQLite file, "
            f"sqlite:///PATH or postgresql://USER@HOST/NAME{_if_service(url)}"
        )
    return url


def _if_service(url: URL) -> str:
    """What to do with the address of a service."""
    if url.drivername.lower() not in ("http", "https"):
        return ""
    return "; commands that read the records of a service take its address with --server"


class _Victim(StoreUnavailable):
    """The server ended a transaction, so that others could go on."""


class Database:
    """An engine with this package's transactions.

    With `make` the tables, and an SQLite file, are made where there are none. With `any_version` a
    database of another version is opened too, and one without tables stays as it is: to be looked
    at and upgraded.

    Raises SchemaVersionError for a database of another version, NoRecord for one without tables
    that is not to be made, StoreUnavailable if it cannot be reached (or its file is not there), and
    RecordError for what is not a database of records.
    """

    def __init__(
        self,
        url: URL,
        *,
        any_version: bool = False,
        make: bool = True,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.name = _name(url)
        self._busy_seconds = busy_seconds
        bounds = {"lock_timeout": busy_seconds, "idle_in_transaction_session_timeout": IDLE_SECONDS}
        # By transaction: a pooler may give the connection to others in between. One exchange.
        self._begin_writing = "; ".join(
            ["BEGIN"]
            + [f"SET LOCAL {name} = {max(1, round(s * 1000))}" for name, s in bounds.items()]
        )
        try:
            self.engine: Engine = create_engine(
                url,
                json_serializer=canonical_json,
                pool_size=10,
                max_overflow=10,
                pool_timeout=POOL_SECONDS,
                **_SERVER if url.drivername == "postgresql+psycopg" else {},
            )
        except NoSuchModuleError as e:
            raise RecordError(f"{self.name}: no such driver: {e}") from e
        except ModuleNotFoundError as e:
            raise RecordError(
                f"{self.name}: the driver {e.name!r} is not installed: "
                f"pip install 'autosched[postgresql]'"
            ) from e
        except ValueError as e:
            raise RecordError(f"{self.name} has an option of another form after its ?: {e}") from e
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._writer = threading.Lock()
        if self.is_sqlite:
            self._file = SqliteFile(str(url.database), BUSY_SECONDS, make=make)
            self._file.listen(self.engine)
            event.listen(self.engine, "begin", self._begin_sqlite)
        else:
            event.listen(self.engine, "begin", self._begin_server)
            event.listen(self.engine, "checkin", _note_use)
            event.listen(self.engine, "checkout", partial(_ping_after_rest, self.engine))
        try:
            with self.transaction(writes=False) as connection:
                found = versions.found(connection, self.name)
            if not any_version and not versions.check(found, self.name):
                if not make:
                    raise NoRecord(f"no records in {self.name}: it has no tables")
                self.upgrade()
        except BaseException:
            self.engine.dispose()
            raise

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Connection]:
        """One transaction: committed on leaving, rolled back on an exception.

        What only reads a server by one statement needs none: it sees what is committed, as it
        would inside a transaction there, and two exchanges with the server are saved; for several
        that rely on one another there is `snapshot`. What writes waits
        `busy_seconds` for each lock there, as it does for SQLite's writer: whoever holds one may
        have been stopped.
        """
        # Other threads and other processes are waited for, by one and the same time.
        until = time.monotonic() + self._busy_seconds
        try:
            with self._turn(writes), self.engine.connect() as connection:
                if writes:
                    connection = connection.execution_options(**{_WRITES_UNTIL: until})
                with connection.begin():
                    yield connection
        except SQLAlchemyError as e:
            raise self._translated(e) from e

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A transaction that reads, all of whose statements see the same rows."""
        try:
            with self.engine.connect() as connection:
                connection = connection.execution_options(**{_SNAPSHOT: True})
                with connection.begin():
                    yield connection
        except SQLAlchemyError as e:
            raise self._translated(e) from e

    def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, done in a transaction that writes.

        Two transactions that wait for each other are a deadlock, of which PostgreSQL ends one: that
        one is done again, from the beginning, so `work` must change nothing but the database.
        """
        for left in reversed(range(ATTEMPTS)):
            try:
                with self.transaction(writes=True) as connection:
                    return work(connection)
            except _Victim:
                if not left:
                    raise
        raise AssertionError("unreachable")

    @contextmanager
    def _turn(self, writes: bool) -> Iterator[None]:
        """Of this process's threads one at a time writes to an SQLite file. There is but one writer
        anyway, and SQLite makes the others sleep for longer and longer until they are lucky."""
        if not (writes and self.is_sqlite):
            yield
            return
        if not self._writer.acquire(timeout=self._busy_seconds):
            raise StoreUnavailable(
                f"{self.name} cannot be used now: other threads have been writing to it for "
                f"{self._busy_seconds:g} s"
            )
        try:
            yield
        finally:
            self._writer.release()

    def _begin_sqlite(self, connection: Connection) -> None:
        """Begin a transaction; one that writes waits for those of other processes.

        SQLite would wait by itself, but look again less and less often, up to ten times a second,
        and whoever came later would go first.
        """
        self._file.check()
        raw: Any = connection.connection.driver_connection
        deadline = connection.get_execution_options().get(_WRITES_UNTIL)
        if deadline is None:
            raw.execute("BEGIN")
            return
        raw.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    raw.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as e:
                    if "locked" not in str(e) or time.monotonic() > deadline:
                        raise StoreUnavailable(
                            f"{self.name} cannot be used now: {_advised(e)}"
                        ) from e
                time.sleep(LOOK_SECONDS)  # the lock's owner is another process, which signals none
        finally:
            raw.execute(_BUSY_TIMEOUT)

    def _begin_server(self, connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITES_UNTIL) is not None:
            connection.exec_driver_sql(self._begin_writing)
        elif connection.get_execution_options().get(_SNAPSHOT):
            connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def _translated(self, error: SQLAlchemyError) -> RecordError:
        reason = _advised(error.orig) if isinstance(error, DBAPIError) else str(error)
        found = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF
        if found in _DAMAGED:
            return StoreDamaged(f"{self.name}: {reason}; {_DAMAGED[found]}")
        if isinstance(error, IntegrityError):
            return RecordError(f"{self.name} refused the rows: {reason}")
        code = getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None
        if code in _VICTIM:
            return _Victim(f"{self.name} cannot be used now: {reason}")
        if str(code).startswith("54"):
            # A value is too large or too deep, which the driver takes for trouble of the server.
            return RecordError(f"{self.name} refused the rows: {reason}")
        if code == _IDLE or isinstance(error, OperationalError | InterfaceError | PoolTimeout):
            return StoreUnavailable(f"{self.name} cannot be used now: {reason}")
        return RecordError(f"{self.name}: {reason}")

    def version(self) -> str | None:
        """The revision of the schema; None for a database without tables."""
        with self.transaction(writes=False) as connection:
            return versions.found(connection, self.name)

    def upgrade(self) -> str | None:
        """Make the tables, or bring them to this package's revision; returns the one before.

        All or nothing. Raises SchemaVersionError for a database of a newer package.
        """
        with self.transaction(writes=True) as connection:
            if not self.is_sqlite:
                # Two servers that start on one empty database: the second waits for the first,
                # however long that takes.
                connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7310579)")
            before = versions.found(connection, self.name)
            versions.upgrade(connection, before, self.name)
            return before

    def close(self) -> None:
        self.engine.dispose()


def _advised(error: object) -> str:
    """What a driver says, and what to do about it where it is SQLite's."""
    found = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return f"{error}; {_ADVICE[found]}" if found in _ADVICE else str(error)


def _name(url: URL) -> str:
    """The URL for messages: without a password, wherever it stands, and without the driver."""
    plain = url.difference_update_query(["password"])
    if plain.drivername == "postgresql+psycopg":
        plain = plain.set(drivername="postgresql")
    return plain.render_as_string(hide_password=True)


def _note_use(connection: Any, entry: ConnectionPoolEntry) -> None:
    entry.info["used"] = time.monotonic()


def _ping_after_rest(engine: Engine, connection: Any, entry: ConnectionPoolEntry, _: Any) -> None:
    """A connection that rested may be dead (a server that was started anew); the pool then makes
    another. Trying each connection before each use would be an exchange more for all of them."""
    now = time.monotonic()
    if now - entry.info.get("used", now) <= REST_SECONDS:
        return
    try:
        alive = engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error as e:
        raise DisconnectionError(str(e)) from e
    if not alive:
        raise DisconnectionError("the connection is closed")
