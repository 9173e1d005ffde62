"""Workers: what is known of them, and draining them by the API, the command line and the page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from problem_shape import check_problem
from server_process import submit, wait_for
from serving import serving

from autosched import extras
from autosched.cli.main import main
from autosched.errors import MeasureError, MissingPackage
from autosched.target import Target
from autosched.tuning.pools import pool_from
from measure.cluster.registry import DeviceStatus, State
from measure.pool import Pool
from records import Store
from records.operations.tokens import Tokens
from records.operations.workers import Activity, WorkerLog
from server.jobs import pool_watch
from server.jobs.pool_watch import PoolWatch, of_cluster, of_one
from server.pools import pool_workers
from server.pools.plan import PoolPlan
from server.settings import Settings


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    """A client of a server with a made-up device that takes its time."""
    settings = Settings(
        db=str(tmp_path / "x.db"),
        pool="replay:model?seconds=0.02",
        poll_seconds=0.05,
        examine_processes=1,
    )
    with serving(settings) as client:
        yield client


def worker(client: httpx.Client) -> dict[str, object]:
    (found,) = client.get("/v1/workers").raise_for_status().json()["items"]
    return dict(found)


def change(client: httpx.Client, how: str, *names: object) -> httpx.Response:
    return client.post(f"/v1/workers/{how}", json={"names": list(names)})


def test_a_drained_worker_parks_its_job_and_an_admitted_one_ends_it(client: httpx.Client) -> None:
    job = submit(client, 600)["id"]
    wait_for(client, job, "running", trials=8)
    name = worker(client)["name"]
    (told,) = change(client, "drain", name).raise_for_status().json()["items"]
    assert (told["drained"], told["state"] in ("draining", "drained")) == (True, True)
    parked = wait_for(client, job, "queued")
    assert 8 <= parked["trials_done"] < 600
    time.sleep(0.3)  # several looks at the queue
    assert client.get(f"/v1/jobs/{job}").json()["state"] == "queued"
    assert worker(client)["state"] == "drained"
    found = worker(client)
    assert found["trials_per_second"] > 0  # type: ignore[operator]
    assert len(found["faults_by_hour"]) == 24  # type: ignore[arg-type]
    change(client, "admit", name).raise_for_status()
    wait_for(client, job, "running", trials=parked["trials_done"] + 1)
    client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
    assert wait_for(client, job, "cancelled")["error"] is None


def test_the_command_line_and_the_page(
    client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ["--server", str(client.base_url)]
    name = str(worker(client)["name"])
    assert main(["workers", "list", *server]) == 0
    assert f"{name} of pool default: ready, load 0.00" in capsys.readouterr().out
    assert main(["workers", "drain", name, *server]) == 0
    assert f"{name} of pool default: drained" in capsys.readouterr().out
    page = client.get("/workers", headers={"Accept": "text/html"}).text
    assert "state-drained" in page
    assert ">Admit<" in page
    done = client.post("/workers", data={"name": name, "action": "admit"})
    assert (done.status_code, done.headers["location"]) == (303, "/workers")
    assert worker(client)["drained"] is False
    assert main(["workers", "admit", "nobody", *server]) == 1
    assert "no worker 'nobody'" in capsys.readouterr().err
    assert client.post("/workers", data={"name": name, "action": "break"}).status_code == 422


def test_draining_is_for_admins(tmp_path: Path) -> None:
    db = str(tmp_path / "x.db")
    with Store(db) as store:
        text, _ = Tokens(store).create("ann", "submit", 60)
    settings = Settings(db=db, pool="replay:model", require_tokens=True, jobs_at_once=0)
    with serving(settings) as client:
        client.headers["Authorization"] = f"Bearer {text}"
        name = worker(client)["name"]
        for how in ("drain", "admit"):
            check_problem(change(client, how, name), 403, "forbidden")
        assert client.post("/workers", data={"name": name, "action": "drain"}).status_code == 403
        page = client.get("/workers", headers={"Accept": "text/html"}).text
        assert ">Drain<" not in page


class Cluster:
    """A pool whose listing is what a test says."""

    def __init__(self) -> None:
        self.listing = [DeviceStatus("a", "l", "x", State.READY, 0.0)]
        self.drained: set[str] = set()

    def snapshot(self) -> tuple[DeviceStatus, ...]:
        return tuple(self.listing)

    def drain(self, names: frozenset[str]) -> None:
        self.drained = set(names)


def test_a_jobs_process_tells_of_workers_once_and_learns_who_is_drained(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        log, cluster = WorkerLog(store), Cluster()
        watch = PoolWatch(log, of_cluster(cluster), cluster)  # type: ignore[arg-type]
        log.drain(["a"], "ann")
        watch.tick()
        assert cluster.drained == {"a"}
        device = cluster.listing[0]
        device.trials, device.busy_seconds, device.faults = 5, 2.0, 1
        watch.report()
        watch.report()
        device.trials = 8
        watch.report()
        past = log.past()
        assert sum(past["a"].faults) == 1
        assert past["a"].trials_per_second * 300 >= 6.6  # 8 trials in five to six minutes
        done = [3, 0]
        one = PoolWatch(log, of_one("here", lambda: (done[0], done[1])), None)
        one.tick()
        assert "here" not in log.past(), "not before it is time"
        one.report()
        assert log.past()["here"].trials_per_second > 0
        assert Activity() == (0, 0.0, 0)


def test_a_scheduler_that_is_away_for_a_moment_fails_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it is while it is started again; on a pool without one nothing is tried again."""
    monkeypatch.setattr(pool_watch, "AGAIN_SECONDS", 0.001)
    asked: list[int] = []

    def make() -> object:
        asked.append(1)
        if len(asked) < 3:
            raise MeasureError("cannot reach a scheduler")
        return "the pool"

    assert pool_watch.patiently(make, "tcp://127.0.0.1:1") == "the pool"  # type: ignore[arg-type]
    asked.clear()
    with pytest.raises(MeasureError):
        pool_watch.patiently(make, "local")  # type: ignore[arg-type]
    monkeypatch.setattr(pool_watch, "SCHEDULER_SECONDS", 0.0)
    asked.clear()
    with pytest.raises(MeasureError):
        pool_watch.patiently(make, "tls://127.0.0.1:1")  # type: ignore[arg-type]


def test_a_package_that_a_pool_lacks_is_said_and_ends_no_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job of the pool fails at once: no waiting installs a package."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr(pool_workers, "RETRY_SECONDS", 0.001)
    address, advice = "tcp://127.0.0.1:1", "pip install 'autosched[cluster]'"
    asked: list[int] = []

    def make() -> Pool:
        asked.append(1)
        return pool_from(address, Target("llvm"))

    with pytest.raises(MissingPackage) as raised:
        pool_watch.patiently(make, address)
    assert len(asked) == 1
    assert advice in str(raised.value)
    pool = pool_workers.PoolWorkers(PoolPlan("far", address, (), 1))
    pool.start()
    try:
        end = time.monotonic() + 20
        while caplog.text.count(advice) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        assert caplog.text.count(advice) >= 3
        assert pool.items({}) == []
    finally:
        pool.stop()
