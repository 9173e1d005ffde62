"""Batches as Dask tasks: one a slot, pinned to its worker; messages as events of one topic."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import time
import uuid
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, get_worker

from autosched.errors import MeasureError
from measure.cluster.registry import Sighting
from measure.cluster.settings import (
    EXTENSION,
    ROSTER,
    SETTINGS,
    STOP,
    check_address,
    quiet,
    security,
)
from measure.cluster.transport import Disconnected, Ended, Event, Listing, Message
from measure.cluster.wire import JsonDict, explained

ROSTER_SECONDS = 1.0
SILENCE_SECONDS = 15.0
CONNECT_SECONDS = 5.0
TELL_SECONDS = 10.0
PAUSE_SECONDS = 0.5
WAIT_SECONDS = 300.0
"""For which a lost scheduler is looked for."""


class DaskTransport:
    """See `measure.cluster.transport.Transport`.

    Connects at once. Raises MeasureError if it cannot be reached, or does not accept our
    certificate.
    """

    def __init__(self, address: str, tls_dir: Path | None = None) -> None:
        self.address = check_address(address, tls_dir)
        self._security = security(tls_dir, "client")
        self._inbox: queue.Queue[Event] = queue.Queue()
        """Messages to the current client. Each client has a queue of its own: what still arrives
        for an earlier one is dropped with it."""
        self._listing: Listing | None = None
        self._futures: dict[int, Future[None]] = {}
        self._client: Client | None = None
        self._lost_at = 0.0
        self._watch: concurrent.futures.Future[None] | None = None
        self.topic = f"autosched-{uuid.uuid4().hex}"
        try:
            self._connect()
        except (OSError, RuntimeError, ValueError) as e:
            self.close()
            raise MeasureError(
                f"cannot reach a scheduler at {self.address}: {explained(e)}; is `autosched "
                "scheduler` running there, and do both sides have certificates of one authority?"
            ) from e

    def send(self, batch: int, address: str, label: str, request: JsonDict) -> None:
        """See `Transport.send`."""
        if self._client is None:
            return  # the dispatcher is told that nobody can be reached
        future = self._client.submit(
            run_batch,
            self.topic,
            {**request, "batch": batch, "key": f"{self.topic}/{batch}"},
            key=f"{self.topic}-{batch}",
            workers=[address],
            allow_other_workers=False,
            resources={label: 1},
            pure=False,
            retries=0,
        )
        self._futures[batch] = future
        future.add_done_callback(partial(self._over, self._inbox, batch))

    def stop(self, batch: int, address: str, forget: bool) -> None:
        """See `Transport.stop`."""
        future = self._futures.pop(batch, None) if forget else None
        if self._client is None:
            return
        # Best effort: a worker that cannot be told goes on until it has measured the batch.
        _on_loop(self._client, _tell(self._client, address, f"{self.topic}/{batch}"))
        if future is not None:
            future.cancel()

    def receive(self, seconds: float) -> list[Event]:
        """See `Transport.receive`."""
        if self._client is None:
            self._reconnect(seconds)
        out: list[Event] = []
        with contextlib.suppress(queue.Empty):
            self._take(self._inbox.get(timeout=seconds), out)
            while True:
                self._take(self._inbox.get_nowait(), out)
        listing, self._listing = self._listing, None
        if self._client is not None and listing is not None:
            out.append(listing)
        return out

    def close(self) -> None:
        """See `Transport.close`."""
        client, self._client = self._client, None
        self._inbox = queue.Queue()
        self._futures.clear()
        if client is None:
            return
        if self._watch is not None:
            self._watch.cancel()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            client.close(timeout=2)

    def _over(self, inbox: queue.Queue[Event], batch: int, future: Future[None]) -> None:
        """A task is over. In a thread of Dask's."""
        if future.status != "cancelled":
            inbox.put(Ended(batch, _error(future)))
        elif batch in self._futures:
            # Dask's client found the scheduler gone, and forgets its tasks. It connects again by
            # itself, to a scheduler that knows nothing of our topic.
            inbox.put(self._lost("the connection was lost"))

    def _lost(self, why: str) -> Disconnected:
        return Disconnected(f"the scheduler at {self.address}: {why}")

    def _take(self, event: Event, out: list[Event]) -> None:
        out.append(event)
        if isinstance(event, Ended):
            self._futures.pop(event.batch, None)
        elif isinstance(event, Disconnected):
            self._lost_at = time.monotonic()
            self.close()

    def _connect(self) -> None:
        """A new client, and its watch. Raises OSError and the like."""
        quiet()
        inbox = self._inbox
        with dask.config.set(SETTINGS):
            client = Client(
                self.address,
                security=self._security,
                timeout=CONNECT_SECONDS,
                set_as_default=False,
                name="autosched",
            )
        self._client = client
        client.subscribe_topic(self.topic, lambda event: inbox.put(Message(event[1])))
        self._watch = _on_loop(client, self._look(client, inbox))

    async def _look(self, client: Client, inbox: queue.Queue[Event]) -> None:
        """Ask the scheduler who is there, until it does not answer or is another one."""
        known = None
        while True:
            try:
                call = getattr(client.scheduler, ROSTER)()
                name, rows = await asyncio.wait_for(call, SILENCE_SECONDS)
            except Exception as e:
                # Whatever went wrong: a scheduler that does not say who is there is lost.
                inbox.put(self._lost(f"it does not answer: {type(e).__name__}: {e}"))
                return
            if known not in (None, name):
                inbox.put(self._lost("it was started again"))
                return
            known = name
            self._listing = Listing(
                {str(n): Sighting(str(label), str(a), float(age)) for n, label, a, age in rows}
            )
            await asyncio.sleep(ROSTER_SECONDS)

    def _reconnect(self, seconds: float) -> None:
        """Try once. Raises MeasureError when the wait budget is spent."""
        try:
            self._connect()
        except (OSError, RuntimeError, ValueError) as e:
            self.close()
            if time.monotonic() - self._lost_at > WAIT_SECONDS:
                raise MeasureError(
                    f"the scheduler at {self.address} did not come back within "
                    f"{WAIT_SECONDS:.0f} s: {explained(e)}"
                ) from e
            time.sleep(min(seconds, PAUSE_SECONDS))  # the scheduler may come back


