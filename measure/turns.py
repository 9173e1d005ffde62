"""A turn: a few samples of a kernel that was timed before, in a visit or among finalists."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from measure.timing import MOST_LONG, Estimate, Samples, TimingPlan, drift, estimate

TURN_SAMPLES = 8
TURN_SECONDS = 0.008
TURN_PATIENCE = 4


def time_turn(
    call: Callable[[int], float],
    pacer: Callable[[], float],
    plan: TimingPlan,
    nominal: float,
    known: float | None = None,
    waited: Callable[[], float] = lambda: 0.0,
    crowding: Callable[[float], float] = lambda pace: 0.0,
) -> Estimate:
    """`TURN_SAMPLES` clean samples after a warm-up, fewer of a long kernel; see `time_kernel`.

    What warms up a long kernel is its first sample, and the turn ends with the first one that lies
    within `plan.agreement` of `known`, the best time so far in seconds: that was the question.
    """
    paces: list[float] = []
    samples = Samples(call, waited)

    def after() -> float:
        paces.append(pacer())
        return crowding(paces[-1])

    long = plan.long_ms * 1e-3
    samples.take(1, lambda: after() if samples.spent > long else 0.0)
    number, warm = plan.number or 1, samples.all[0]
    if plan.number or warm <= long:
        if warm < TURN_SECONDS / 10:
            warm = call(1)
        number = plan.number or max(1, round(plan.min_repeat_ms * 1e-3 / warm))
        samples, known = Samples(call, waited), None
        paces.clear()
    most = MOST_LONG if number == 1 and warm > long else inf
    while len(samples.all) < most and not (
        _is_over(samples) or _is_as_known(samples, paces, nominal, known, plan.agreement)
    ):
        samples.take(number, after)
    steady = samples.clean or samples.all
    return estimate(steady, paces, nominal, samples.runs, samples.noise)


def _is_as_known(
    samples: Samples, paces: list[float], nominal: float, known: float | None, agreement: float
) -> bool:
    """Whether the best clean sample says the same as the best time before."""
    if known is None or not samples.clean:
        return False
    return abs(min(samples.clean) * drift(paces, nominal) / known - 1) <= agreement


def _is_over(samples: Samples) -> bool:
    """Whether a turn has enough clean samples, fewer of a long kernel, or took too long."""
    if len(samples.all) < 2:
        return samples.spent >= TURN_PATIENCE * TURN_SECONDS
    clean = len(samples.clean) >= TURN_SAMPLES or samples.clean_spent >= TURN_SECONDS
    # Kernels of a device may be shorter than launching them.
    spent = max(samples.spent, samples.wall / 2)
    return clean or samples.all_crowded or spent >= TURN_PATIENCE * TURN_SECONDS
