"""First-order unification of types with holes."""

from __future__ import annotations

from typing import Any

from autosched.errors import WorkloadError
from autosched.graph.types import (
    Dtype,
    Extents,
    FuncType,
    Hole,
    OpenTensor,
    TensorType,
    Type,
    leaves,
    parts,
    substituted,
    tensor_of,
    with_parts,
)
from autosched.tir import dtypes
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar

LITERALS = {"bool": "bool", "int": "int32", "long": "int64", "float": "float32"}
"""Kinds of numbers without a dtype, narrow to wide, with the dtype where nothing else asks."""
LARGEST = 10_000
"""Types inside one type."""
DEEPEST = 90
"""Types inside types: the text of such a type, whose brackets nest, is one that `parse` reads."""


class Mismatch(WorkloadError):
    """Two types that cannot be equal; the caller adds where each is from. `telling`: the
    message says what the two types do not show."""

    def __init__(self, message: str, telling: bool = False) -> None:
        super().__init__(message)
        self.telling = telling


class Unifier:
    """Holes with the types found for them, and sizes of instantiated types likewise."""

    def __init__(self) -> None:
        self.found: dict[Hole, Type] = {}
        self.reason: dict[Hole, object] = {}
        """What was looked at when a hole was filled."""
        self.now: object = None
        self.open: set[SizeVar] = set()
        self.sizes: dict[SizeVar, Any] = {}

    def resolve(self, t: Type) -> Type:
        """The type that stands for `t` at its outermost level."""
        while isinstance(t, Hole) and t in self.found:
            t = self.found[t]
        if isinstance(t, OpenTensor):
            return tensor_of(self.resolve(t.shape), self.resolve(t.dtype))
        return t

    def full(self, t: Type) -> Type:
        """The type with all that has been found. Raises WorkloadError for one that is huge, or
        that nests too deeply."""
        return self._full(t, [LARGEST], 0)

    def _full(self, t: Type, left: list[int], depth: int) -> Type:
        t = self.resolve(t)
        if depth > DEEPEST:
            raise WorkloadError(f"a type nests more than {DEEPEST} deep; use a data type")
        left[0] -= 1
        if left[0] < 0:
            raise WorkloadError(f"a type has more than {LARGEST} types inside; use a data type")
        if isinstance(t, TensorType):
            return substituted(t, {}, self.sizes) if self.sizes and not t.is_static else t
        if isinstance(t, Extents):
            return substituted(t, {}, self.sizes) if self.sizes else t
        inside = parts(t)
        return with_parts(t, [self._full(x, left, depth + 1) for x in inside]) if inside else t

    def unify(self, a: Type, b: Type) -> None:
        """Make both equal. Raises Mismatch."""
        a, b = self.resolve(a), self.resolve(b)
        if a is b or a == b:
            return
        if isinstance(a, Hole):
            self._fill(a, b)
        elif isinstance(b, Hole):
            self._fill(b, a)
        elif isinstance(a, TensorType) and isinstance(b, TensorType):
            self._tensors(a, b)
        elif isinstance(a, Extents) and isinstance(b, Extents):
            self._shapes(a.shape, b.shape)
        elif isinstance(a, OpenTensor) and isinstance(b, TensorType):
            self._open_tensor(a, b)
        elif isinstance(a, TensorType) and isinstance(b, OpenTensor):
            self._open_tensor(b, a)
        else:
            xs, ys = parts(a), parts(b)
            alike = type(a) is type(b) and len(xs) == len(ys) and bool(xs)
            if isinstance(a, FuncType) and isinstance(b, FuncType):
                alike = alike and len(a.params) == len(b.params)
            if not alike or getattr(a, "name", "") != getattr(b, "name", ""):
                raise Mismatch("types differ")
            for x, y in zip(xs, ys, strict=True):
                self.unify(x, y)

    def _fill(self, hole: Hole, t: Type) -> None:
        if isinstance(t, Hole):
            if not t.literal or (hole.literal and _wider(hole.literal, t.literal)):
                hole, t = t, hole
            kinds = {hole.literal, t.literal} - {""}
            if len(kinds) == 2 and "bool" in kinds:
                raise Mismatch("a truth value is no number")
        elif hole.literal and isinstance(t, OpenTensor):
            t = self._number(hole.literal, t)
        elif hole.literal:
            fits = isinstance(t, TensorType) and t.shape == () and literal_fits(hole.literal, t)
            if not fits:
                raise Mismatch("a number is of another type")
        elif not isinstance(t, TensorType) and hole in set(leaves(self.full(t))):
            raise Mismatch("the type would be inside of itself", telling=True)
        self.found[hole] = t
        self.reason[hole] = self.now

    def _tensors(self, a: TensorType, b: TensorType) -> None:
        if a.shape is None or b.shape is None or a.dtype != b.dtype or a.layout != b.layout:
            raise Mismatch("tensors differ")
        self._shapes(a.shape, b.shape)

    def _open_tensor(self, a: OpenTensor, b: TensorType) -> None:
        """Shape and dtype of a tensor, each by itself."""
        if b.shape is None or b.layout or not b.dtype:
            raise Mismatch("tensors differ")
        self.unify(a.shape, Extents(b.shape))
        self.unify(a.dtype, Dtype(b.dtype))

    def _number(self, literal: str, t: OpenTensor) -> TensorType:
        """The type of a number as it is written, where any scalar may stand."""
        dtype = self.resolve(t.dtype)
        made = TensorType((), dtype.name if isinstance(dtype, Dtype) else LITERALS[literal])
        if not literal_fits(literal, made):
            raise Mismatch("a number is of another type")
        self._open_tensor(t, made)
        return made

    def _shapes(self, a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
        if len(a) != len(b):
            raise Mismatch("ranks differ")
        for m, n in zip(a, b, strict=True):
            self._extents(self._size(m), self._size(n))

    def _extents(self, m: Any, n: Any) -> None:
        if bool(m == n):
            return
        for one, other in ((m, n), (n, m)):
            v = _variable(one)
            if v is not None and v in self.open:
                self.sizes = {k: _put(x, v, other) for k, x in self.sizes.items()} | {v: other}
                return
        raise Mismatch("extents differ")

    def _size(self, n: Any) -> Any:
        return n if isinstance(n, int) or not self.sizes else n.substitute(self.sizes)


def literal_fits(kind: str, t: TensorType) -> bool:
    """Whether a number as it is written can be of a tensor's dtype."""
    if kind == "bool" or t.dtype == "bool":
        return kind == t.dtype
    if t.dtype in ("", "bfloat16"):  # which NumPy does not have
        return False
    return dtypes.is_float(t.dtype) or kind == "int" or (kind == "long" and "64" in t.dtype)


def _wider(a: str, b: str) -> bool:
    return list(LITERALS).index(a) > list(LITERALS).index(b)


def _variable(n: Any) -> SizeVar | None:
    """The variable that a size is, if it is one alone."""
    if isinstance(n, Size):
        for v in n.variables():
            return v if bool(Size.of(v) == n) else None
    return None


def _put(n: Any, v: SizeVar, value: Any) -> Any:
    return n if isinstance(n, int) else n.substitute({v: value})
