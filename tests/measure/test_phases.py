"""Phases on a clock that is made up: nothing is counted twice, nothing is left out."""

from __future__ import annotations

import random

import pytest

from measure.phases import OTHER, WAITING, PhaseClock


class Clock:
    """Stands still but for what a test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_innermost_phase_counts() -> None:
    time = Clock()
    clock = PhaseClock(time)
    time.now += 1
    with clock.phase("measuring"):
        time.now += 2
        with clock.phase("running"):
            time.now += 4
            clock.move(0.5, "verifying")
        time.now += 8
    assert clock.spent() == {OTHER: 1.0, "measuring": 10.0, "running": 3.5, "verifying": 0.5}


def test_a_whole_phase_has_nothing_inside_but_waiting() -> None:
    time = Clock()
    clock = PhaseClock(time)
    before = clock.spent()
    with clock.phase("finalists", whole=True):
        time.now += 1
        with clock.phase("building"):
            time.now += 2
            with clock.phase(WAITING):
                time.now += 4
        clock.move(0.5, "verifying")
    assert clock.since(before) == {OTHER: 0.0, "finalists": 3.0, WAITING: 4.0}


def test_a_phase_ends_however_its_body_does() -> None:
    time = Clock()
    clock = PhaseClock(time)

    def fail() -> None:
        with clock.phase("running"):
            time.now += 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    time.now += 2
    assert clock.spent() == {"running": 1.0, OTHER: 2.0}


def test_phases_add_up_to_the_wall_time() -> None:
    """Whatever is nested in what."""
    rng, time = random.Random(0), Clock()
    clock = PhaseClock(time)
    names = ["starting", "measuring", "running", WAITING, OTHER]

    def live(depth: int) -> None:
        for _ in range(rng.randrange(4)):
            time.now += rng.random()
            with clock.phase(rng.choice(names), whole=rng.random() < 0.3):
                time.now += rng.random()
                clock.move(rng.random(), rng.choice(names))
                if depth:
                    live(depth - 1)

    for _ in range(50):
        live(4)
    assert sum(clock.spent().values()) == pytest.approx(time.now - 100.0, rel=1e-9)
