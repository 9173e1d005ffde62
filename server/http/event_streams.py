"""Events as streams that go on after a lost connection, and remember nothing for slow readers.

A stream holds the id of the last event that it has sent, and reads the next few from the store
when its reader has taken these. One task asks the store, for all jobs that are being followed, what
their last events are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import anyio.to_thread
from fastapi.sse import format_sse_event

from records import Event, Job, RecordError, Store
from records.types import ENDED
from server.schemas import Event as EventOut
from server.storage.outage import Outage

_log = logging.getLogger("autosched.events")

PAGE = 16
"""Events that a stream holds at a time; each tells of at most some hundred records."""
COMMENT_SECONDS = 15.0
"""How often a stream without events says that it is there."""
ALLOWED_SECONDS = 5.0
"""How often a stream without events looks whether its reader may still have them."""
RETRY_MS = 2000
"""After this long a reader whose connection is lost comes back."""


@dataclass
class _Watch:
    """A job that streams follow: its last event, as far as is known."""

    last: int = 0
    streams: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, last: int) -> None:
        self.last = last
        self.news.set()
        self.news = asyncio.Event()


class EventHub:
    """The streams of one server. All methods belong to its event loop."""

    def __init__(self, store: Store, poll_seconds: float) -> None:
        self.store, self.poll_seconds = store, poll_seconds
        self.closed = False
        self._watches: dict[str, _Watch] = {}
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(_log, "events of jobs cannot be read")

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return sum(watch.streams for watch in self._watches.values())

    def start(self) -> None:
        """Begin to look for news."""
        self._task = asyncio.get_running_loop().create_task(self._poll())

    def close(self) -> None:
        """End all streams. Their readers come back, to the next server. Harmless when repeated."""
        self.closed = True
        for watch in self._watches.values():
            watch.tell(watch.last)

    async def stop(self) -> None:
        """Close, and look no more."""
        self.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def stream(
        self, job_id: str, after: int, allowed: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes]:
        """The job's events after that of id `after`, as they happen, until the job has ended, or
        its reader may not have them any more: a token that is revoked, or expires.

        Raises NoRecord if there is no such job.
        """
        yield format_sse_event(retry=RETRY_MS)
        commented = time.monotonic()
        with self._watching(job_id) as watch:
            while await allowed() and not self.closed:  # may end meanwhile
                seen = watch.news
                try:
                    job, events = await anyio.to_thread.run_sync(self._next, job_id, after)
                    self._outage.over()
                except RecordError as e:
                    self._outage.failed(e)
                    yield b": the database cannot be used now\n\n"
                    await asyncio.sleep(self.poll_seconds)
                    continue
                for event in events:
                    yield sse(event)
                    after = event.id
                commented = time.monotonic()
                if len(events) == PAGE:
                    continue
                if job.state in ENDED:
                    return
                while not seen.is_set() and watch.last <= after:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(seen.wait(), ALLOWED_SECONDS)
                        break
                    if not await allowed():
                        return
                    if time.monotonic() - commented > COMMENT_SECONDS:
                        commented = time.monotonic()
                        yield b": still here\n\n"

    def _next(self, job_id: str, after: int) -> tuple[Job, list[Event]]:
        return self.store.job_and_events(job_id, after_id=after, limit=PAGE)

    @contextmanager
    def _watching(self, job_id: str) -> Iterator[_Watch]:
        watch = self._watches.setdefault(job_id, _Watch())
        watch.streams += 1
        try:
            yield watch
        finally:
            watch.streams -= 1
            if not watch.streams:
                del self._watches[job_id]

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self.poll_seconds)
            if not self._watches:
                continue
            try:
                last = await anyio.to_thread.run_sync(self.store.last_events, list(self._watches))
                self._outage.over()
            except RecordError as e:
                self._outage.failed(e)
                continue
            for job_id, event_id in last.items():
                watch = self._watches.get(job_id)
                if watch is not None and event_id > watch.last:
                    watch.tell(event_id)


def sse(event: Event) -> bytes:
    """An event as it stands in a stream: its id, its kind, and all of it as JSON."""
    body = EventOut.model_validate(event).model_dump_json()
    return format_sse_event(data_str=body, event=event.kind, id=str(event.id))
