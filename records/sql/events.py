"""Events as rows: what happened to jobs, in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Integer, bindparam, func, insert, select

from records.sql.rows import chunks, select_values
from records.sql.schema import EventRow, JobRow, database_time
from records.types import Event


def add(connection: Connection, job_id: str, kind: str, data: Mapping[str, Any]) -> Event:
    """Adds the event of a job that the transaction holds: so an id that is seen means that the
    job's smaller ones were seen."""
    row = {"job_id": job_id, "kind": kind, "data": data, "created_at": database_time()}
    added = insert(EventRow).values(row).returning(EventRow.id, EventRow.created_at)
    event_id, created_at = connection.execute(added).one()
    return Event(id=event_id, job_id=job_id, kind=kind, data=data, created_at=created_at)


def following(
    connection: Connection, job_id: str, *, after_id: int, limit: int, kind: str | None
) -> list[Event]:
    """The first `limit` events of a job after the one of id `after_id`, of all kinds or of one."""
    query = _FOLLOWING
    asked: dict[str, Any] = {"job_id": job_id, "after_id": after_id, "most": limit}
    if kind is not None:
        query = _OF_KIND
        asked["kind"] = kind
    return [Event(**row._mapping) for row in connection.execute(query, asked).all()]


_FOLLOWING = (
    select_values(Event)
    .where(EventRow.job_id == bindparam("job_id"), EventRow.id > bindparam("after_id"))
    .order_by(EventRow.id)
    .limit(bindparam("most", type_=Integer))
)
_OF_KIND = _FOLLOWING.where(EventRow.kind == bindparam("kind"))


def last_ids(connection: Connection, job_ids: Collection[str]) -> dict[str, int]:
    """The id of the last event of each of these jobs; 0 for one without events."""
    last = select(func.max(EventRow.id)).where(EventRow.job_id == JobRow.id).scalar_subquery()
    query = select(JobRow.id, func.coalesce(last, 0))
    return {
        row[0]: row[1]
        for chunk in chunks(sorted(set(job_ids)))
        for row in connection.execute(query.where(JobRow.id.in_(chunk)))
    }
