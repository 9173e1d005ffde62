"""Turns on a clock that is made up: how many calls a visit makes, and what it gives."""

from __future__ import annotations

import pytest

from measure.patience import Moment
from measure.timing import Estimate, TimingPlan
from measure.turns import NOW, PACES, WARMING, Known, time_turn

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

    def turn(
        self,
        plan: TimingPlan = PLAN,
        alone: bool = False,
        moment: Moment = NOW,
        cold: bool = False,
    ) -> Estimate:
        kernel = Known(self.call, self.seconds)
        yardstick = None if alone else Known(self.call_beside, self.yardstick)
        return time_turn(
            kernel,
            yardstick,
            self.pacer,
            plan,
            NOMINAL,
            crowding=self.crowding,
            moment=moment,
            cold=cold,
        )


def levels(found: Estimate) -> tuple[float, float]:
    assert found.beside is not None
    return found.beside.kernel, found.beside.own


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


def test_turn_begins_anew_where_it_is_postponed() -> None:
    clock, told = Clock(1e-3, slow=1.5, rate=1.1), []

    class Third(Moment):
        def postponed(self, own: float, spent: float) -> bool:
            told.append(own)
            clock.slow = 1.5 - 0.25 * len(told)
            clock.rate = 1.1 - 0.1 * min(2, len(told))
            return len(told) < 3

    found = clock.turn(moment=Third(lambda: False, 1.0))
    each = PLAN.repeats // 2
    assert told == pytest.approx([1.5e-3, 1.25e-3, 1e-3])
    warm = int(PLAN.budget_ms * 1e-3 / 4 / YARDSTICK)
    assert warm > 1
    assert (clock.calls, clock.beside) == (PLAN.repeats, 4 * each + 2 * warm)
    assert found.samples == pytest.approx((0.75 * 0.9e-3,) * PLAN.repeats)
    assert levels(found) == pytest.approx((0.75e-3, 0.75e-3)), "by the clock as it is now"
    assert found.beside is not None
    assert found.beside.slowest == pytest.approx(1e-3)


def test_turn_whose_yardstick_waited_for_a_core_is_not_postponed() -> None:
    class Never(Moment):
        def postponed(self, own: float, spent: float) -> bool:
            raise AssertionError

    assert Clock(1e-3, crowded=1000).turn(moment=Never(lambda: False, 1.0)).samples


@pytest.mark.parametrize("disturbed", [False, True])
def test_turn_that_had_to_wait_warms_up(disturbed: bool) -> None:
    looks = [disturbed, False]
    short = Clock(1e-5, yardstick=2e-5)
    short.turn(moment=Moment(lambda: looks.pop(0), 1.0))
    number = 10
    assert short.beside == PLAN.repeats * number + 2 + disturbed * WARMING * number
    long = Clock(1e-2, yardstick=9e-3)
    looks = [disturbed, False]
    long.turn(moment=Moment(lambda: looks.pop(0), 1.0))
    assert long.beside == 1 + disturbed


def test_turn_on_other_memory_than_the_last_warms_up() -> None:
    clock = Clock(1e-3)
    clock.turn(cold=True)
    assert clock.beside == PLAN.repeats + min(WARMING, int(2.5e-3 / YARDSTICK))


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
