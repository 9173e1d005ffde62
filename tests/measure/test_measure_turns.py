"""Turns on a clock that is made up: how many calls a visit makes, and what it gives."""

from __future__ import annotations

import pytest

from measure.timing import Estimate, TimingPlan
from measure.turns import PACES, Known, time_turn

PLAN = TimingPlan()
NOMINAL = 50e-6
YARDSTICK = 1e-3


class Clock:
    """Calls of a kernel that take the seconds listed, then `seconds`, and of a yardstick; on a
    machine that is `slow` times slower, its clock `rate` times. The first ones find their cores
    shared."""

    def __init__(
        self,
        seconds: float,
        *first: float,
        crowded: int = 0,
        rate: float = 1.0,
        slow: float = 1.0,
        yardstick: float = YARDSTICK,
    ) -> None:
        self.seconds, self.first, self.crowded = seconds, list(first), crowded
        self.rate, self.slow, self.yardstick = rate, slow, yardstick
        self.calls = self.beside = self.paced = 0

    def call(self, number: int) -> float:
        self.calls += number
        total = sum(self.first.pop(0) if self.first else self.seconds for _ in range(number))
        return self.rate * self.slow * total

    def call_beside(self, number: int) -> float:
        self.beside += number
        return self.rate * self.slow * self.yardstick * number

    def pacer(self) -> float:
        self.paced += 1
        return NOMINAL * self.rate

    def crowding(self) -> float:
        return 0.7 if self.calls + self.beside <= self.crowded else 0.0

    def turn(self, plan: TimingPlan = PLAN, alone: bool = False) -> Estimate:
        kernel = Known(self.call, self.seconds)
        yardstick = None if alone else Known(self.call_beside, self.yardstick)
        return time_turn(kernel, yardstick, self.pacer, plan, NOMINAL, crowding=self.crowding)


def levels(found: Estimate) -> tuple[float, float]:
    assert found.beside is not None
    return found.beside


def test_turn_takes_its_samples_of_both() -> None:
    clock = Clock(1e-3)
    found = clock.turn()
    assert found.samples == (1e-3,) * PLAN.repeats
    assert (clock.calls, clock.beside) == (PLAN.repeats, PLAN.repeats)
    assert levels(found) == pytest.approx((1e-3, YARDSTICK))
    assert clock.paced == PACES
    short = Clock(1e-5, 5e-3, yardstick=2e-5)
    assert short.turn().runs == PLAN.repeats * 20
    assert levels(short.turn()) == pytest.approx((1e-5, 2e-5)), "the first call warms up"


def test_turn_of_long_kernels_makes_few_calls() -> None:
    clock = Clock(1e-2, yardstick=9e-3)
    assert levels(clock.turn()) == pytest.approx((1e-2, 9e-3))
    assert (clock.calls, clock.beside) == (1, 1)
    clock = Clock(2.6e-3, yardstick=2.6e-3)
    clock.turn()
    assert clock.calls + clock.beside <= 4


def test_turn_without_a_yardstick_has_nothing_beside() -> None:
    clock = Clock(1e-3)
    found = clock.turn(alone=True)
    assert found.beside is None
    assert found.seconds == pytest.approx(1e-3)
    assert clock.beside == 0


@pytest.mark.parametrize("rate", [0.9, 1.1])
def test_turn_is_without_the_drift_of_the_clock(rate: float) -> None:
    found = Clock(1e-3, rate=rate).turn()
    assert found.seconds == pytest.approx(1e-3)
    assert levels(found) == pytest.approx((1e-3, YARDSTICK))


def test_turn_levels_leave_out_a_first_call_and_one_that_was_disturbed() -> None:
    kernel, yardstick = levels(Clock(1e-3, 1.3e-3, 1e-3, 1.5e-3).turn())
    assert kernel == pytest.approx(1e-3)
    assert yardstick == pytest.approx(YARDSTICK)


def test_turn_shows_in_both_what_slows_the_machine() -> None:
    kernel, yardstick = levels(Clock(1e-3, slow=1.2).turn())
    assert kernel / yardstick == pytest.approx(1.0)
    assert yardstick == pytest.approx(1.2 * YARDSTICK)


def test_turn_on_shared_cores_is_no_answer() -> None:
    assert Clock(1e-3, crowded=3).turn().noise == 0.0
    clock = Clock(1e-3, crowded=1000)
    assert clock.turn().noise == pytest.approx(0.7)
    assert clock.calls < PLAN.repeats, "it lasts: the visit ends"


def test_turn_keeps_the_number_of_calls_that_is_asked_for() -> None:
    clock = Clock(1e-2)
    found = clock.turn(TimingPlan(number=3))
    assert found.runs == 3
    assert (clock.calls, clock.beside) == (4, 4), "with one each to warm up"


def test_turn_sleeps_before_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("measure.turns.time.sleep", slept.append)
    Clock(1e-3).turn(TimingPlan(cooldown_ms=7.0))
    assert slept == [7e-3] * 2 * PLAN.repeats
