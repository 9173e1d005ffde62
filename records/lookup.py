"""Looking up the best record of a workload in a database, by `ix_records_best` alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select, func, select, union_all
from sqlalchemy.orm import InstrumentedAttribute

from records.ranking import Candidate, Scope, Standing, Tally
from records.schema import RecordRow
from records.types import OK


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


def _in_scope(workload_key: str, scope: Scope) -> tuple[Any, ...]:
    return (
        RecordRow.workload_key == workload_key,
        RecordRow.target == scope[0],
        RecordRow.device == scope[1],
    )
