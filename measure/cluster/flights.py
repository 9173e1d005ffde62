"""Candidates under way: where each is, which call it is of, and the dispatcher's limits."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """Sizes and wait budgets; times in seconds.

    A batch is for `batch_seconds` of a device's time, and at most `batch_items`: enough that what
    a batch costs to dispatch (2 ms) does not count, few enough that little is lost with it. The
    next one is sent `lead` before its end: as long may the way there take, and the dispatcher be
    busy with other devices. `silence`: without a sign of life a worker is taken for dead. `stall`:
    as long may a worker live without an answer. `check`: for the canary.
    """

    batch_seconds: float = 4.0
    batch_items: int = 32
    lead: float = 2.0
    silence: float = 20.0
    stall: float = 600.0
    check: float = 120.0


@dataclass
class Flight:
    """A batch that a device has. `items`: those not answered by it; empty for a canary. `since`:
    when it was sent, or the one before it ended."""

    batch: int
    name: str
    call: int
    items: set[int]
    since: float
    heard_at: float
    check: bool = False
    started: bool = False
    moved_at: float = 0.0
    void: bool = False
    leaving: bool = False
    """Its device is drained: what is not answered when it ends is for others."""
    size: int = 0


@dataclass
class Call:
    """What is to be decided now."""

    number: int
    open: set[int]
    fresh: deque[int]
    alike: bool = True
    again: deque[int] = field(default_factory=deque)
    attempts: Counter[int] = field(default_factory=Counter)
    spared: Counter[int] = field(default_factory=Counter)


@dataclass
class Counters:
    """What happened so far in a pool's life."""

    batches: int = 0
    answers: int = 0
    repeats: int = 0
    """Items that were sent once more."""
    late: int = 0
    """Answers of batches that had been given up, and were the first all the same."""
    dropped: int = 0
    """Answers that came when all was decided, or that nobody asked for."""
