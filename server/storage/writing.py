"""What is written for clients: by a few threads of its own, and submissions together.

A commit takes as long as the disk needs; the submissions that arrive meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from records import RecordError, Store, StoreUnavailable
from records.queue.leases import JobQueue
from records.queue.submissions import Submission
from server.http.problems import unavailable
from server.jobs.answers import submitted
from server.schemas import Job

T = TypeVar("T")

WRITERS = 4
"""Threads that wait for the database's writer at a time: however long, they keep nobody from
reading."""
LONG_WRITERS = 2
"""Threads besides for what writes in many transactions and may take minutes."""
TOGETHER = 64
"""Submissions of one transaction."""
WAITING = 1024
"""Submissions that may wait for theirs."""

_Taken = asyncio.Future[Job]


class Writing:
    """The writing side of one server. All methods belong to its event loop."""

    def __init__(self, store: Store, queue: JobQueue) -> None:
        self._store, self._queue = store, queue
        self._waiting: deque[tuple[Submission, _Taken]] = deque()
        self._taking: asyncio.Task[None] | None = None
        self._limiter = CapacityLimiter(WRITERS)
        self._long_limiter = CapacityLimiter(LONG_WRITERS)
        self._entrance = CapacityLimiter(1)

    async def do(self, write: Callable[[], T]) -> T:
        """What `write` returns, called in a thread."""
        return await anyio.to_thread.run_sync(write, limiter=self._limiter)

    async def do_long(self, write: Callable[[], T]) -> T:
        """The same for an import: however many there are, they keep nobody from cancelling."""
        return await anyio.to_thread.run_sync(write, limiter=self._long_limiter)

    async def submit(self, submission: Submission) -> Job:
        """The job of a submission, which is stored.

        Raises KeyReused, QueueFull, StoreUnavailable; ProblemError (503) if too many wait.
        """
        if len(self._waiting) >= WAITING:
            raise unavailable(f"{len(self._waiting)} submissions wait to be stored; try again")
        taken: _Taken = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, taken))
        if self._taking is None:
            self._taking = asyncio.create_task(self._take())
        return await taken

    async def _take(self) -> None:
        """Take in what waits until nothing does."""
        try:
            while self._waiting:
                most = min(TOGETHER, len(self._waiting))
                await self._take_some([self._waiting.popleft() for _ in range(most)])
        finally:
            self._taking = None

    async def _take_some(self, batch: list[tuple[Submission, _Taken]]) -> None:
        submissions = [submission for submission, _ in batch]
        try:
            answers = await anyio.to_thread.run_sync(
                submitted, self._store, self._queue, submissions, limiter=self._entrance
            )
        except Exception as e:
            if isinstance(e, StoreUnavailable):  # those that came since have waited long enough
                batch += self._waiting
                self._waiting.clear()
            for _, taken in batch:
                if not taken.done():
                    taken.set_exception(e)
            return
        for (_, taken), answer in zip(batch, answers, strict=True):
            if taken.done():  # its client has gone
                continue
            if isinstance(answer, RecordError):
                taken.set_exception(answer)
            else:
                taken.set_result(answer)
