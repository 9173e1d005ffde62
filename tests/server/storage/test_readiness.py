"""Whether the server can work: a write is tried; a damaged database is told as such. Submissions
that are repeated, and equal ones at once."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from problem_shape import check_problem
from raw_http import JOB
from serving import serving

from records import Job, JobQueue, Store, StoreDamaged, StoreUnavailable, SubmissionKey
from records.queue.fair_share import Scope
from server import state
from server.http.problems import ProblemError, refused
from server.jobs.supervisor import Supervisor
from server.programs.pool import Examiner
from server.programs.worker import WorkloadLimits
from server.settings import Settings
from server.storage import readiness
from server.storage.readiness import Readiness
from server.storage.writing import Writing


def settings(folder: Path, **more: Any) -> Settings:
    return Settings(db=str(folder / "x.db"), jobs_at_once=0, **more)


def test_a_database_that_takes_no_writes_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(settings(tmp_path)) as client:
        assert client.get("/readyz").json()["checks"]["database"] == "writable"

        def full(store: Store) -> None:
            raise StoreUnavailable("no room on its disk")

        monkeypatch.setattr(Store, "try_write", full)
        monkeypatch.setattr(readiness, "TRIED_SECONDS", 0.0)
        problem = check_problem(client.get("/readyz"), 503)
        assert problem["type"].endswith(":unavailable")
        assert client.get("/v1/jobs").status_code == 200  # which only reads


def test_a_database_whose_file_was_moved_away_is_away(tmp_path: Path) -> None:
    """Rows written to the open file would be lost; no process makes a file at its path."""
    with serving(settings(tmp_path)) as client:
        client.get("/readyz").raise_for_status()
        (tmp_path / "x.db").rename(tmp_path / "old.db")
        for answer in (client.get("/readyz"), client.post("/v1/jobs", json=JOB)):
            problem = check_problem(answer, 503)
            assert problem["type"].endswith(":unavailable")
        assert not (tmp_path / "x.db").exists()
        (tmp_path / "old.db").rename(tmp_path / "x.db")
        client.get("/readyz").raise_for_status()
        client.post("/v1/jobs", json=JOB).raise_for_status()


def test_trying_to_write_changes_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        store.try_write()
        store.try_write()
        with store._db.transaction(writes=False) as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM traces").scalar() == 0


def test_a_write_is_tried_once_for_many_who_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may ask, and each write waits for the disk."""
    tried: list[int] = []
    monkeypatch.setattr(Store, "try_write", lambda _: tried.append(1))
    monkeypatch.setattr(readiness, "TRIED_SECONDS", 1000.0)
    with serving(settings(tmp_path)) as client, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: client.get("/readyz").status_code, range(30)))
    assert set(found) == {200}
    assert len(tried) == 1


def test_a_damaged_database_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not "try again"; and no job is taken, whatever part of it is damaged."""
    with serving(settings(tmp_path)) as client:
        job = client.post("/v1/jobs", json=JOB).raise_for_status().json()["id"]

        def torn(store: Store, job_id: str) -> None:
            raise StoreDamaged("x.db: database disk image is malformed")

        monkeypatch.setattr(Store, "job", torn)
        problem = check_problem(client.get(f"/v1/jobs/{job}"), 500)
        assert problem["type"].endswith(":database-damaged")
        assert "x.db" not in problem["detail"]
        monkeypatch.undo()
        for answer in (client.post("/v1/jobs", json=JOB), client.get("/readyz")):
            assert check_problem(answer, 500)["type"].endswith(":database-damaged")
            assert "retry-after" not in answer.headers
        assert len(client.get("/v1/jobs").json()["items"]) == 1


def test_no_job_of_a_damaged_database_is_claimed_cloned_or_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[str] = []
    claim = JobQueue.claim_together

    def counted(queue: JobQueue, owner: str, seconds: float, scope: Scope) -> list[Job]:
        claimed.append(owner)
        return claim(queue, owner, seconds, scope)

    def torn(queue: JobQueue) -> list[Job]:
        raise StoreDamaged("x.db: database disk image is malformed")

    monkeypatch.setattr(JobQueue, "claim_together", counted)
    with Store(tmp_path / "x.db") as store:
        queue = JobQueue(store)
        found = Readiness(store, Writing(store, queue))
        own = Settings(db=str(tmp_path / "x.db"), jobs_at_once=1, poll_seconds=0.01)
        supervisor = Supervisor(store, queue, own, found)
        supervisor._look()
        assert len(claimed) == 1
        found.note(StoreDamaged("x.db: database disk image is malformed"))
        supervisor._look()
        assert len(claimed) == 1
    with serving(settings(tmp_path, poll_seconds=0.02, lease_seconds=0.1)) as client:
        job = client.post("/v1/jobs", json=JOB).raise_for_status().json()["id"]
        client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
        # The supervisor tells the routes of the damage that it has seen.
        monkeypatch.setattr(JobQueue, "reap", torn)
        deadline = time.monotonic() + 60
        while client.get("/readyz").status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for below in ("clone", "resume"):
            problem = check_problem(client.post(f"/v1/jobs/{job}/{below}", json={}), 500)
            assert problem["type"].endswith(":database-damaged")


def test_a_file_that_is_overwritten_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Store(path) as store:
        store.try_write()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xab" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(StoreDamaged), Store(path) as store:
        store.try_write()


# Submissions


def test_a_known_key_is_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing could be examined, resolved or queued now."""
    headers = {"Idempotency-Key": "once"}
    with serving(settings(tmp_path)) as client:
        job = client.post("/v1/jobs", json=JOB, headers=headers).raise_for_status().json()

        async def busy(*_: object) -> None:
            raise refused("rate-limited", "too many", headers={"Retry-After": "1"})

        monkeypatch.setattr(Examiner, "examine", busy)
        monkeypatch.setattr(Examiner, "known", lambda *_: None)
        check_problem(client.post("/v1/jobs", json=JOB), 429)
        again = client.post("/v1/jobs", json=JOB, headers=headers)
        assert (again.status_code, again.json()["id"]) == (201, job["id"])
        other = client.post("/v1/jobs", json=JOB | {"priority": 1}, headers=headers)
        check_problem(other, 409)


