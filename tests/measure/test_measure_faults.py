"""Faults from outside: each ends in a result with the right status, and the pool goes on."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from measure_doubles import BUILD_FUNC, PATIENT, Double, limited, make_pool, vector_add

from measure.local.build import LocalBuilder
from measure.local.pool import LocalPool
from measure.local.slot import LocalRunner
from measure.pool import JobHandle
from measure.process import template_client
from measure.process.process_state import CONTROL
from measure.status import MeasureResult, Status

GOOD = Double("right")
SLOW = Double("slow_right")
STOPPED_SECONDS = 3.0
"""A candidate's time where its process is stopped, which is only seen when that is over."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with make_pool(tmp_path_factory.mktemp("lock")) as made:
        yield made


@pytest.fixture(scope="module")
def job(pool: LocalPool) -> JobHandle:
    return pool.open_job(vector_add())


def at_work(pool: LocalPool, act: Callable[[int], None], times: int = 1) -> threading.Thread:
    """Do `act` to the runner while it runs a candidate, once for each of its first lives."""

    def wait() -> None:
        done: set[int] = set()
        end = time.monotonic() + 100
        while len(done) < times and time.monotonic() < end:
            child = pool._slot.child
            pid = child.pid
            if pid is not None and pid not in done and child.busy and child._ready:
                time.sleep(0.02)
                act(pid)
                done.add(pid)
            time.sleep(0.002)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
)
def test_runner_hit_from_outside_once_is_no_fault_of_the_candidate(
    pool: LocalPool, job: JobHandle, sent: signal.Signals
) -> None:
    assert pool.measure(job, [GOOD])[0].ok
    thread = at_work(pool, lambda pid: os.kill(pid, sent))
    with limited(pool, STOPPED_SECONDS):
        (result,) = pool.measure(job, [SLOW])
    thread.join()
    assert (result.status, result.retries) == (Status.OK, 1)
    assert pool.measure(job, [GOOD])[0].ok


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (signal.SIGKILL, "killed by SIGKILL from outside"),
        (signal.SIGTERM, "killed by SIGTERM from outside"),
        (signal.SIGSTOP, "stopped from outside"),
    ],
)
def test_runner_hit_from_outside_every_time_is_device_lost(
    pool: LocalPool, job: JobHandle, sent: signal.Signals, text: str
) -> None:
    pool._slot.child.kill()
    thread = at_work(pool, lambda pid: os.kill(pid, sent), times=3)
    with limited(pool, STOPPED_SECONDS):
        (result,) = pool.measure(job, [Double("endless_loop")])
    thread.join()
    assert (result.status, result.retries) == (Status.DEVICE_LOST, 2)
    assert text in result.error
    assert pool.measure(job, [GOOD])[0].ok


def test_job_is_opened_though_processes_are_hit_from_outside(tmp_path: Path) -> None:
    """Once each: what makes the clock probe, times it, and makes the reference."""
    with make_pool(tmp_path) as pool:
        for child in (pool._builders.children[0], pool._slot.child):
            child.start()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
        thread = at_work(pool, lambda pid: os.kill(pid, signal.SIGTERM))
        job = pool.open_job(vector_add())
        thread.join()
        assert pool.measure(job, [GOOD])[0].ok


def test_code_that_ends_its_process_later_harms_nobody_else(
    pool: LocalPool, job: JobHandle
) -> None:
    """What a candidate left behind ends the process while others run: they run again elsewhere."""
    results = pool.measure(job, [Double("leaves_a_bomb"), *[SLOW] * 4])
    assert [r.status for r in results] == [Status.OK] * 5
    assert [r.retries for r in results] == [0] * 5


@pytest.mark.parametrize(
    "name",
    [
        "forks",
        "becomes_another",
        "ends_itself",
        "stops_itself",
        "signals_all_its_group",
        "leaves_a_file",
        "leaves_shared_memory",
        "leaves_a_segment",
        "removes_its_folder",
        "renices_its_parent",
    ],
)
def test_code_may_not_reach_out_of_its_process(pool: LocalPool, job: JobHandle, name: str) -> None:
    """Refused it goes on, and is right."""
    (result,) = pool.measure(job, [Double(name)])
    assert result.ok, result.error


def test_code_that_asks_for_100_gb(pool: LocalPool, job: JobHandle) -> None:
    bad, good = pool.measure(job, [Double("allocates_100_gb"), GOOD])
    assert (bad.status, good.status) == (Status.RUNTIME_ERROR, Status.OK)
    assert "SIGSEGV" in bad.error


