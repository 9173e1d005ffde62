"""What workers did, by the minute, and which of them are drained.

Minutes are those of the process that reports, counted from 1970: they are summed over an hour or a
day, where a clock that is a second off does not matter.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from records.sql.rows import chunks, insert_new
from records.sql.schema import DrainedRow, WorkerMinuteRow, database_time

if TYPE_CHECKING:
    from records.store import Store

RECENT_MINUTES = 5
"""Load and speed are those of so many whole minutes, and of the one that goes on."""
DAY_HOURS = 24


class Activity(NamedTuple):
    """What a worker did: trials, seconds at work, faults of the worker itself."""

    trials: int = 0
    busy_seconds: float = 0.0
    faults: int = 0


class Past(NamedTuple):
    """A worker lately: trials a second, load (1: one job's work all the time), and its faults in
    each of the last 24 hours, the oldest first."""

    trials_per_second: float
    load: float
    faults: tuple[int, ...]


NO_PAST = Past(0.0, 0.0, (0,) * DAY_HOURS)


class WorkerLog:
    """The workers' part of a store. Any number of processes may use one at once."""

    def __init__(self, store: Store) -> None:
        self._db = store._db

    def note(self, done: Mapping[str, Activity], now: float | None = None) -> None:
        """Adds what workers did just now (`now`: seconds since 1970)."""
        minute = int((time.time() if now is None else now) // 60)
        rows = [{"name": name, "minute": minute, **one._asdict()} for name, one in done.items()]
        # In one order: two reports of the same workers must not wait for each other in a circle.
        rows.sort(key=lambda row: str(row["name"]))
        if rows:
            self._db.write(lambda connection: _add(connection, rows))

    def past(self, now: float | None = None) -> dict[str, Past]:
        """Each worker of which anything was told in the last day."""
        at = time.time() if now is None else now
        minute = int(at // 60)
        row = WorkerMinuteRow
        begin = minute - RECENT_MINUTES
        recent = (
            select(row.name, func.sum(row.trials), func.sum(row.busy_seconds))
            .where(row.minute >= begin)
            .group_by(row.name)
        )
        first_hour = minute // 60 - DAY_HOURS + 1
        hour = row.minute - row.minute % 60
        faults = (
            select(row.name, hour, func.sum(row.faults))
            .where(row.minute >= first_hour * 60)
            .group_by(row.name, hour)
        )
        seconds = at - begin * 60.0
        with self._db.transaction(writes=False) as connection:
            rates = {name: (t / seconds, b / seconds) for name, t, b in connection.execute(recent)}
            hours: dict[str, list[int]] = {}
            for name, start, count in connection.execute(faults):
                place = int(start) // 60 - first_hour
                if place < DAY_HOURS:  # another process's clock may be ahead
                    hours.setdefault(name, [0] * DAY_HOURS)[place] += int(count)
        return {
            name: Past(*rates.get(name, (0.0, 0.0)), tuple(hours.get(name, NO_PAST.faults)))
            for name in rates.keys() | hours.keys()
        }

    def forget(self, seconds: float) -> int:
        """Removes what is older than that; returns how many rows there were."""
        before = int((time.time() - seconds) // 60)
        old = delete(WorkerMinuteRow).where(WorkerMinuteRow.minute < before)
        return self._db.write(lambda connection: connection.execute(old).rowcount)

    def drain(self, names: Collection[str], client: str) -> None:
        """Have these workers finish what they are at, and take no more. Harmless when repeated."""
        rows = [
            {"name": name, "client": client, "created_at": database_time()}
            for name in sorted(set(names))
        ]

        def work(connection: Connection) -> None:
            for row in rows:
                connection.execute(insert_new(connection, DrainedRow, ["name"]).values(row))

        self._db.write(work)

    def admit(self, names: Iterable[str]) -> None:
        """Let drained workers work again. Harmless for those that are not."""

        def work(connection: Connection) -> None:
            for chunk in chunks(sorted(set(names))):
                connection.execute(delete(DrainedRow).where(DrainedRow.name.in_(chunk)))

        self._db.write(work)

    def drained(self) -> frozenset[str]:
        """The workers that are to take no more work."""
        with self._db.transaction(writes=False) as connection:
            return frozenset(connection.scalars(select(DrainedRow.name)))


def _add(connection: Connection, rows: list[dict[str, object]]) -> None:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(WorkerMinuteRow)
    summed = {
        name: getattr(WorkerMinuteRow, name) + statement.excluded[name] for name in Activity._fields
    }
    added = statement.on_conflict_do_update(index_elements=["name", "minute"], set_=summed)
    connection.execute(added, rows)
