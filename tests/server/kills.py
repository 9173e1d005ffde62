"""Kills with signal 9, one after the other and mixed: server, runner, slot, scheduler, database.

    python tests/server/kills.py [--on postgresql | sqlite] [--kills 200] [--seed 0]
        [--seconds 900]

A service, whose pool is a cluster of two slots, has three jobs to work on at any time. Whatever is
killed is restarted unless its supervisor does that. In the end: every job that was acknowledged is
there, once, has succeeded with exactly its trials, each place of each round measured once, and none
failed on the way. `test_server_restarts.py` runs some of them.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "measure"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "records"))

import httpx
import postgres
from cluster_processes import Cluster, Process, slot_processes
from server_process import ServerProcess, runners_of

from records import Store
from records.types import ENDED, STATE

VICTIMS = ("server", "runner", "slot", "scheduler", "database")
TRIALS = 48
AT_WORK = 3
SETTINGS = {"lease_seconds": 15, "jobs_at_once": 2, "retry_seconds": 0.2, "retries": 100}
"""On a busy machine a job's process takes longer to its first trial than until the next kill."""
END_SECONDS = 300.0


class PostgreSQL:
    """A database server of our own, all of whose processes end with the one that is killed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        # PostgreSQL may run as another user, who does not get into the folder of a test.
        self._data = Path(tempfile.gettempdir()) / f"pg-kills-{uuid.uuid4().hex[:8]}"
        stack.callback(shutil.rmtree, self._data, ignore_errors=True)
        self._cluster = postgres.Cluster(durable=True, folder=self._data)
        stack.callback(lambda: self._cluster.stop())
        self.url = self._cluster.database("kills")

    def kill(self, site: Site) -> None:
        """Kill it, and start it again on what is on the disk."""
        os.kill(self._cluster.pid, signal.SIGKILL)
        self._cluster._server.wait()
        deadline = time.monotonic() + 60
        while True:
            try:
                self._cluster = postgres.Cluster(durable=True, folder=self._data)
                return
            except AssertionError:  # what it had started is not all gone yet
                assert time.monotonic() < deadline
                time.sleep(0.2)


class SQLite:
    """A file, without a process of its own: those that have it open are killed together, one of
    them in mid-write, so that the next process to open it finds an unfinished log."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.url = str(folder / "kills.db")

    def kill(self, site: Site) -> None:
        """Kill a writer in its transaction, and at the same instant the server and the jobs'
        processes; start the server again."""
        command = [sys.executable, "-c", _MID_WRITE, self.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            assert site.server.process is not None
            for pid in (site.server.process.pid, writer.pid, *site.runners()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        site.server.kill()
        site.server.start()


# Whose pages go into the log before the commit that never comes.
_MID_WRITE = """
import sqlite3, sys, time
c = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
c.execute("PRAGMA cache_size = 1")
c.execute("BEGIN IMMEDIATE")
c.execute("UPDATE jobs SET trials_done = -1, state = 'failed', error = 'not committed'")
c.execute("UPDATE records SET status = 'stale'")
c.execute("DELETE FROM events")
print("writing", flush=True)
time.sleep(3600)
"""
DATABASES: dict[str, type[PostgreSQL | SQLite]] = {"postgresql": PostgreSQL, "sqlite": SQLite}


class Site:
    """The service on a database, and what it is made of."""

    def __init__(self, folder: Path, stack: ExitStack, on: str) -> None:
        self.database = DATABASES[on](folder, stack)
        self.url = self.database.url
        name = f"kills-{uuid.uuid4().hex[:8]}"
        self.cluster = stack.enter_context(Cluster())
        self.worker: Process = self.cluster.work("kills", "paced_engine", 2, name=name)
        pool = f"{self.cluster.address}?label=kills"
        self.server = stack.enter_context(
            ServerProcess(folder, self.url, pool, **SETTINGS)  # type: ignore[arg-type]
        )
        self.keys: dict[str, str] = {}
        """Key of a submission -> the id that it was acknowledged with."""
        self.open: set[str] = set()
        self.refused = 0

    def submit(self, client: httpx.Client) -> None:
        """Have AT_WORK jobs that have not ended; one is submitted twice under its key. What is not
        acknowledged is submitted again the next time."""
        self.open = {j for j in self.open if _state(client, j) not in ENDED}
        while len(self.open) < AT_WORK:
            key = f"job {len(self.keys)}"
            options = {"num_measure_trials": TRIALS, "num_measures_per_round": 8}
            options["seed"] = len(self.keys)
            body = {"workload": {"name": "matmul", "args": [32, 32, 32]}, "options": options}
            for _ in range(2):
                answer = _ask(
                    client, "POST", "/v1/jobs", json=body, headers={"Idempotency-Key": key}
                )
                if answer is None or answer.status_code != 201:
                    assert answer is None or answer.status_code == 503, answer.text
                    self.refused += 1
                    return
                job_id = answer.json()["id"]
                assert self.keys.setdefault(key, job_id) == job_id, "two jobs of one key"
            self.open.add(job_id)

    def kill(self, victim: str) -> bool:
        """Kill one of these, and start it again if nobody else does; False if there was none."""
        if victim == "server":
            self.server.kill()
            self.server.start()
        elif victim == "scheduler":
            self.cluster.restart_scheduler()
        elif victim == "database":
            self.database.kill(self)
        else:
            pids = slot_processes(self.worker) if victim == "slot" else self.runners()
            if not pids:
                return False
            os.kill(random.choice(pids), signal.SIGKILL)
        return True

    def runners(self) -> list[int]:
        """The processes of the jobs that have not ended."""
        return [pid for job_id in self.open for pid in runners_of(job_id)]

    def finish(self) -> None:
        """Wait until all jobs have ended."""
        deadline = time.monotonic() + END_SECONDS
        with self.server.client() as client:
            waiting = set(self.keys.values())
            while waiting := {j for j in waiting if _state(client, j) not in ENDED}:
                assert time.monotonic() < deadline, f"not ended: {waiting}"
                time.sleep(0.5)

    def check(self) -> Counter[str]:
        """Nothing acknowledged is lost, every budget exact, no job failed; how often each reason
        stands in the events of states."""
        reasons: Counter[str] = Counter()
        with Store(self.url) as store:
            stored = list(_jobs(store))
            assert len(stored) - len(self.keys) in (0, 1), "jobs that nobody asked for"
            assert set(self.keys.values()) <= {job.id for job in stored}, "a job is lost"
            for job_id in self.keys.values():
                job = store.job(job_id)
                assert (job.state, job.trials_done, job.error) == ("succeeded", TRIALS, None), job
                records = list(store.records(job_id=job_id))
                places = Counter((r.round, r.slot) for r in records)
                assert max(places.values()) == 1, "measured twice"
                trials = sorted(p for p in places if p[0] >= 0)
                assert trials == [(n // 8, n % 8) for n in range(TRIALS)], "not its budget"
                assert {r.status for r in records} == {"ok"}, "a kill counts as a failure"
                after = 0
                while events := store.events(job_id, kind=STATE, after_id=after):
                    assert all(e.data["state"] != "failed" for e in events)
                    reasons.update(str(e.data["reason"]) for e in events)
                    after = events[-1].id
        return reasons


def _state(client: httpx.Client, job_id: str) -> str:
    """The state of a job; of one that cannot be asked for now, the one it had."""
    answer = _ask(client, "GET", f"/v1/jobs/{job_id}")
    if answer is None or answer.status_code == 503:
        return "unknown"
    return str(answer.raise_for_status().json()["state"])


def _ask(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response | None:
    """An answer; None where the connection broke, as one that rested does while it is used: a
    server that is gone for good is noticed by the deadlines."""
    try:
        return client.request(method, path, **more)
    except httpx.TransportError:
        return None


def _jobs(store: Store) -> Iterator[Any]:
    page = store.jobs(limit=500)
    while True:
        yield from page.jobs
        if page.before is None:
            return
        page = store.jobs(limit=500, before=page.before)


@contextmanager
def site(folder: Path, on: str) -> Iterator[Site]:
    """A service that is at work while the block runs."""
    with ExitStack() as stack:
        yield Site(folder, stack, on)


def run(
    folder: Path,
    kills: int,
    seed: int,
    pause: float = 1.0,
    on: str = "postgresql",
    seconds: float = math.inf,
) -> tuple[Counter[str], Site]:
    """So many kills, of each kind as many, but none after so many seconds; how many of each were
    done, and the site as it was.

    Raises AssertionError for anything that is lost, inexact or failed."""
    luck = random.Random(seed)
    random.seed(seed)
    order = [VICTIMS[n % len(VICTIMS)] for n in range(kills)]
    luck.shuffle(order)
    done: Counter[str] = Counter()
    with site(folder, on) as found:
        end = time.monotonic() + seconds
        for number, victim in enumerate(order, 1):
            if time.monotonic() > end:
                break
            with found.server.client() as client:
                found.submit(client)
            time.sleep(luck.uniform(0.0, pause))
            deadline = time.monotonic() + 60
            while not found.kill(victim):  # a job's process is not there yet
                assert time.monotonic() < deadline, f"no {victim} to be killed"
                with found.server.client() as client:
                    found.submit(client)
                time.sleep(0.1)
            done[victim] += 1
            print(f"{number}/{kills} {victim}", flush=True)
        found.finish()
        reasons = found.check()
    print(f"{len(found.keys)} jobs of {TRIALS} trials, {found.refused} answers of 503; ", end="")
    print(", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items())), flush=True)
    return done, found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=sorted(DATABASES), default="postgresql")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no kill after these")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done, _ = run(
            Path(folder), options.kills, options.seed, on=options.on, seconds=options.seconds
        )
    kinds = ", ".join(f"{n} {victim}" for victim, n in sorted(done.items()))
    print(f"{sum(done.values())} kills ({kinds}) in {time.monotonic() - began:.0f} s: nothing lost")


if __name__ == "__main__":
    main()
