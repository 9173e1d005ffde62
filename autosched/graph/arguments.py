"""Values of Python as values of the language, of the types that parameters have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autosched.checks import shown, unmasked
from autosched.errors import ArgumentError
from autosched.graph.conversion import held
from autosched.graph.data import Constructor
from autosched.graph.types import (
    DataRef,
    Dtype,
    Extents,
    FuncType,
    OpenTensor,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    substituted,
)
from autosched.graph.values import Tagged
from autosched.tir import dtypes

Leaf = Callable[[str, Type, Any], Any]


class Arguments:
    """Checks arguments against types; numbers of Python become arrays of the dtype asked for.

    `leaf` makes what is inside no tuple and no data type; it gets the parameter's name, the type
    and the value.
    """

    def __init__(self, constructors: Mapping[str, Constructor], leaf: Leaf | None = None) -> None:
        self.constructors = constructors
        self.leaf = leaf or plain

    def value(self, name: str, t: Type, a: Any) -> Any:
        """An argument as a value. Raises ArgumentError for one that cannot be of the type."""
        if isinstance(t, DataRef):
            return self.data(name, t, a)
        if isinstance(t, TupleType):
            if not isinstance(a, tuple) or len(a) != len(t.fields):
                raise ArgumentError(
                    f"{name} is {shown(a)}; expected a tuple of {len(t.fields)} values"
                )
            return tuple(self.value(name, f, x) for f, x in zip(t.fields, a, strict=True))
        return self.leaf(name, t, a)

    def data(self, name: str, t: DataRef, a: Any) -> Any:
        """A value of a data type. Lists nest in their last field, deeper than Python's stack."""
        chain: list[tuple[str, list[Any]]] = []
        now: Type = t
        types: dict[tuple[str, Type], list[Type]] = {}
        while isinstance(now, DataRef):
            made = self.constructor(name, now, a)
            if not a.fields:
                break
            key = (a.constructor, now)
            if key not in types:
                given = zip(made.data.params, now.args, strict=True)
                args: dict[Type, Type] = {TypeVar(p): x for p, x in given}
                types[key] = [substituted(f, args, {}) for f in made.fields]
            fields = zip(types[key][:-1], a.fields[:-1], strict=True)
            chain.append((a.constructor, [self.value(name, f, x) for f, x in fields]))
            now, a = types[key][-1], a.fields[-1]
        last = Tagged(a.constructor) if isinstance(now, DataRef) else self.value(name, now, a)
        for constructor, parts in reversed(chain):
            last = Tagged(constructor, (*parts, last))
        return last

    def constructor(self, name: str, t: DataRef, a: Any) -> Constructor:
        """The constructor of a value. Raises ArgumentError for none of the data type."""
        made = self.constructors.get(a.constructor) if isinstance(a, Tagged) else None
        if made is None or made.data.name != t.name or len(made.fields) != len(a.fields):
            have = ", ".join(c.name for c in self.constructors.values() if c.data.name == t.name)
            raise ArgumentError(
                f"{name} is {shown(a)}; expected a value of {t.name}: graph.Tagged of {have}"
            )
        return made


def plain(name: str, t: Type, a: Any) -> Any:
    """An array, a function, or what the type leaves open."""
    if isinstance(t, FuncType) and not callable(a):
        raise ArgumentError(f"{name} is {shown(a)}; expected a function")
    if isinstance(t, TypeVar) and isinstance(a, (bool, int, float)):
        return array(name, TensorType((), _default(a)), a)
    if isinstance(t, OpenTensor):
        shape = t.shape.shape if isinstance(t.shape, Extents) else np.shape(a)
        dtype = t.dtype.name if isinstance(t.dtype, Dtype) else None
        found = dtype or (_default(a) if isinstance(a, (bool, int, float)) else _dtype(a))
        return array(name, TensorType(shape, found), a)
    return array(name, t, a) if isinstance(t, TensorType) else a


def array(name: str, t: TensorType, a: Any) -> Any:
    """An array of a type; a number where the shape is ()."""
    if isinstance(a, (bool, int, float)) and t.shape == () and t.dtype:
        return number(name, t.dtype, a)
    if t.shape is None:
        return a
    unmasked(name, a, ArgumentError)
    found = isinstance(a, (np.ndarray, np.generic)) and a.dtype.kind not in "OUSMm"
    if not found or a.ndim != len(t.shape):
        what = "an array" if t.shape else "a number or an array"
        raise ArgumentError(f"{name} is {shown(a)}; expected {what} of {len(t.shape)} dimensions")
    a = held(np.asarray(a), t.dtype or "float32")
    fits = all(not isinstance(n, int) or n == m for n, m in zip(t.shape, a.shape, strict=True))
    if (t.dtype and a.dtype != dtypes.array_dtype(t.dtype)) or not fits:
        raise ArgumentError(f"{name} is {shown(a)}; expected {t}")
    return a


def number(name: str, dtype: str, a: bool | int | float) -> Any:
    """A number of Python as an array without axes. Raises ArgumentError where it would change."""
    whole = not dtypes.is_float(dtype)
    if (whole and isinstance(a, float)) or (dtype == "bool" and not isinstance(a, bool)):
        raise ArgumentError(f"{name} is {a}; expected a value of dtype {dtype}")
    if dtype == "bfloat16":
        return held(dtypes.from_float32(a), dtype)
    try:
        return np.asarray(a, dtypes.array_dtype(dtype))
    except OverflowError as e:
        raise ArgumentError(f"{name} is {a}, which is beyond {dtype}") from e


def _default(a: bool | int | float) -> str:
    """The dtype of a number where nothing else asks for one."""
    if isinstance(a, bool):
        return "bool"
    if isinstance(a, float):
        return "float32"
    return "int32" if -(1 << 31) <= a < 1 << 31 else "int64"


def _dtype(a: Any) -> str:
    found = str(getattr(a, "dtype", ""))
    return "float32" if found == "bfloat16" else found


def several(
    constructors: Mapping[str, Constructor],
    names: Sequence[str],
    types: Sequence[Type],
    values: Sequence[Any],
) -> list[Any]:
    """Arguments as values, of the types of parameters with these names."""
    made = Arguments(constructors)
    return [made.value(n, t, a) for n, t, a in zip(names, types, values, strict=True)]
