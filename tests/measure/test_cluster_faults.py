"""What happens to devices, schedulers and networks: each ends in results, and the pool goes on."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_doubles import DEVICE, OTHER, candidates, seconds_of, vector_add
from cluster_processes import QUICK, Cluster, slot_processes, wait_ready
from distributed import Client

from autosched.errors import MeasureError
from measure.cluster.dask_transport import run_batch
from measure.cluster.pool import ClusterPool
from measure.cluster.registry import DeviceStatus, State
from measure.cluster.settings import STOP
from measure.status import MeasureResult, Status

FUNC = vector_add()
MALFORMED = r"left\n(.*\n)*.*malformed: {} of a result's times is"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Every test has a label of its own in it."""
    with Cluster() as made:
        yield made


def of_label(pool: ClusterPool, label: str) -> list[DeviceStatus]:
    """Devices of a label."""
    return [d for d in pool.devices() if d.label == label]


class Disturbed:
    """Does something once, when the `count`-th result of a call has come."""

    def __init__(self, count: int, act: object) -> None:
        self.count, self.act = count, act
        self.told: list[int] = []

    def __call__(self, found: Sequence[tuple[int, MeasureResult]]) -> None:
        places = [place for place, _ in found]
        assert not set(places) & set(self.told)
        self.told += places
        if len(self.told) >= self.count and self.act is not None:
            assert callable(self.act)
            act, self.act = self.act, None
            act()


def test_cluster_workers_killed_in_the_middle_lose_nothing(cluster: Cluster) -> None:
    with cluster.work("kill", "paced_engine", 2) as worker, cluster.pool("kill") as pool:
        job = pool.open_job(FUNC)
        wait_ready(pool, 2)
        victims = slot_processes(worker)

        def kill() -> None:
            time.sleep(0.06)  # into the next batches of 8 times 20 ms
            for pid in victims:
                os.kill(pid, signal.SIGKILL)

        disturbed = Disturbed(20, kill)
        results = pool.measure(job, candidates(FUNC, 100), None, disturbed)
        assert {r.status for r in results} == {Status.OK}
        assert sorted(disturbed.told) == list(range(100))
        assert pool.counters["repeats"] <= 2 * QUICK.batch_items
        assert max(r.retries for r in results) <= 1
        worker.wait_for("(SIGKILL), to be started again", 2)
        wait_ready(pool, 2)
        assert not set(victims) & set(slot_processes(worker))
        assert {d.faults for d in of_label(pool, "kill")} <= {0, 1}


@pytest.mark.long
def test_cluster_silent_worker_is_given_up_and_comes_back(cluster: Cluster) -> None:
    with cluster.work("stop", "paced_engine", slots=2) as worker, cluster.pool("stop") as pool:
        job = pool.open_job(FUNC)
        wait_ready(pool, 2)
        victim = slot_processes(worker)[0]
        disturbed = Disturbed(10, lambda: os.kill(victim, signal.SIGSTOP))
        results = pool.measure(job, candidates(FUNC, 60), None, disturbed)
        assert {r.status for r in results} == {Status.OK}
        assert pool.counters["repeats"] <= QUICK.batch_items
        # It may have been stopped after its last answer: then it is missed a little later.
        end = time.monotonic() + 60
        while not (silent := [d for d in of_label(pool, "stop") if d.faults]):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert len(silent) == 1
        assert "silent for" in silent[0].why
        os.kill(victim, signal.SIGCONT)
        wait_ready(pool, 2)
        results = pool.measure(job, candidates(FUNC, 10))
        assert {r.status for r in results} == {Status.OK}


