"""Workloads as rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from records.errors import RecordError
from records.rows import chunks, columns, insert_new, select_values
from records.schema import WorkloadRow, database_time
from records.types import Workload


def put(connection: Connection, workload: Workload) -> None:
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


def find(connection: Connection, key: str) -> Workload | None:
    """The workload of that key."""
    row = connection.execute(select_values(Workload).where(WorkloadRow.key == key)).first()
    return None if row is None else Workload(**row._mapping)


def following(connection: Connection, after: str, limit: int) -> list[Workload]:
    """The first `limit` workloads of larger keys than `after`, in their order."""
    query = select_values(Workload).where(WorkloadRow.key > after).order_by(WorkloadRow.key)
    return [Workload(**row._mapping) for row in connection.execute(query.limit(limit))]


def titles(
    connection: Connection, keys: Collection[str]
) -> dict[str, tuple[str, Sequence[Any] | None]]:
    """Names and arguments of the workloads with those keys."""
    query = select(WorkloadRow.key, WorkloadRow.name, WorkloadRow.args)
    return {
        row.key: (row.name, row.args)
        for chunk in chunks(sorted(set(keys)))
        for row in connection.execute(query.where(WorkloadRow.key.in_(chunk)))
    }
