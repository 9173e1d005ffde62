"""Between rows of the tables and the values of `types.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, select, text, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from records.errors import RecordError
from records.ranking import standing_of
from records.schema import (
    Base,
    EventRow,
    JobRow,
    MeasurementRow,
    RecordRow,
    TraceRow,
    WorkloadRow,
    database_time,
)
from records.types import Event, Job, Measurement, Record, RecordKey, Workload, canonical_json

T = TypeVar("T")

CHUNK = 200
"""Keys that one statement looks up: the parameters of a statement are limited."""

_TRACES_KEPT = 10_000

_ROW_OF: dict[type[Any], type[Base]] = {
    Workload: WorkloadRow,
    Job: JobRow,
    Measurement: MeasurementRow,
    Event: EventRow,
}
_RECORD_COLUMNS = [f.name for f in fields(Record) if f.name not in ("trace", "dialect")]


@cache
def select_values(value_type: type[Any]) -> Select[Any]:
    """Selects the columns of workloads, jobs, measurements or events."""
    row_type = _ROW_OF[value_type]
    return select(*(getattr(row_type, f.name) for f in fields(value_type)))


@cache
def select_records() -> Select[Any]:
    """Selects the columns of records; `Traces.fetch` makes records of them."""
    return select(*(getattr(RecordRow, name) for name in _RECORD_COLUMNS), RecordRow.trace_id)


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


def put_workload(connection: Connection, workload: Workload) -> None:
    """Stores a workload once. Raises RecordError if another script has its key."""
    row = columns(workload) | {"created_at": database_time()}
    connection.execute(insert_new(connection, WorkloadRow, ["key"]).values(row))
    of_key = WorkloadRow.key == workload.key
    found = connection.execute(select(WorkloadRow.script, WorkloadRow.text).where(of_key)).one()
    if found.script != workload.script:
        raise RecordError(
            f"workload {workload.key} is stored with another script: a key is the hash of "
            "the script, so one of the two was changed by hand"
        )
    if found.text is None and workload.text is not None:
        connection.execute(update(WorkloadRow).where(of_key).values(text=workload.text))


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """`items` in lists of at most CHUNK."""
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def trace_hash(dialect: int, trace: Sequence[Any]) -> str:
    """What a trace is stored by. Raises RecordError if it is not JSON data."""
    content = f"{dialect}\n{canonical_json(trace)}"
    return hashlib.sha256(content.encode()).hexdigest()


class Traces:
    """The traces of a database: stored once by content, and kept in memory since they repeat."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[int, list[Any]]] = {}
        self._ids: dict[str, int] = {}

    def rows_of(self, connection: Connection, records: Sequence[Record]) -> list[dict[str, Any]]:
        """The rows to insert for new records, their traces being stored first."""
        hashes = [trace_hash(record.dialect, record.trace) for record in records]
        distinct = dict(zip(hashes, records, strict=True))
        if len(self._ids) > _TRACES_KEPT:
            self._ids = {}
        # What a statement finds before anything is inserted is committed, and may be remembered.
        self._ids |= _trace_ids(connection, [h for h in distinct if h not in self._ids])
        ids = self._ids
        # Sorted: two writers that insert the same traces must not wait for each other in a circle.
        if missing := sorted(h for h in distinct if h not in ids):
            rows = [
                {"hash": h, "dialect": distinct[h].dialect, "data": distinct[h].trace}
                for h in missing
            ]
            connection.execute(insert_new(connection, TraceRow, ["hash"]), rows)
            ids = ids | _trace_ids(connection, missing)
        return [
            {name: getattr(record, name) for name in _RECORD_COLUMNS if name != "id"}
            | {"trace_id": ids[h]}
            | ranking_columns(record)
            for h, record in zip(hashes, records, strict=True)
        ]

    def fetch(
        self,
        connection: Connection,
        query: Select[Any],
        parameters: Mapping[str, Any] | None = None,
    ) -> list[Record]:
        """The records that `query`, made from `select_records()`, selects, in its order.

        They must be committed: what is kept in memory is never taken back.
        """
        rows = connection.execute(query, parameters).all()
        traces = self._by_id if len(self._by_id) <= _TRACES_KEPT else {}
        for chunk in chunks({row.trace_id for row in rows if row.trace_id not in traces}):
            found = select(TraceRow.id, TraceRow.dialect, TraceRow.data)
            for trace in connection.execute(found.where(TraceRow.id.in_(chunk))):
                traces[trace.id] = trace.dialect, trace.data
        self._by_id = traces
        return [_record(row, traces) for row in rows]

    def by_keys(self, connection: Connection, keys: Iterable[RecordKey]) -> dict[RecordKey, Record]:
        """Committed records by what names them."""
        named = tuple_(RecordRow.job_id, RecordRow.round, RecordRow.slot)
        found: dict[RecordKey, Record] = {}
        for chunk in chunks(keys):
            query = select_records().where(named.in_(chunk))
            found.update((record.key, record) for record in self.fetch(connection, query))
        return found


def insert_record_rows(
    connection: Connection, rows: Sequence[Mapping[str, Any]]
) -> dict[RecordKey, int]:
    """Inserts the rows of records whose keys are new; returns their ids."""
    if connection.dialect.name == "postgresql":
        # One parameter instead of thousands, which the driver takes longer to write than the
        # server to store.
        data = [{**row, "created_at": row["created_at"].isoformat()} for row in rows]
        found = connection.execute(_INSERT_JSON, {"rows": canonical_json(data)})
    else:
        added = insert_new(connection, RecordRow, RecordKey._fields).returning(
            RecordRow.id, RecordRow.job_id, RecordRow.round, RecordRow.slot
        )
        found = connection.execute(added, rows)
    return {RecordKey(*row[1:]): row.id for row in found}


_ROW_COLUMNS = ", ".join(c.name for c in RecordRow.__table__.columns if c.name != "id")
_INSERT_JSON = text(
    f"INSERT INTO records ({_ROW_COLUMNS}) SELECT {_ROW_COLUMNS} "
    "FROM json_populate_recordset(NULL::records, CAST(:rows AS json)) "
    "ON CONFLICT (job_id, round, slot) DO NOTHING RETURNING id, job_id, round, slot"
)


def _trace_ids(connection: Connection, hashes: Sequence[str]) -> dict[str, int]:
    """Hash -> id of the traces that are there."""
    found: dict[str, int] = {}
    for chunk in chunks(hashes):
        query = select(TraceRow.hash, TraceRow.id).where(TraceRow.hash.in_(chunk))
        found.update((row.hash, row.id) for row in connection.execute(query))
    return found


def _record(row: Row[Any], traces: dict[int, tuple[int, list[Any]]]) -> Record:
    values = dict(row._mapping)
    dialect, trace = traces[values.pop("trace_id")]
    return Record(trace=trace, dialect=dialect, **values)
