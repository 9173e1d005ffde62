"""One block: a few samples of one kernel, and what is made of their times.

The clock of a processor drifts by several per cent within seconds. So a fixed kernel, the clock
probe, is timed in between, and the estimate is a ratio of minima:

    seconds = min(samples) * nominal / min(clock samples)

with `nominal` the probe's time when the pool was opened. Over 50 processes this spread by 1.6 %;
the minimum alone by 6.5 %, the median by 10.8 %. A probe that is off by more than clocks drift was
kept from its cores by other work, and says nothing: then the minimum stands as it is, and the noise
figure tells. The first two calls of a kernel are several per cent slow: they warm up. A candidate
that is clearly out of the race is called just often enough to say so.

Other work on the machine only ever makes a sample slower, and the system says when it did: how long
a process's threads have waited for a core (`machine.threads`). A sample during which they waited
for more than `CLEAN` of it is disturbed. It does not count towards what ends a block or puts a
candidate out of the race, only towards `disturbed_ms`. Where no sample was clean, the noise figure
is at least what the least disturbed one waited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import ceil, inf

from measure.timing.plan import TimingPlan
from measure.timing.timing import Timing, relative_range

MAX_DRIFT = 1.33
CLEAN = 0.01
"""Share of a sample that its threads may wait for a core."""
MOST_LONG = 4
"""Samples of a long kernel that are waited for: if all were disturbed, another block follows."""


class Samples:
    """Timed calls of one kernel: seconds a call, and which of them were clean."""

    def __init__(self, call: Callable[[int], float], waited: Callable[[], float]) -> None:
        self._call, self._waited = call, waited
        self.all: list[float] = []
        self.clean: list[float] = []
        self.clean_spent = 0.0
        self.spent = 0.0
        self.wall = 0.0
        self.runs = 0
        self._least = inf

    def take(self, number: int = 1) -> None:
        """One sample of `number` calls."""
        before, began = self._waited(), time.monotonic()
        total = self._call(number)
        wall = time.monotonic() - began
        # A device's clock runs while its kernels do; what keeps us waiting takes longer.
        share = (self._waited() - before) / max(total, wall)
        self.wall += wall
        self.all.append(total / number)
        self.spent += total
        self.runs += number
        if share <= CLEAN:
            self.clean.append(total / number)
            self.clean_spent += total
        self._least = min(self._least, share)

    @property
    def steady(self) -> list[float]:
        """The clean ones; all where none was."""
        return self.clean or self.all

    @property
    def noise(self) -> float:
        """How disturbed the least disturbed sample was, as a fraction; 0 if one was clean."""
        return 0.0 if self.clean or not self.all else self._least


def take_block(
    call: Callable[[int], float],
    clock: Callable[[], float],
    first_seconds: float,
    plan: TimingPlan,
    nominal: float,
    best_seconds: float | None = None,
    waited: Callable[[], float] = lambda: 0.0,
    first_clean: bool = False,
) -> Timing:
    """Time a kernel that was called before, and then took about `first_seconds`, undisturbed where
    `first_clean` says so.

    `call(n)` makes n calls and gives their seconds together; `clock()` times the clock probe once;
    `waited()` is for how many seconds this process's threads have waited for a core so far.
    """
    race = best_seconds if best_seconds is not None else inf
    budget = plan.budget_ms * 1e-3
    ticks: list[float] = []

    if first_clean and first_seconds > max(plan.long_ms * 1e-3, plan.near_race * race):
        # Of a long kernel the first call is hardly slower than others, and this one is out of it.
        return estimate([first_seconds], [clock() for _ in range(3)], nominal, 1)
    warm = Samples(call, waited)
    while _looks_lost(first_seconds, warm, plan, race):
        warm.take()
    doubted = bool(warm.all)
    if not doubted and first_seconds <= min(plan.long_factor * budget, plan.out_of_race * race):
        warm.take()
        ticks.append(clock())
    quick = min(first_seconds, *warm.all) if warm.all else first_seconds
    ticks += [clock() for _ in range(3 - len(ticks))]
    slow = quick > budget and quick > min(plan.near_race * race, plan.long_factor * budget)
    if slow or quick > plan.out_of_race * race:
        return estimate(warm.all or [quick], ticks, nominal, max(1, warm.runs), warm.noise)
    number = plan.number or max(1, ceil(plan.min_repeat_ms * 1e-3 / quick))
    whole = number == 1 and quick > plan.long_ms * 1e-3 and not doubted
    samples = warm if whole else Samples(call, waited)
    most_seconds = max(2 * budget, MOST_LONG * quick if whole else plan.disturbed_ms * 1e-3)
    wanted = 1 if whole else plan.repeats
    while not _enough(samples, sum(ticks), plan, wanted, most_seconds):
        if plan.cooldown_ms:
            time.sleep(plan.cooldown_ms * 1e-3)  # asked for: the processor cools down
        samples.take(number)
        ticks.append(clock())
    return estimate(samples.steady, ticks, nominal, samples.runs, samples.noise)


def _looks_lost(first: float, warm: Samples, plan: TimingPlan, race: float) -> bool:
    """Whether a candidate needs one more chance to show that it is not out of the race."""
    return (
        min([first, *warm.all]) > plan.out_of_race * race
        and 1 + len(warm.clean) < plan.chances
        and first + warm.clean_spent < plan.give_up_ms * 1e-3
        and first + warm.spent < plan.disturbed_ms * 1e-3
    )


def _enough(
    samples: Samples, probing: float, plan: TimingPlan, wanted: int, most_seconds: float
) -> bool:
    """Whether sampling may end; `probing` seconds went to the clock probe."""
    every, n = len(samples.all), len(samples.clean)
    if every >= 2 and samples.spent + probing >= most_seconds:
        return True
    if every >= 2 and samples.wall >= plan.wall_ms * 1e-3:
        return True
    return n >= wanted or (n >= 2 and samples.clean_spent + probing >= plan.budget_ms * 1e-3)


def estimate(
    samples: Sequence[float],
    ticks: Sequence[float],
    nominal: float,
    runs: int,
    least_noise: float = 0.0,
) -> Timing:
    """The estimate from samples of a kernel and of the clock probe."""
    raw = min(samples)
    seconds = raw * drift(ticks, nominal)
    return Timing(
        seconds=seconds,
        raw_seconds=raw,
        spread=relative_range(samples),
        noise=max(least_noise, relative_range(ticks)),
        runs=runs,
        samples=tuple(samples),
        blocks=(seconds,),
        clock_seconds=min(ticks),
    )


def drift(ticks: Sequence[float], nominal: float) -> float:
    """How much faster the clock ran than nominal, as a factor; 1 where the probe cannot tell."""
    factor = nominal / min(ticks)
    return factor if 1 / MAX_DRIFT < factor < MAX_DRIFT else 1.0
