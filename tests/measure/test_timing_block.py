"""A block of samples on a clock that is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from measure.timing.block import drift, estimate, take_block
from measure.timing.plan import TimingPlan
from measure.timing.timing import Timing, quantile

PLAN = TimingPlan()
NOMINAL = 50e-6


class Clock:
    """A kernel of given seconds, but for the calls listed, on a clock of a given rate."""

    def __init__(
        self, seconds: float, rate: float = 1.0, slow: dict[int, float] | None = None
    ) -> None:
        self.seconds = seconds
        self.rate = rate
        self.slow = slow or {}
        self.calls = 1
        self.spent = 0.0

    def call(self, number: int) -> float:
        total = 0.0
        for _ in range(number):
            total += self.slow.get(self.calls, self.seconds * self.rate)
            self.calls += 1
        self.spent += total
        return total

    def probe(self) -> float:
        return NOMINAL * self.rate

    def time(self, plan: TimingPlan = PLAN, best: float | None = None) -> Timing:
        first = self.slow.get(0, self.seconds * self.rate)
        return take_block(self.call, self.probe, first, plan, NOMINAL, best)


@pytest.mark.parametrize("rate", [0.9, 1.0, 1.2])
@pytest.mark.parametrize("seconds", [5e-6, 1e-3, 20e-3])
def test_block_cancels_the_drift_of_the_clock(seconds: float, rate: float) -> None:
    found = Clock(seconds, rate).time()
    assert found.seconds == pytest.approx(seconds)
    assert found.raw_seconds == pytest.approx(seconds * rate)


def test_block_does_not_believe_a_clock_probe_that_was_kept_waiting() -> None:
    assert drift([2 * NOMINAL], NOMINAL) == 1.0
    assert drift([NOMINAL / 2], NOMINAL) == 1.0
    assert drift([1.1 * NOMINAL, 5 * NOMINAL], NOMINAL) == pytest.approx(1 / 1.1)


def test_block_stays_within_its_budget() -> None:
    for seconds in (1e-6, 1e-4, 1e-3, 5e-3, 9e-3):
        clock = Clock(seconds)
        found = clock.time()
        assert clock.spent < 0.03
        assert len(found.samples) >= (1 if seconds > PLAN.long_ms * 1e-3 else 2)


def test_block_is_short() -> None:
    assert len(Clock(1e-4).time().samples) == PLAN.repeats
    long = Clock(1e-2)
    assert long.time().samples == (1e-2,)
    assert long.calls == 2, "the verified call, and one that warms up and counts"


def test_block_gives_up_early_on_what_is_out_of_the_race() -> None:
    lost = Clock(1e-3)
    found = lost.time(best=2e-4)
    assert lost.calls - 1 < PLAN.chances
    assert found.seconds == pytest.approx(1e-3)
    alone = Clock(1e-3)
    alone.time()
    assert alone.calls > lost.calls
    slow = Clock(0.1)
    assert slow.time(best=1e-3).runs == 1
    assert slow.calls == 1  # the verified call said enough


def test_block_forgives_slow_calls_of_a_fast_kernel() -> None:
    clock = Clock(1e-5, slow={0: 4e-3, 1: 4e-3, 2: 4e-3})
    found = clock.time(best=1e-5)
    assert found.seconds == pytest.approx(1e-5)
    assert len(found.samples) > 2


def test_block_calls_long_kernels_twice() -> None:
    clock = Clock(1.0)
    found = clock.time()
    assert (clock.calls, found.runs) == (1, 1)
    clock = Clock(0.1)
    assert clock.time(best=0.05).runs == 1
    assert clock.calls == 2


def test_block_number_and_repeat_are_kept() -> None:
    plan = replace(PLAN, number=7, repeats=3)
    found = Clock(1e-5).time(plan)
    assert len(found.samples) == 3
    assert found.runs == 21


def test_block_spread_is_relative() -> None:
    found = estimate([1.0, 1.0, 1.1, 1.3, 9.0], [2.0, 2.2], 2.0, 5)
    assert found.spread == pytest.approx(0.3)
    assert found.noise == pytest.approx(0.05)
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0], 0.75) == 1.0


class Shared(Clock):
    """On a machine with other work: the calls listed take longer, and their threads have waited for
    as long."""

    def __init__(self, seconds: float, disturbed: dict[int, float]) -> None:
        super().__init__(seconds, slow={n: seconds + more for n, more in disturbed.items()})
        self.disturbed = disturbed
        self.waits = 0.0

    def call(self, number: int) -> float:
        self.waits += sum(self.disturbed.get(self.calls + n, 0.0) for n in range(number))
        return super().call(number)

    def time(self, plan: TimingPlan = PLAN, best: float | None = None) -> Timing:
        first = self.slow.get(0, self.seconds)
        return take_block(
            self.call, self.probe, first, plan, NOMINAL, best, waited=lambda: self.waits
        )


@pytest.mark.parametrize(
    ("seconds", "best", "clean", "calls"),
    [(16e-3, 10e-3, True, 1), (16e-3, 10e-3, False, 2), (14e-3, 10e-3, True, 2)],
    ids=["behind", "behind, and disturbed", "near"],
)
def test_block_calls_what_is_behind_and_long_no_second_time(
    seconds: float, best: float, clean: bool, calls: int
) -> None:
    clock = Clock(seconds)
    found = take_block(clock.call, clock.probe, seconds, PLAN, NOMINAL, best, first_clean=clean)
    assert found.seconds == pytest.approx(seconds)
    assert clock.calls == calls


def test_block_leaves_out_disturbed_samples() -> None:
    quiet = Clock(1e-3).time()
    clock = Shared(1e-3, dict.fromkeys(range(2, 40, 3), 0.004))
    found = clock.time()
    assert found.seconds == pytest.approx(1e-3)
    assert found.spread == pytest.approx(quiet.spread)
    assert found.noise == quiet.noise
    assert len(found.samples) == len(quiet.samples)
    assert found.runs > quiet.runs


def test_block_goes_on_longer_where_nothing_is_clean_and_says_how_noisy_it_was() -> None:
    clock = Shared(2e-3, {n: 2e-3 if n % 7 else 0.5e-3 for n in range(1000)})
    found = clock.time()
    assert PLAN.budget_ms * 1e-3 < clock.spent < 1.3 * PLAN.disturbed_ms * 1e-3
    assert found.seconds == pytest.approx(2.5e-3)
    assert found.noise == pytest.approx(0.2)  # of the best sample


def test_block_gives_disturbed_calls_another_chance_in_the_race() -> None:
    clock = Shared(1e-3, dict.fromkeys(range(4), 0.008))
    found = clock.time(best=1e-3)
    assert found.seconds == pytest.approx(1e-3)
    assert len(found.samples) == PLAN.repeats
    lost = Shared(9e-3, dict.fromkeys(range(1000), 0.009))
    assert lost.time(best=1e-3).runs < 10
