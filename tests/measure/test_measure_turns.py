"""Turns on a clock that is made up: how many calls a visit makes, and what it gives."""

from __future__ import annotations

import pytest

from measure.timing import Estimate, TimingPlan
from measure.turns import TURN_SAMPLES, time_turn

PLAN = TimingPlan()
NOMINAL = 50e-6


class Clock:
    """Calls that take the seconds listed, then `seconds`; some find their cores shared."""

    def __init__(self, seconds: float, *first: float, crowded: int = 0, rate: float = 1.0) -> None:
        self.seconds, self.first, self.crowded, self.rate = seconds, list(first), crowded, rate
        self.calls = self.paced = 0

    def call(self, number: int) -> float:
        self.calls += number
        total = sum(self.first.pop(0) if self.first else self.seconds for _ in range(number))
        return self.rate * total

    def pacer(self) -> float:
        self.paced += 1
        return NOMINAL * self.rate

    def crowding(self, pace: float) -> float:
        return 0.7 if self.calls <= self.crowded else 0.0

    def turn(self, known: float | None = None, plan: TimingPlan = PLAN) -> Estimate:
        return time_turn(self.call, self.pacer, plan, NOMINAL, known, crowding=self.crowding)


def test_turn_of_a_short_kernel_warms_up_and_takes_its_samples() -> None:
    clock = Clock(1e-3, 5e-3)
    found = clock.turn()
    assert found.seconds == pytest.approx(1e-3)
    clock = Clock(1e-3, 1.2e-3)
    found = clock.turn(known=1e-3)
    assert found.samples == (1e-3,) * TURN_SAMPLES
    assert clock.calls == 1 + TURN_SAMPLES
    assert clock.paced == TURN_SAMPLES
    clock = Clock(1e-5)
    assert clock.turn().runs == TURN_SAMPLES * 20


def test_turn_of_a_long_kernel_ends_when_it_takes_as_long_as_before() -> None:
    assert Clock(1e-2).turn(known=1.005e-2).runs == 1
    assert Clock(1e-2, 1.05e-2).turn(known=1e-2).runs == 2
    assert Clock(1e-2).turn().runs == 2
    slower, faster = Clock(1.1e-2), Clock(0.9e-2)
    assert slower.turn(known=1e-2).runs == faster.turn(known=1e-2).runs == 2
    assert Clock(4e-3, 6e-3, 5e-3).turn(known=4e-3).samples == (6e-3, 5e-3)


@pytest.mark.parametrize("rate", [0.9, 1.1])
def test_turn_compares_without_the_drift_of_the_clock(rate: float) -> None:
    found = Clock(1e-2, rate=rate).turn(known=1e-2)
    assert found.runs == 1
    assert found.seconds == pytest.approx(1e-2)


def test_turn_on_shared_cores_is_no_answer() -> None:
    clock = Clock(1e-2, 1e-2, crowded=1)
    found = clock.turn(known=1e-2)
    assert (found.runs, found.samples, found.noise) == (2, (1e-2,), 0.0)
    assert Clock(1e-2, crowded=100).turn(known=1e-2).noise == pytest.approx(0.7)


def test_turn_keeps_the_number_of_calls_that_is_asked_for() -> None:
    found = Clock(1e-2).turn(known=1e-2, plan=TimingPlan(number=3))
    assert found.runs % 3 == 0
    assert found.seconds == pytest.approx(1e-2)
