"""What the routes of one running server share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import anyio.to_thread
from fastapi import Depends, Request

from records.operations.workers import WorkerLog
from records.queue.leases import JobQueue
from records.queue.submissions import Bounds
from records.store import Store
from server.http.event_streams import EventHub
from server.jobs.supervisor import Supervisor
from server.jobs.webhooks import Sender
from server.pools.workers import Workers
from server.programs.cache import Texts
from server.programs.pool import Examiner
from server.programs.worker import WorkloadLimits
from server.settings import Settings
from server.storage.readiness import Readiness
from server.storage.reading import Reading
from server.storage.writing import Writing

BUSY_SECONDS = 5.0
"""How long a request waits for other writers before it is answered with 503."""


@dataclass(frozen=True)
class Service:
    """The open store, its queue, and what works on it, from the server's start to its end."""

    settings: Settings
    store: Store
    queue: JobQueue
    events: EventHub
    supervisor: Supervisor
    examiner: Examiner
    texts: Texts
    workers: Workers
    reading: Reading
    writing: Writing
    readiness: Readiness
    webhooks: Sender

    def begin_to_stop(self) -> None:
        """End event streams and begin to park jobs, without waiting for it."""
        self.events.close()
        self.supervisor.begin_to_stop()


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Service]:
    """A service that works while the block does.

    Raises RecordError or SchemaVersionError for a database, TuningError for a pool's address, that
    cannot be used.
    """
    anyio.to_thread.current_default_thread_limiter().total_tokens = settings.readers
    store = await anyio.to_thread.run_sync(Store, settings.db, BUSY_SECONDS)
    try:
        queue = JobQueue(store, Bounds(settings.jobs_queued, settings.jobs_queued_per_client))
        events = EventHub(store, settings.poll_seconds / 2)
        writing = Writing(store, queue)
        readiness = Readiness(store, writing)
        workers = Workers(settings)
        supervisor = Supervisor(store, queue, settings, readiness, workers, WorkerLog(store))
        examiner = Examiner(_limits(settings), settings.examine_processes)
        examiner.start()
        webhooks = Sender(store, settings)
        events.start()
        supervisor.start()
        webhooks.start()
        workers.start()
        try:
            texts = Texts(store, examiner)
            yield Service(
                settings=settings,
                store=store,
                queue=queue,
                events=events,
                supervisor=supervisor,
                examiner=examiner,
                texts=texts,
                workers=workers,
                reading=Reading(settings.readers),
                writing=writing,
                readiness=readiness,
                webhooks=webhooks,
            )
        finally:
            await events.stop()
            await examiner.close()
            await anyio.to_thread.run_sync(supervisor.stop)
            await anyio.to_thread.run_sync(workers.stop)
            await anyio.to_thread.run_sync(webhooks.stop)
    finally:
        await anyio.to_thread.run_sync(store.close)


def _limits(settings: Settings) -> WorkloadLimits:
    return WorkloadLimits(
        operations=settings.workload_operations,
        bytes=settings.workload_bytes,
        depth=settings.workload_depth,
        blocks=settings.workload_blocks,
        characters=settings.script_characters,
        seconds=settings.examine_seconds,
        memory=settings.examine_bytes,
    )


async def _service(request: Request) -> Service:  # a plain function would be called in a thread
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_service)]
"""A parameter of a route: the running service."""
