"""Parts of the service by themselves."""

from __future__ import annotations

import re
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from autosched.tuning import SearchTask
from measure.cluster.registry import DeviceStatus, State
from measure.devices import Device, this_device
from records import Job, JobQueue, Lease, Store, StoreUnavailable
from records.queue.submissions import Submission
from server import subprocesses
from server.jobs.answers import shown
from server.jobs.assignment import Assignment
from server.jobs.heartbeat import Heartbeat
from server.jobs.lease_writer import LeaseWriter
from server.jobs.shutdown import UNAVAILABLE, Exit, Why
from server.jobs.supervisor import Running, Supervisor, error_of
from server.pools.workers import Workers
from server.routes.jobs import thinned
from server.settings import Settings
from server.storage.readiness import Readiness
from server.storage.writing import Writing


def test_a_curve_is_thinned_evenly_and_keeps_its_ends() -> None:
    assert thinned([1, 2, 3], 3) == [1, 2, 3]
    assert thinned(list(range(101)), 3) == [0, 50, 100]
    for count in (10, 11, 99, 1000):
        few = thinned(list(range(count)), 7)
        assert (few[0], few[-1], len(few)) == (0, count - 1, 7)
        assert few == sorted(set(few))


@dataclass
class Leaving:
    """Notes why it was asked to leave."""

    asked_for: list[Why] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.told = threading.Event()

    @property
    def asked(self) -> bool:
        return self.told.is_set()

    def ask(self, why: Why) -> None:
        self.asked_for.append(why)
        self.told.set()


@dataclass
class Work:
    """A claimed job with its heartbeat, which is not started."""

    store: Store
    queue: JobQueue
    job: Job
    leaving: Leaving = field(default_factory=Leaving)

    def __post_init__(self) -> None:
        self.lease = Lease(self.job.id, self.job.lease_epoch)
        self.heartbeat = Heartbeat(
            self.store, self.queue, self.lease, 30.0, cast(Exit, self.leaving), lambda: None
        )
        self.writer = LeaseWriter(self.store, self.lease, self.heartbeat)


@pytest.fixture
def work(tmp_path: Path) -> Any:
    with Store(tmp_path / "x.db") as store:
        queue = JobQueue(store)
        task = SearchTask("softmax", (8, 16))
        queue.submit(Submission(workload=task.workload, target="llvm", seed=0, trials_requested=8))
        job = queue.claim("test", 30.0)
        assert job is not None
        yield Work(store, queue, job)


def beat(work: Work) -> list[Why]:
    """Let the heart beat until somebody is asked to leave."""
    work.heartbeat.start()
    assert work.leaving.told.wait(60.0)
    work.heartbeat.stop()
    return work.leaving.asked_for


def test_what_is_left_of_the_time_is_told_after_a_round(tmp_path: Path) -> None:
    """Before it the time went into preparing: one trial of 3,000 promised 15 hours."""
    with Store(tmp_path / "x.db") as store:
        workload = SearchTask("matmul", (8, 8, 8)).workload
        job = store.create_job(
            workload, "llvm", seed=0, trials_requested=64, options={"round_size": 8}
        )
        job = replace(job, phase="searching", run_seconds=10.0)

        def left(trials: int) -> float | None:
            return shown(store, [replace(job, trials_done=trials)])[0].eta_seconds

        assert [left(n) for n in (0, 1, 7, 16)] == [None, None, None, 30.0]


def test_a_heart_that_beats_keeps_the_lease(work: Work) -> None:
    before = work.store.job(work.job.id).lease_until
    work.heartbeat.note([{"id": 1}], trials_done=1)
    work.heartbeat.start()
    deadline = time.monotonic() + 60.0
    while work.store.job(work.job.id).lease_until == before:
        assert time.monotonic() < deadline, "the lease is not renewed"
        time.sleep(0.01)
    work.heartbeat.stop()
    assert work.leaving.asked_for == []
    after = work.store.job(work.job.id).lease_until
    assert before is not None
    assert after is not None
    assert after > before
    told = [e.data for e in work.store.events(work.job.id, kind="progress")]
    (said,) = told
    assert (said["trials_done"], said["records"]) == (1, [{"id": 1}])
    assert said["best_seconds"] is None


def test_a_cancelled_job_is_left(work: Work) -> None:
    work.queue.cancel(work.job.id)
    assert beat(work) == [Why.CANCELLED]


def test_a_job_of_somebody_else_is_left(work: Work) -> None:
    work.queue.park(work.lease)
    work.queue.claim("another", 30.0)
    assert beat(work) == [Why.LOST]


def test_writing_waits_for_the_database_as_long_as_the_lease_lasts(work: Work) -> None:
    failures = iter([True, True, False])

    def write() -> str:
        if next(failures):
            raise StoreUnavailable("away")
        return "written"

    assert work.writer.patiently(write) == "written"
    work.heartbeat.lease_ends = time.monotonic()
    failures = iter([True])
    with pytest.raises(StoreUnavailable):
        work.writer.patiently(write)


