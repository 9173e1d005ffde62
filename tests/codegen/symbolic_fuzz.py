"""Random programs with symbolic sizes: the stages of the other fuzzes that make sense for all
sizes, and a few that mix sizes into indices, conditions and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import codegen_fuzz
import schedule_fuzz as base
from schedule_fuzz import Choices

from autosched import te
from autosched.schedule import Schedule
from autosched.tir.nodes import PrimFunc

AROUND = (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 19, 31, 32, 33, 37, 40, 41)
"""Values of sizes: 1, primes, and around the factors of the schedules."""


def random_program(numbers: Sequence[int]) -> PrimFunc:
    """Two to five computations over matrices of the sizes n, m, p and of a few constants.

    Raises TensorExprError where a size does not follow from the inputs' shapes.
    """
    c = Choices(numbers)
    n, m, p = te.var("n"), te.var("m"), te.var("p")
    extents = (n, m, 8, n, p, m, 5, n + 1, 2 * m, m, (p + 7) // 8, n)
    dtype = c.of(("float32", "int32", "int64"))
    return base.random_program(numbers[1:], dtype, extents, STAGES)


def random_sizes(func: PrimFunc, numbers: Sequence[int]) -> dict[str, int]:
    """A value for each size."""
    c = Choices(numbers)
    return {v.name: c.of(AROUND) for v in func.sizes}


def _recent(c: Choices, tensors: list[Any]) -> Any:
    found = [t for t in tensors if len(t.shape) == 2]
    return found[-1 - c.next(len(found))]


def _reversed(c: Choices, tensors: list[Any], name: str) -> Any:
    """Every second or third element of a row, from the right end."""
    t = _recent(c, tensors)
    n, m = t.shape
    step = 1 + c.next(3)
    shape = (n, (m + step - 1) // step)
    return te.compute(shape, lambda i, j: t[n - 1 - i, m - 1 - j * step] + 1, name=name)


def _scaled(c: Choices, tensors: list[Any], name: str) -> Any:
    """The size as a value."""
    t = _recent(c, tensors)
    n, m = t.shape
    shift = 1 + c.next(2)

    def at(i: Any, j: Any) -> Any:
        value = te.cast(i + n * shift, t.dtype)
        return te.if_then_else(j + shift < m, t[i, te.min(j + shift, m - 1)], value)

    return te.compute((n, m), at, name=name)


def _widened(c: Choices, tensors: list[Any], name: str) -> Any:
    """A stride, rows between padding of zeros: `t` at every second row."""
    t = _recent(c, tensors)
    n, m = t.shape
    zero = te.const(0, t.dtype)
    return te.compute(
        (2 * n, m), lambda i, j: te.if_then_else(i % 2 == 1, t[i // 2, j], zero), name=name
    )


def _window(c: Choices, tensors: list[Any], name: str) -> Any:
    """A padded convolution along the rows."""
    t = _recent(c, tensors)
    n, m = t.shape
    r = te.reduce_axis((0, 3), name="r")

    def at(i: Any, j: Any) -> Any:
        inside = te.all(i + r >= 1, i + r < n + 1)
        return te.sum(te.if_then_else(inside, t[i + r - 1, j], te.const(0, t.dtype)), axis=r)

    return te.compute((n, m), at, name=name)


STAGES: tuple[base.Stage, ...] = (
    base._matmul,
    base._pointwise,
    base._rows,
    _reversed,
    base._padded,
    base._transpose,
    _scaled,
    base._matmul,
    _window,
    _widened,
    codegen_fuzz._select,
    codegen_fuzz._argmax,
)


def random_schedule(func: PrimFunc, trace: Sequence[Sequence[int]]) -> Schedule:
    """That of `codegen_fuzz`: what symbolic sizes do not allow is refused, and leaves no mark."""
    return codegen_fuzz.random_schedule(func, trace)
