"""Up to which id PostgreSQL's records are settled, for those who read them in the order of ids.

An id is drawn when a row is inserted, and the row is seen once its transaction is committed: a
reader who goes on after the last id of a page could pass over smaller ones for good. So whoever
inserts records says first which ids are not his, by a lock with the last id that was drawn, which
nobody waits for and which ends with the transaction; and a page that may be followed by another is
read again when all who could still store a smaller id are done. SQLite needs none of this (one
writer), nor do the records of one job, which are written under its lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Connection

from records.types import Page

WAIT_SECONDS = 1.0
"""How long a page waits for those who insert. Who stands still for longer is passed over."""
_LOOK_SECONDS = 0.005

_KIND = 0x6173
"""The upper bits of the lock's number, of 64; the other 40 are the id."""
_DRAW = (
    f"SELECT pg_advisory_xact_lock_shared(({_KIND}::bigint << 40) + last_value) FROM records_id_seq"
)
# The last id is read first: who draws a smaller one has the lock by then, until it is seen.
_SETTLED = f"""
WITH drawn AS MATERIALIZED (SELECT last_value AS id FROM records_id_seq)
SELECT drawn.id, (
    SELECT min(((classid::bigint & 255) << 32) + objid::bigint) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND classid::bigint >> 8 = {_KIND}
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND ((classid::bigint & 255) << 32) + objid::bigint > %(passed)s
        AND drawn.id IS NOT NULL
) FROM drawn
"""


def enter(connection: Connection) -> None:
    """Say that this transaction draws ids from now on; no other word is needed when it ends."""
    connection.exec_driver_sql(_DRAW)


class Frontier:
    """What one store knows of those who insert."""

    def __init__(self) -> None:
        self._passed = -1
        """What the last of those holds who stood still: they are not waited for again."""

    def page(self, connection: Connection, look: Callable[[], Page]) -> Page:
        """The page that `look` finds, of which no record can be stored any more."""
        settled, _ = self._settled(connection)
        page = look()
        if page.after_id is None or page.after_id <= settled:
            return page
        until = time.monotonic() + WAIT_SECONDS
        while True:
            settled, oldest = self._settled(connection)
            if oldest is None or settled >= page.after_id:
                break
            if time.monotonic() > until:
                self._passed = max(self._passed, oldest)
                break
            time.sleep(_LOOK_SECONDS)  # another process's commit sends no notification
        return look()

    def _settled(self, connection: Connection) -> tuple[int, int | None]:
        """The last id before which all is committed or never will be, and what the oldest of those
        who insert holds; both but for those who stood still."""
        found = connection.exec_driver_sql(_SETTLED, {"passed": self._passed})
        drawn, oldest = found.one()
        return (drawn if oldest is None else min(drawn, oldest)), oldest
