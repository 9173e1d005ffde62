"""Who is next: clients take turns, and of one client's jobs the highest priority goes first."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import aliased

from records.sql.rows import chunks
from records.sql.schema import ClientRow, JobRow, database_time
from records.types import HELD, LOCAL, QUEUED


class Scope(NamedTuple):
    """Whose jobs a pool takes: those that name it, and those that name none, of targets of `kinds`
    (empty: of any). Without a `pool` only the latter."""

    pool: str | None = None
    kinds: tuple[str, ...] = ()


EVERYTHING = Scope()


@lru_cache(64)
def next_of(scope: Scope) -> Select[Any]:
    """Selects, and locks, the job that `JobQueue.claim` takes."""
    anybodys: ColumnElement[bool] = JobRow.pool.is_(None)
    if scope.kinds:
        kinds = (or_(JobRow.target == k, JobRow.target.startswith(f"{k} ")) for k in scope.kinds)
        anybodys &= or_(*kinds)
    mine = anybodys if scope.pool is None else or_(JobRow.pool == scope.pool, anybodys)
    busy = _BUSY.subquery()
    oldest = (
        select(JobRow.client, func.min(JobRow.created_at).label("made"))
        .where(JobRow.state == QUEUED, JobRow.origin == LOCAL)
        .group_by(JobRow.client)
        .subquery()
    )
    return (
        select(JobRow.id)
        .outerjoin(busy, busy.c.client == JobRow.client)
        .join(oldest, oldest.c.client == JobRow.client)
        .outerjoin(ClientRow, ClientRow.name == JobRow.client)
        .where(JobRow.state == QUEUED, JobRow.origin == LOCAL, mine)
        .where(or_(JobRow.not_before.is_(None), JobRow.not_before <= database_time()))
        .order_by(
            func.coalesce(busy.c.jobs, 0),
            ClientRow.served_at.asc().nulls_first(),
            # Of two clients that were never served, the older job's; then of one client's jobs.
            *(oldest.c.made, JobRow.client, JobRow.priority.desc(), JobRow.created_at, JobRow.id),
        )
        .limit(1)
        .with_for_update(skip_locked=True, key_share=True, of=JobRow)
    )


_BUSY = (
    select(JobRow.client, func.count().label("jobs"))
    .where(JobRow.state.in_(HELD))
    .group_by(JobRow.client)
)
_WAITS = (JobRow.state == QUEUED, JobRow.origin == LOCAL)
_LINES = (
    select(JobRow.client, func.count().label("jobs"), func.min(JobRow.created_at).label("made"))
    .where(*_WAITS)
    .group_by(JobRow.client)
)
_MINE = aliased(JobRow)
_AHEAD = (
    select(_MINE.client, func.count(JobRow.id))
    .outerjoin(
        JobRow,
        and_(
            *_WAITS,
            JobRow.client == _MINE.client,
            or_(
                JobRow.priority > _MINE.priority,
                and_(
                    JobRow.priority == _MINE.priority,
                    tuple_(JobRow.created_at, JobRow.id) < tuple_(_MINE.created_at, _MINE.id),
                ),
            ),
        ),
    )
    .where(_MINE.id == bindparam("id"), _MINE.state == QUEUED, _MINE.origin == LOCAL)
    .group_by(_MINE.client)
)
"""The client of a job that waits, and how many of its jobs go before that one."""
_TURNS = select(ClientRow.name, ClientRow.served_at).where(
    ClientRow.name.in_(bindparam("names", expanding=True))
)


def served(connection: Connection, client: str) -> None:
    """The client's turn was now; it is remembered whatever becomes of the job."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(ClientRow).values(name=client, served_at=database_time())
    now = {"served_at": statement.excluded.served_at}
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=now))


def place(connection: Connection, job_id: str) -> int | None:
    """The place of a job that waits, from 1, among all that do: the order in which they would be
    claimed if no other job came, and none of those that run ended. None if it does not wait. The
    statements rely on one another, so `connection` is to be of a snapshot.

    Each claim takes the first job of a client with fewest jobs held, so that clients are served in
    rounds: in round n those that hold n jobs by then. Of one round those come first that were not
    served in the round before, as they were served up to now.
    """
    mine = connection.execute(_AHEAD, {"id": job_id}).one_or_none()
    if mine is None:
        return None
    client, ahead = mine
    lines = {row.client: row for row in connection.execute(_LINES)}
    held = {row.client: row.jobs for row in connection.execute(_BUSY)}
    rounds = {name: (held.get(name, 0), row.jobs) for name, row in lines.items()}
    last = rounds[client][0] + ahead
    found: int = sum(max(0, min(jobs, last - first)) for first, jobs in rounds.values())
    beside = [name for name, (first, jobs) in rounds.items() if first <= last < first + jobs]
    turns: dict[str, datetime | None] = {}
    for chunk in chunks(sorted(beside)):
        turns |= {row.name: row.served_at for row in connection.execute(_TURNS, {"names": chunk})}

    def rank(name: str) -> tuple[Any, ...]:
        turn = turns.get(name)
        return (-rounds[name][0], turn is not None, _seconds(turn), lines[name].made, name)

    return found + 1 + sum(rank(name) < rank(client) for name in beside)


def _seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()
