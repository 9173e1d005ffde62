"""The timing protocol: how often a kernel is called, and what is made of the times.

This is a candidate's first visit, which says whether it is in the race and roughly how fast it is.
What it takes beside another kernel is told by later ones (`measure.turns`, `measure.visits`).

The clock of a processor drifts by several per cent within seconds. So a fixed kernel, the pacer, is
timed in between, and the estimate is a ratio of minima:

    seconds = min(samples) * nominal / min(pacer samples)

with `nominal` the pacer's time when the pool was opened. Over 50 processes this spread by 1.6 %;
the minimum alone by 6.5 %, the median by 10.8 %. A pacer that is off by more than clocks
drifts has been kept from its cores by other work, and says nothing: then the minimum stands as it
is, and the noise figure tells. The first two calls of a kernel are several per cent slow: they
warm up. A candidate that is clearly out of the race is called just often enough
to say so.

Other work on the machine only ever makes a sample slower, and the system says when it did: how long
a process's threads have waited for a core (`measure.threads`). A sample during which they waited
for more than `CLEAN` of it is disturbed. It does not count towards what ends sampling or puts a
candidate out of the race, only towards `patience_ms`. Nor does one after which the cores turn out
to be shared with someone (`measure.witness`); such times last, so a visit that finds nothing else
ends, and the candidate is visited later, as long as its job is patient (`measure.patience`). Where
no sample was clean, the noise figure is at least what the least disturbed one waited, or how
crowded its cores were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

MAX_DRIFT = 1.33
CLEAN = 0.01
"""Share of a sample that its threads may wait for a core."""
MOST_LONG = 4
"""Samples of a long kernel that are waited for: if all were disturbed it is visited later."""


@dataclass(frozen=True)
class TimingPlan:
    """Parameters of the protocol.

    A sample is the mean of `number` calls, or with 0 of so many as fill `min_repeat_ms`. A visit
    ends after `repeats` samples, or after 2 once `budget_ms` are spent; a first one of a kernel
    that is called once a sample and is long (above `long_ms`) after one, what warms it up counting
    as a sample. A candidate above `out_of_race` times the best is given up after `chances` calls or
    `give_up_ms`, since one slow call may be the system's fault. A kernel slower than the budget is
    timed by its second call alone if it is above `near_race`, or takes more than `long_factor`
    budgets. All this counts clean calls and samples; with disturbed ones sampling ends after
    `patience_ms`, or two budgets if that is longer; of a long kernel after two budgets, or four
    samples. It ends in any case after `wall_ms` on this machine's clock, where launching takes
    longer than what is launched. `cooldown_ms` is slept before every sample; with `flush_cache` the
    arguments are out of the caches before every call.

    After that come visits beside the yardstick, with other candidates in between, for those in the
    race: `least_visits` at least, and then until the mean is known within `agreement`, but at most
    `most_visits`, and no more once they took `most_ms`, or `most_near_ms` within `near_best` times
    the best. Above `near_race` times the best `far_visits` do, within `far_agreement`. Of a long
    kernel one less will do. See `measure.visits`.
    """

    number: int = 0
    min_repeat_ms: float = 0.2
    repeats: int = 4
    budget_ms: float = 10.0
    out_of_race: float = 3.0
    near_race: float = 1.5
    chances: int = 5
    give_up_ms: float = 20.0
    patience_ms: float = 80.0
    wall_ms: float = 500.0
    long_factor: float = 30.0
    long_ms: float = 2.5
    cooldown_ms: float = 0.0
    flush_cache: bool = False
    agreement: float = 0.005
    far_agreement: float = 0.015
    near_best: float = 1.1
    least_visits: int = 3
    far_visits: int = 2
    most_visits: int = 10
    most_ms: float = 35.0
    most_near_ms: float = 50.0


class Beside(NamedTuple):
    """Seconds a call of a kernel and of the yardstick beside it, drift cancelled. `slowest`: the
    yardstick's before or after the kernel, where it was slower."""

    kernel: float
    own: float
    slowest: float


@dataclass(frozen=True)
class Estimate:
    """What the protocol found, in seconds a call; see MeasureResult for the fields."""

    seconds: float
    raw_seconds: float
    spread: float
    noise: float
    runs: int
    samples: tuple[float, ...]
    pacer_samples: tuple[float, ...]
    barrier_seconds: float = inf
    """The fastest barrier between threads that was seen meanwhile."""
    witness_cycles: float = inf
    """The lower quartile of what the witness took; see `measure.witness`."""
    waited_seconds: float = 0.0
    """For which somebody else was let have the cores before the first sample."""
    beside: Beside | None = None
    """None where there was no yardstick."""


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
        self.crowded = 0
        self._least = inf

    def take(self, number: int = 1, crowding: Callable[[], float] = lambda: 0.0) -> None:
        """One sample of `number` calls; `crowding()` says afterwards how crowded the cores are."""
        before, began = self._waited(), time.monotonic()
        total = self._call(number)
        wall = time.monotonic() - began
        # A device's clock runs while its kernels do; what keeps us waiting takes longer.
        share = (self._waited() - before) / max(total, wall)
        self.wall += wall
        self.all.append(total / number)
        self.spent += total
        self.runs += number
        crowd = crowding()
        self.crowded += crowd > 0
        if max(share, crowd) <= CLEAN:
            self.clean.append(total / number)
            self.clean_spent += total
        self._least = min(self._least, max(share, crowd))

    @property
    def steady(self) -> list[float]:
        """The clean ones; all where none was."""
        return self.clean or self.all

    @property
    def all_crowded(self) -> bool:
        """Whether there are samples and none found the cores free."""
        return 0 < self.crowded == len(self.all)

    @property
    def noise(self) -> float:
        """How disturbed the least disturbed sample was, as a fraction; 0 if one was clean."""
        return 0.0 if self.clean or not self.all else self._least


