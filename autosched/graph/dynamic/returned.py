"""Results at the capacity of which the caller has the beginning."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np

from autosched.graph.ir import Array

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Result:
    owner: weakref.ref[Array]
    offset: int
    whole: Shape
    cut: Shape
    strides: Shape
    dtype: np.dtype
    blank: bool
    """Whether zeros lie beyond the beginning."""


class Returned:
    """What was returned, by the memory in which it lies, which this does not keep alive.

    An input that is such a result has the room for its padding behind it, so it is taken as it
    lies. Only what the caller never saw is written: an input that is a part of a result is copied.
    """

    def __init__(self) -> None:
        self._results: dict[int, _Result] = {}

    def add(self, whole: Array, cut: Array, blank: bool) -> None:
        """A result and the beginning that is returned. `blank`: zeros lie beyond it."""
        owner = whole.base
        if owner is None or cut.shape == whole.shape:
            return
        key, results = id(owner), self._results
        offset = whole.ctypes.data - owner.ctypes.data
        results[key] = _Result(
            weakref.ref(owner, lambda _: results.pop(key, None)),
            offset, whole.shape, cut.shape, cut.strides, whole.dtype, blank,
        )  # fmt: skip

    def whole(self, array: Array, shape: Shape) -> Array | None:
        """The result of this shape that an array is the beginning of, zeros beyond it; None where
        it is no such beginning."""
        owner = array.base
        r = self._results.get(id(owner))
        if owner is None or r is None or r.owner() is not owner:
            return None
        same = array.shape == r.cut and array.strides == r.strides and array.dtype == r.dtype
        at = array.ctypes.data - owner.ctypes.data
        if not same or r.whole != shape or at != r.offset:
            return None
        whole: Array = np.ndarray(shape, r.dtype, owner, r.offset)
        if not r.blank:
            write_zeros(whole, array.shape)
        return whole


def write_zeros(array: Array, shape: Shape) -> None:
    """Write zeros beyond a shape."""
    for axis, size in enumerate(shape):
        array[(slice(None),) * axis + (slice(size, None),)] = 0
