"""Servers that are killed at any time: nothing acknowledged is lost, nothing is measured twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import kills
import postgres
import pytest
from server_process import ServerProcess, runners_of, submit, wait_for
from sqlalchemy import make_url

from records import JobQueue, Lease, LeaseLost, Store

TRIALS = 40
SLOWER = "replay:model?seconds=0.03"
LASTING = "replay:model?seconds=0.1"
"""A job takes four seconds: whoever asks now and then finds it at work."""


def check_finished(store: Store, job_id: str, trials: int = TRIALS) -> None:
    """The job came to its end with exactly its budget, each place of each round measured once."""
    job = store.job(job_id)
    assert (job.state, job.error, job.trials_done) == ("succeeded", None, trials)
    records = list(store.records(job_id=job_id))
    places = Counter((r.round, r.slot) for r in records)
    assert max(places.values()) == 1
    assert sorted(p for p in places if p[0] >= 0) == [(n // 8, n % 8) for n in range(trials)]
    assert sum(r.kind == "baseline" for r in records) == 2


def uninterrupted(tmp_path: Path) -> list[tuple[int, int, str]]:
    """Place and program of the trials of a job that nobody disturbed."""
    db = str(tmp_path / "whole.db")
    with ServerProcess(tmp_path, db) as server, server.client() as client:
        job = submit(client, TRIALS)
        wait_for(client, job["id"], "succeeded", "failed")
    with Store(db) as store:
        return programs(store, job["id"])


def programs(store: Store, job_id: str) -> list[tuple[int, int, str]]:
    found = ((r.round, r.slot, r.program_hash) for r in store.records(job_id=job_id))
    return sorted(found)


def kill_and_go_on(tmp_path: Path, db: str, kills: int, seed: int) -> list[str]:
    """Kill a server at random instants while its jobs run, until these are done; their ids."""
    luck = random.Random(seed)
    done = 0
    acknowledged: list[str] = []
    with ServerProcess(tmp_path, db, SLOWER, jobs_at_once=1) as server:
        for number in range(kills):
            with server.client() as client:
                job = submit(client, TRIALS, headers={"Idempotency-Key": f"job {number // 4}"})
                acknowledged.append(job["id"])
                time.sleep(luck.uniform(0.0, 4.0))
            server.kill()
            with Store(db) as store:
                seen = sum(store.job(j).trials_done for j in set(acknowledged))
            assert seen >= done
            done = seen
            server.start()
        with server.client() as client:
            for job_id in acknowledged:
                wait_for(client, job_id, "succeeded", "failed", seconds=90)
    with Store(db) as store:
        assert len(set(acknowledged)) == len(store.jobs().jobs) == (kills + 3) // 4
        for job_id in acknowledged:
            check_finished(store, job_id)
    return acknowledged


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, str(tmp_path / "x.db"), kills=1, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_server_is_killed_twenty_times(tmp_path: Path) -> None:
    db = str(tmp_path / "x.db")
    jobs = kill_and_go_on(tmp_path, db, kills=20, seed=2)
    expected = uninterrupted(tmp_path)
    with Store(db) as store:
        for job_id in set(jobs):
            assert programs(store, job_id) == expected


def test_sigterm_parks_the_jobs(tmp_path: Path) -> None:
    db = str(tmp_path / "x.db")
    with ServerProcess(tmp_path, db, LASTING, grace_seconds=50, lease_seconds=60) as server:
        with server.client() as client:
            job = submit(client, TRIALS)
            wait_for(client, job["id"], "running", trials=4)
            with client.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
                lines = stream.iter_lines()
                next(lines)
                server.terminate()
                told = list(lines)  # the stream has ended, and was not cut off
        assert any(line.startswith("event: progress") for line in told)
        with Store(db) as store:
            parked = store.job(job["id"])
            assert (parked.state, parked.lease_owner) == ("queued", None)
            assert parked.trials_done >= 4
        server.start()
        with server.client() as client:
            wait_for(client, job["id"], "succeeded", "failed")
    with Store(db) as store:
        check_finished(store, job["id"])


def test_a_runner_that_outlives_its_lease_is_fenced_off(tmp_path: Path) -> None:
    """It is stopped, not killed; wakes up when another has the job; and writes nothing any more."""
    db = str(tmp_path / "x.db")
    with ServerProcess(tmp_path, db, LASTING, lease_seconds=6.0) as server:
        with server.client() as client:
            job = submit(client, TRIALS)
            wait_for(client, job["id"], "running", trials=4)
        (pid,) = runners_of(job["id"])
        stop_between_writes(pid, db)
        try:
            server.kill()
            server.start()
            with server.client() as client:
                deadline = time.monotonic() + 60
                while _epoch(db, job["id"]) < 2:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                os.kill(pid, signal.SIGCONT)
                wait_for(client, job["id"], "succeeded", "failed")
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while pid in runners_of(job["id"]):
            assert time.monotonic() < deadline, "the old runner is still there"
            time.sleep(0.05)
    with Store(db) as store:
        check_finished(store, job["id"])
        with pytest.raises(LeaseLost):
            JobQueue(store).finish(Lease(job["id"], 1), "failed")


def stop(pid: int) -> None:
    """Stop a process, and wait until it stands: what it is in the middle of, such as taking a
    lock, it still does."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 60
    for thread in Path(f"/proc/{pid}/task").iterdir():
        while (thread / "stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline, f"thread {thread.name} of {pid} does not stop"
            time.sleep(0.001)


def stop_between_writes(pid: int, db: str) -> None:
    """Stop a process at an instant at which it does not hold SQLite's lock."""
    while True:
        stop(pid)
        with closing(sqlite3.connect(db, timeout=0.1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                return
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)


def _epoch(db: str, job_id: str) -> int:
    with Store(db) as store:
        return store.job(job_id).lease_epoch


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_servers_share_a_queue_and_survive_each_other(tmp_path: Path) -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    cluster = postgres.Cluster()
    try:
        db = cluster.database()
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        settings = {"lease_seconds": 8.0, "jobs_at_once": 1}
        with (
            ServerProcess(tmp_path / "a", db, LASTING, **settings) as first,
            ServerProcess(tmp_path / "b", db, LASTING, **settings) as second,
        ):
            with first.client() as client:
                ids = [submit(client, TRIALS, options={"seed": n})["id"] for n in range(3)]
            with second.client() as client:
                for job_id in ids[:2]:
                    wait_for(client, job_id, "running", trials=1)
                with Store(db) as store:
                    owners = {store.job(job_id).lease_owner for job_id in ids[:2]}
                assert len(owners) == 2  # one each
                first.kill()
                for job_id in ids:
                    wait_for(client, job_id, "succeeded", "failed", seconds=90)
        with Store(db) as store:
            for job_id in ids:
                check_finished(store, job_id)
    finally:
        cluster.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_database_that_goes_away_costs_nothing(tmp_path: Path) -> None:
    """Meanwhile requests are answered with 503; then the job's process goes on as it was."""
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    import psycopg

    cluster = postgres.Cluster()
    try:
        db = cluster.database()
        url = make_url(db)
        name, host = url.database, str(url.query["host"])
        with (
            ServerProcess(tmp_path, db, LASTING, lease_seconds=30) as server,
            server.client() as client,
            psycopg.connect(
                host=host, user=cluster.user, dbname="postgres", autocommit=True
            ) as admin,
        ):
            job = submit(client, TRIALS)
            wait_for(client, job["id"], "running", trials=4)
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")  # type: ignore[arg-type]
            try:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                    [name],
                )
                for method, path in (("GET", "/v1/jobs"), ("POST", f"/v1/jobs/{job['id']}/cancel")):
                    answer = client.request(method, path)
                    assert answer.status_code == 503
                    assert int(answer.headers["retry-after"]) > 0
                time.sleep(2.0)
            finally:
                admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")  # type: ignore[arg-type]
            wait_for(client, job["id"], "succeeded", "failed")
        with Store(db) as store:
            check_finished(store, job["id"])
            assert store.job(job["id"]).lease_epoch == 1  # the same process
    finally:
        cluster.stop()


def test_a_runner_that_is_stopped_in_mid_write_holds_up_nobody_for_long(tmp_path: Path) -> None:
    """It holds SQLite's only writer until the supervisor kills it; its job goes on elsewhere."""
    db = str(tmp_path / "x.db")
    with (
        ServerProcess(tmp_path, db, LASTING, lease_seconds=6.0) as server,
        server.client() as client,
    ):
        job = submit(client, TRIALS)
        wait_for(client, job["id"], "running", trials=4)
        (pid,) = runners_of(job["id"])
        stop_in_mid_write(pid, db)
        answers = []
        while not answers or answers[-1].status_code == 503:
            assert len(answers) < 6, "each waits for five seconds"
            body = {"workload": {"name": "matmul", "args": [16, 16, 16]}, "priority": -1}
            answers.append(client.post("/v1/jobs", json=body))
        assert answers[-1].status_code == 201
        assert all("Retry-After" in a.headers and db not in a.text for a in answers[:-1])
        wait_for(client, job["id"], "succeeded", "failed")
        assert pid not in runners_of(job["id"])
    with Store(db) as store:
        check_finished(store, job["id"])


def stop_in_mid_write(pid: int, db: str) -> None:
    """Stop a process at an instant at which it holds SQLite's lock."""
    deadline = time.monotonic() + 60
    while True:
        stop(pid)
        with closing(sqlite3.connect(db, timeout=0.1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return
        os.kill(pid, signal.SIGCONT)
        assert time.monotonic() < deadline, "it was never found writing"
        time.sleep(0.003)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("on", sorted(kills.DATABASES))
def test_whatever_is_killed_nothing_is_lost(tmp_path: Path, on: str) -> None:
    """Server, runner, slot, scheduler and database; `kills.py` by itself does 200 of them."""
    if on == "postgresql" and (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    done, _ = kills.run(tmp_path, kills=10, seed=1, on=on)
    assert done == dict.fromkeys(kills.VICTIMS, 2)