def time_kernel(
    call: Callable[[int], float],
    pacer: Callable[[], float],
    first_seconds: float,
    plan: TimingPlan,
    nominal: float,
    best_seconds: float | None = None,
    waited: Callable[[], float] = lambda: 0.0,
    crowding: Callable[[], float] = lambda: 0.0,
) -> Estimate:
    """Time a kernel that has been called once, which took `first_seconds`.

    `call(n)` makes n calls and gives their seconds together; `pacer()` times the pacer once;
    `waited()` is for how many seconds this process's threads have waited for a core so far;
    `crowding()` by what share the cores are slower for being shared.
    """
    race = best_seconds if best_seconds is not None else inf
    budget = plan.budget_ms * 1e-3
    paces: list[float] = []

    def after() -> float:
        paces.append(pacer())
        return crowding()

    warm = Samples(call, waited)
    while _looks_lost(first_seconds, warm, plan, race):
        warm.take()
    doubted = bool(warm.all)
    if not doubted and first_seconds <= min(plan.long_factor * budget, plan.out_of_race * race):
        warm.take(1, after)
    quick = min(first_seconds, *warm.all) if warm.all else first_seconds
    paces += [pacer() for _ in range(3 - len(paces))]
    slow = quick > budget and quick > min(plan.near_race * race, plan.long_factor * budget)
    if slow or quick > plan.out_of_race * race:
        noise = max(warm.noise, crowding())
        return estimate(warm.all or [quick], paces, nominal, max(1, warm.runs), noise)
    number = plan.number or max(1, ceil(plan.min_repeat_ms * 1e-3 / quick))
    whole = number == 1 and quick > plan.long_ms * 1e-3 and not doubted
    samples = warm if whole else Samples(call, waited)
    patience = max(2 * budget, MOST_LONG * quick if whole else plan.patience_ms * 1e-3)
    wanted = 1 if whole else plan.repeats
    while not _enough(samples, sum(paces), plan, wanted, patience):
        if plan.cooldown_ms:
            time.sleep(plan.cooldown_ms * 1e-3)
        samples.take(number, after)
    return estimate(samples.steady, paces, nominal, samples.runs, samples.noise)


def _looks_lost(first: float, warm: Samples, plan: TimingPlan, race: float) -> bool:
    """Whether a candidate needs one more chance to show that it is not out of the race."""
    return (
        min([first, *warm.all]) > plan.out_of_race * race
        and 1 + len(warm.clean) < plan.chances
        and first + warm.clean_spent < plan.give_up_ms * 1e-3
        and first + warm.spent < plan.patience_ms * 1e-3
    )


def _enough(
    samples: Samples, pacing: float, plan: TimingPlan, wanted: int, patience: float
) -> bool:
    """Whether sampling may end; `pacing` seconds went to the pacer."""
    every, n = len(samples.all), len(samples.clean)
    if every >= 2 and samples.spent + pacing >= patience:
        return True
    if samples.all_crowded and every >= plan.repeats:
        return True
    if every >= 2 and samples.wall >= plan.wall_ms * 1e-3:
        return True
    return n >= wanted or (n >= 2 and samples.clean_spent + pacing >= plan.budget_ms * 1e-3)


def estimate(
    samples: Sequence[float],
    paces: Sequence[float],
    nominal: float,
    runs: int,
    least_noise: float = 0.0,
) -> Estimate:
    """The estimate from samples of a kernel and of the pacer."""
    raw = min(samples)
    return Estimate(
        seconds=raw * drift(paces, nominal),
        raw_seconds=raw,
        spread=relative_range(samples),
        noise=max(least_noise, relative_range(paces)),
        runs=runs,
        samples=tuple(samples),
        pacer_samples=tuple(paces),
    )


def drift(paces: Sequence[float], nominal: float) -> float:
    """How much faster the clock ran than nominal, as a factor; 1 where the pacer cannot tell."""
    factor = nominal / min(paces)
    return factor if 1 / MAX_DRIFT < factor < MAX_DRIFT else 1.0


def relative_range(samples: Sequence[float]) -> float:
    """Interquartile range as a fraction of the minimum."""
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / min(samples)


def quantile(samples: Sequence[float], q: float) -> float:
    """Linear between the order statistics."""
    ordered = sorted(samples)
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
