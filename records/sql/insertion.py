"""How records get into the table: many at a time, at some microseconds each.

Thousands come in a second beside a search that needs the processor as well, so rows go past
SQLAlchemy's types here: to SQLite as tuples, to PostgreSQL as one JSON text, since its driver takes
longer to write thousands of parameters than the server takes to store them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select, text

from records.errors import RecordError
from records.ranking import standing_of
from records.sql import frontier, jobs
from records.sql.rows import RECORD_COLUMNS, chunks
from records.sql.schema import JobRow, WorkloadRow
from records.sql.traces import Traces
from records.types import Record, RecordKey, canonical_json

_PLAIN = [name for name in RECORD_COLUMNS if name not in ("id", "decisions", "created_at")]
_COLUMNS = [*_PLAIN, "trace_id", "standing", "ranked_seconds", "decisions", "created_at"]
_plain_values = attrgetter(*_PLAIN)

_NAMES = ", ".join(_COLUMNS)
_CONFLICT = "ON CONFLICT (job_id, round, slot) DO NOTHING"
_INSERT_ROWS = f"INSERT INTO records (id, {_NAMES}) VALUES (?{', ?' * len(_COLUMNS)}) {_CONFLICT}"
_INSERT_JSON = text(
    f"INSERT INTO records ({_NAMES}) SELECT {_NAMES} "
    "FROM json_populate_recordset(NULL::records, CAST(:rows AS json)) "
    f"{_CONFLICT} RETURNING id, job_id, round, slot"
)
_KNOWN = 10_000

_LAST_ID = text("SELECT coalesce(max(id), 0) FROM records")
_KEYS_AFTER = text("SELECT id, job_id, round, slot FROM records WHERE id > :last")


class Inserter:
    """Puts records into one database, and remembers which jobs and workloads are there: those of
    a job that another process removes are refused by the database itself."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._jobs: set[str] = set()
        self._workloads: set[str] = set()

    def insert(
        self, connection: Connection, records: Sequence[Record]
    ) -> list[tuple[Record, bool]]:
        """Stores records; returns each as it is stored, in the same order, and whether it was new.

        Of several of one key the first stays, and is returned; the jobs' counts grow by the new
        trials. Raises RecordError if a job or workload is unknown, or for what is not JSON data.
        """
        keys = [record.key for record in records]
        first: dict[RecordKey, Record] = {}
        for key, record in zip(keys, records, strict=True):
            if key not in first:
                first[key] = record.stored_as(0)
        self._check_known(connection, first.values())
        ids = put(connection, self._traces, first)
        stored = self._traces.by_keys(connection, [key for key in first if key not in ids])
        new = {key: first[key].stored_as(row_id) for key, row_id in ids.items()}
        stored |= new
        return [(stored[key], new.pop(key, None) is not None) for key in keys]

    def forget(self, job_id: str) -> None:
        """The job is not there any more."""
        self._jobs.discard(job_id)

    def _check_known(self, connection: Connection, records: Collection[Record]) -> None:
        """Raises RecordError if a job or workload of the records is not stored."""
        _check("job", connection, JobRow.id, {r.job_id for r in records}, self._jobs)
        keys = {r.workload_key for r in records}
        _check("workload", connection, WorkloadRow.key, keys, self._workloads)


def _check(
    what: str, connection: Connection, column: Any, wanted: set[str], known: set[str]
) -> None:
    """Enters in `known` what is `wanted` and stored. Raises RecordError for what is not stored."""
    if len(known) > _KNOWN:
        known.clear()
    for chunk in chunks(sorted(wanted - known)):
        known.update(connection.execute(select(column).where(column.in_(chunk))).scalars())
    if missing := wanted - known:
        raise RecordError(f"records of {what} {min(missing)}, which is not in the store")


def put(
    connection: Connection, traces: Traces, records: Mapping[RecordKey, Record]
) -> dict[RecordKey, int]:
    """Stores those of the records, by their keys, that are not there, and counts the new trials;
    returns the ids of the new. Their jobs and workloads have to be there."""
    ids = _insert_new(connection, traces, list(records.values()))
    jobs.count_records(connection, ((row_id, records[key]) for key, row_id in ids.items()))
    return ids


def _insert_new(
    connection: Connection, traces: Traces, records: Sequence[Record]
) -> dict[RecordKey, int]:
    """Inserts those of the records (of a key each) that are not there; returns their ids."""
    trace_ids = traces.ids(connection, records)
    if connection.dialect.name == "sqlite":
        # The transaction is the only writer, so the ids to come are known.
        last = connection.execute(_LAST_ID).scalar_one()
        rows = [
            (last + n, *_scalars(record, trace_id), canonical_json(record.decisions), _time(record))
            for n, (record, trace_id) in enumerate(zip(records, trace_ids, strict=True), 1)
        ]
        connection.exec_driver_sql(_INSERT_ROWS, rows)
        found = connection.execute(_KEYS_AFTER, {"last": last})
    else:
        data = [
            dict(zip(_COLUMNS, (*_scalars(r, trace_id), r.decisions, _time(r) + "Z"), strict=True))
            for r, trace_id in zip(records, trace_ids, strict=True)
        ]
        frontier.enter(connection)
        found = connection.execute(_INSERT_JSON, {"rows": canonical_json(data)})
    return {RecordKey(*row[1:]): row[0] for row in found}


def _scalars(record: Record, trace_id: int) -> tuple[Any, ...]:
    """The values of a new record's columns, but for decisions and time."""
    standing = standing_of(record)
    seconds = None if standing is None else record.seconds
    return *_plain_values(record), trace_id, standing, seconds


def _time(record: Record) -> str:
    """When a record was made, in UTC, as SQLite holds it (`schema.UtcDateTime`)."""
    return record.created_at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
