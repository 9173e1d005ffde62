"""Random choices of a schedule, which become decisions of its trace."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from autosched.schedule.check import refuse


def perfect_tile(
    extent: int, n: int, most: int, rng: Random, given: Sequence[int] | None
) -> list[int]:
    """`n` factors of `extent`, the last at most `most`: those `given`, or random ones.

    Raises ScheduleError for factors that do not multiply to the extent, or a last one beyond.
    """
    what = "sample_perfect_tile"
    if n < 1 or most < 1:
        refuse(f"{what}: expected at least one factor, and a limit from 1 up")
    if given is not None:
        product = 1
        for f in given:
            product *= f
        if len(given) != n or product != extent or min(given) < 1 or given[-1] > most:
            refuse(
                f"{what}: expected {n} factors of {extent}, the last at most {most}; found "
                f"{list(given)}"
            )
        return list(given)
    if n == 1:
        if extent > most:
            refuse(f"{what}: one factor of {extent} is more than {most}")
        return [extent]
    inner = rng.choice([d for d in range(1, min(extent, most) + 1) if extent % d == 0])
    out = [1] * (n - 1)
    rest, prime = extent // inner, 2
    while rest > 1:
        if prime * prime > rest:
            prime = rest
        while rest % prime == 0:
            out[rng.randrange(n - 1)] *= prime
            rest //= prime
        prime += 1
    return [*out, inner]


def categorical(
    candidates: Sequence[int], probs: Sequence[float] | None, rng: Random, given: int | None
) -> int:
    """One of the candidates: number `given`, or a random one."""
    what = "sample_categorical"
    if not candidates:
        refuse(f"{what}: no candidates")
    if given is not None:
        if not 0 <= given < len(candidates):
            refuse(f"{what}: decision {given} is no number of {len(candidates)} candidates")
        return candidates[given]
    if probs is not None:
        is_fit = len(probs) == len(candidates) and min(probs) >= 0 and sum(probs) > 0
        if not is_fit:
            refuse(f"{what}: expected {len(candidates)} probabilities from 0 up, one above")
        return rng.choices(candidates, probs)[0]
    return rng.choice(candidates)
