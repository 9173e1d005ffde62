"""The parameters of the timing protocol, all of them: what a block is, and who gets one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimingPlan:
    """What one block of samples is.

    A sample is the mean of `number` calls, or with 0 of so many as fill `min_repeat_ms`. A block
    ends after `repeats` samples, or after 2 once `budget_ms` are spent. A kernel above `long_ms` is
    called once a sample, its warm-up counts as the sample, and one is enough. A candidate above
    `out_of_race` times the best is given up after `chances` calls or `give_up_ms`, since one slow
    call may be the system's fault. A kernel above `long_ms` whose undisturbed first call takes
    `near_race` times the best is timed by that call. One slower than the budget is timed by its
    second call if it is above that, or takes more than `long_factor` budgets.

    All this counts undisturbed samples. With disturbed ones a block ends after `disturbed_ms`, or
    two budgets if that is longer; of a long kernel after two budgets, or four samples. It ends in
    any case after `wall_ms` on this machine's clock, where launching takes longer than what is
    launched. `cooldown_ms` is slept before every sample; with `flush_cache` the arguments are out
    of the caches before every call.
    """

    number: int = 0
    min_repeat_ms: float = 0.2
    repeats: int = 4
    budget_ms: float = 10.0
    out_of_race: float = 3.0
    near_race: float = 1.5
    chances: int = 5
    give_up_ms: float = 20.0
    disturbed_ms: float = 40.0
    wall_ms: float = 500.0
    long_factor: float = 30.0
    long_ms: float = 2.5
    cooldown_ms: float = 0.0
    flush_cache: bool = False


@dataclass(frozen=True)
class StopRule:
    """Which candidates get further blocks: the contenders, up to `margin` times the fastest.

    A contender gets `least` undisturbed blocks, and no more than `most` of any kind; with `compare`
    it goes on to `most` as long as it is not the only contender.
    """

    margin: float
    least: int
    most: int
    compare: bool = False


SEARCH = StopRule(margin=1.1, least=2, most=3)
"""Of a round's candidates: what is near the best is confirmed. The final re-measurement decides."""


def final(blocks: int) -> StopRule:
    """Of the final re-measurement, in which no candidate gets more than so many blocks."""
    return StopRule(margin=1.05, least=min(3, blocks), most=blocks, compare=True)
