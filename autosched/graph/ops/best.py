"""The largest or smallest elements along an axis, and their indices, by NumPy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
PARTS = 32
"""Elements of which only the best one is looked at first."""
_LOW = 0xFFFFFFFF


def best(x: Array, n: int, largest: bool) -> tuple[Array, Array]:
    """The n best elements along the last axis, best first, and their indices, int64. Of equal ones
    the first is taken first; no number is larger than all numbers."""
    index = _of_parts(x, n, largest)
    if index is None and n:
        keys = _keys(x, np.arange(x.shape[-1]), largest)
        index = None if keys is None else _first(keys, n)
    if index is None:
        size = x.shape[-1]
        order = np.argsort(x[..., ::-1] if largest else x, -1, kind="stable")
        index = (size - 1 - order[..., ::-1] if largest else order)[..., :n].astype(np.int64)
    starts = (np.arange(prod(x.shape[:-1])) * x.shape[-1]).reshape(*x.shape[:-1], 1)
    return x.reshape(-1)[index + starts], index


def _of_parts(x: Array, n: int, largest: bool) -> Array | None:
    """The indices where few of many are asked for: those of parts whose best is among the n best of
    all parts, and then of their elements. None where more parts than n have such a best one, and
    for what `_keys` has none."""
    many = x.shape[-1] // PARTS
    if not 0 < 4 * n <= many or not _has_keys(x):
        return None
    whole = x[..., : PARTS * many].reshape(*x.shape[:-1], PARTS, many)
    tops = whole.max(-2) if largest else whole.min(-2)
    place = many - n if largest else n - 1
    least = np.partition(tops, place, -1)[..., place, None]
    chosen = tops >= least if largest else tops <= least
    if (chosen.sum(-1) != n).any():
        return None
    parts = np.nonzero(chosen)[-1].reshape(*x.shape[:-1], 1, n)
    index = (parts + many * np.arange(PARTS)[:, None]).reshape(*x.shape[:-1], PARTS * n)
    rest = np.arange(PARTS * many, x.shape[-1])
    index = np.concatenate([index, np.broadcast_to(rest, (*x.shape[:-1], len(rest)))], -1)
    keys = _keys(np.take_along_axis(x, index, -1), index, largest)
    return None if keys is None else _first(keys, n)


def _first(keys: Array, n: int) -> Array:
    found: Array = np.partition(keys, n - 1, -1)[..., :n]
    found.sort(-1)
    found &= _LOW
    return found


def _has_keys(x: Array) -> bool:
    """Whether elements have fewer than 64 bits, and all are numbers."""
    if x.dtype.kind not in "bfiu" or x.dtype.itemsize > 4 or x.shape[-1] > _LOW:
        return False
    # A maximum is NaN where any element is.
    return x.dtype.kind != "f" or x.size == 0 or not np.isnan(x.max())


def _keys(x: Array, index: Array, largest: bool) -> Array | None:
    """One number an element, all different, that order as the elements and then their indices do,
    best first: NumPy partitions and sorts them several times as fast as it finds the indices that
    sort. None where `_has_keys` says so."""
    if not _has_keys(x):
        return None
    if x.dtype.kind == "f":
        order = np.add(x, np.float32(0), dtype=np.float32).view(np.int32)  # one zero
        order ^= (order >> 31) & np.int32(0x7FFFFFFF)
    else:
        order = x.astype(np.int64)
        order -= 1 << 31 if x.dtype == np.uint32 else 0
    keys = (~order if largest else order).astype(np.int64)
    keys <<= 32
    keys |= index
    return keys
