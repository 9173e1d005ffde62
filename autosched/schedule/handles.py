"""What primitives are called with: handles of blocks and loops, factors; and all of it as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from autosched.errors import ScheduleError
from autosched.integers import plain
from autosched.schedule.trace import Decision, Ref
from autosched.tir.affine import Int


@dataclass(frozen=True, eq=False, slots=True)
class BlockRV:
    """A block of a schedule, printed `b0`. Compared by identity: other schedules have one too."""

    id: int

    def __repr__(self) -> str:
        return f"b{self.id}"


@dataclass(frozen=True, eq=False, slots=True)
class LoopRV:
    """A loop of a schedule, printed `l3`. Compared by identity: other schedules have one too."""

    id: int

    def __repr__(self) -> str:
        return f"l{self.id}"


RV = Union[BlockRV, LoopRV]
Factor = Union[Int, Decision, None]


def as_data(value: Any) -> Any:
    """An argument as a step keeps it. Raises ScheduleError on what JSON cannot hold."""
    if isinstance(value, (BlockRV, LoopRV)):
        return Ref(repr(value))
    if isinstance(value, (list, tuple)):
        return tuple(as_data(v) for v in value)
    value = plain(value)
    if value is None or isinstance(value, (bool, int, float, str, Decision, np.ndarray)):
        return value
    raise ScheduleError(
        f"a step holds numbers, texts and lists of them; found {type(value).__name__}: {value!r}"
    )