def test_code_that_gives_nan(pool: LocalPool, job: JobHandle) -> None:
    bad, good = pool.measure(job, [Double("nan_result"), GOOD])
    assert (bad.status, good.status) == (Status.WRONG_RESULT, Status.OK)
    assert "out[0] is nan, expected " in bad.error
    assert "1000 are NaN: never written, or made from what was not" in bad.error


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("closes_descriptors", Status.RUNTIME_ERROR, "before it answered"),
        ("opens_descriptors", Status.RUNTIME_ERROR, "before it answered"),
        ("writes_a_lot", Status.OK, ""),
        ("floods_its_connection", Status.RUNTIME_ERROR, "a reply that cannot be read"),
        ("claims_a_long_answer", Status.RUNTIME_ERROR, "a reply of 18446744073709551615 bytes"),
        ("ignores_signals", Status.RUN_TIMEOUT, "not done within"),
        ("survives_its_crash", Status.RUN_TIMEOUT, "not done within"),
    ],
)
def test_code_that_spoils_its_process(
    pool: LocalPool, job: JobHandle, name: str, status: Status, text: str
) -> None:
    """Descriptors, output and signal handlers: the next candidate has a process of its own."""
    descriptors = os.listdir("/proc/self/fd")
    if status is Status.RUN_TIMEOUT:
        with limited(pool, 1.2):
            (bad,) = pool.measure(job, [Double(name)])
        (good,) = pool.measure(job, [GOOD])
    else:
        bad, good = pool.measure(job, [Double(name), GOOD])
    assert (bad.status, good.status) == (status, Status.OK)
    assert text in bad.error
    assert len(bad.error) < 20_000
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)


@pytest.mark.parametrize(
    "name",
    [
        "steps_back",
        "binds_itself",
        "blocks_signals",
        "handles_signals",
        "changes_folder",
        "locks_its_memory",
        "keeps_a_descriptor",
        "leaves_a_thread_at_work",
        "close_stdout",
    ],
)
def test_code_that_changes_its_process_is_the_last_to_run_there(
    pool: LocalPool, job: JobHandle, name: str
) -> None:
    """It is right, so its time stands; whoever comes next is timed as if it had never run."""
    assert pool.measure(job, [GOOD])[0].ok
    changed, good = pool.measure(job, [Double(name), GOOD])
    assert (changed.status, good.status) == (Status.OK, Status.OK)
    assert (changed.error, changed.retries) == ("", 0)
    pool.measure(job, [Double(name)])
    assert pool._slot.child.pid is None
    assert pool.measure(job, [GOOD])[0].ok
    pid = pool._slot.child.pid
    assert pool.measure(job, [GOOD, SLOW])[1].ok
    assert pool._slot.child.pid == pid is not None


@pytest.mark.skipif(
    platform.machine() not in CONTROL, reason="how this processor rounds is not looked at"
)
def test_code_that_leaves_its_caller_rounding_otherwise_is_wrong(
    pool: LocalPool, job: JobHandle
) -> None:
    bad, good = pool.measure(job, [Double("rounds_up"), GOOD])
    assert (bad.status, good.status) == (Status.RUNTIME_ERROR, Status.OK)
    assert "another floating-point mode: " in bad.error


def test_code_that_spoils_its_input_when_it_was_right_is_wrong(
    pool: LocalPool, job: JobHandle
) -> None:
    """And who comes next is not blamed for that."""
    results = pool.measure(job, [Double("spoils_input"), GOOD] * 3)
    assert [r.status for r in results] == [Status.WRONG_RESULT, Status.OK] * 3
    assert results[0].error.endswith("a later one was not:\ninput a was changed")


def test_code_that_takes_memory_until_there_is_none(tmp_path: Path) -> None:
    runner = LocalRunner(timeout=PATIENT, budget_ms=2, memory_bytes=256 << 20, lock_folder=tmp_path)
    builder = LocalBuilder(timeout=PATIENT, n_parallel=1, build_func=BUILD_FUNC)
    with LocalPool(builder=builder, runner=runner) as pool:
        bad, good = pool.measure(pool.open_job(vector_add()), [Double("takes_all_memory"), GOOD])
    assert (bad.status, good.status) == (Status.RUNTIME_ERROR, Status.OK)
    assert "SIGSEGV" in bad.error


@pytest.mark.parametrize("left", [0, 3, 4, 5])
def test_no_descriptors_left_is_no_fault_of_the_candidate(
    pool: LocalPool, job: JobHandle, left: int
) -> None:
    """However far the start of a process comes, nothing is left of it and the next one starts."""
    assert pool.measure(job, [GOOD])[0].ok
    pool._slot.child.kill()
    before = os.listdir("/proc/self/fd")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + 20, hard))
    held: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(left):
            os.close(held.pop())
        (lost,) = pool.measure(job, [GOOD])
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (lost.status, lost.retries) == (Status.DEVICE_LOST, 2)
    assert "no measuring process can be started: [Errno 24] Too many open files" in lost.error
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert pool.measure(job, [GOOD])[0].ok


