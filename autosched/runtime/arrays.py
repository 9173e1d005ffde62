"""NumPy arrays whose data starts on a cache line, which is also the width of the widest vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from autosched.integers import as_int

ALIGNMENT = 64


def rounded(count: int) -> int:
    """Bytes up to the next multiple of ALIGNMENT."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def empty(shape: int | Sequence[int], dtype: npt.DTypeLike = "float32") -> npt.NDArray[Any]:
    """An uninitialised C-contiguous array that starts on a multiple of 64 bytes; of bfloat16, one
    of uint16 that holds the bit patterns."""
    one = as_int(shape)
    sizes = tuple(map(index, cast(Sequence[int], shape))) if one is None else (one,)
    kind = np.dtype("uint16" if isinstance(dtype, str) and dtype == "bfloat16" else dtype)
    count = math.prod(sizes)
    raw = np.empty(count * kind.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count * kind.itemsize].view(kind).reshape(sizes)


def empty_like(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`empty` with the shape and dtype of `array`."""
    return empty(array.shape, array.dtype)
