"""Which constants that a model computes from sizes are told by its readings.

The readings tell a polynomial in which each length is squared or multiplied by the others, and no
other function: a table read at the length, or a range of lengths, may be the same in all of them
and differ between. So a constant is believed by how it was made, and otherwise computed in each
call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autosched.graph.dynamic.sizes import OF_SHAPES, WATCHED
from autosched.graph.errors import Unsupported
from autosched.graph.infer import inference
from autosched.graph.ir import Array, Atom, Call, Const, type_of
from autosched.graph.types import TensorType

Makers = Sequence[Mapping[int, tuple[Call, int]]]
"""Of each reading, the call that made a value, by its id."""

MOST = 2
"""The degree of the polynomials that readings tell."""
STILL = 0
"""The degree of elements that are the same at all lengths, whatever the number of elements."""
MOVES = frozenset({
    "Concat", "ConstantOfShape", "Expand", "EyeLike", "Flatten", "Gather", "GatherElements",
    "GatherND", "Identity", "OneHot", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Trilu", "Unsqueeze",
})  # fmt: skip
"""Operators whose results have the elements of their first argument, or of all (Concat)."""
GROWING = MOVES | {"Range"}
SIZES = frozenset({"ends", "limit", "repeats", "shape"})
"""Attributes that say how many elements there are, and not which."""
INDEXED = frozenset({"Gather", "GatherElements", "GatherND", "OneHot"})


@dataclass
class Told:
    """The degree of constants in the lengths; None for those that the readings do not tell."""

    makers: Makers
    known: dict[int, int | None] = field(default_factory=dict)

    def degree(self, atoms: Sequence[Atom | None]) -> int | None:
        """Of a constant in each reading."""
        stack = [tuple(atoms)]
        while stack:
            now = stack[-1]
            key = id(now[0])
            if key in self.known:
                stack.pop()
                continue
            args = self._args(now)
            missing = [a for a in args if a[0] is not None and id(a[0]) not in self.known]
            if missing:
                stack += missing
                continue
            self.known[key] = self._found(now, args)
            stack.pop()
        return self.known[id(atoms[0])]

    def _calls(self, atoms: Sequence[Atom | None]) -> list[Call]:
        """What made a constant; none where a reading has it from elsewhere."""
        if not all(isinstance(a, Const) for a in atoms):
            return []
        found = [m.get(id(a)) for m, a in zip(self.makers, atoms, strict=True)]
        calls = [f[0] for f in found if f is not None]
        return calls if len(calls) == len(atoms) else []

    def _args(self, atoms: Sequence[Atom | None]) -> list[tuple[Atom | None, ...]]:
        calls = self._calls(atoms)
        if len({(c.callee, len(c.args)) for c in calls}) != 1 or calls[0].callee in OF_SHAPES:
            return []
        return list(zip(*(c.args for c in calls), strict=True))

    def _found(
        self, atoms: Sequence[Atom | None], args: Sequence[tuple[Atom | None, ...]]
    ) -> int | None:
        arrays = [a.value for a in atoms if isinstance(a, Const)]
        if len(arrays) < len(atoms):
            return None
        calls = self._calls(atoms)
        if not calls:
            return _leaf(arrays)
        if len({(c.callee, len(c.args)) for c in calls}) != 1:
            return None
        if calls[0].callee in OF_SHAPES:
            return (
                1 if calls[0].callee == "Shape" else _within(_varying([c.args[0] for c in calls]))
            )
        degrees = [STILL if a[0] is None else self.known[id(a[0])] for a in args]
        return self._made(calls, args, degrees, arrays)

    def _made(
        self,
        calls: Sequence[Call],
        args: Sequence[tuple[Atom | None, ...]],
        degrees: Sequence[int | None],
        arrays: Sequence[Array],
    ) -> int | None:
        name = str(calls[0].callee)
        given = [d for d in degrees if d is not None]
        if len(given) < len(degrees) or not _same_attributes(calls):
            return None
        most = max(given, default=STILL)
        if most == STILL and (name in GROWING or _fixed(args) or _pointwise(calls[0])):
            return STILL
        if name in MOVES:
            return None if name in INDEXED and max(given[1:], default=STILL) else most
        if name in ("Add", "Sub", "Neg", "Where", "ReduceSum"):
            return most if name != "Where" or given[0] == STILL else None
        if name == "Mul":
            return _within(sum(given))
        if name == "ReduceProd":
            return _within(most * _varying(args[0]))
        if name == "Cast":
            return None if arrays[0].dtype.kind == "b" else most
        if name == "Div" and arrays[0].dtype.kind == "f":
            return most if given[1] == STILL else None
        if name in WATCHED and arrays[0].ndim < 2:  # `check_sizes` has seen that it is one
            return STILL if name == "Equal" else most
        return None


def _leaf(arrays: Sequence[Array]) -> int:
    """Of a constant of the file, or one that the importer made for the sizes."""
    same = all(a.shape == arrays[0].shape for a in arrays)
    grows = same and any((a != arrays[0]).any() for a in arrays)
    return 1 if grows else STILL


def _fixed(args: Sequence[tuple[Atom | None, ...]]) -> bool:
    """Whether arguments have the same shapes in all readings."""
    shapes = ({a.value.shape for a in atoms if isinstance(a, Const)} for atoms in args)
    return all(len(s) <= 1 for s in shapes)


def _same_attributes(calls: Sequence[Call]) -> bool:
    """Whether attributes agree but for numbers of elements."""
    attrs = [{k: v for k, v in c.attrs if k not in SIZES} for c in calls]
    return all(a == attrs[0] for a in attrs)


def _pointwise(call: Call) -> bool:
    try:
        return inference(call, 1).kind == "pointwise"
    except Unsupported:  # it has several results
        return False


def _within(degree: int) -> int | None:
    return degree if degree <= MOST else None


def _varying(atoms: Sequence[Atom | None]) -> int:
    """How many numbers of a constant, or sizes of another value, differ between readings."""
    rows = []
    for a in atoms:
        t = None if a is None else type_of(a)
        known = t.known if isinstance(t, TensorType) else ()
        rows.append(np.ravel(a.value) if isinstance(a, Const) else np.asarray(known))
    if len({len(r) for r in rows}) != 1:
        return MOST + 1
    return int((np.stack(rows) != rows[0]).any(axis=0).sum())
