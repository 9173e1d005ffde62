"""What primitives are called with: handles of blocks and loops, factors; and all of it as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from autosched.checks import shown
from autosched.errors import ScheduleError
from autosched.integers import as_int, plain
from autosched.schedule.trace import Decision, Ref
from autosched.tir.affine import Int
from autosched.tir.nodes import Block


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


DEEPEST = 16
"""Lists in lists that a step may hold; one that holds itself has no end."""


def mapped(value: Any, change: Callable[[Any], Any], depth: int = 0) -> Any:
    """`value` with its leaves changed, lists of any kind as tuples."""
    if not isinstance(value, (list, tuple)):
        return change(value)
    if depth == DEEPEST:
        raise ScheduleError(f"a step holds lists in lists up to {DEEPEST} deep; found a deeper one")
    return tuple([mapped(v, change, depth + 1) for v in value])


def as_data(value: Any) -> Any:
    """An argument as a step keeps it. Raises ScheduleError on what JSON cannot hold."""
    return mapped(value, _leaf)


def _leaf(value: Any) -> Any:
    if isinstance(value, (BlockRV, LoopRV)):
        return Ref(repr(value))
    value = plain(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, Decision)) or is_numbers(value):
        return value
    raise ScheduleError(
        "a step holds numbers, texts and lists of them; found "
        f"{type(value).__name__}: {shown(value)}"
    )


def is_numbers(value: object) -> bool:
    """Whether a value is an array of integers, one a candidate."""
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"


def written_slot(block: Block, buffer: object, what: str) -> int:
    """The number of a write, given by itself or as the name of its buffer."""
    names = [a.buffer.name for a in block.writes]
    if isinstance(buffer, str) and buffer in names:
        return names.index(buffer)
    number = as_int(buffer)
    if number is None or not 0 <= number < len(names):
        raise ScheduleError(
            f"{what}: the block writes {', '.join(names)}; expected one of these names, or its "
            f"number from 0; found index {shown(buffer)}"
        )
    return number


def index_of(value: object, what: str) -> int:
    """A number that is the same for all candidates."""
    number = as_int(value)
    if number is None:
        raise ScheduleError(f"{what} is {shown(value)}; expected an int")
    return number


def text_of(value: object, what: str) -> str:
    """A name or a key."""
    if not isinstance(value, str):
        raise ScheduleError(f"{what} is {shown(value)}; expected a text")
    return str(value)
