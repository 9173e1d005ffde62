"""A turn: a few samples of a kernel that was timed before, in a visit or among finalists.

Before and after them come some of the job's yardstick: what slows the one down (a clock, a
neighbour that wears out shared caches and memory) slows the other. They do not alternate, since
what one leaves in the caches is not what the other needs. Levels are lower deciles, which neither
the first call, a few per cent slow, nor one that was disturbed alone moves by much.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from measure.patience import Moment
from measure.timing import Beside, Estimate, Samples, TimingPlan, drift, estimate, quantile

PATIENCE = 4
"""Times its budget that a turn may take where samples are disturbed."""
LEVEL = 0.1
PACES = 2
WARMING = 3
"""Samples that warm up a yardstick after a pause: on two threads, after 10 ms, convolution and
softmax took 1.16 and 1.44 times as long, then 1.02 and 1.18, 1.01 and 1.04, 1.01 and 1.02."""
NOW = Moment(lambda: False, 0.0)


@dataclass(frozen=True)
class Known:
    """A kernel that was timed: `call(n)` makes n calls and gives their seconds together, about
    `seconds` each."""

    call: Callable[[int], float]
    seconds: float

    def number(self, plan: TimingPlan) -> int:
        """Calls a sample."""
        return plan.number or max(1, round(plan.min_repeat_ms * 1e-3 / self.seconds))


def time_turn(
    kernel: Known,
    yardstick: Known | None,
    pacer: Callable[[], float],
    plan: TimingPlan,
    nominal: float,
    waited: Callable[[], float] = lambda: 0.0,
    crowding: Callable[[], float] = lambda: 0.0,
    moment: Moment = NOW,
    cold: bool = False,
) -> Estimate:
    """`plan.repeats` clean samples of either within half of `plan.budget_ms`, one at least; see
    `time_kernel`. Without a `yardstick` there is nothing beside. It begins when `moment` says so.
    `cold`: caches hold something else.
    """
    paces: list[float] = []

    def after() -> float:
        # The clock moves little within a turn, and the yardstick feels it as the kernel does.
        if len(paces) < PACES:
            paces.append(pacer())
        return crowding()

    def take(into: Samples, of: Known, most: int, budget: float) -> None:
        number, end = of.number(plan), into.spent + PATIENCE * budget
        if number > 1:
            of.call(1)
        clean, spent = len(into.clean) + most, into.clean_spent + budget
        tried = 0
        while not (
            len(into.clean) >= clean
            or into.clean_spent >= spent
            # Kernels of a device may be shorter than launching them.
            or max(into.spent, into.wall / 2) >= end
            or (into.all_crowded and tried > 1)
        ):
            if plan.cooldown_ms:
                time.sleep(plan.cooldown_ms * 1e-3)
            into.take(number, after)
            tried += 1

    budget = plan.budget_ms * 1e-3
    slept = moment.wait() or cold
    samples, beside = Samples(kernel.call, waited), None
    if yardstick is not None:
        while True:
            paces.clear()
            began = time.monotonic()
            beside = Samples(yardstick.call, waited)
            if slept:
                # Caches lose what they held within milliseconds, and threads fall asleep.
                longest = max(1, int(budget / 4 / yardstick.seconds))
                yardstick.call(min(WARMING * yardstick.number(plan), longest))
            take(beside, yardstick, -(-plan.repeats // 2), budget / 4)
            slowest = quantile(beside.steady, LEVEL)
            # Where this machine's other work disturbed all of them they say nothing of memory.
            rate = drift(paces, nominal)
            spent = time.monotonic() - began
            slept = bool(beside.clean) and moment.postponed(slowest * rate, spent)
            if not slept:
                break
    take(samples, kernel, plan.repeats, budget / 2)
    if yardstick is None or beside is None:
        return estimate(samples.steady, paces, nominal, samples.runs, samples.noise)
    first = len(beside.steady)
    if beside.clean_spent < budget / 4:
        take(beside, yardstick, plan.repeats // 2, budget / 4)
    slowest = max(slowest, quantile(beside.steady[first:] or [slowest], LEVEL))
    noise = max(samples.noise, beside.noise)
    found = estimate(samples.steady, paces, nominal, samples.runs, noise)
    rate = drift(paces, nominal)
    levels = (quantile(side.steady, LEVEL) for side in (samples, beside))
    return replace(found, beside=Beside(*(s * rate for s in (*levels, slowest))))
