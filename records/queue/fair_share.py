"""Who is next: clients take turns, and of one client's jobs the highest priority goes first."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, or_, select
from sqlalchemy.dialects import postgresql, sqlite

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
_LINE = (
    select(JobRow.id, JobRow.client, JobRow.created_at)
    .where(JobRow.state == QUEUED, JobRow.origin == LOCAL)
    .order_by(JobRow.priority.desc(), JobRow.created_at, JobRow.id)
)
_TURNS = select(ClientRow.name, ClientRow.served_at).where(
    ClientRow.name.in_(bindparam("names", expanding=True))
)


def served(connection: Connection, client: str) -> None:
    """The client's turn was now; it is remembered whatever becomes of the job."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(ClientRow).values(name=client, served_at=database_time())
    now = {"served_at": statement.excluded.served_at}
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=now))


def places(connection: Connection) -> dict[str, int]:
    """The place of each job that waits, from 1: the order in which they would be claimed if no
    other job came, and none of those that run ended."""
    lines: dict[str, deque[Any]] = {}
    for row in connection.execute(_LINE):
        lines.setdefault(row.client, deque()).append(row)
    turns: dict[str, datetime | None] = dict.fromkeys(lines)
    for chunk in chunks(sorted(lines)):
        turns |= {row.name: row.served_at for row in connection.execute(_TURNS, {"names": chunk})}
    busy = {row.client: row.jobs for row in connection.execute(_BUSY)}
    last = max((_seconds(turn) for turn in turns.values()), default=0.0)
    order = []
    for client, line in lines.items():
        served = (turns[client] is not None, _seconds(turns[client]))
        order.append((busy.get(client, 0), *served, min(row.created_at for row in line), client))
    heapify(order)
    found: dict[str, int] = {}
    while order:
        jobs, _, _, oldest, client = heappop(order)
        found[lines[client].popleft().id] = len(found) + 1
        if lines[client]:
            # Its turn was just now: later than any before.
            heappush(order, (jobs + 1, True, last + len(found), oldest, client))
    return found


def _seconds(time: datetime | None) -> float:
    return 0.0 if time is None else time.timestamp()
