"""Moving records between stores and logs: export, import, merge."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Unpack, cast

from records.arguments import file_of
from records.errors import RecordError
from records.logs.checks import Check, without_text
from records.logs.import_report import BATCH, ImportReport
from records.logs.jsonl import JsonlReport, JsonlWriter, numbered_entries
from records.logs.lines import Entry, LoggedMeasurement, encode_line, logged
from records.opening import is_store, open_records, open_store
from records.types import IMPORT, Filters, Record, Workload

if TYPE_CHECKING:
    from records.source import RecordSource
    from records.store import Store


def export_lines(source: RecordSource, **filters: Unpack[Filters]) -> Iterator[bytes]:
    """The records that `filters` select as the self-contained lines of a log, one at a time."""
    return map(encode_line, entries(source, source.records(**filters)))


def export_jsonl(
    source: RecordSource,
    path_or_stream: str | os.PathLike[str] | IO[bytes],
    **filters: Unpack[Filters],
) -> int:
    """Writes the records that `filters` select to a new log or a stream; returns how many.

    Raises RecordError if the file is there already or cannot be written.
    """
    return write_entries(path_or_stream, entries(source, source.records(**filters)))


def import_jsonl(
    store: Store, log: str | os.PathLike[str] | IO[bytes], check: Check = without_text
) -> ImportReport:
    """Takes the records of a log into a store, marked as imported.

    Doing it again changes nothing. Imported records are never the best until they are measured
    again here, and count in no job that was made here. Workloads are taken as `check` has them
    (`autosched.tuning.stored.checked`); left out, without their texts. Lines that cannot be used
    are refused one by one, and the others taken.
    """
    return _read_log(log, _into(lambda: nullcontext(store), check))


def import_into(
    db: str | os.PathLike[str],
    log: str | os.PathLike[str] | IO[bytes],
    check: Check = without_text,
) -> ImportReport:
    """`import_jsonl` into the database of that path or URL; where there is none it is made once a
    line was found that can be used."""
    return _read_log(log, _into(lambda: open_store(db), check))


def merge(
    sources: Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    check: Check = without_text,
) -> list[ImportReport]:
    """Takes the records of several stores or logs into one, with a report for each source.

    What the destination holds stays, and is extended. Into a store, records are imported as by
    `import_into`; into a log, their lines are taken as they are. Sources are read as they come,
    line by line; of a log as the destination the keys of all its records are held in memory.
    """
    with ExitStack() as stack:
        opened: list[RecordSource | IO[bytes]] = []
        for source in sources:
            opened.append(_opened(source))
            stack.enter_context(opened[-1])
        if is_store(destination):
            take = _into(lambda: open_store(destination), check)
            return [_read_off(source, take) for source in opened]
        known = _known(destination)
        return [_read_off(source, lambda n: _append(destination, n, known)) for source in opened]


def _opened(source: str | os.PathLike[str]) -> RecordSource | IO[bytes]:
    """A store, or a log to be read line by line. Raises RecordError for what is neither."""
    file = file_of(source)
    if file is None or not file.exists() or is_store(source):
        return open_records(source)
    try:
        return open(file, "rb")
    except OSError as e:
        raise RecordError(f"cannot read {file}: {e}") from e


_Take = Callable[[Iterator[tuple[int, Entry]]], ImportReport]
"""What is done with numbered entries."""


def _into(opened: Callable[[], AbstractContextManager[Store]], check: Check) -> _Take:
    """Taking entries into the store that `opened` gives, once there is one to be taken: where there
    is none, none is made."""

    def take(numbered: Iterator[tuple[int, Entry]]) -> ImportReport:
        from records.logs.importing import import_entries

        first = list(islice(numbered, 1))
        if not first:
            return ImportReport()
        with opened() as store:
            return import_entries(store, chain(first, numbered), IMPORT, check)

    return take


def _read_off(source: RecordSource | IO[bytes], take: _Take) -> ImportReport:
    """What `take` makes of the numbered entries of a source."""
    if isinstance(source, io.BufferedReader):
        return _read_log(source, take)
    return take(enumerate(entries(cast("RecordSource", source)), 1))


def _read_log(log: str | os.PathLike[str] | IO[bytes], take: _Take) -> ImportReport:
    skipped = JsonlReport()
    report = take(numbered_entries(log, skipped, quiet=True))
    report.add_skipped(skipped)
    return report


def entries(source: RecordSource, records: Iterable[Record] | None = None) -> Iterator[Entry]:
    """`records` of a source (all of them if None) as the entries of a log.

    Each workload comes before its first record, measurements after their records.
    """
    rest = iter(source.records() if records is None else records)
    workloads: set[str] = set()
    while batch := list(islice(rest, BATCH)):
        for record in batch:
            if record.workload_key not in workloads:
                workloads.add(record.workload_key)
                yield source.workload(record.workload_key)
            yield record
        by_id = {record.id: record for record in batch}
        for measurement in source.measurements(*by_id):
            yield logged(by_id[measurement.record_id], measurement)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that bears its name once it is whole; if it does not get so far, it is
    removed (who is killed leaves `NAME.….part`). Raises FileExistsError, and OSError."""
    if path.exists():
        raise FileExistsError(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "xb") as stream:
            yield stream
        try:
            os.link(part, path)  # unlike a renamed one it replaces nothing
        except FileExistsError:
            raise
        except OSError:
            # A file system without such links.
            os.rename(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_entries(
    path_or_stream: str | os.PathLike[str] | IO[bytes], all_entries: Iterator[Entry]
) -> int:
    """Writes entries to a stream or a file that is made; returns how many were records."""
    if isinstance(path_or_stream, str | os.PathLike):
        try:
            with new_file(Path(path_or_stream)) as stream:
                return write_entries(stream, all_entries)
        except FileExistsError as e:
            raise RecordError(f"{path_or_stream} is there already; name a new file") from e
        except OSError as e:
            raise RecordError(f"cannot write {path_or_stream}: {e}") from e
    count = 0
    for entry in all_entries:
        path_or_stream.write(encode_line(entry))
        count += isinstance(entry, Record)
    return count


# Into a log


def _identity(entry: Entry) -> Hashable:
    """What two entries have in common if one of them is enough."""
    match entry:
        case Workload():
            return entry.key
        case Record():
            return entry.key
        case LoggedMeasurement():
            return entry.of, entry.measurement.identity


def _known(log: str | os.PathLike[str]) -> set[Hashable]:
    if not os.path.exists(log):
        return set()
    return {_identity(entry) for _, entry in numbered_entries(log)}


def _first_of_each(entries: Iterable[Entry]) -> list[Entry]:
    return list({_identity(entry): entry for entry in reversed(list(entries))}.values())[::-1]


def _append(
    log: str | os.PathLike[str], numbered: Iterator[tuple[int, Entry]], known: set[Hashable]
) -> ImportReport:
    report = ImportReport()
    writer = JsonlWriter(log)
    rest = (entry for _, entry in numbered)
    while batch := list(islice(rest, BATCH)):
        new = _first_of_each(entry for entry in batch if _identity(entry) not in known)
        known.update(map(_identity, new))
        writer.append(new)
        report.new += sum(isinstance(entry, Record) for entry in new)
        report.known += sum(isinstance(entry, Record) for entry in batch)
    report.known -= report.new
    return report
