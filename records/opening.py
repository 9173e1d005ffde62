"""Telling stores and logs apart, and opening them for reading."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NoReturn

from records.arguments import file_of
from records.errors import NoRecord, RecordError
from records.logs.jsonl import other_form
from records.logs.reader import RecordReader

if TYPE_CHECKING:
    from records.source import RecordSource
    from records.store import Store

LOG_SUFFIXES = (".json", ".jsonl", ".ndjson", ".log")

_SQLITE_MAGIC = b"SQLite format 3\0"


def open_records(path_or_url: str | os.PathLike[str]) -> RecordSource:
    """Opens what holds records, for reading: a log, an SQLite file, or a database by its URL.

    A file is told by its first bytes, an empty one by its suffix. Raises NoRecord if there is
    nothing there, RecordError if it is neither.
    """
    if file := file_of(path_or_url):
        if not file.exists():
            raise NoRecord(f"no records at {file}: there is no such file")
        if not is_store(path_or_url):
            return RecordReader(file)
    return _store_class()(path_or_url, make=False)


def open_store(path_or_url: str | os.PathLike[str], *, make: bool = True) -> Store:
    """Opens a database, to be written to; `make`: a new one, where there is none.

    Raises RecordError for what is no database, NoRecord if there is none.
    """
    if file := file_of(path_or_url):
        if not make and not file.exists():
            raise NoRecord(f"no records at {file}: there is no such file")
        if file.exists() and not is_store(path_or_url):
            raise RecordError(
                f"{file} is a log, and a database is expected; take the log into one first: "
                f"`autosched records import {shlex.quote(str(file))} --db NAME.db`"
            )
    return _store_class()(path_or_url, make=make)


def _store_class() -> type[Store]:
    try:
        from records.store import Store
    except ModuleNotFoundError as e:
        refuse_without_sql(e)
    return Store


def refuse_without_sql(e: ModuleNotFoundError) -> NoReturn:
    """Raise RecordError with the command that installs the package that the import of a part with
    SQL did not find; `e` itself where that is another module."""
    if e.name not in ("sqlalchemy", "alembic"):
        raise e
    raise RecordError(
        f"a database of records needs the package {e.name}: pip install 'autosched[tune]'; "
        "a log, NAME.json, needs none"
    ) from e


def is_store(path_or_url: str | os.PathLike[str]) -> bool:
    """Whether a database is meant and not a log. Raises RecordError for a file that is neither."""
    file = file_of(path_or_url)
    if file is None or "://" in os.fspath(path_or_url):
        return True
    named_log = file.suffix in LOG_SUFFIXES
    if not file.exists():
        return not named_log
    try:
        with open(file, "rb") as stream:
            head = stream.read(4096)
    except OSError as e:
        raise RecordError(f"cannot read {file}: {e}") from e
    if head.startswith(_SQLITE_MAGIC):
        return True
    if named_log or head.lstrip().startswith(b"{"):
        return False
    if not head:
        return True
    form = other_form(head) or "neither an SQLite database nor a log of JSON lines"
    raise RecordError(f"{file} is {form}")
