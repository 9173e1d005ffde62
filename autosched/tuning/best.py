"""From a record back to a schedule."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Union

from autosched.errors import ScheduleError, TargetError, TuningError
from autosched.schedule import Schedule
from autosched.schedule.portable import decode_trace
from autosched.target import Target
from autosched.tir.canonical import program_hash
from autosched.tir.nodes import PrimFunc
from records import NoRecord, Record, RecordSource, open_records

if TYPE_CHECKING:
    from records.ranking import Scope

RecordsLike = Union[str, "os.PathLike[str]", RecordSource]
"""A log file, a SQLite file, a database URL, or an open source."""


@contextmanager
def opened(records: RecordsLike) -> Iterator[RecordSource]:
    """The source of records: opened and closed again, or as it is if it is one.

    Raises TuningError for what is none, RecordError for what cannot be read.
    """
    if isinstance(records, (str, os.PathLike)):
        with open_records(records) as source:
            yield source
    elif callable(getattr(records, "records", None)):
        yield records
    else:
        raise TuningError(
            f"records are {records!r}; expected a log file, an SQLite file, a database URL, or an "
            "open source of records"
        )


def schedule_of(func: PrimFunc, record: Record) -> Schedule:
    """The schedule of a record, replayed on `func`.

    Raises ScheduleError if a step refuses, TuningError if the program is not the one that was
    measured (the record is stale: made by another version of the primitives).
    """
    trace = decode_trace(func, record.trace, record.decisions, record.dialect)
    schedule = trace.apply(func)
    found = program_hash(schedule.func)
    if record.program_hash and found != record.program_hash:
        raise TuningError(
            f"record {record.id} is stale: it was measured as program {record.program_hash}, and "
            f"its trace now gives {found}; measure the workload again"
        )
    return schedule


def load_best_record(
    records: RecordsLike,
    workload_key: str,
    target: str | None = None,
    device: str | None = None,
) -> Record:
    """The best valid record of a workload in a log file, a SQLite file, a database URL or a source.

    Raises RecordError, saying why, if there is none.
    """
    with opened(records) as source:
        return source.best(workload_key, target, device)


def compatible_scopes(scopes: Iterable[Scope], target: Target) -> list[Scope]:
    """Those of other targets (all of another device) whose code runs where that of `target` does,
    the nearest first: as many cores, then the most features in common."""
    found = []
    for text, device in scopes:
        try:
            other = Target(text)
        except TargetError:
            continue  # of a kind, or an instruction set, that this version does not know
        if other != target and other.triple == target.triple and other.features <= target.features:
            found.append((other.num_cores != target.num_cores, -len(other.features), text, device))
    return [(text, device) for _, _, text, device in sorted(found)]


def best_compatible(
    func: PrimFunc, records: RecordsLike, workload_key: str, target: Target
) -> tuple[Schedule, Record]:
    """`best_schedule`, or where there is none of the target that of the nearest compatible one.

    To be asked for by name: such a record is right here, but its time is another machine's, and
    so is the choice. Whose it is stands in the record.
    """
    with opened(records) as source:
        try:
            return best_schedule(func, source, workload_key, str(target))
        except NoRecord as none_here:
            for text, device in compatible_scopes(source.devices(workload_key), target):
                try:
                    return best_schedule(func, source, workload_key, text, device)
                except NoRecord:
                    continue
            raise NoRecord(f"{none_here}\nnor is there one of a compatible target") from none_here


def best_schedule(
    func: PrimFunc,
    records: RecordsLike,
    workload_key: str,
    target: str | None,
    device: str | None = None,
) -> tuple[Schedule, Record]:
    """Schedule and record of the best program; passed over are records that are stale or whose
    trace does not apply.

    Raises RecordError if nothing valid is left, naming the stale ones.
    """
    stale: dict[int, str] = {}
    with opened(records) as source:
        while True:
            try:
                record = source.best(workload_key, target, device, exclude=tuple(stale))
            except NoRecord as e:
                if stale:
                    reasons = "; ".join(stale.values())
                    raise NoRecord(f"{e} (passed over {len(stale)} stale: {reasons})") from e
                raise
            try:
                return schedule_of(func, record), record
            except TuningError as e:
                stale[record.id] = str(e)
            except ScheduleError as e:
                stale[record.id] = f"record {record.id} does not apply: {e}"