def test_the_time_of_earlier_runs_is_told_by_the_states(work: Work) -> None:
    first = work.writer.before()
    assert first.seconds == first.of_this_run  # since the claim, by the database's clock
    time.sleep(0.05)  # the database's clock may tell it by whole milliseconds
    assert work.writer.before().seconds >= first.seconds + 0.045
    work.queue.park(work.lease)
    spent = work.writer.before()
    assert (spent.seconds >= 0.045, spent.of_this_run) == (True, 0.0)
    time.sleep(0.05)
    assert work.writer.before() == spent  # waiting costs nothing
    work.queue.claim("another", 30.0)
    again = work.writer.before()
    assert again.seconds - again.of_this_run == pytest.approx(spent.seconds)
    work.queue.finish(Lease(work.job.id, 2), "cancelled")
    assert work.writer.before().seconds > spent.seconds
    assert work.writer.before().trials == 0
    paused = work.writer.before()
    work.queue.resume(work.job.id)
    work.queue.pause(work.job.id)
    work.queue.resume(work.job.id)  # of a pause: no budget begins anew, where there was one
    assert paused.seconds > 0
    assert work.writer.before() == (0.0, 0.0, 0)
    work.queue.claim("a third", 30.0)
    time.sleep(0.05)
    work.queue.pause(work.job.id)
    work.queue.park(Lease(work.job.id, 3))
    kept = work.writer.before()
    assert (kept.seconds >= 0.045, kept.of_this_run) == (True, 0.0)
    work.queue.resume(work.job.id)
    assert work.writer.before() == kept
    work.queue.cancel(work.job.id)
    work.queue.resume(work.job.id)
    assert work.writer.before() == (0.0, 0.0, 0)


def test_the_devices_of_a_cluster_are_its_own() -> None:
    target = "llvm -mcpu=znver5 -mtriple=x86_64-unknown-linux-gnu -num-cores=8"
    workers = Workers(Settings(pool="tcp://127.0.0.1:1"))  # never started
    device = Device("made up", "x86_64", 8, (), "none")
    workers.pools[0]._listing = (
        DeviceStatus("a", "cpu", "tcp://a", State.GONE, 0.0, why="connection lost"),
        DeviceStatus("b", "cpu", "tcp://b", State.BUSY, 0.0, device.fingerprint, device, target),
    )
    gone, busy = workers.items({device.fingerprint: ["job"]})
    assert (gone.healthy, gone.state, gone.jobs) == (False, "gone", [])
    assert "lost" in gone.description
    assert (busy.healthy, busy.target, busy.jobs) == (True, target, ["job"])


def test_a_made_up_device_is_not_this_machine() -> None:
    (worker,) = Workers(Settings(pool="replay:model")).items({})
    assert (worker.state, worker.slots, worker.healthy) == ("ready", 4, True)
    assert worker.device != this_device().fingerprint


def test_jobs_whose_time_is_over_are_removed_by_the_server(work: Work, tmp_path: Path) -> None:
    work.queue.finish(work.lease, "succeeded")
    readiness = Readiness(work.store, Writing(work.store, work.queue))
    for days, there in ((None, 1), (30.0, 1), (1e-9, 0)):
        settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, keep_jobs_days=days)
        time.sleep(0.005)  # longer than the last of these, by a clock that counts milliseconds
        Supervisor(work.store, work.queue, settings, readiness)._look()
        assert len(work.store.jobs().jobs) == there


def test_a_process_that_leaves_when_its_job_goes_on_is_not_forgotten(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is resumed as soon as it has ended has another process before the first is gone:
    both are ended with the supervisor, and their files closed."""
    started: list[Running] = []
    start = Running.start
    lingering = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(subprocesses, "command", lambda *_: lingering)
    monkeypatch.setattr(
        Running, "start", lambda assignment: started.append(start(assignment)) or started[-1]
    )
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=2, poll_seconds=0.01)
    readiness = Readiness(work.store, Writing(work.store, work.queue))
    supervisor = Supervisor(work.store, work.queue, settings, readiness)
    work.queue.park(work.lease)
    supervisor.start()
    try:
        for runs in (1, 2):
            deadline = time.monotonic() + 60
            while len(supervisor.running) < runs:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            if runs == 1:
                work.queue.finish(started[0].assignment.lease, "succeeded")
                work.queue.resume(work.job.id)
        assert supervisor.running == [work.job.id] * 2
    finally:
        supervisor.stop()
    assert supervisor.running == []
    assert [(r.process.returncode is not None, r.errors.closed) for r in started] == [
        (True, True)
    ] * 2
    assert work.store.job(work.job.id).state == "queued"


@pytest.mark.parametrize("address", ["postgresql://nobody@/none?host={}", "{}/no.db", "{}/e.db"])
def test_a_runner_that_finds_no_database_leaves_its_job_to_others(
    address: str, tmp_path: Path
) -> None:
    """As while the database is started again: the job has not failed for that, and nothing is made
    where the file of the database was."""
    (tmp_path / "e.db").touch()
    assignment = Assignment(
        db=address.format(tmp_path), pool="replay:model", worker="here",
        job_id="1" * 32, epoch=1, lease_seconds=5.0, build_seconds=5.0, prepare_seconds=60.0,
        prepare_bytes=1 << 30, device_seconds=None,
    )  # fmt: skip
    running = Running.start(assignment)
    try:
        deadline = time.monotonic() + 120
        while (status := running.ended()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert status == UNAVAILABLE, running.last_words()
        assert re.search("cannot be used now|the file is empty", running.last_words())
        assert [p.name for p in tmp_path.iterdir()] == ["e.db"]
    finally:
        running.kill()
        running.close()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "it ended"),
        ("Fatal Python error: Aborted\nmore", "it ended:\nFatal Python error: Aborted\nmore"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'", "it ended: KeyError: 'a'"),
    ],
)
def test_an_error_of_a_job_has_no_traceback(words: str, error: str) -> None:
    assert error_of("it ended", words) == error
