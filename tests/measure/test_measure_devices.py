"""Fingerprints and the host-wide lock."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from measure.devices import this_device
from measure.local import lock as lock_module
from measure.local.lock import SlotLock, runtime_folder
from measure.status import Status

CPUINFO = """processor : 0
cpu family : 26
model : 2
model name : A CPU
stepping : 1
flags : {flags}
"""


def fake(tmp_path: Path, flags: str) -> Path:
    path = tmp_path / flags.replace(" ", "_")
    path.write_text(CPUINFO.format(flags=flags))
    return path


def test_device_fingerprint_is_stable_and_tells_machines_apart(tmp_path: Path) -> None:
    assert this_device() == this_device()
    assert len(this_device().fingerprint) == 12
    one = this_device(fake(tmp_path, "avx2 fma"), tmp_path)
    same = this_device(fake(tmp_path, "fma avx2"), tmp_path)
    other = this_device(fake(tmp_path, "fma avx2 avx512f"), tmp_path)
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert str(one).startswith("A CPU (26/2/1), ")


def test_device_caches(tmp_path: Path) -> None:
    for n, (kind, level, size) in enumerate(
        [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "1024K")]
    ):
        folder = tmp_path / "cpu0" / "cache" / f"index{n}"
        folder.mkdir(parents=True)
        for name, value in (("type", kind), ("level", str(level)), ("size", size)):
            (folder / name).write_text(value + "\n")
    assert this_device(fake(tmp_path, "x"), tmp_path).caches == ("L1d 48K", "L2 1024K")


HOLD = """
import sys
from pathlib import Path
from measure.local.lock import SlotLock
lock = SlotLock("cpu", Path(sys.argv[1]))
with getattr(lock, sys.argv[2])():
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("theirs", "ours", "waits"),
    [
        ("timing", "timing", True),
        ("timing", "building", True),
        ("building", "timing", True),
        ("building", "building", False),
    ],
)
def test_lock_between_processes(tmp_path: Path, theirs: str, ours: str, waits: bool) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), theirs]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        lock = SlotLock("cpu", tmp_path)
        got = threading.Event()

        def take() -> None:
            with getattr(lock, ours)():
                got.set()

        thread = threading.Thread(target=take)
        thread.start()
        assert got.wait(0.2 if waits else 60) != waits
        process.stdin.write("\n")
        process.stdin.flush()
        assert got.wait(60)
        thread.join()
        lock.close()


def test_lock_vanishes_with_its_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path), "timing"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    lock = SlotLock("cpu", tmp_path)
    with lock.timing() as waited:
        assert waited < 60
    lock.close()
    lock.close()


def test_lock_slots_are_apart(tmp_path: Path) -> None:
    one, two = SlotLock("cpu", tmp_path), SlotLock("gpu/0", tmp_path)
    assert one.path != two.path
    assert two.path.parent == tmp_path
    with one.timing(), two.timing():
        pass
    one.close()
    two.close()


def test_lock_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(lock_module.os, "getuid", lambda: 4242)
    with pytest.raises(lock_module.MeasureError, match="does not belong to this user"):
        runtime_folder()


def test_status_texts() -> None:
    assert " ".join(Status) == (
        "ok instantiation_error build_error build_timeout runtime_error run_timeout wrong_result "
        "out_of_bounds out_of_memory device_lost cancelled"
    )
