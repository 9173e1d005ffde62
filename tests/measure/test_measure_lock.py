"""The lock of a slot: who excludes whom, who is shown to have it, and how it ends."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.cli import doctor
from measure.local import lock as module
from measure.local.lock import SlotLock


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[SlotLock]:
    made = SlotLock("cpu", tmp_path)
    yield made
    made.close()


HOLD = """
import sys, time
from pathlib import Path
from measure.local.lock import SlotLock
with getattr(SlotLock("cpu", Path(sys.argv[1])), sys.argv[2])():
    print("held", flush=True)
    time.sleep(1000)
"""


def holder(folder: Path, what: str) -> subprocess.Popen[str]:
    """Another process that has the slot."""
    command = [sys.executable, "-c", HOLD, str(folder), what]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("what", ["timing", "building"])
def test_lock_shows_who_has_it_and_goes_with_its_process(
    lock: SlotLock, tmp_path: Path, what: str
) -> None:
    assert lock.holders() == []
    with holder(tmp_path, what) as process:
        assert lock.holders() == [(what, process.pid)]
        process.kill()
    assert lock.holders() == []
    with lock.timing() as waited:
        assert waited >= 0
        assert lock.holders() == [("timing", os.getpid())]


def test_lock_lets_builders_in_together_and_nobody_beside_a_timing(
    lock: SlotLock, tmp_path: Path
) -> None:
    other = SlotLock("cpu", tmp_path)
    with lock.building(), other.building():
        assert [what for what, _ in lock.holders()] == ["building"] * 2
    order: list[str] = []

    def build() -> None:
        with other.building():
            order.append("built")

    with lock.timing():
        thread = threading.Thread(target=build)
        thread.start()
        time.sleep(0.1)
        order.append("timed")
    thread.join()
    other.close()
    assert order == ["timed", "built"]


def test_lock_is_not_withheld_by_one_that_takes_it_again_and_again(
    lock: SlotLock, tmp_path: Path
) -> None:
    """Two builders overlap without end; a timing gets its turn at the next gap of each."""
    stop, began = threading.Event(), threading.Barrier(3, timeout=60)
    counts = [0, 0]

    def build(number: int) -> None:
        mine = SlotLock("cpu", tmp_path)
        began.wait()
        while not stop.is_set():
            with mine.building():
                counts[number] += 1
                time.sleep(0.02)
        mine.close()

    threads = [threading.Thread(target=build, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    began.wait()
    gaps = []
    for _ in range(20):
        before = sum(counts)
        with lock.timing():
            gaps.append(sum(counts) - before)
    stop.set()
    for thread in threads:
        thread.join()
    # Those that were building already, and at most one more each that had its turn before; now and
    # then more of them while this thread did not come to ask.
    assert sorted(gaps)[len(gaps) // 2] <= 4, gaps


def test_lock_says_whom_it_waits_for(
    lock: SlotLock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stopped process keeps the slot: whoever waits is told which one it is."""
    monkeypatch.setattr(module, "NOTICE_SECONDS", 0.05)
    told = threading.Event()
    with holder(tmp_path, "timing") as process, caplog.at_level(logging.WARNING):
        process.send_signal(signal.SIGSTOP)
        caplog.handler.addFilter(lambda record: told.set() or True)  # type: ignore[func-returns-value]

        def end() -> None:
            told.wait(60)
            process.kill()

        thread = threading.Thread(target=end)
        thread.start()
        with lock.timing():
            thread.join()
    assert f"timing by process {process.pid}" in caplog.text


def test_doctor_shows_who_has_the_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "runtime_folder", lambda: tmp_path)
    free = doctor._slot()
    assert doctor._slot_text(free) == f"{tmp_path / 'slot-cpu.lock'}: free"
    with holder(tmp_path, "timing") as process:
        assert f"timing by process {process.pid}" in doctor._slot_text(doctor._slot())
        process.kill()
