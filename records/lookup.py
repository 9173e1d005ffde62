"""Questions to a database that must stay fast however many records there are.

The best of a workload is looked up in `ix_records_best` alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select, func, select, union_all
from sqlalchemy.orm import InstrumentedAttribute

from records.ranking import Candidate, Scope, Standing, Tally
from records.rows import select_records
from records.schema import RecordRow
from records.types import OK, TRIAL, CurvePoint, Filters


def firsts(workload_key: str, scope: Scope, exclude: Collection[int]) -> CompoundSelect[Any]:
    """Selects the first of each standing: one index seek each, however many records there are."""

    def first(standing: Standing) -> Select[Any]:
        query = (
            select(RecordRow.standing, RecordRow.ranked_seconds, RecordRow.id)
            .where(*_in_scope(workload_key, scope), RecordRow.standing == int(standing))
            .order_by(RecordRow.ranked_seconds, RecordRow.id)
            .limit(1)
        )
        if exclude:
            query = query.where(RecordRow.id.not_in(exclude))
        return select(query.subquery())

    return union_all(*map(first, Standing))


def candidates(
    connection: Connection, workload_key: str, scope: Scope, exclude: Collection[int]
) -> list[Candidate]:
    """The first of each standing."""
    rows = connection.execute(firsts(workload_key, scope, exclude)).all()
    return [Candidate(row.ranked_seconds, row.id, row.standing) for row in rows]


def scopes(connection: Connection, workload_key: str) -> list[Scope]:
    """The targets and devices with records of a workload, sorted: one index seek each."""
    of_workload = RecordRow.workload_key == workload_key
    return [
        (target, device)
        for target in _distinct(connection, RecordRow.target, of_workload)
        for device in _distinct(
            connection, RecordRow.device, of_workload, RecordRow.target == target
        )
    ]


def _distinct(
    connection: Connection, column: InstrumentedAttribute[str], *within: ColumnElement[bool]
) -> Iterator[str]:
    """The values of a column, sorted, where the columns before it in the index are fixed.

    A SELECT DISTINCT would read all rows; this goes from each value to the next.
    """
    query = select(column).where(*within).order_by(column).limit(1)
    value = connection.execute(query).scalar()
    while value is not None:
        yield value
        value = connection.execute(query.where(column > value)).scalar()


def tally(connection: Connection, workload_key: str, scope: Scope) -> Tally:
    """How many records of each status there are, and the first error."""
    ranked = func.count(RecordRow.standing)
    counts = (
        select(RecordRow.status, func.count().label("records"), ranked.label("ranked"))
        .where(*_in_scope(workload_key, scope))
        .group_by(RecordRow.status)
    )
    result = Tally()
    for row in connection.execute(counts):
        result.statuses[row.status] = row.records
        if row.status == OK:
            result.imported = row.records - row.ranked
    error = (
        select(RecordRow.error)
        .where(*_in_scope(workload_key, scope))
        .where(RecordRow.status != OK, RecordRow.error.is_not(None))
        .order_by(RecordRow.id)
        .limit(1)
    )
    result.first_error = connection.execute(error).scalar()
    return result


def page(filters: Filters, window: int) -> tuple[Select[Any], Select[int, Any]]:
    """Selects records in order of their ids, and how many were looked at, with the last id.

    The window, the next ids of the job or workload, is read from that one's own index alone; only
    for these are rows read, and then the other filters tried. The limits inside keep planners from
    doing it the other way round, which reads everything for a filter that few records pass.
    """
    limit = filters["limit"] or 0
    ids = select(RecordRow.id).where(RecordRow.id > (filters.get("after_id") or 0))
    others = dict(_FILTERED)
    given: dict[str, Any] = {n: v for n, v in filters.items() if v is not None}
    for name in ("job_id", "workload_key"):
        if name in given:
            ids = ids.where(others.pop(name) == given[name])
            break
    wanted = {name: given[name] for name in others if name in given}
    size = max(window, limit) if wanted else limit
    looked_at = ids.order_by(RecordRow.id).limit(size).subquery()
    rows = (
        select(RecordRow.id, *(others[name] for name in wanted))
        .join(looked_at, looked_at.c.id == RecordRow.id)
        .order_by(looked_at.c.id)
        .limit(size)
        .subquery()
    )
    passed = select(rows.c.id).where(*(rows.c[name] == value for name, value in wanted.items()))
    chosen = passed.order_by(rows.c.id).limit(limit).subquery() if wanted else looked_at
    query = select_records().join(chosen, chosen.c.id == RecordRow.id).order_by(chosen.c.id)
    return query, select(func.count(), func.max(looked_at.c.id))


_FILTERED = {
    "job_id": RecordRow.job_id,
    "workload_key": RecordRow.workload_key,
    "kind": RecordRow.kind,
    "status": RecordRow.status,
    "target": RecordRow.target,
    "device": RecordRow.device,
}


def curve(connection: Connection, job_id: str) -> Iterator[CurvePoint]:
    """The trials of a job that were faster than all before them, in order.

    From each to the next better one: together these read the job's rows once, and count them once,
    which is several times faster than window functions over them.
    """
    of_job = RecordRow.job_id == job_id
    end = connection.execute(select(func.max(RecordRow.id)).where(of_job)).scalar()
    if end is None:
        return
    trials = select(func.count()).where(of_job, RecordRow.kind == TRIAL)
    better = (
        select(RecordRow.id, RecordRow.seconds, RecordRow.created_at)
        .where(of_job, RecordRow.kind == TRIAL, RecordRow.status == OK)
        .where(RecordRow.id <= end)  # whatever index the planner takes, it stops with the job
        .order_by(RecordRow.id)
        .limit(1)
    )
    trial, last, best = 0, 0, math.inf
    while True:
        query = better.where(RecordRow.id > last, RecordRow.seconds < best)
        found = connection.execute(query).first()
        if found is None:
            return
        passed = trials.where(RecordRow.id > last, RecordRow.id <= found.id)
        trial += connection.execute(passed).scalar_one()
        last, best = found.id, found.seconds
        yield CurvePoint(trial=trial, record_id=last, seconds=best, created_at=found.created_at)


def _in_scope(workload_key: str, scope: Scope) -> tuple[Any, ...]:
    return (
        RecordRow.workload_key == workload_key,
        RecordRow.target == scope[0],
        RecordRow.device == scope[1],
    )
