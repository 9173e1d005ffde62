"""From a record back to a schedule."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Union

from autosched.errors import TuningError
from autosched.schedule import Schedule, Trace
from autosched.tir.canonical import block_order, program_hash
from autosched.tir.nodes import PrimFunc
from records import Record, RecordError, RecordSource, open_records

RecordsLike = Union[str, "os.PathLike[str]", RecordSource]
"""A log file, a SQLite file, a database URL, or an open source."""


def encode_trace(func: PrimFunc, trace: Trace) -> list[Any]:
    """The trace as JSON data that does not depend on the names in `func`: its blocks are `#0`,
    `#1`, … in canonical order."""
    index = {name: f"#{n}" for n, name in enumerate(block_order(func))}
    steps: list[Any] = json.loads(trace.to_json())["steps"]
    return [_rename(step, index) for step in steps]


def decode_trace(func: PrimFunc, steps: Any, decisions: Mapping[str, int], dialect: int) -> Trace:
    """The trace that `encode_trace` wrote, on `func`'s own names and with its decisions filled in.

    Raises ScheduleError if the steps are malformed or of another dialect.
    """
    names = {f"#{n}": name for n, name in enumerate(block_order(func))}
    renamed = [_rename(step, names) for step in steps]
    return Trace.from_json(json.dumps({"dialect": dialect, "steps": renamed})).bind(dict(decisions))


def _rename(step: Any, names: Mapping[str, str]) -> Any:
    op, args, *rest = step
    if op == "get_block" and args and args[0] in names:
        return [op, [names[args[0]], *args[1:]], *rest]
    return step


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
