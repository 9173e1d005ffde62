"""Finalists: timed in turns, each built as it will be handed out."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from autosched.codegen.llvm.assemble import Level
from measure.status import Distribution, Status
from measure.visits import EQUAL, UNSURE, Visited

SURE_AFTER = 3  # turns
MARGIN = 1.05


def contenders(finalists: Sequence[Visited]) -> list[Visited]:
    """Those worth another turn: nothing went wrong, and not clearly slower than the fastest."""
    limit = MARGIN * min((f.seconds or inf for f in finalists if f.rounds), default=inf)
    return [
        f
        for f in finalists
        if f.result.ok
        and f.artifact is not None
        and not f.troubled
        and (len(f.rounds) < SURE_AFTER or (f.seconds or inf) <= limit)
    ]


def distribution(finalist: Visited, level: Level) -> Distribution:
    """All turns together, of a build at `level`."""
    found, rounds = finalist.final(), finalist.rounds
    if found.ok and not rounds and not finalist.troubled:
        return Distribution(Status.DEVICE_LOST, "no turn came to an end", level=level)
    if not found.ok:
        return Distribution(found.status, found.error, level=level)
    least = UNSURE if finalist.troubled else EQUAL * (finalist.error or 0.0)
    return Distribution(
        Status.OK,
        found.error,
        seconds=found.seconds,
        raw_seconds=found.raw_seconds,
        spread=found.spread,
        noise=max(found.noise or 0.0, least),
        rounds=rounds,
        level=level,
        runs=found.runs,
    )
