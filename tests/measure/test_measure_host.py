"""What is known of this machine: what is remembered, and what is forgotten."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from measure.host import AGE, FRESH, BestBarrier, is_watchable, this_machine
from measure.slot import LocalRunner, Slot
from measure.warm import Template


class Clock:
    """Unix time that is set by hand."""

    now = 1e9

    def __call__(self) -> float:
        return self.now


def test_barriers_of_all_processes_are_compared_with_the_best(tmp_path: Path) -> None:
    clock = Clock()
    first = BestBarrier(tmp_path / "best", "here", clock)
    assert first.note(190e-9) == 190e-9
    assert first.note(37e-9) == 37e-9
    other = BestBarrier(tmp_path / "best", "here", clock)
    assert other.note(190e-9) == 37e-9
    assert other.note(30e-9) == 30e-9
    (tmp_path / "best").write_text("")
    assert BestBarrier(tmp_path / "best", "here", clock).note(50e-9) == 50e-9
    (tmp_path / "best").write_text("3.7e-08\n")  # as it was once written
    assert BestBarrier(tmp_path / "best", "here", clock).note(60e-9) == 60e-9
    shutil.rmtree(tmp_path)  # as where a user's session has ended, and the search goes on
    assert first.note(30e-9) == 30e-9
    assert first.note(70e-9) == 30e-9


def test_barriers_of_another_machine_or_another_start_do_not_count(tmp_path: Path) -> None:
    BestBarrier(tmp_path / "best", "here").note(37e-9)
    assert BestBarrier(tmp_path / "best", "there").note(190e-9) == 190e-9
    assert this_machine() == this_machine()


def test_barriers_that_nothing_comes_near_are_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    best = BestBarrier(tmp_path / "best", "here", clock)
    best.note(37e-9)
    clock.now += 0.9 * AGE
    assert best.note(190e-9) == 37e-9
    assert best.note(45e-9) == 37e-9  # seen again
    clock.now += 0.9 * AGE
    assert best.note(190e-9) == 37e-9
    clock.now += 0.2 * AGE
    assert best.note(190e-9) == 190e-9
    assert BestBarrier(tmp_path / "best", "here", clock).note(200e-9) == 190e-9


def test_barriers_seen_again_by_another_process_stay(tmp_path: Path) -> None:
    clock = Clock()
    one, two = (BestBarrier(tmp_path / "best", "here", clock) for _ in range(2))
    one.note(37e-9)
    clock.now += AGE - FRESH / 2
    assert two.note(40e-9) == 37e-9
    clock.now += FRESH
    assert one.note(190e-9) == 37e-9


def test_barriers_of_who_was_apart_do_not_replace_better_ones(tmp_path: Path) -> None:
    clock = Clock()
    one, two = (BestBarrier(tmp_path / "best", "here", clock) for _ in range(2))
    assert one.note(190e-9) == 190e-9  # and does not look into the file again until it is better
    assert two.note(37e-9) == 37e-9
    clock.now += AGE / 2
    assert one.note(189e-9) == 37e-9
    assert BestBarrier(tmp_path / "best", "here", clock).note(190e-9) == 37e-9


def test_barriers_and_a_clock_that_is_set_back(tmp_path: Path) -> None:
    clock = Clock()
    best = BestBarrier(tmp_path / "best", "here", clock)
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


def test_witness_that_was_right_once_is_believed_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "watched"
    clock = Clock()
    assert not is_watchable(path, lambda: False, "here", clock)
    assert not is_watchable(path, lambda: True, "here", clock)  # asked a moment ago
    clock.now += FRESH
    assert is_watchable(path, lambda: True, "here", clock)
    assert is_watchable(path, lambda: False, "here", clock)
    assert not is_watchable(path, lambda: False, "there", clock)
    assert is_watchable(tmp_path / "gone" / "watched", lambda: True, "here", clock)
    for text in ("", "{", "[]", '{"machine": "here", "asked": "now"}'):
        path.write_text(text)
        assert is_watchable(path, lambda: True, "here", clock)


def test_witness_is_not_believed_for_a_clock_that_runs_faster_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = Slot(Template([]), LocalRunner(lock_folder=tmp_path), 1, lambda: None)  # type: ignore[arg-type,return-value]
    told: list[float] = []
    monkeypatch.setattr(slot, "_witnessed", lambda function, *args: told.pop(0))
    for told[:], alone in (([3.0, 1.0, 2.0], 0.0), ([2.0, 0.0, 2.0], 0.0), ([2.0, 1.0, 1.9], 2.0)):
        assert slot._alone() == alone
        if not alone:
            next(tmp_path.glob("**/*.watched")).unlink()  # a no is believed for a minute
    told[:] = [2.2]  # known from now on
    assert slot._alone() == 2.2
    slot.close()
