"""What is read for clients: those who ask the same share an answer.

Routes that ask the database do it in a few threads, and under load requests wait for one. Of those
that wait, the ones for the same thing are answered by one read. It begins after the last of them
has arrived, so that each sees whatever was acknowledged before it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import anyio.to_thread

T = TypeVar("T")


class Reading:
    """The reading side of one server. `do` belongs to its event loop; a thread that reads calls
    `_begun` first."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Task[Any]] = {}
        """The reads that have not begun."""

    async def do(self, what: Hashable, read: Callable[[], T]) -> T:
        """What `read` returns, called in a thread; of all that wait with the same `what`, one is.

        The result must not be changed: others have it, too.
        """
        task = self._waiting.get(what)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read(what, read))
            self._waiting[what] = task
        found: T = await asyncio.shield(task)  # who leaves takes nothing from the others
        return found

    async def _read(self, what: Hashable, read: Callable[[], T]) -> T:
        def begin() -> T:
            self._begun(what)  # whoever comes from now on may know of more than this will see
            return read()

        try:
            return await anyio.to_thread.run_sync(begin)
        except BaseException:
            if self._waiting.get(what) is asyncio.current_task():
                self._begun(what)  # it never did
            raise

    def _begun(self, what: Hashable) -> None:
        del self._waiting[what]
