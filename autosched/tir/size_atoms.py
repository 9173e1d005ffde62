"""What sizes are made of besides numbers: named parameters, and what is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autosched.errors import ScheduleError
from autosched.tir.expr import Var


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class SizeVar(Var):
    """A symbolic size: an int64 of at least 1, bound from the shapes of the arrays in a call."""


class Unknown:
    """The truth of what holds for some sizes and not for others, or could not be decided.

    Only of an equation there is a truth value: whether both sides are written alike, as for any
    other object.
    """

    __slots__ = ("written",)

    def __init__(self, written: bool | None = None) -> None:
        self.written = written

    def __and__(self, other: Any) -> Any:
        return False if other is False else self

    def __or__(self, other: Any) -> Any:
        return True if other is True else self

    __rand__, __ror__ = __and__, __or__

    def __bool__(self) -> bool:
        if self.written is not None:
            return self.written
        raise Undecided("a comparison of symbolic sizes does not come out the same for all sizes")

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()
"""Of an inequality."""


class Undecided(ScheduleError):
    """A decision that hangs on symbolic sizes."""
