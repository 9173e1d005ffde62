"""Writing and reading logs: JSON lines as `lines.py` describes them.

Lines are appended whole, by one write under a lock, so that any number of processes may write one
log at once. A reader passes over what it cannot use (a torn line, lines of other tools or of later
versions) and reports it.
"""

from __future__ import annotations

import fcntl
import io
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from records.arguments import path_of
from records.errors import RecordError
from records.logs.lines import Entry, decode_line, encode_line, logged
from records.types import Measurement, Record, Workload

MAX_LINE = 1 << 23
"""Bytes of the longest line that is decoded; what is longer is no line of a log of records. (As
Python values JSON takes twenty times as much.)"""

_PACKED = "compressed; unpack it first, as by `{} FILE | autosched records import -`"
_OTHER_FORMS = {
    b"\x1f\x8b": _PACKED.format("gunzip -c"),
    b"\x28\xb5\x2f\xfd": _PACKED.format("zstd -dc"),
    b"\xfd7zXZ": _PACKED.format("xz -dc"),
    b"BZh": _PACKED.format("bzip2 -dc"),
    b"PK\x03\x04": _PACKED.format("unzip -p"),
    b"SQLite format 3\0": "a database; `autosched records merge FILE --into URL` takes it",
    b"\xff\xfe": "text in UTF-16; convert it first, as by `iconv -f UTF-16 -t UTF-8 FILE`",
    b"\xfe\xff": "text in UTF-16; convert it first, as by `iconv -f UTF-16 -t UTF-8 FILE`",
}
"""What a file begins with of which no line could be read."""

LISTED = 1_000
"""Lines that a report lists at most, whatever else there is in a file of millions."""

_log = logging.getLogger("records.jsonl")


class JsonlWriter:
    """Appends to a log, which is made where there is none.

    When a call returns, its lines are in the operating system's hands and outlive this process;
    with `fsync` they are on disk and outlive the machine's power. May be shared by threads. Raises
    RecordError if the lines cannot be written; nothing of them is then in the log.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.path = Path(path_of("path", path))
        self._fsync = fsync
        self._mutex = threading.Lock()
        self._workloads: set[str] = set()

    def write_workload(self, workload: Workload) -> None:
        """Appends a workload, once a writer; to be called before the first record of it."""
        if workload.key not in self._workloads:
            self.append([workload])
            self._workloads.add(workload.key)

    def write_records(self, records: Iterable[Record]) -> None:
        """Appends records."""
        self.append(records)

    def write_measurements(self, record: Record, measurements: Iterable[Measurement]) -> None:
        """Appends repeated measurements of a record that is in the log."""
        self.append(logged(record, measurement) for measurement in measurements)

    def append(self, entries: Iterable[Entry]) -> None:
        """Appends entries of any kind, all or none of them."""
        data = b"".join(map(encode_line, entries))
        if not data:
            return
        try:
            with self._mutex, _locked(self.path) as log:
                end = os.fstat(log).st_size
                torn = end > 0 and os.pread(log, 1, end - 1) != b"\n"
                try:
                    _write(log, b"\n" + data if torn else data)
                    if self._fsync:
                        os.fsync(log)
                except OSError:
                    os.ftruncate(log, end)
                    raise
        except OSError as e:
            raise RecordError(f"cannot append to {self.path}: {e}") from e


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The log open for appending, with no other writer in it.

    It is opened anew for each write: a lock belongs to what one call opened, so that forked
    processes exclude each other too, and a log that was moved away is begun again.
    """
    log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(log, fcntl.LOCK_EX)
        yield log
    finally:
        os.close(log)


def _write(log: int, data: bytes) -> None:
    written = os.write(log, data)
    while written < len(data):  # a signal or a full disk; the latter raises at the next attempt
        written += os.write(log, data[written:])


@dataclass
class JsonlReport:
    """What reading a log came to: entries used, and how many lines were skipped; of the first
    LISTED of these, `skipped` has the numbers (from 1) and the reasons."""

    read: int = 0
    skipped: list[tuple[int, str]] = field(default_factory=list)
    skipped_count: int = 0

    def skip(self, number: int, reason: str) -> None:
        """Enter a line that cannot be used."""
        self.skipped_count += 1
        if len(self.skipped) < LISTED:
            self.skipped.append((number, reason))


def read_jsonl(
    log: str | os.PathLike[str] | IO[bytes], report: JsonlReport | None = None
) -> Iterator[Entry]:
    """The workloads, records and measurements of a log, in its order, one at a time.

    Lines that cannot be used are skipped, entered in `report`, and mentioned in one warning to the
    logger `records.jsonl`; blank lines are no lines. Raises RecordError if the log cannot be read,
    or is compressed or in UTF-16.
    """
    return (entry for _, entry in numbered_entries(log, report))


def numbered_entries(
    log: str | os.PathLike[str] | IO[bytes],
    report: JsonlReport | None = None,
    *,
    quiet: bool = False,
) -> Iterator[tuple[int, Entry]]:
    """`read_jsonl`, with the number of each line; `quiet`: without the warning."""
    report = JsonlReport() if report is None else report
    name = (getattr(log, "name", None) or "the log") if isinstance(log, io.IOBase) else log
    try:
        for number, line in _lines(log):
            if number == 1 and (form := other_form(line)) is not None:
                raise RecordError(f"{name} is {form}")
            try:
                if len(line) > MAX_LINE:
                    raise RecordError(f"longer than {MAX_LINE} bytes")
                entry = decode_line(line)
            except RecordError as e:
                report.skip(number, str(e))
            else:
                report.read += 1
                yield number, entry
    except OSError as e:
        raise RecordError(f"cannot read {name}: {e}") from e
    finally:
        if report.skipped and not quiet:
            number, reason = report.skipped[0]
            _log.warning(
                "%s: %d line(s) skipped, the first is line %d: %s",
                *(name, report.skipped_count, number, reason),
            )


def other_form(head: bytes) -> str | None:
    """What a file is that begins so, and what to do with it; None for what may be a log."""
    return next((form for magic, form in _OTHER_FORMS.items() if head.startswith(magic)), None)


def _lines(log: str | os.PathLike[str] | IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, by number; of one that is too long, its beginning."""
    if isinstance(log, str | os.PathLike):
        with open(log, "rb") as stream:
            yield from _lines(stream)
        return
    number = 0
    while line := log.readline(MAX_LINE + 1):
        number += 1
        if line.strip():
            yield number, line
        while len(line) > MAX_LINE and not line.endswith(b"\n"):
            line = log.readline(MAX_LINE + 1)
