"""From a record back to a schedule."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Union

from autosched.checks import instance, path_text, shown, text
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
    check_records(records)
    if isinstance(records, (str, os.PathLike)):
        with open_records(records) as source:
            yield source
    else:
        yield records


def check_records(records: object) -> None:
    """Raise TuningError for what can hold no records; nothing is opened."""
    if isinstance(records, (str, os.PathLike)):
        path_text("records", records, TuningError)
    elif isinstance(records, type) or not callable(getattr(records, "records", None)):
        raise TuningError(
            f"records are {shown(records)}; expected a log file, an SQLite file, a database URL, "
            "or an open source of records"
        )


@contextmanager
def bounded_depth(record: Record) -> Iterator[None]:
    """Raises ScheduleError where the program nests deeper than it can be walked: a record may be
    anybody's, and have thousands of splits of one loop."""
    try:
        yield
    except RecursionError as e:
        raise ScheduleError(
            f"record {record.id} has {len(record.trace)} steps, and its program nests too deeply "
            "to be made"
        ) from e


def schedule_of(func: PrimFunc, record: Record) -> Schedule:
    """The schedule of a record, replayed on `func`.

    Raises ScheduleError if a step refuses, TuningError if the program is not the one that was
    measured (the record is stale: made by another version of the primitives).
    """
    with bounded_depth(record):
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
    target: Target | str | None = None,
    device: str | None = None,
) -> Record:
    """The best valid record of a workload in a log file, a SQLite file, a database URL or a source.

    `target` is a Target or its text, `device` a fingerprint; each may be left out where there are
    records of one only. Raises RecordError, saying why, if there is none.
    """
    key = text("workload_key", workload_key, TuningError)
    instance("device", device, (str, type(None)), "a device's fingerprint, a text", TuningError)
    with opened(records) as source:
        return source.best(key, target_text(target), device)


def target_text(target: Target | str | None) -> str | None:
    """A target as records have it. What is no target of this version is left as it stands: there
    may be records of it."""
    expected = "a Target, its text, or None for the only one"
    instance("target", target, (Target, str, type(None)), expected, TuningError)
    if target is None:
        return None
    try:
        return str(Target(target))
    except TargetError:
        return str(target)


def compatible_scopes(scopes: Iterable[Scope], target: Target) -> list[Scope]:
    """Those of other targets (all of another device) whose code runs where that of `target` does,
    the nearest first: as many cores, then the most features in common."""
    found = []
    for written, device in scopes:
        try:
            other = Target(written)
        except TargetError:
            continue  # of a kind, or an instruction set, that this version does not know
        if other != target and other.triple == target.triple and other.features <= target.features:
            found.append(
                (other.num_cores != target.num_cores, -len(other.features), written, device)
            )
    return [(written, device) for _, _, written, device in sorted(found)]


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
            for written, device in compatible_scopes(source.devices(workload_key), target):
                try:
                    return best_schedule(func, source, workload_key, written, device)
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