def test_a_known_key_is_answered_whatever_a_new_job_would_be_refused_for(tmp_path: Path) -> None:
    """The workload was examined, so that the key is looked up where the job would be stored."""
    headers = {"Idempotency-Key": "once"}
    asked = JOB | {"priority": 1}
    with serving(settings(tmp_path, jobs_queued=1)) as client:
        job = client.post("/v1/jobs", json=asked, headers=headers).raise_for_status().json()
        check_problem(client.post("/v1/jobs", json=asked), 429)
        again = client.post("/v1/jobs", json=asked, headers=headers)
        assert (again.status_code, again.json()["id"]) == (201, job["id"])
        check_problem(client.post("/v1/jobs", json=JOB, headers=headers), 409)


def test_an_examined_submission_waits_for_no_thread_that_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking its key up first took as long as storing it."""
    looked_up: list[SubmissionKey] = []
    plain = JobQueue.submitted

    def noted(queue: JobQueue, key: SubmissionKey) -> Job | None:
        looked_up.append(key)
        return plain(queue, key)

    monkeypatch.setattr(JobQueue, "submitted", noted)
    with serving(settings(tmp_path)) as client:
        for n in range(3):
            headers = {"Idempotency-Key": f"number {n}"}
            client.post("/v1/jobs", json=JOB, headers=headers).raise_for_status()
    assert len(looked_up) == 1


def test_equal_questions_at_once_are_examined_once(tmp_path: Path) -> None:
    """300 equal submissions gave 193 times 429."""
    with serving(settings(tmp_path, jobs_queued_per_client=1000)) as client:

        def submit(_: int) -> httpx.Response:
            return client.post("/v1/jobs", json=JOB)

        with ThreadPoolExecutor(32) as pool:
            found = [a.status_code for a in pool.map(submit, range(150))]
    assert set(found) == {201}


class Slow(Examiner):
    """Answers when it is told to, or refuses the client "bad"."""

    def __init__(self) -> None:
        super().__init__(WorkloadLimits())
        self.asked: list[str] = []
        self.go = asyncio.Event()

    async def ask(self, question: Any, client: str = "") -> dict[str, Any]:
        self.asked.append(client)
        await self.go.wait()
        if client == "bad":
            raise refused("rate-limited", "too many of yours")
        return {"workload": {}, "target": "llvm"}


def test_questions_in_flight_are_shared() -> None:
    async def run() -> None:
        examiner = Slow()
        tasks = [asyncio.create_task(examiner.examine({"a": 1}, f"c{n}")) for n in range(50)]
        other = asyncio.create_task(examiner.examine({"a": 2}, "c0"))
        await asyncio.sleep(0)
        tasks[0].cancel()  # who leaves takes nothing from the others
        examiner.go.set()
        await asyncio.gather(*tasks[1:], other)
        assert len(examiner.asked) == 2
        assert examiner._flying == {}

    asyncio.run(run())


def test_the_bound_of_one_client_is_not_that_of_another() -> None:
    async def run() -> None:
        examiner = Slow()
        bad = asyncio.create_task(examiner.examine({"a": 1}, "bad"))
        await asyncio.sleep(0)
        good = asyncio.create_task(examiner.examine({"a": 1}, "good"))
        await asyncio.sleep(0)
        examiner.go.set()
        with pytest.raises(ProblemError):
            await bad
        assert (await good).target == "llvm"

    asyncio.run(run())


def test_the_examiner_starts_with_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Examiner] = []
    monkeypatch.setattr(Examiner, "start", lambda self: started.append(self))
    with serving(settings(tmp_path), warm=True):
        assert len(started) == 1
    assert state.Examiner is Examiner


def test_a_child_is_ready_before_the_first_question() -> None:
    async def run() -> None:
        examiner = Examiner(WorkloadLimits(seconds=100.0), processes=1)
        examiner.start()
        assert examiner._warming is not None
        await examiner._warming
        (child,) = examiner._idle
        await examiner.examine({"name": "matmul", "args": [4, 4, 4], "target": "llvm"})
        assert examiner._idle == [child]
        await examiner.close()

    asyncio.run(run())