def test_template_that_was_stopped_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_client, "END_SECONDS", 0.1)
    with make_pool(tmp_path) as pool:
        job = pool.open_job(vector_add())
        before, control = pool._template.pid, pool._template._control
        assert before is not None
        assert control is not None
        os.kill(before, signal.SIGSTOP)
        control.settimeout(0.3)  # of this one only; the next has its usual time for an answer
        bad, good = pool.measure(job, [Double("segfault"), GOOD])
        assert (bad.status, good.status) == (Status.RUNTIME_ERROR, Status.OK)
        assert pool._template.pid != before
        assert not Path(f"/proc/{before}").exists()


def test_clock_set_back(pool: LocalPool, job: JobHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reading of the clock on the wall is an hour before the last one."""
    now = time.time()

    def earlier() -> float:
        nonlocal now
        now -= 3600
        return now

    monkeypatch.setattr(time, "time", earlier)
    began = time.monotonic()
    with limited(pool, 1.2):
        results = pool.measure(job, [Double("endless_loop")])
    results += pool.measure(job, [GOOD, Double("wrong_result")])
    assert [r.status for r in results] == [Status.RUN_TIMEOUT, Status.OK, Status.WRONG_RESULT]
    for r in results:
        assert 0 <= r.queue_seconds + r.run_wall_seconds <= time.monotonic() - began


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 4 MB and few files, which holds all temporary folders."""
    place = tmp_path / "disk"
    place.mkdir()
    options = "size=4m,nr_inodes=40"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this process may not mount a file system")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_full_disk(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "lock").mkdir()
    with make_pool(tmp_path / "lock") as pool:
        job = pool.open_job(vector_add())
        bad, good = pool.measure(job, [Double("build_fills_the_disk"), GOOD])
        assert (bad.status, good.status) == (Status.BUILD_ERROR, Status.OK)
        assert "No space left on device" in bad.error
        # Not even the folder of a new runner can be made.
        pool._slot.child.kill()
        files = []
        while True:
            try:
                files.append(small_disk / f"file{len(files)}")
                files[-1].touch()
            except OSError:
                break
        for lost in pool.measure(job, [GOOD, GOOD]):
            assert (lost.status, lost.retries) == (Status.DEVICE_LOST, 2)
            assert "no measuring process can be started" in lost.error
            assert "No space left on device" in lost.error
        for file in files[:-1]:
            file.unlink()
        bad, good = pool.measure(job, [Double("segfault"), GOOD])
        assert (bad.status, good.status) == (Status.RUNTIME_ERROR, Status.OK)
    assert [p.name for p in small_disk.iterdir() if p.name.startswith("autosched-measure")] == []


def test_two_pools_never_run_or_build_while_the_other_runs(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    (taken := tmp_path / "taken").touch()
    results: dict[int, list[MeasureResult]] = {}
    ends: list[tuple[float, int]] = []
    both = threading.Barrier(2, timeout=60)

    def measure(number: int) -> None:
        # Aborts, or fails to build, if anything else has the file that it locks while it runs.
        alone = [Double(f"alone:{taken}")] * 12
        with make_pool(tmp_path / "lock") as pool:
            job = pool.open_job(vector_add())
            both.wait()
            results[number] = pool.measure(
                job, alone, on_results=lambda *_: ends.append((time.monotonic(), number))
            )

    threads = [threading.Thread(target=measure, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in results.values():
        assert [(r.status, r.error) for r in found] == [(Status.OK, "")] * 12
    # Neither had to wait for the other to be done with everything.
    order = [number for _, number in sorted(ends)]
    assert order not in ([0] * 12 + [1] * 12, [1] * 12 + [0] * 12)
    assert max(r.queue_seconds for found in results.values() for r in found) > 0


def test_waiting_for_the_slot_is_on_a_clock_of_its_own(pool: LocalPool, job: JobHandle) -> None:
    from measure.local.lock import SlotLock

    assert pool.measure(job, [GOOD])[0].ok
    other = SlotLock(pool.runner.slot, pool.runner.lock_folder)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with other.timing():
            held.set()
            done.wait(2.5)  # longer than a candidate may run

    thread = threading.Thread(target=hold)
    # Built before the slot is taken, so that what waits is the candidate's run.
    work = pool.build(job, [GOOD])
    thread.start()
    held.wait()
    began = time.monotonic()
    with limited(pool, 1.2):
        result = pool._slot.run(job, work[0], None)
    elapsed = time.monotonic() - began
    thread.join()
    other.close()
    assert result.ok
    assert result.queue_seconds > 1.2
    assert result.run_wall_seconds + result.queue_seconds <= elapsed
