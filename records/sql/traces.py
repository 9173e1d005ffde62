"""The traces of a database: stored once by content, and remembered, since they repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, select, tuple_

from records.sql.rows import chunks, insert_new, select_records
from records.sql.schema import RecordRow, TraceRow
from records.types import Record, RecordKey, canonical_json

_KEPT = 10_000


def trace_hash(dialect: int, trace: Sequence[Any]) -> str:
    """What a trace is stored by. Raises RecordError if it is not JSON data."""
    content = f"{dialect}\n{canonical_json(trace)}"
    return hashlib.sha256(content.encode()).hexdigest()


class Traces:
    """What one store knows of the traces in its database: those that it has seen committed."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[int, list[Any]]] = {}
        self._ids: dict[str, int] = {}

    def ids(self, connection: Connection, records: Sequence[Record]) -> list[int]:
        """The ids of the records' traces; those that are not there yet are stored.

        Raises RecordError if one is not JSON data.
        """
        hashes = _hashes(records)
        distinct = dict(zip(hashes, records, strict=True))
        if len(self._ids) > _KEPT:
            self._ids = {}
        # What a statement finds before anything is inserted is committed, and may be remembered.
        self._ids |= _ids_of(connection, [h for h in distinct if h not in self._ids])
        ids = self._ids
        # Sorted: two writers that insert the same traces must not wait for each other in a circle.
        if missing := sorted(h for h in distinct if h not in ids):
            rows = [
                {"hash": h, "dialect": distinct[h].dialect, "data": distinct[h].trace}
                for h in missing
            ]
            connection.execute(insert_new(connection, TraceRow, ["hash"]), rows)
            ids = ids | _ids_of(connection, missing)
        return [ids[h] for h in hashes]

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
        traces = self._by_id if len(self._by_id) <= _KEPT else {}
        for chunk in chunks({row.trace_id for row in rows if row.trace_id not in traces}):
            for trace in connection.execute(_BY_IDS, {"ids": chunk}):
                traces[trace.id] = trace.dialect, trace.data
        self._by_id = traces
        return [_record(row, traces) for row in rows]

    def by_keys(self, connection: Connection, keys: Iterable[RecordKey]) -> dict[RecordKey, Record]:
        """Committed records by what names them."""
        found: dict[RecordKey, Record] = {}
        for chunk in chunks(keys):
            records = self.fetch(connection, _BY_KEYS, {"keys": chunk})
            found.update((record.key, record) for record in records)
        return found


_BY_IDS = select(TraceRow.id, TraceRow.dialect, TraceRow.data).where(
    TraceRow.id.in_(bindparam("ids", expanding=True))
)
_BY_HASHES = select(TraceRow.hash, TraceRow.id).where(
    TraceRow.hash.in_(bindparam("hashes", expanding=True))
)
_BY_KEYS = select_records().where(
    tuple_(RecordRow.job_id, RecordRow.round, RecordRow.slot).in_(bindparam("keys", expanding=True))
)


def _hashes(records: Sequence[Record]) -> list[str]:
    """What the records' traces are stored by."""
    known: dict[tuple[int, int], str] = {}  # a search's records of one variant share one list
    for record in records:
        same = record.dialect, id(record.trace)
        if same not in known:
            known[same] = trace_hash(record.dialect, record.trace)
    return [known[record.dialect, id(record.trace)] for record in records]


def _ids_of(connection: Connection, hashes: Iterable[str]) -> dict[str, int]:
    """Hash -> id of the traces that are there."""
    found: dict[str, int] = {}
    for chunk in chunks(hashes):
        rows = connection.execute(_BY_HASHES, {"hashes": chunk})
        found.update((row.hash, row.id) for row in rows)
    return found


def _record(row: Row[Any], traces: Mapping[int, tuple[int, list[Any]]]) -> Record:
    values = dict(row._mapping)
    dialect, trace = traces[values.pop("trace_id")]
    return Record(trace=trace, dialect=dialect, **values)