def run_batch(topic: str, request: JsonDict) -> None:
    """The task of one batch, in a worker (`slot_process`). Its messages go to `topic`."""
    worker = get_worker()
    service = worker.extensions[EXTENSION].service
    try:
        service.run(request, partial(worker.log_event, topic))
    except BaseException as e:
        # Not every exception can be read where it arrives; its text can. And what an engine raises
        # to leave is no end of this process, whose exit status says something of its own.
        raise RuntimeError(explained(e)) from None


async def _tell(client: Client, address: str, key: str) -> None:
    with contextlib.suppress(OSError, asyncio.TimeoutError, RuntimeError, ValueError):
        scheduler: Any = client.scheduler
        told = {"op": STOP, "batch": key}
        call = scheduler.broadcast(msg=told, workers=[address], on_error="ignore")
        await asyncio.wait_for(call, TELL_SECONDS)


def _on_loop(client: Client, task: Coroutine[Any, Any, None]) -> concurrent.futures.Future[None]:
    """Have the client's own thread do something."""
    loop: Any = client.loop
    return asyncio.run_coroutine_threadsafe(task, loop.asyncio_loop)


def _error(future: Future[None]) -> str | None:
    """Why a task failed, None if it did not. No exception of the other side is raised here."""
    if future.status == "finished":
        return None
    if future.status == "error":
        # Its text is enough, and the exception's class may be one that is not known here.
        failure = future._state.exception if future._state else None
        return "its task failed" if failure is None else explained(failure)
    return f"its task is {future.status}"
