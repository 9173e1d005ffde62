"""Whether the database takes what is written, and whether it is damaged."""

from __future__ import annotations

import asyncio
from time import monotonic

from records import Store, StoreDamaged
from server.storage.writing import Writing

TRIED_SECONDS = 2.0
"""A write that was tried holds for so long: anybody may ask, and each waits for the disk."""


class Readiness:
    """Of one server. `note` may be called by any thread, the others belong to its event loop."""

    def __init__(self, store: Store, writing: Writing) -> None:
        self._store, self._writing = store, writing
        self._tried = -TRIED_SECONDS
        self._trying = asyncio.Lock()
        self._damage: StoreDamaged | None = None

    def note(self, error: Exception) -> None:
        """Remember that the database is damaged: no job is taken before somebody has repaired it
        and started the server again."""
        if isinstance(error, StoreDamaged):
            self._damage = error

    @property
    def damaged(self) -> bool:
        """Whether the database was found damaged."""
        return self._damage is not None

    def check_damage(self) -> None:
        """Raises StoreDamaged if that was seen."""
        if self._damage is not None:
            raise StoreDamaged(str(self._damage))

    async def check(self) -> None:
        """Write something. Raises StoreDamaged, StoreUnavailable and RecordError."""
        self.check_damage()
        async with self._trying:
            if monotonic() - self._tried < TRIED_SECONDS:
                return
            try:
                await self._writing.do(self._store.try_write)
            except StoreDamaged as e:
                self.note(e)
                raise
            self._tried = monotonic()
