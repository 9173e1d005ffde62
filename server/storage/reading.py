"""What is read for clients: those who ask the same share an answer.

Routes that ask the database do it in a few threads, and under load requests wait for one. Of those
that wait, the ones for the same thing are answered by one read. It begins after the last of them
has arrived, so that each sees whatever was acknowledged before it was sent.

One thread reads while that is enough: several take the interpreter from each other and from the
event loop, and the sooner a read begins the fewer share it. Another one helps where reads wait for
long: behind a large one, or because the database is far away.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio.to_thread

HELP_SECONDS = 0.05
"""After so long a read that waits is helped by another thread."""

T = TypeVar("T")


@dataclass
class _Read:
    """A read that has not begun, and who waits for it."""

    do: Callable[[], Any]
    context: Context = field(default_factory=copy_context)
    waiting: list[asyncio.Future[Any]] = field(default_factory=list)


class Reading:
    """The reading side of one server, in up to so many `threads`. `do` belongs to its event
    loop."""

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._lock = threading.Lock()
        self._running = 0
        self._queue: OrderedDict[Hashable, _Read] = OrderedDict()
        self._helping: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def do(self, what: Hashable, read: Callable[[], T]) -> T:
        """What `read` returns, called in a thread; of all that wait with the same `what`, one is.

        The result must not be changed: others have it, too.
        """
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[T] = loop.create_future()
        found = self._queue.get(what)
        if found is None:
            found = self._queue[what] = _Read(read)
            # What has arrived by now, and is still to be looked at, may share it.
            loop.call_soon(self._start, loop)
        found.waiting.append(mine)
        return await mine

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that what waits is read."""
        if self._running == 0:
            self._add_thread(loop)
        elif self._helping is None:
            self._helping = loop.call_later(HELP_SECONDS, self._help, loop)

    def _help(self, loop: asyncio.AbstractEventLoop) -> None:
        self._helping = None
        if self._queue and self._running < self._most:
            self._add_thread(loop)
            self._start(loop)

    def _add_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._running += 1
        task = loop.create_task(self._work(loop))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read in a thread until nothing waits; where there is none to be had, nothing is read."""
        try:
            await anyio.to_thread.run_sync(self._run, loop)
        except Exception as e:  # of a read they are told to who waits for it
            with self._lock:
                self._running -= 1
                left = [] if self._running else list(self._queue.values())
                if left:
                    self._queue.clear()
            for read in left:
                _tell(read.waiting, None, e)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while (read := self._next()) is not None:
            found: Any = None
            error: BaseException | None = None
            try:
                found = read.context.run(read.do)
            except BaseException as e:  # one of them waits for ever else
                error = e
            with suppress(RuntimeError):  # the event loop is closed: the clients are gone
                loop.call_soon_threadsafe(_tell, read.waiting, found, error)

    def _next(self) -> _Read | None:
        """The oldest read of the queue, or None, and then the thread counts as ended.

        A request that arrives later may depend on newer rows, so it cannot share this read."""
        with self._lock:
            try:
                return self._queue.popitem(last=False)[1]
            except KeyError:
                self._running -= 1
                return None


def _tell(waiting: list[asyncio.Future[Any]], found: Any, error: BaseException | None) -> None:
    for one in waiting:
        if one.done():  # its client has gone
            continue
        if error is None:
            one.set_result(found)
        else:
            one.set_exception(error)
