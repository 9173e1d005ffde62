"""What operators read between elements, at places that data name."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Tap(NamedTuple):
    """Elements beside places along one axis: their indices, their weights in what is read at the
    places, and the derivatives of these by the places."""

    at: Array
    weight: Array
    slope: Array


def add_at(into: Array, at: Any, values: Array) -> None:
    """Adds values at places; all of those that name one element."""
    np.add.at(into, at, values)
