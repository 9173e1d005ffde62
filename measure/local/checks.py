"""Times that users give a local pool, checked where they are given."""

from __future__ import annotations

from numbers import Real
from typing import Any

from autosched.errors import MeasureError

MOST_SECONDS = 1e6
"""Eleven days: the system waits for no more than 2**31 milliseconds."""


def check_times(options: Any, *names: str, zero: bool = False) -> None:
    """Raise MeasureError if these are no numbers above zero, or from `zero` up, and finite."""
    for name in names:
        value = getattr(options, name)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        # NaN is neither above nor below anything.
        if not (is_number and value <= MOST_SECONDS and (value > 0 or (zero and value == 0))):
            bound = "from 0" if zero else "above 0"
            raise MeasureError(
                f"{name} is {value!r}; expected a number {bound}, at most {MOST_SECONDS:g}"
            )
