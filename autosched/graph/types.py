"""Types of the graph level: tensors, tuples, functions, data types, type variables.

Types are structural: two are equal if they are written alike. The extents of a tensor are ints and
expressions of symbolic sizes (`te.var`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Union

from autosched.tir import dtypes
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar

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
        return f"G.Tuple[{', '.join(map(str, self.fields)) or '()'}]"


@dataclass(frozen=True)
class FuncType:
    """A function, which has any number of results."""

    params: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        params, results = (", ".join(map(str, side)) for side in (self.params, self.results))
        return f"G.Fn[[{params}], {results if len(self.results) == 1 else f'[{results}]'}]"


@dataclass(frozen=True)
class TypeVar:
    """A type parameter of a function or of a data type. `kind`, one of KINDS, says what stands for
    it in a call: a type, the shape of a tensor, one extent of a shape, or a dtype."""

    name: str
    kind: str = "Type"

    @classmethod
    def read(cls, text: str) -> TypeVar:
        """From `A` or `s: Shape`, as decorators have them."""
        name, _, kind = text.partition(":")
        return cls(name.strip(), kind.strip() or "Type")

    @property
    def declared(self) -> str:
        """As a decorator has it."""
        return self.name if self.kind == "Type" else f"{self.name}: {self.kind}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Extents:
    """A shape by itself: what stands for a parameter of kind Shape, and with one extent for one of
    kind ShapeVar."""

    shape: tuple[Extent, ...]

    def __str__(self) -> str:
        return tuple_text(self.shape)


@dataclass(frozen=True)
class Dtype:
    """A dtype by itself: what stands for a parameter of kind BaseType."""

    name: str

    def __str__(self) -> str:
        return f'"{self.name}"'


@dataclass(frozen=True)
class OpenTensor:
    """A tensor whose shape or dtype is a type parameter, or is to be found."""

    shape: Type
    dtype: Type

    def __str__(self) -> str:
        return f"G.Tensor({self.shape}, {self.dtype})"


@dataclass(frozen=True)
class DataRef:
    """An algebraic data type of the module, with the types for its parameters."""

    name: str
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.args))}]" if self.args else self.name


@dataclass(frozen=True, eq=False)
class Hole:
    """A type that inference has to find; none is left in a module that was read or checked.

    `literal` is set for a number without a dtype in the text: "bool", "int" or "float". `kind` is
    that of the type parameter that it stands for.
    """

    literal: str = ""
    kind: str = "Type"

    def __str__(self) -> str:
        return f"a number ({self.literal})" if self.literal else "?"


Type = Union[TensorType, TupleType, FuncType, TypeVar, DataRef, Hole, Extents, Dtype, OpenTensor]
KINDS = ("Type", "Shape", "ShapeVar", "BaseType")
"""Kinds of type parameters."""
ANY = TensorType(None, "")
"""A tensor of which nothing is known before it is there."""


def joined(a: Type, b: Type) -> Type:
    """The type of what is of one of two types: tensors of one dtype keep that."""
    if a == b:
        return a
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype == b.dtype != "":
        return TensorType(None, a.dtype)
    return ANY


def tuple_text(values: tuple[Any, ...]) -> str:
    """A tuple as Python writes it."""
    inside = ", ".join(map(str, values))
    return f"({inside},)" if len(values) == 1 else f"({inside})"


def parts(t: Type) -> tuple[Type, ...]:
    """The types directly inside a type."""
    if isinstance(t, TupleType):
        return t.fields
    if isinstance(t, FuncType):
        return (*t.params, *t.results)
    if isinstance(t, OpenTensor):
        return (t.shape, t.dtype)
    return t.args if isinstance(t, DataRef) else ()


def with_parts(t: Type, inside: Sequence[Type]) -> Type:
    """The type with other types directly inside it."""
    if isinstance(t, TupleType):
        return TupleType(tuple(inside))
    if isinstance(t, FuncType):
        n = len(t.params)
        return FuncType(tuple(inside[:n]), tuple(inside[n:]))
    if isinstance(t, OpenTensor):
        return tensor_of(*inside)
    return DataRef(t.name, tuple(inside)) if isinstance(t, DataRef) else t


def tensor_of(shape: Type, dtype: Type) -> Type:
    """A tensor of a shape and a dtype, each by itself."""
    if isinstance(shape, Extents) and isinstance(dtype, Dtype):
        return TensorType(shape.shape, dtype.name)
    return OpenTensor(shape, dtype)


def substituted(t: Type, types: Mapping[Type, Type], sizes: Mapping[SizeVar, Any]) -> Type:
    """The type with type variables and holes replaced, and sizes."""
    if t in types:
        return types[t]
    if isinstance(t, TensorType):
        if not sizes or t.shape is None or t.is_static:
            return t
        shape = tuple(n if isinstance(n, int) else n.substitute(sizes) for n in t.shape)
        return TensorType(shape, t.dtype, t.layout)
    if isinstance(t, Extents):
        return Extents(tuple(n if isinstance(n, int) else n.substitute(sizes) for n in t.shape))
    inside = parts(t)
    if not inside:
        return t
    return with_parts(t, [substituted(x, types, sizes) for x in inside])


def alike(a: Type, b: Type) -> bool:
    """Whether two types are written alike: sizes are known by their names."""
    if isinstance(a, TensorType) and isinstance(b, TensorType) and not a.is_static:
        return a == b or (_by_name(a.shape), a.dtype, a.layout) == (
            _by_name(b.shape),
            b.dtype,
            b.layout,
        )
    if isinstance(a, Extents) and isinstance(b, Extents):
        return bool(_by_name(a.shape) == _by_name(b.shape))
    xs, ys = parts(a), parts(b)
    if not xs or len(xs) != len(ys):
        return a == b
    return with_parts(a, ys) == b and all(map(alike, xs, ys))


def _by_name(shape: tuple[Extent, ...] | None) -> Any:
    if shape is None:
        return None
    return tuple(n if isinstance(n, int) else n.name_key(lambda v: v.name) for n in shape)


def leaves(t: Type) -> Iterator[Type]:
    """The types inside that have no types inside, left to right."""
    inside = parts(t)
    if not inside:
        yield t
    for x in inside:
        yield from leaves(x)
