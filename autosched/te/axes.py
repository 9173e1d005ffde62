"""Axes, extents and shapes of tensor expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Union

from autosched.errors import TensorExprError
from autosched.integers import as_int
from autosched.tir import expr as ex
from autosched.tir.affine import always
from autosched.tir.expr import Expr, Var
from autosched.tir.size import Size, size_of

AxisKind = Literal["spatial", "reduce", "sequential"]


Extent = Union[int, Size]
"""A number of elements: constant, or an expression of symbolic sizes."""


class Range(NamedTuple):
    """The integers `min`, …, `min + extent - 1`."""

    min: int
    extent: Extent


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class IterVar(Var):
    """An axis: an int64 variable over [begin, begin + extent). Usable in expressions as it is.

    `owner` is the name of the compute that a spatial axis belongs to.
    """

    begin: int = 0
    extent: Extent = 1
    kind: AxisKind = "spatial"
    owner: str = ""
    auto_named: bool = False

    @property
    def var(self) -> Var:
        """The variable: the axis itself."""
        return self

    @property
    def dom(self) -> Range:
        """The values it takes."""
        return Range(self.begin, self.extent)


def reduced_like(axis: IterVar) -> IterVar:
    """A reduction axis over the values of another one, renamed where its name is taken."""
    return IterVar(axis.name, axis.dtype, axis.begin, axis.extent, "reduce", "", True)


def positive(value: Any, what: str) -> Extent:
    """`value` as a positive Python int, or a Size that is positive for all values of its variables.

    Raises TensorExprError, naming `what`, otherwise.
    """
    if isinstance(value, ex.Const) and value.dtype != "bool":
        value = value.value
    if isinstance(value, Expr):
        found = size_of(value)
        if found is None:
            raise TensorExprError(
                f"{what} is the expression {value!r}; expected an int, or sums, products and "
                "quotients (// an int) of sizes made by te.var(name)"
            )
        value = found
    if isinstance(value, Size):
        if not always(value >= 1):
            raise TensorExprError(
                f"{what} is {value}, which is not positive for all sizes from 1 up; sizes are at "
                "least 1: write an expression such as n + 1 that keeps it positive"
            )
        return value
    found = as_int(value)
    if found is None or found <= 0:
        raise TensorExprError(f"{what} is {value!r}; expected a positive int")
    return found


MOST_DIMENSIONS = 64
"""Of a tensor: NumPy's arrays have no more. With the reduction axes, a nest is as deep as what a
script may hold."""


def check_shape(shape: Any, what: str) -> tuple[Extent, ...]:
    """`shape` (an int or a size, or a sequence of them) as a tuple of positive extents."""
    if isinstance(shape, (Expr, Size)) or as_int(shape) is not None:
        shape = (shape,)
    if not isinstance(shape, (tuple, list)):
        raise TensorExprError(f"shape of {what} is {shape!r}; expected a tuple of ints")
    if len(shape) > MOST_DIMENSIONS:
        raise TensorExprError(
            f"{what} has {len(shape)} dimensions; expected at most {MOST_DIMENSIONS}, as many as "
            "an array has"
        )
    return tuple(positive(n, f"dimension {d} of {what}") for d, n in enumerate(shape))


def broadcast(shapes: Sequence[tuple[Extent, ...]], names: Sequence[str]) -> tuple[Extent, ...]:
    """The shape that arrays of `shapes` have together, as in NumPy: aligned at the last dimension,
    extents equal or 1. Raises TensorExprError, giving `names` and shapes, where they do not fit."""
    rank = max(map(len, shapes), default=0)
    out: list[Extent] = []
    for d in range(-rank, 0):
        found = [s[d] for s in shapes if len(s) >= -d and s[d] != 1]
        if any(n != found[0] for n in found):
            given = ", ".join(f"{n} {s}" for n, s in zip(names, shapes, strict=True))
            raise TensorExprError(
                f"shapes do not fit together: {given}; expected equal extents, or 1, counted from "
                "the last dimension"
            )
        out.append(found[0] if found else 1)
    return tuple(out)
