"""Repeated timings as rows, and what is found out of a record after its trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from sqlalchemy import Connection, bindparam, insert, select, update

from records.errors import NoRecord, RecordError
from records.sql import jobs
from records.sql.rows import chunks, columns, ranking_columns, select_records, select_values
from records.sql.schema import JobRow, MeasurementRow, RecordRow
from records.sql.traces import Traces
from records.types import LOCAL, OK, STATUSES, Measurement, Record


def of_records(connection: Connection, record_ids: Iterable[int]) -> list[Measurement]:
    """The repeated timings of some records, in order of their own ids."""
    found = [
        Measurement(**row._mapping)
        for chunk in chunks(record_ids)
        for row in connection.execute(_OF_RECORDS, {"ids": chunk})
    ]
    return sorted(found, key=lambda measurement: measurement.id)


def add(
    connection: Connection, traces: Traces, record_id: int, timings: Sequence[Measurement]
) -> Record:
    """Adds those timings of an ok record that are not there; the record as it is then.

    Raises NoRecord, and RecordError for a record that is not ok.
    """
    record = held(connection, traces, record_id)
    if record.status != OK:
        raise RecordError(f"record {record_id} is {record.status}: its time means nothing")
    add_new(connection, [replace(timing, record_id=record_id) for timing in timings])
    return _ranked(connection, record)


def add_new(connection: Connection, timings: Sequence[Measurement]) -> None:
    """Adds those timings of records that are not there, in their order; ranks are left as they
    were."""
    known = {
        (m.record_id, m.identity) for m in of_records(connection, {t.record_id for t in timings})
    }
    rows = []
    for timing in timings:
        if (name := (timing.record_id, timing.identity)) not in known:
            known.add(name)
            rows.append(columns(timing))
            del rows[-1]["id"]
    if rows:
        connection.execute(insert(MeasurementRow), rows)


def rank(connection: Connection, traces: Traces, record_id: int) -> Record:
    """Gives a record the rank that follows from its measurements. Raises NoRecord."""
    return _ranked(connection, held(connection, traces, record_id))


def _ranked(connection: Connection, record: Record) -> Record:
    local = [m.seconds for m in of_records(connection, [record.id]) if m.origin == LOCAL]
    record = replace(record, remeasured_seconds=median(local) if local else None)
    _update(connection, record)
    return record


def invalidate(
    connection: Connection, traces: Traces, record_id: int, status: str, error: str
) -> Record:
    """Withdraws a record; it as it is then. Raises NoRecord, and RecordError for another status."""
    if status == OK or status not in STATUSES:
        raise RecordError(f"status {status!r} does not withdraw a record")
    record = replace(held(connection, traces, record_id), status=status, error=error)
    _update(connection, record)
    return record


def find(connection: Connection, traces: Traces, record_id: int) -> Record | None:
    """The record of that id."""
    found = traces.fetch(connection, _BY_ID, {"record_id": record_id})
    return found[0] if found else None


def held(connection: Connection, traces: Traces, record_id: int) -> Record:
    """A record that nobody else changes until the transaction ends. Raises NoRecord."""
    row = select(RecordRow.id).where(RecordRow.id == record_id).with_for_update(key_share=True)
    connection.execute(row)
    record = find(connection, traces, record_id)
    if record is None:
        raise NoRecord(f"no record {record_id} in this store")
    return record


_OF_RECORDS = select_values(Measurement).where(
    MeasurementRow.record_id.in_(bindparam("ids", expanding=True))
)
_BY_ID = select_records().where(RecordRow.id == bindparam("record_id"))


def _update(connection: Connection, record: Record) -> None:
    values = ranking_columns(record) | {"status": record.status, "error": record.error}
    connection.execute(update(RecordRow).where(RecordRow.id == record.id).values(values))
    best = jobs.best_columns(connection, record.job_id)
    connection.execute(update(JobRow).where(JobRow.id == record.job_id).values(best))
