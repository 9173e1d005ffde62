"""Numbers from users, who may have made them with NumPy, as Python's own."""

from __future__ import annotations

from dataclasses import fields
from operator import index
from typing import Any

import numpy as np

from autosched.errors import AutoschedError


def plain(value: Any) -> Any:
    """A number of NumPy's as Python's; all else as it is."""
    alone = isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim)
    return value.item() if alone else value


def as_int(value: object) -> int | None:
    """`value` as an int if it is a whole number of any type; None for all else and for bools."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def integer(name: str, value: object, low: int, error: type[AutoschedError]) -> int:
    """`value` as an int. Raises `error` unless it is a whole number of 64 bits not below `low`."""
    found = as_int(value)
    if found is None or found < low:
        raise error(f"{name} is {value!r}; expected an integer of at least {low}")
    if found >= 1 << 63:
        raise error(f"{name} is {found}; expected an integer below 2**63")
    return found


def settle(options: Any, error: type[AutoschedError], **lows: int) -> None:
    """Make fields of a frozen dataclass ints, each not below its low; None stays where it is the
    default. Raises `error` for what is none."""
    default = {f.name: f.default for f in fields(options)}
    for name, low in lows.items():
        value = getattr(options, name)
        if value is not None or default[name] is not None:
            object.__setattr__(options, name, integer(name, value, low, error))
