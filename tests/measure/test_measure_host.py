"""What is known of this machine: what is remembered, and what is forgotten."""

from __future__ import annotations

import shutil
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from autosched.codegen.artifact import Artifact, KernelInfo
from measure.local.runner import Probes, UsualCycles
from measure.local.slot import LocalRunner, Slot
from measure.machine.host import AGE, FRESH, Best, this_machine
from measure.process.template_client import Template
from measure.timing.block import estimate
from measure.timing.timing import Timing

NEAR = 1.5
CODE = Artifact(b"", KernelInfo("kernel", ()), "llvm")
SHARED = Artifact(b"", KernelInfo("kernel", (), parallel=True), "llvm")


class Clock:
    """Unix time that is set by hand."""

    now = 1e9

    def __call__(self) -> float:
        return self.now


def test_barriers_of_all_processes_are_compared_with_the_best(tmp_path: Path) -> None:
    clock = Clock()
    first = Best(tmp_path / "best", NEAR, "here", clock)
    assert first.note(190e-9) == 190e-9
    assert first.note(37e-9) == 37e-9
    other = Best(tmp_path / "best", NEAR, "here", clock)
    assert other.note(190e-9) == 37e-9
    assert other.note(30e-9) == 30e-9
    (tmp_path / "best").write_text("")
    assert Best(tmp_path / "best", NEAR, "here", clock).note(50e-9) == 50e-9
    (tmp_path / "best").write_text("3.7e-08\n")  # as it was once written
    assert Best(tmp_path / "best", NEAR, "here", clock).note(60e-9) == 60e-9
    shutil.rmtree(tmp_path)  # as where a user's session has ended, and the search goes on
    assert first.note(30e-9) == 30e-9
    assert first.note(70e-9) == 30e-9


def test_barriers_of_another_machine_or_another_start_do_not_count(tmp_path: Path) -> None:
    Best(tmp_path / "best", NEAR, "here").note(37e-9)
    assert Best(tmp_path / "best", NEAR, "there").note(190e-9) == 190e-9
    assert this_machine() == this_machine()


def test_barriers_that_nothing_comes_near_are_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    best = Best(tmp_path / "best", NEAR, "here", clock)
    best.note(37e-9)
    clock.now += 0.9 * AGE
    assert best.note(190e-9) == 37e-9
    assert best.note(45e-9) == 37e-9  # seen again
    clock.now += 0.9 * AGE
    assert best.note(190e-9) == 37e-9
    clock.now += 0.2 * AGE
    assert best.least == Best(tmp_path / "best", NEAR, "here", clock).least == inf
    assert best.note(190e-9) == 190e-9
    assert Best(tmp_path / "best", NEAR, "here", clock).note(200e-9) == 190e-9


def test_barriers_seen_again_by_another_process_stay(tmp_path: Path) -> None:
    clock = Clock()
    one, two = (Best(tmp_path / "best", NEAR, "here", clock) for _ in range(2))
    one.note(37e-9)
    clock.now += AGE - FRESH / 2
    assert two.note(40e-9) == 37e-9
    clock.now += FRESH
    assert one.note(190e-9) == 37e-9


def test_barriers_of_who_was_apart_do_not_replace_better_ones(tmp_path: Path) -> None:
    clock = Clock()
    one, two = (Best(tmp_path / "best", NEAR, "here", clock) for _ in range(2))
    assert one.note(190e-9) == 190e-9  # and does not look into the file again until it is better
    assert two.note(37e-9) == 37e-9
    clock.now += AGE / 2
    assert one.note(189e-9) == 37e-9
    assert Best(tmp_path / "best", NEAR, "here", clock).note(190e-9) == 37e-9


def test_barriers_and_a_clock_that_is_set_back(tmp_path: Path) -> None:
    clock = Clock()
    best = Best(tmp_path / "best", NEAR, "here", clock)
    best.note(37e-9)
    clock.now -= 10 * AGE
    assert best.note(190e-9) == 37e-9


def test_barriers_of_a_slot_are_by_the_number_of_threads(tmp_path: Path) -> None:
    options = LocalRunner(lock_folder=tmp_path)
    slots = [Slot(Template([]), options, n, lambda: None) for n in (2, 2, 4)]  # type: ignore[arg-type,return-value]
    assert slots[0]._best_barrier(37e-9) == 37e-9
    assert slots[1]._best_barrier(190e-9) == 37e-9
    assert slots[2]._best_barrier(400e-9) == 400e-9
    for slot in slots:
        slot.close()


def test_probe_of_a_slot_is_compared_with_the_best_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one thread and on all; a machine of which nothing is known is looked at for longer."""
    usual: list[bool] = []
    monkeypatch.setattr("measure.local.slot.sharing_is_usual", lambda: bool(usual))
    asked: list[float] = []
    cycles = {1: 20.0, 2: 21.0}

    def slot() -> Slot:
        made = Slot(Template([]), LocalRunner(lock_folder=tmp_path), 2, lambda: None)  # type: ignore[arg-type,return-value]

        def interference(request: UsualCycles) -> float:
            asked.append(request.seconds)
            return cycles[request.threads]

        monkeypatch.setattr(made, "_interference", interference)
        return made

    one, two = slot(), slot()
    assert (one._best_alone(1), one._best_alone(2)) == (20.0, 21.0)
    assert min(asked) > 0.0
    cycles[1] = 14.0
    assert two._best_alone(1) == 14.0
    assert asked[-1] == 0.0
    one._probes = Probes(CODE, 2, 1.0, 1.0, (20.0, 21.0), 37e-9)
    one._learn(CODE, seen(13.9))
    assert one.probes().alone == (13.9, 21.0)
    one._learn(SHARED, seen(14.5))
    assert one.probes().alone == (13.9, 14.5)
    one._learn(SHARED, seen(24.0))
    assert one.probes().alone == (13.9, 14.5)
    usual.append(True)
    assert one._best_alone(1) == 0.0
    for made in (one, two):
        made.close()


def seen(cycles: float) -> Timing:
    return replace(estimate([1.0], [1.0], 1.0, 1), probe_cycles=cycles)
