"""What is written for clients: by a few threads of its own, and submissions together.

A commit takes as long as the disk needs; the submissions that arrive meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from records import Store, StoreUnavailable
from records.queue.leases import JobQueue
from records.queue.submissions import Submission
from server.http.problems import refused, retry_after, unavailable
from server.jobs.answers import submitted
from server.schemas import Job

T = TypeVar("T")

WRITERS = 4
"""Threads that wait for the database's writer at a time: however long, threads stay free
for reading."""
LONG_WRITERS = 2
"""Threads besides for what writes in many transactions and may take minutes."""
IMPORTS = 8
"""Imports that arrive or are being taken in: each may fill a file of `import_bytes`."""
TOGETHER = 64
"""Submissions of one transaction."""
WAITING = 1024
"""Submissions that may wait for theirs."""

_Taken = asyncio.Future[Job]
_Waiting = tuple[Submission, _Taken]


class Writing:
    """The writing side of one server. All methods belong to its event loop."""

    def __init__(self, store: Store, queue: JobQueue) -> None:
        self._store, self._queue = store, queue
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._taking = False
        self._limiter = CapacityLimiter(WRITERS)
        self._long_limiter = CapacityLimiter(LONG_WRITERS)
        self._entrance = CapacityLimiter(1)
        self._taker: asyncio.Task[None] | None = None
        self._imports = 0

    @contextmanager
    def importing(self) -> Iterator[None]:
        """A place for an import, from its first byte on. Raises ProblemError (503)."""
        if self._imports >= IMPORTS:
            raise refused(
                "unavailable",
                f"{IMPORTS} imports are being taken in; try again after one of them",
                headers=retry_after(10) | {"Connection": "close"},
            )
        self._imports += 1
        try:
            yield
        finally:
            self._imports -= 1

    async def do(self, write: Callable[[], T]) -> T:
        """What `write` returns, called in a thread."""
        return await anyio.to_thread.run_sync(write, limiter=self._limiter)

    async def do_long(self, write: Callable[[], T]) -> T:
        """The same for an import: however many there are, cancelling does not wait for them."""
        return await anyio.to_thread.run_sync(write, limiter=self._long_limiter)

    async def submit(self, submission: Submission) -> Job:
        """The job of a submission, which is stored.

        Raises KeyReused, QueueFull, StoreUnavailable; ProblemError (503) if too many wait.
        """
        if len(self._waiting) >= WAITING:
            raise unavailable(f"{len(self._waiting)} submissions wait to be stored; try again")
        loop = asyncio.get_running_loop()
        taken: _Taken = loop.create_future()
        with self._lock:
            self._waiting.append((submission, taken))
            idle, self._taking = not self._taking, True
        if idle:  # what has arrived by now, and is still to be looked at, is of the first batch
            self._taker = loop.create_task(self._take_all(loop))
        return await taken

    async def _take_all(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await anyio.to_thread.run_sync(self._take, loop, limiter=self._entrance)
        except Exception as e:  # there is no thread to be had
            with self._lock:
                left, self._taking = list(self._waiting), False
                self._waiting.clear()
            _answer(left, [e] * len(left))

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take in, in a thread, what waits until nothing does: the next batch waits for the disk,
        and not for the event loop besides."""
        while batch := self._next():
            answers = self._store_batch(batch)
            with suppress(RuntimeError):  # the event loop is closed: the clients are gone
                loop.call_soon_threadsafe(_answer, batch, answers)

    def _next(self) -> list[_Waiting]:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
            self._taking = bool(batch)
            return batch

    def _store_batch(self, batch: list[_Waiting]) -> Sequence[Job | Exception]:
        """The answers to a batch, of which some may be added."""
        try:
            return submitted(self._store, self._queue, [submission for submission, _ in batch])
        except Exception as e:
            if isinstance(e, StoreUnavailable):  # those that came since have waited long enough
                with self._lock:
                    batch += self._waiting
                    self._waiting.clear()
            return [e] * len(batch)


def _answer(batch: Sequence[_Waiting], answers: Sequence[Job | Exception]) -> None:
    for (_, taken), answer in zip(batch, answers, strict=True):
        if taken.done():  # its client has gone
            continue
        if isinstance(answer, Exception):
            taken.set_exception(answer)
        else:
            taken.set_result(answer)
