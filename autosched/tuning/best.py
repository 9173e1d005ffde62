"""From a record back to a schedule."""

from __future__ import annotations

import os
from typing import Union

from autosched.errors import TuningError
from autosched.schedule import Schedule
from autosched.schedule.portable import decode_trace
from autosched.tir.canonical import program_hash
from autosched.tir.nodes import PrimFunc
from records import Record, RecordError, RecordSource, open_records

RecordsLike = Union[str, "os.PathLike[str]", RecordSource]
"""A log file, a SQLite file, a database URL, or an open source."""


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
    if not isinstance(records, (str, os.PathLike)):
        return records.best(workload_key, target, device)
    with open_records(records) as source:
        return source.best(workload_key, target, device)


def best_schedule(
    func: PrimFunc, records: RecordsLike, workload_key: str, target: str | None
) -> tuple[Schedule, Record]:
    """Schedule and record of the best program; stale records are passed over.

    Raises RecordError if nothing valid is left, naming the stale ones.
    """
    if isinstance(records, (str, os.PathLike)):
        with open_records(records) as source:
            return best_schedule(func, source, workload_key, target)
    stale: dict[int, str] = {}
    while True:
        try:
            record = records.best(workload_key, target, exclude=tuple(stale))
        except RecordError as e:
            if stale:
                reasons = "; ".join(stale.values())
                raise RecordError(f"{e} (passed over {len(stale)} stale: {reasons})") from e
            raise
        try:
            return schedule_of(func, record), record
        except TuningError as e:
            stale[record.id] = str(e)
