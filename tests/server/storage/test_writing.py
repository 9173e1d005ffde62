"""What is written for clients: submissions share transactions, and fail alone."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import anyio.to_thread
import pytest

from autosched.tuning import SearchTask
from records import Job, JobQueue, KeyReused, Store, StoreUnavailable, SubmissionKey
from records.queue.submissions import Submission
from server.storage.writing import TOGETHER, WRITERS, Writing


class SlowQueue(JobQueue):
    """Notes how many submissions it takes at a time; the first time it waits to be released."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sizes: list[int] = []
        self.release = threading.Event()

    def submit_many(self, submissions: Sequence[Submission]) -> Any:
        self.sizes.append(len(submissions))
        assert self.release.wait(60)
        return super().submit_many(submissions)


class Place(NamedTuple):
    db: Path
    store: Store
    queue: SlowQueue


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    db = tmp_path / "x.db"
    with Store(db, busy_seconds=0.2) as store:
        yield Place(db, store, SlowQueue(store))


def submission(key: str | None = None, digest: str = "d") -> Submission:
    return Submission(
        workload=SearchTask("softmax", (8, 16)).workload,
        target="llvm",
        seed=0,
        trials_requested=8,
        key=None if key is None else SubmissionKey("", key, digest),
    )


def test_submissions_that_arrive_together_are_stored_together(place: Place) -> None:
    async def main() -> list[Any]:
        writing = Writing(place.store, place.queue)
        tasks = [asyncio.create_task(writing.submit(submission())) for _ in range(TOGETHER + 10)]
        while not place.queue.sizes:
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(writing.submit(submission("k", str(n)))) for n in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()  # its client has gone: it was sent, so it is taken
        place.queue.release.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(main())
    assert place.queue.sizes == [TOGETHER, 12]
    assert isinstance(answers[0], asyncio.CancelledError)
    assert isinstance(answers[-1], KeyReused)
    jobs = [job.id for job in answers[1:-1]]
    assert len(set(jobs)) == TOGETHER + 10
    assert set(jobs) <= {job.id for job in place.store.jobs().jobs}
    assert place.store.count_jobs()["queued"] == TOGETHER + 11


def test_what_was_stored_is_not_said_to_be_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that goes away after the commit: nothing more is asked of it."""
    stored = place.queue.submit_many

    def away(keys: object) -> Any:
        raise StoreUnavailable("away")

    def store(submissions: Sequence[Submission]) -> Any:
        try:
            return stored(submissions)
        finally:
            monkeypatch.setattr(place.store, "titles", away)

    place.queue.release.set()
    monkeypatch.setattr(place.queue, "submit_many", store)
    job = asyncio.run(Writing(place.store, place.queue).submit(submission()))
    assert (job.workload_name, job.workload_args) == ("softmax", [8, 16])


def test_imports_keep_nobody_from_writing(place: Place) -> None:
    over = threading.Event()

    async def main() -> str:
        writing = Writing(place.store, place.queue)
        imports = [
            asyncio.create_task(writing.do_long(lambda: over.wait(60))) for _ in range(2 * WRITERS)
        ]
        await asyncio.sleep(0)
        try:
            return await asyncio.wait_for(writing.do(lambda: "cancelled"), 10)
        finally:
            over.set()
            await asyncio.gather(*imports)

    assert asyncio.run(main()) == "cancelled"


def test_whoever_waits_for_a_database_that_is_busy_is_told_at_once(place: Place) -> None:
    """Not one batch after the other, each as late as the writer's patience lasts."""

    async def main() -> list[Any]:
        writing = Writing(place.store, place.queue)
        tasks = [asyncio.create_task(writing.submit(submission())) for _ in range(3 * TOGETHER)]
        place.queue.release.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        holder.execute("ROLLBACK")
        return [*found, await writing.submit(submission())]

    with closing(sqlite3.connect(place.db, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        answers = asyncio.run(main())
    assert {type(a) for a in answers[:-1]} == {StoreUnavailable}
    assert answers[-1].state == "queued"
    assert place.queue.sizes == [TOGETHER, 1]
    assert place.store.count_jobs()["queued"] == 1


def test_without_a_thread_nobody_waits_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> Job:
        writing = Writing(place.store, place.queue)
        with monkeypatch.context() as broken:
            broken.setattr(anyio.to_thread, "run_sync", no_thread)
            with pytest.raises(RuntimeError):
                await writing.submit(submission())
        return await writing.submit(submission())

    place.queue.release.set()
    assert asyncio.run(main()).state == "queued"


def test_the_next_batch_does_not_wait_for_the_event_loop(place: Place) -> None:
    async def main() -> None:
        writing = Writing(place.store, place.queue)
        tasks = [asyncio.create_task(writing.submit(submission())) for _ in range(2 * TOGETHER)]
        while not place.queue.sizes:
            await asyncio.sleep(0.001)
        place.queue.release.set()
        deadline = time.monotonic() + 60
        while place.store.count_jobs()["queued"] < 2 * TOGETHER:  # which blocks it
            assert time.monotonic() < deadline
            time.sleep(0.01)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert place.queue.sizes == [TOGETHER, TOGETHER]
