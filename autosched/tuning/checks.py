"""What is said to arguments of a tuning run that are not what they must be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autosched.errors import TuningError


def instance(name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Raises TuningError unless `value` is of a kind."""
    if not isinstance(value, kind):
        raise TuningError(f"{name} is {value!r}; expected {expected}")


def listed(name: str, values: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Raises TuningError unless `values` is a sequence of a kind; a str is none."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TuningError(f"{name} is {values!r}; expected a list of {expected}")
    for value in values:
        if not isinstance(value, kind):
            raise TuningError(f"{name} holds {value!r}; expected a {expected}")


def number(name: str, value: Any) -> float:
    """`value` as a float. Raises TuningError unless it is a number; NaN is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if math.isnan(found) or isinstance(value, (str, bytes)):
        raise TuningError(f"{name} is {value!r}; expected a number")
    return found
