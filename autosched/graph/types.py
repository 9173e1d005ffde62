"""Types of the graph level: tensors, tuples, functions.

Types are structural: two are equal if they are written alike. The extents of a tensor are ints and
expressions of symbolic sizes (`te.var`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Union

from autosched.tir import dtypes
from autosched.tir.size import Size

Extent = Union[int, Size]


@dataclass(frozen=True)
class TensorType:
    """An array. `shape` is None where it depends on data: such a value is computed on the host.

    `layout` is the order in which the axes lie in memory, outermost first; empty: as they stand.
    It is a matter of storage: what a program means does not depend on it.
    """

    shape: tuple[Extent, ...] | None
    dtype: str
    layout: tuple[int, ...] = ()

    @property
    def known(self) -> tuple[Extent, ...]:
        """The shape. Only for types whose shape is known."""
        assert self.shape is not None
        return self.shape

    @property
    def is_static(self) -> bool:
        """Whether all extents are plain numbers."""
        return self.shape is not None and all(isinstance(n, int) for n in self.shape)

    @property
    def stored(self) -> tuple[Extent, ...]:
        """The shape as it lies in memory."""
        return tuple(self.known[d] for d in self.layout) if self.layout else self.known

    @property
    def elements(self) -> int:
        """Number of elements of a static type."""
        return prod(int(n) for n in self.known)

    @property
    def bytes(self) -> int:
        """Bytes of a static type."""
        return self.elements * dtypes.itemsize(self.dtype)

    def __str__(self) -> str:
        shape = "None" if self.shape is None else tuple_text(self.shape)
        layout = f", layout={self.layout}" if self.layout else ""
        return f'G.Tensor({shape}, "{self.dtype}"{layout})'


@dataclass(frozen=True)
class TupleType:
    """Several values as one."""

    fields: tuple[Type, ...]

    def __str__(self) -> str:
        return f"G.Tuple[{', '.join(map(str, self.fields))}]"


@dataclass(frozen=True)
class FuncType:
    """A function, which has any number of results."""

    params: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        params, results = (", ".join(map(str, side)) for side in (self.params, self.results))
        return f"G.Fn[[{params}], [{results}]]"


Type = Union[TensorType, TupleType, FuncType]
ANY = TensorType(None, "")
"""A tensor of which nothing is known before it is there."""


def joined(a: Type, b: Type) -> Type:
    """The type of what is of one of two types: tensors of one dtype keep that."""
    if a == b:
        return a
    tensors = isinstance(a, TensorType) and isinstance(b, TensorType)
    if tensors and a.dtype == b.dtype and a.dtype:  # type: ignore[union-attr]
        return TensorType(None, a.dtype)  # type: ignore[union-attr]
    return ANY


def tuple_text(values: tuple[Any, ...]) -> str:
    """A tuple as Python writes it."""
    inside = ", ".join(map(str, values))
    return f"({inside},)" if len(values) == 1 else f"({inside})"
