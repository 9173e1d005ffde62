"""New arrays for results, in memory that results of earlier calls have been let go of.

The first write to a page that the system has just given takes longer than the kernel's own work on
it: of a decoder's step at 900 positions, which returns 75 MB, that was half.
"""

from __future__ import annotations

import sys
from collections import deque
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.spec import Fresh
from autosched.runtime.arrays import empty
from autosched.tir import dtypes

Array = npt.NDArray[Any]

SMALL = 65536
"""Bytes of a result up to which it is any array; larger ones start on a cache line and are kept, at
the price of some microseconds."""
KEPT = 2
"""Arrays kept of each result: one that the caller still has while the next is written."""


class ResultArrays:
    """Arrays for one result of a program, for calls from several threads at once."""

    def __init__(self, result: Fresh) -> None:
        self.result, self.dtype = result, dtypes.array_dtype(result.dtype)
        self.small = prod(result.shape) * self.dtype.itemsize <= SMALL
        self.kept: deque[Array] = deque(maxlen=KEPT)

    def take(self) -> Array:
        """An array whose memory nothing else refers to."""
        if self.small:
            return np.empty(self.result.shape, self.dtype)
        whole = self._unused()
        made = whole[...]  # it refers to the memory, not to `whole`
        self.kept.append(whole)
        return made

    def _unused(self) -> Array:
        for _ in range(KEPT):
            try:
                whole = self.kept.popleft()
            except IndexError:  # other calls have them
                break
            if _references(whole) == UNUSED:
                return whole
            self.kept.append(whole)
        return empty(self.result.shape, self.dtype)


def _references(whole: Array) -> int:
    """References to the memory of an array: every view of it has one."""
    return sys.getrefcount(whole.base)


UNUSED = _references(empty(1))
"""Of memory that one array has, and no view of it."""
