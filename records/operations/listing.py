"""All trials of a job as a table: page by page, sorted, and those of a status or a decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from records.errors import RecordError
from records.sql.schema import RecordRow
from records.types import TRIAL

if TYPE_CHECKING:
    from records.store import Store

Sort = Literal["trial", "-trial", "seconds", "-seconds"]
SORTS: tuple[str, ...] = get_args(Sort)
"""By number, or by the time of the trial, up or down (`-`); those without a time come last."""
EXPORTED = 1_000
"""Trials of one read of an export."""


@dataclass(frozen=True, kw_only=True)
class ListedTrial:
    """The `trial`-th trial of its job, counted from 1. `variant`: the number of the instructions
    whose decisions these are. `error`: its first 200 characters."""

    trial: int
    record_id: int
    round: int
    slot: int
    variant: int
    status: str
    seconds: float | None
    remeasured_seconds: float | None
    decisions: Mapping[str, int]
    error: str | None
    created_at: datetime


class Place(NamedTuple):
    """Where a page ends: the time and id of its last trial."""

    seconds: float | None
    record_id: int


class TrialPage(NamedTuple):
    """Some trials, and the place after which to go on; None: there are no more."""

    trials: list[ListedTrial]
    after: Place | None


def listed(
    store: Store,
    job_id: str,
    *,
    status: str | None = None,
    decisions: Mapping[str, int] | None = None,
    sort: str = "trial",
    after: Place | None = None,
    limit: int = 100,
) -> TrialPage:
    """The first `limit` trials of a job after a place, of those with that status and with these
    values of decisions. Raises RecordError for what is no sort."""
    if sort not in SORTS:
        raise RecordError(f"sort is {sort!r}; expected one of {', '.join(SORTS)}")
    wanted = [RecordRow.job_id == job_id, RecordRow.kind == TRIAL]
    if status is not None:
        wanted.append(RecordRow.status == status)
    for name, value in (decisions or {}).items():
        wanted.append(RecordRow.decisions[name].as_integer() == value)
    if after is not None:
        wanted.append(_after(sort, after))
    query = select(*_COLUMNS).where(*wanted).order_by(*_order(sort)).limit(limit + 1)
    with store._db.snapshot() as connection:
        rows = connection.execute(query).all()
        numbers = _numbers(connection, job_id, [row.record_id for row in rows[:limit]])
    found = [ListedTrial(trial=numbers[row.record_id], **row._mapping) for row in rows[:limit]]
    if len(rows) <= limit:
        return TrialPage(found, None)
    return TrialPage(found, Place(found[-1].seconds, found[-1].record_id))


def every(store: Store, job_id: str) -> Iterator[ListedTrial]:
    """All trials of a job, in order, some at a time."""
    last, number = 0, 0
    query = select(*_COLUMNS).where(RecordRow.job_id == job_id, RecordRow.kind == TRIAL)
    while True:
        some = query.where(RecordRow.id > last).order_by(RecordRow.id).limit(EXPORTED)
        with store._db.transaction(writes=False) as connection:
            rows = connection.execute(some).all()
        for row in rows:
            number += 1
            yield ListedTrial(trial=number, **row._mapping)
        if len(rows) < EXPORTED:
            return
        last = rows[-1].record_id


def tried(store: Store, job_id: str, at_most: int) -> list[ListedTrial]:
    """Every n-th trial of a job that has a time, about `at_most`."""
    timed = RecordRow.job_id == job_id, RecordRow.kind == TRIAL, RecordRow.status == "ok"
    number = func.row_number().over(order_by=RecordRow.id).label("number")
    numbered = select(RecordRow.id, number).where(*timed).subquery()
    with store._db.snapshot() as connection:
        total = connection.execute(select(func.count()).where(*timed)).scalar_one()
        step = max(1, -(-total // at_most))
        rows = connection.execute(
            select(*_COLUMNS)
            .join(numbered, numbered.c.id == RecordRow.id)
            .where((numbered.c.number - 1) % step == 0)
            .order_by(RecordRow.id)
        ).all()
        numbers = _numbers(connection, job_id, [row.record_id for row in rows])
    return [ListedTrial(trial=numbers[row.record_id], **row._mapping) for row in rows]


_COLUMNS = (
    RecordRow.id.label("record_id"),
    RecordRow.round,
    RecordRow.slot,
    RecordRow.trace_id.label("variant"),
    RecordRow.status,
    RecordRow.seconds,
    RecordRow.remeasured_seconds,
    RecordRow.decisions,
    func.substr(RecordRow.error, 1, 200).label("error"),
    RecordRow.created_at,
)


def _order(sort: str) -> Sequence[ColumnElement[Any]]:
    down = sort.startswith("-")
    number = RecordRow.id.desc() if sort == "-trial" else RecordRow.id.asc()
    if sort.endswith("trial"):
        return (number,)
    time = RecordRow.seconds.desc() if down else RecordRow.seconds.asc()
    return (RecordRow.seconds.is_(None), time, number)


def _after(sort: str, place: Place) -> ColumnElement[bool]:
    """Selects what comes after a place in the order of `sort`."""
    seconds, record_id = place
    if sort.endswith("trial"):
        return RecordRow.id < record_id if sort.startswith("-") else RecordRow.id > record_id
    later = RecordRow.id > record_id
    untimed = RecordRow.seconds.is_(None)
    if seconds is None:
        return and_(untimed, later)
    down = sort.startswith("-")
    further = RecordRow.seconds < seconds if down else RecordRow.seconds > seconds
    return or_(untimed, further, and_(RecordRow.seconds == seconds, later))


def _numbers(connection: Connection, job_id: str, ids: Sequence[int]) -> dict[int, int]:
    """The numbers of some trials in their job: one pass over the job's index."""
    if not ids:
        return {}
    number = func.row_number().over(order_by=RecordRow.id).label("number")
    numbered = (
        select(RecordRow.id, number)
        .where(RecordRow.job_id == job_id, RecordRow.kind == TRIAL, RecordRow.id <= max(ids))
        .subquery()
    )
    wanted = set(ids)
    query: Select[Any] = select(numbered.c.id, numbered.c.number).where(numbered.c.id >= min(ids))
    if len(ids) <= 200:
        query = query.where(numbered.c.id.in_(ids))
    return {row.id: row.number for row in connection.execute(query) if row.id in wanted}
