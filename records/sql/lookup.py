"""Questions to a database that must stay fast however many records there are.

The best of a workload is looked up in `ix_records_best` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    CompoundSelect,
    Connection,
    Integer,
    Select,
    bindparam,
    cast,
    func,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.orm import aliased

from records.ranking import Scope, Standing, Tally, candidate, choose_scope, no_record, pick
from records.sql.rows import chunks, select_records
from records.sql.schema import RecordRow
from records.sql.traces import Traces
from records.types import OK, TRIAL, CurvePoint, Filters, Record, RecordKey


def best(
    connection: Connection,
    traces: Traces,
    workload_key: str,
    target: str | None,
    device: str | None,
    exclude: Collection[int],
) -> Record:
    """The fastest valid record measured here, but for the ids to `exclude`.

    Raises NoRecord, saying why, if there is none.
    """
    if target is None or device is None:
        found = scopes(connection, workload_key)

        def has_candidate(scope: Scope) -> bool:
            asked = dict(zip(_SCOPE, (workload_key, *scope), strict=True))
            return connection.execute(_CANDIDATE, asked).first() is not None

        target, device = choose_scope(workload_key, target, device, found, has_candidate)
    asked: dict[str, Any] = {"workload_key": workload_key, "target": target, "device": device}
    if exclude:
        asked["exclude"] = list(exclude)
    firsts = traces.fetch(connection, first_records(exclude=bool(exclude)), asked)
    chosen = pick([one for one in map(candidate, firsts) if one])
    if chosen is None:
        scope = target, device
        counted = tally(connection, workload_key, scope)
        raise no_record(workload_key, scope, counted, scopes(connection, workload_key))
    return next(record for record in firsts if record.id == chosen.id)


def firsts(*, exclude: bool) -> CompoundSelect[Any]:
    """Selects the first of each standing: one index seek each, however many records there are.

    Its parameters are `workload_key`, `target`, `device`, and with `exclude` ids to pass over.
    """

    def first(standing: Standing) -> Select[Any]:
        query = (
            select(RecordRow.standing, RecordRow.ranked_seconds, RecordRow.id)
            .where(*(getattr(RecordRow, name) == bindparam(name) for name in _SCOPE))
            .where(RecordRow.standing == int(standing))
            .order_by(RecordRow.ranked_seconds, RecordRow.id)
            .limit(1)
        )
        if exclude:
            query = query.where(RecordRow.id.not_in(bindparam("exclude", expanding=True)))
        return select(query.subquery())

    return union_all(*map(first, Standing))


_SCOPE = ("workload_key", "target", "device")
_CANDIDATE = (
    select(RecordRow.id)
    .where(*(getattr(RecordRow, name) == bindparam(name) for name in _SCOPE))
    .where(RecordRow.standing.is_not(None))
    .limit(1)
)


@cache
def first_records(*, exclude: bool) -> Select[Any]:
    """Selects the records that `firsts` finds. Made once: that takes longer than the answer."""
    found = firsts(exclude=exclude).subquery()
    return select_records().join(found, found.c.id == RecordRow.id)


def places(connection: Connection, keys: Collection[RecordKey]) -> dict[RecordKey, Any]:
    """The `id`, `status`, `workload_key` and `program_hash` of those records that are stored."""
    return {
        RecordKey(row.job_id, row.round, row.slot): row
        for chunk in chunks(dict.fromkeys(keys))
        for row in connection.execute(_PLACES, {"keys": chunk})
    }


_KEY = (RecordRow.job_id, RecordRow.round, RecordRow.slot)
_PLACES = select(
    *_KEY, RecordRow.id, RecordRow.status, RecordRow.workload_key, RecordRow.program_hash
).where(tuple_(*_KEY).in_(bindparam("keys", expanding=True)))


def scopes(connection: Connection, workload_key: str) -> list[Scope]:
    """The targets and devices with records of a workload, sorted: one index seek each.

    Mostly there is one, which is the first and the last: that takes one statement.
    """
    ends = connection.execute(_ENDS, {"workload_key": workload_key}).all()
    if not ends or ends[0] == ends[-1]:
        return [(row.target, row.device) for row in ends[:1]]
    return [
        (target, device)
        for target in _distinct(connection, "target", workload_key=workload_key)
        for device in _distinct(connection, "device", workload_key=workload_key, target=target)
    ]


def _ends() -> CompoundSelect[Any]:
    """Selects the first and the last target and device of a workload."""
    scope = RecordRow.target, RecordRow.device
    of_workload = select(*scope).where(RecordRow.workload_key == bindparam("workload_key"))
    first = of_workload.order_by(*scope).limit(1)
    last = of_workload.order_by(*(column.desc() for column in scope)).limit(1)
    return union_all(select(first.subquery()), select(last.subquery()))


_ENDS = _ends()


def _distinct(connection: Connection, name: str, **within: str) -> Iterator[str]:
    """The values of a column, sorted, where the columns before it in the index are fixed.

    A SELECT DISTINCT would read all rows; this goes from each value to the next.
    """
    first, following = _walk(name, tuple(within))
    value = connection.execute(first, within).scalar()
    while value is not None:
        yield value
        value = connection.execute(following, {**within, "after": value}).scalar()


@cache
def _walk(name: str, within: tuple[str, ...]) -> tuple[Select[Any], Select[Any]]:
    """Select the first value of a column, and the one following the value `after`."""
    column = getattr(RecordRow, name)
    fixed = (getattr(RecordRow, other) == bindparam(other) for other in within)
    first = select(column).where(*fixed).order_by(column).limit(1)
    return first, first.where(column > bindparam("after"))


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


class PageQueries(NamedTuple):
    """The statements of a page, and their parameters: the records; how many were looked at, with
    the last id."""

    records: Select[Any]
    looked_at: Any
    parameters: dict[str, Any]


def page(filters: Filters, window: int) -> PageQueries:
    """How records are selected in order of their ids.

    The window, the next ids of the job or workload, is read from that one's own index alone; only
    for these are rows read, and then the other filters tried. The limits inside keep planners from
    doing it the other way round, which reads everything for a filter that few records pass.
    """
    given = {name: filters[name] for name in _FILTERED if filters.get(name) is not None}  # type: ignore[literal-required]
    owner = next((name for name in ("job_id", "workload_key") if name in given), None)
    limit = filters["limit"] or 0
    size = limit if not given.keys() - {owner} else max(window, limit)
    parameters = given | {"after_id": filters.get("after_id") or 0, "most": limit, "size": size}
    return PageQueries(*_page_of(owner, tuple(name for name in given if name != owner)), parameters)


@cache
def _page_of(owner: str | None, wanted: tuple[str, ...]) -> tuple[Select[Any], Any]:
    """The statements, which depend on nothing but which filters are given."""
    ids = select(RecordRow.id).where(RecordRow.id > bindparam("after_id"))
    if owner is not None:
        ids = ids.where(_FILTERED[owner] == bindparam(owner))
    limit, size = bindparam("most", type_=Integer), bindparam("size", type_=Integer)
    looked_at = ids.order_by(RecordRow.id).limit(size).subquery()
    rows = (
        select(RecordRow.id, *(_FILTERED[name] for name in wanted))
        .join(looked_at, looked_at.c.id == RecordRow.id)
        .order_by(looked_at.c.id)
        .limit(size)
        .subquery()
    )
    passed = select(rows.c.id).where(*(rows.c[name] == bindparam(name) for name in wanted))
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
    """The trials of a job that were faster than all before them, in order."""
    begin, end = connection.execute(REACH, {"job_id": job_id}).one()
    trial = 0
    for row in connection.execute(_CURVE, {"job_id": job_id, "begin": begin, "end": end}):
        trial += row.trials
        yield CurvePoint(
            trial=trial, record_id=row.id, seconds=row.seconds, created_at=row.created_at
        )


def _curve() -> Select[Any]:
    """Selects the improvements of a job, whose records are from `begin` to `end`, each with the
    number of trials since the one before.

    From each to the next better one: together these read the job's rows once, and count them once,
    which is several times faster than window functions over them. One statement, since a job may
    have hundreds of improvements, and each would be two exchanges with a server.
    """
    row = aliased(RecordRow)
    trials = row.job_id == bindparam("job_id"), row.kind == TRIAL
    # Whatever index the planner takes, it begins and stops with the job.
    ok = select(row.id).where(*trials, row.status == OK, row.id <= bindparam("end"))
    timed = ok.where(row.id >= bindparam("begin"), row.seconds.is_not(None))
    first = timed.order_by(row.id).limit(1).scalar_subquery()
    start = select(
        cast(0, BigInteger).label("before"), RecordRow.id.label("id"), RecordRow.seconds
    ).where(RecordRow.id == first)
    last = start.cte("better", recursive=True)
    faster = ok.where(row.id > last.c.id, row.seconds < last.c.seconds)
    following = faster.order_by(row.id).limit(1).correlate(last).scalar_subquery()
    better = last.union_all(
        select(last.c.id, RecordRow.id, RecordRow.seconds)
        .select_from(last)
        .join(RecordRow, RecordRow.id == following)
    )
    since = select(func.count()).where(*trials, row.id > better.c.before, row.id <= better.c.id)
    return (
        select(
            better.c.id,
            better.c.seconds,
            RecordRow.created_at,
            since.correlate(better).scalar_subquery().label("trials"),
        )
        .join(RecordRow, RecordRow.id == better.c.id)
        .order_by(better.c.id)
    )


_OF_JOB = RecordRow.job_id == bindparam("job_id")
REACH = select(  # one by one: SQLite reads all rows for both
    select(func.min(RecordRow.id)).where(_OF_JOB).scalar_subquery(),
    select(func.max(RecordRow.id)).where(_OF_JOB).scalar_subquery(),
)
_CURVE = _curve()


def _in_scope(workload_key: str, scope: Scope) -> tuple[Any, ...]:
    return (
        RecordRow.workload_key == workload_key,
        RecordRow.target == scope[0],
        RecordRow.device == scope[1],
    )
