"""Between rows of the tables and the values of `types.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, select
from sqlalchemy.dialects import postgresql, sqlite

from records.ranking import standing_of
from records.sql.schema import (
    Base,
    EventRow,
    JobRow,
    MeasurementRow,
    RecordRow,
    WorkloadRow,
)
from records.types import Event, Job, Measurement, Record, Workload

T = TypeVar("T")

CHUNK = 200
"""Keys that one statement looks up: the parameters of a statement are limited."""

_ROW_OF: dict[type[Any], type[Base]] = {
    Workload: WorkloadRow,
    Job: JobRow,
    Measurement: MeasurementRow,
    Event: EventRow,
}
RECORD_COLUMNS = [f.name for f in fields(Record) if f.name not in ("trace", "dialect")]
"""The columns of a record that are its own, and not its trace's."""


@cache
def select_values(value_type: type[Any]) -> Select[Any]:
    """Selects the columns of workloads, jobs, measurements or events."""
    row_type = _ROW_OF[value_type]
    return select(*(getattr(row_type, f.name) for f in fields(value_type)))


@cache
def select_records() -> Select[Any]:
    """Selects the columns of records; `Traces.fetch` makes records of them."""
    return select(*(getattr(RecordRow, name) for name in RECORD_COLUMNS), RecordRow.trace_id)


def columns(value: Workload | Measurement) -> dict[str, Any]:
    """The columns of a workload or measurement."""
    return {f.name: getattr(value, f.name) for f in fields(value)}


def ranking_columns(record: Record) -> dict[str, Any]:
    """The columns that the lookup of the best reads."""
    standing = standing_of(record)
    return {
        "remeasured_seconds": record.remeasured_seconds,
        "standing": standing,
        "ranked_seconds": None if standing is None else record.final_seconds,
    }


def insert_new(connection: Connection, model: type[Base], unique: Sequence[str]) -> Any:
    """An INSERT into `model` that leaves rows alone whose `unique` columns are there already."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(model).on_conflict_do_nothing(index_elements=unique)
    return sqlite.insert(model).on_conflict_do_nothing(index_elements=unique)


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """`items` in lists of at most CHUNK."""
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