@pytest.mark.long
@pytest.mark.timeout(400)
def test_cluster_one_of_four_workers_killed_again_and_again(cluster: Cluster) -> None:
    """One every 5 seconds for two minutes: nothing is lost, and at most the batch that it had is
    measured once more."""
    every, kills, rng = 5.0, 24, random.Random(0)
    traces = candidates(FUNC, 64) * 4
    expected = [seconds_of(t.apply(FUNC).func) for t in traces]
    with cluster.work("kills", "paced_engine", 4) as worker, cluster.pool("kills") as pool:
        job = pool.open_job(FUNC)
        wait_ready(pool, 4)
        over = threading.Event()
        killed: list[int] = []

        def kill() -> None:
            while len(killed) < kills and not over.wait(every):
                if victims := slot_processes(worker):
                    killed.append(rng.choice(victims))
                    os.kill(killed[-1], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            while killer.is_alive():
                before, dead = pool.counters["repeats"], len(killed)
                told = Disturbed(0, None)
                results = pool.measure(job, traces, None, told)
                assert [r.seconds for r in results] == expected
                assert sorted(told.told) == list(range(len(traces)))
                # One that died at the end of the call before may be missed in this one.
                deaths = len(killed) - dead + 1
                assert pool.counters["repeats"] - before <= deaths * QUICK.batch_items
        finally:
            over.set()
            killer.join()
        assert len(killed) == kills
        assert pool.counters["repeats"] <= kills * QUICK.batch_items
        wait_ready(pool, 4)


@pytest.mark.long
def test_cluster_worker_that_wakes_after_its_batch_was_given_away(cluster: Cluster) -> None:
    patience = replace(QUICK, silence=2.5)
    traces = candidates(FUNC, 40)
    with (
        cluster.work("wakes", "slow_engine", slots=2) as worker,
        cluster.pool("wakes", patience) as pool,
    ):
        job = pool.open_job(FUNC)
        wait_ready(pool, 2)
        victim = slot_processes(worker)[0]

        def wake() -> None:
            end = time.monotonic() + 60
            while not pool.counters["repeats"] and time.monotonic() < end:
                time.sleep(0.01)
            os.kill(victim, signal.SIGCONT)

        waker = threading.Thread(target=wake)
        waker.start()
        disturbed = Disturbed(3, lambda: os.kill(victim, signal.SIGSTOP))
        results = pool.measure(job, traces, None, disturbed)
        waker.join()
        assert [r.seconds for r in results] == [seconds_of(t.apply(FUNC).func) for t in traces]
        assert sorted(disturbed.told) == list(range(40))
        assert 0 < pool.counters["repeats"] <= QUICK.batch_items
        # What it had in work it answers late, or it hears before that nobody waits for it any more.
        wait_ready(pool, 2)
        again = pool.measure(job, traces[:10])
        assert [r.seconds for r in again] == [r.seconds for r in results[:10]]


@pytest.mark.long
def test_cluster_device_that_joins_in_the_middle_gets_work(cluster: Cluster) -> None:
    with cluster.work("join", "slow_engine"), cluster.pool("join") as pool:
        job = pool.open_job(FUNC)

        def join() -> None:
            cluster.work("join", "slow_engine", slots=2, wait=False, name="there")

        results = pool.measure(job, candidates(FUNC, 80), None, Disturbed(1, join))
        assert {r.status for r in results} == {Status.OK}
        assert sum(d.seconds_each is not None for d in of_label(pool, "join")) == 3


def test_cluster_word_that_a_batch_is_unwanted_reaches_who_is_there(cluster: Cluster) -> None:
    with cluster.work("word", "quick_engine"), cluster.pool("word") as pool:
        pool.open_job(FUNC)
        (device,) = of_label(pool, "word")
        with Client(cluster.address, set_as_default=False) as client:
            told = {"msg": {"op": STOP, "batch": "any"}, "on_error": "ignore"}
            there, gone = device.address, "tcp://127.0.0.1:9"
            found = client.sync(client.scheduler.broadcast, workers=[there, gone], **told)
            assert found == {there: "OK"}

            def messages(batch: str) -> int:
                request = {"key": batch, "batch": 0, "kind": "check"}
                where = {"workers": [there], "resources": {"word": 1}, "pure": False}
                client.submit(run_batch, batch, request, **where).result(60)
                return len(client.get_events(batch))

            assert messages("any") == 0
            assert messages("other") > 0


@pytest.mark.long
def test_cluster_slot_is_served_by_one_worker_only(cluster: Cluster) -> None:
    with cluster.work("claim", "quick_engine") as first:
        second = cluster.work("claim", "quick_engine", slots=2, wait=False)
        second.wait_for("claim@")
        line = second.wait_for("has a worker already")
        assert f"process {slot_processes(first)[0]}" in line
        assert second.popen.wait(60) == 1
        assert second.wait_for("autosched worker: claim@").endswith("cannot be served; see above")
        second.end()
        assert first.popen.poll() is None


@pytest.mark.long
def test_cluster_slot_that_is_killed_leaves_no_folder(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with cluster.work("tidy", "quick_engine") as worker:
        (before,) = tmp_path.glob("autosched-measure-*")
        os.kill(slot_processes(worker)[0], signal.SIGKILL)
        worker.wait_for("connected", 2)
        (after,) = tmp_path.glob("autosched-measure-*")
        assert before != after
    assert not list(tmp_path.glob("autosched-measure-*"))


def test_cluster_malformed_answers_are_not_believed(cluster: Cluster) -> None:
    workers = [cluster.work("lies", "lying_engine")]
    with cluster.pool("lies", wait_seconds=12.0) as pool:
        job = pool.open_job(FUNC)
        with pytest.raises(MeasureError, match=MALFORMED.format("seconds")):
            pool.measure(job, candidates(FUNC, 4))
        workers.append(cluster.work("talks", "talkative_engine"))
    with cluster.pool("talks", wait_seconds=12.0) as pool:
        job = pool.open_job(FUNC)
        with pytest.raises(MeasureError, match=MALFORMED.format("samples")):
            pool.measure(job, candidates(FUNC, 4))
        assert [d.state for d in of_label(pool, "talks")] == [State.QUARANTINED]


def test_cluster_device_whose_canary_fails_is_left_alone(cluster: Cluster) -> None:
    with cluster.work("canary", "crashing_engine", slots=1):
        with cluster.pool("canary") as pool:
            job = pool.open_job(FUNC)
            results = pool.measure(job, candidates(FUNC, 12))
            # Its device is well: the crash is the candidate's.
            assert {r.status for r in results} == {Status.OK, Status.RUNTIME_ERROR}
            assert {d.faults for d in of_label(pool, "canary")} == {0}
        with (
            cluster.work("unwell", "unwell_engine"),
            cluster.pool("unwell", wait_seconds=12.0) as pool,
        ):
            job = pool.open_job(FUNC)
            with pytest.raises(MeasureError, match="the canary kernel is runtime_error"):
                pool.measure(job, candidates(FUNC, 4))


def test_cluster_candidate_that_kills_its_worker_each_time_is_lost(cluster: Cluster) -> None:
    with cluster.work("deadly", "deadly_engine", slots=2), cluster.pool("deadly") as pool:
        job = pool.open_job(FUNC)
        results = pool.measure(job, candidates(FUNC, 12))
        assert [r.status for r in results].count(Status.OK) == 11
        assert results[2].status is Status.DEVICE_LOST
        assert results[2].retries == 2
        assert "lost 3 times" in results[2].error


@pytest.mark.long
def test_cluster_error_that_cannot_be_sent_is_told_all_the_same(cluster: Cluster) -> None:
    with (
        cluster.work("picky", "picky_engine"),
        cluster.pool("picky", wait_seconds=12.0) as pool,
        pytest.raises(MeasureError, match="_StrangeError: this device opens no job"),
    ):
        pool.open_job(FUNC)


@pytest.mark.long
def test_cluster_engine_that_wants_to_leave_does_not_end_its_worker(cluster: Cluster) -> None:
    with cluster.work("leaving", "leaving_engine") as worker:
        with cluster.pool("leaving", wait_seconds=12.0) as pool:
            job = pool.open_job(FUNC)
            with pytest.raises(MeasureError, match="SystemExit: 3"):
                pool.measure(job, candidates(FUNC, 4))
        assert worker.popen.poll() is None


@pytest.mark.long
def test_cluster_kinds_of_devices_never_mix() -> None:
    with Cluster() as own:
        own.work("mixed", "quick_engine")
        own.work("mixed2", "other_engine")
        check_kinds(own)


def check_kinds(cluster: Cluster) -> None:
    with ClusterPool(cluster.address, target="llvm -num-cores=1") as pool:
        wait_ready(pool, 2)
        with pytest.raises(MeasureError, match="of different kinds") as e:
            pool.open_job(FUNC)
        assert f"label mixed, fingerprint {DEVICE.fingerprint}: 1 slots" in str(e.value)
        assert f"label mixed2, fingerprint {OTHER.fingerprint}: 1 slots" in str(e.value)
    with cluster.pool("mixed2") as pool:
        assert pool.device == OTHER
        job = pool.open_job(FUNC)
        assert {r.status for r in pool.measure(job, candidates(FUNC, 8))} == {Status.OK}
        (foreign,) = (d for d in of_label(pool, "mixed"))
        assert foreign.state is State.FOREIGN
        assert "this pool is for 'mixed2'" in foreign.why
    with ClusterPool(
        cluster.address, fingerprint=DEVICE.fingerprint, target="llvm -num-cores=1"
    ) as pool:
        wait_ready(pool, 1)
        assert pool.device == DEVICE
        pool.open_job(FUNC)
        (foreign,) = (d for d in of_label(pool, "mixed2"))
        assert f"fingerprint {OTHER.fingerprint}" in foreign.why


@pytest.mark.long
def test_cluster_answers_for_a_cancelled_job_are_dropped(cluster: Cluster) -> None:
    with cluster.work("cancel", "slow_engine", slots=2), cluster.pool("cancel") as pool:
        job = pool.open_job(FUNC)
        wait_ready(pool, 2)
        stop = threading.Event()
        traces = candidates(FUNC, 40)
        results = pool.measure(job, traces, None, Disturbed(1, stop.set), stop)
        measured = sum(r.status is Status.OK for r in results)
        assert 1 <= measured < 30
        assert sum(r.status is Status.CANCELLED for r in results) == 40 - measured
        again = pool.measure(job, traces[:6])
        assert {r.status for r in again} == {Status.OK}
        assert {d.faults for d in of_label(pool, "cancel")} == {0}


@pytest.mark.long
def test_cluster_two_pools_share_a_device(cluster: Cluster) -> None:
    with cluster.work("shared", "paced_engine"):
        found: list[list[MeasureResult]] = []

        def use() -> None:
            with cluster.pool("shared") as pool:
                found.append(pool.measure(pool.open_job(FUNC), candidates(FUNC, 30)))

        threads = [threading.Thread(target=use) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [[r.status for r in results] for results in found] == [[Status.OK] * 30] * 2
        assert [r.seconds for r in found[0]] == [r.seconds for r in found[1]]


def test_cluster_without_a_device_says_who_is_there(cluster: Cluster) -> None:
    with (
        cluster.pool("nobody", wait_seconds=0.5) as pool,
        pytest.raises(MeasureError, match="no device is ready"),
    ):
        pool.open_job(FUNC)


@pytest.mark.long
def test_cluster_scheduler_killed_and_started_again() -> None:
    traces = candidates(FUNC, 100)
    with Cluster() as cluster:
        worker = cluster.work("again", "paced_engine", slots=2)
        with cluster.pool("again") as pool:
            job = pool.open_job(FUNC)
            wait_ready(pool, 2)
            disturbed = Disturbed(20, cluster.restart_scheduler)
            results = pool.measure(job, traces, None, disturbed)
            assert {r.status for r in results} == {Status.OK}
            assert sorted(disturbed.told) == list(range(100))
            processes = slot_processes(worker)
        worker.wait_for("connected", 4)
        # Nothing was started anew: slots outlive schedulers.
        assert slot_processes(worker) == processes


@pytest.mark.long
def test_cluster_that_never_comes_back_is_an_error() -> None:
    with Cluster() as cluster:
        cluster.work("gone", "paced_engine")
        with cluster.pool("gone", wait_seconds=12.0) as pool:
            job = pool.open_job(FUNC)
            with pytest.raises(MeasureError, match="no device of the pool could work"):
                pool.measure(job, candidates(FUNC, 50), None, Disturbed(5, cluster.scheduler.end))
