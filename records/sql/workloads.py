"""Workloads as rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, select, update

from records.errors import RecordError
from records.sql.rows import chunks, columns, insert_new, select_values
from records.sql.schema import WorkloadRow, database_time
from records.types import Workload


def put(
    connection: Connection, workload: Workload, *, examined: bool = False, library: bool = False
) -> None:
    """Stores a workload once. `examined`: its text was read here and is of its key, and replaces
    one that is stored and differs. Its name and arguments are those of the operator library
    (`library`), else the first ones with which it can be built, else the first ones.

    Raises RecordError if another script has its key.
    """
    row = columns(workload) | {"created_at": database_time()}
    connection.execute(insert_new(connection, WorkloadRow, ["key"]).values(row))
    of_key = WorkloadRow.key == workload.key
    asked = (
        *(WorkloadRow.script, WorkloadRow.text, WorkloadRow.flop),
        *(WorkloadRow.name, WorkloadRow.args),
    )
    found = connection.execute(select(*asked).where(of_key)).one()
    if found.script != workload.script:
        raise RecordError(
            f"workload {workload.key} is stored with another script: a key is the hash of "
            "the script, so one of the two was changed by hand"
        )
    changes: dict[str, Any] = {}
    if workload.text is not None and examined:
        changes |= {"text": workload.text, "flop": workload.flop}
    elif workload.text is not None and found.text is None:
        changes["text"] = workload.text
    if library or (found.args is None and workload.args is not None):
        changes |= {"name": workload.name, "args": workload.args}
    if any(getattr(found, name) != value for name, value in changes.items()):
        connection.execute(update(WorkloadRow).where(of_key).values(changes))


def find(connection: Connection, key: str) -> Workload | None:
    """The workload of that key."""
    row = connection.execute(select_values(Workload).where(WorkloadRow.key == key)).first()
    return None if row is None else Workload(**row._mapping)


def following(connection: Connection, after: str, limit: int) -> list[Workload]:
    """The first `limit` workloads of larger keys than `after`, in their order."""
    query = select_values(Workload).where(WorkloadRow.key > after).order_by(WorkloadRow.key)
    return [Workload(**row._mapping) for row in connection.execute(query.limit(limit))]


class Title(NamedTuple):
    """How a workload is written, and the floating-point operations of one run."""

    name: str
    args: Sequence[Any] | None
    flop: float


def titles(connection: Connection, keys: Collection[str]) -> dict[str, Title]:
    """Names, arguments and operations of the workloads with those keys."""
    query = select(WorkloadRow.key, WorkloadRow.name, WorkloadRow.args, WorkloadRow.flop)
    return {
        row.key: Title(row.name, row.args, row.flop)
        for chunk in chunks(sorted(set(keys)))
        for row in connection.execute(query.where(WorkloadRow.key.in_(chunk)))
    }
