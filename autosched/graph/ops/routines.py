"""Operators as routines: statements in the order in which they are written, for what te cannot say.

A definition gives the text of the statements, over its inputs and outputs by name
(`docs/script.md`, Routines). It becomes an opaque block of its kernel: nothing fuses with it, its
parallel loops run on threads, and where an `assert` does not hold the model stops with its text.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from textwrap import indent

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.tensors import TensorLike, View, computed
from autosched.script.limits import LIMITS, Budget
from autosched.script.routines import RoutineReader
from autosched.script.source import Source
from autosched.te.tensor import Extent, Tensor
from autosched.tir import dtypes
from autosched.tir.expr import Const
from autosched.tir.routine import Routine
from autosched.tir.verify_routine import verify_routine

Type = tuple[tuple[int, ...], str]
"""Shape and dtype."""
ALONE = 1 << 14
"""Elements up to which one thread goes through all: sharing so few costs more than it saves."""
FEWEST, ENOUGH = 16, 64
"""Neighbouring elements of a part of a row, at least (a cache line of float32), and of more parts
than two: short parts are read one cache line here and one there."""


def routine(
    name: str, inputs: Mapping[str, TensorLike], outputs: Mapping[str, Type], body: str
) -> tuple[Tensor, ...]:
    """The tensors `outputs`, all elements of which the statements `body` set. Raises Unsupported
    for types that routines have not."""
    types: dict[str, Type] = {n: (fixed(t.shape), t.dtype) for n, t in inputs.items()}
    types |= {n: (tuple(shape), dtype) for n, (shape, dtype) in outputs.items()}
    for shape, dtype in types.values():
        if dtype not in dtypes.DTYPES or not all(n > 0 for n in shape):
            raise Unsupported(f"no routine has a value {dtype}{list(shape)}")
    given: list[Tensor] = []
    for t in inputs.values():
        same = t if isinstance(t, Tensor) and not any(t is u for u in given) else None
        given.append(same if same is not None else computed(t, copy=True))
    made = te.extern(
        [list(shape) for shape, _ in outputs.values()],
        given,
        _read(name, tuple(types.items()), body),
        name,
        [dtype for _, dtype in outputs.values()],
    )
    op = replace(made[0].op, auto_named=True, sets_all=True)
    return tuple(Tensor(t.name, t.shape, t.dtype, op, t.value_index) for t in made)


def fixed(shape: Sequence[Extent]) -> tuple[int, ...]:
    """A shape in numbers. Raises Unsupported for symbolic sizes, which opaque blocks have not."""
    if not all(isinstance(n, int) for n in shape):
        raise Unsupported(f"the shape {shape} has symbolic sizes")
    return tuple(int(n) for n in shape if isinstance(n, int))


def number(t: TensorLike | None, default: float) -> float:
    """The value of an input of one element. Raises Unsupported where it is not known yet."""
    if t is None:
        return default
    found = t(*(0 for _ in t.shape)) if isinstance(t, View) else None
    if not isinstance(found, Const):
        raise Unsupported("an input that a routine is made for is no constant")
    return float(found.value)


@lru_cache(maxsize=512)
def _read(name: str, types: tuple[tuple[str, Type], ...], body: str) -> Routine:
    params = ", ".join(f'{n}: T.Buffer({shape}, "{dtype}")' for n, (shape, dtype) in types)
    source = Source(f"def {name}({params}):\n{indent(body, '    ')}")
    (node,) = ast.parse(source.text).body
    assert isinstance(node, ast.FunctionDef)
    return verify_routine(RoutineReader(source, Budget(source, LIMITS), node).routine())


def nest(
    names: Sequence[str],
    extents: Sequence[int],
    body: str,
    parallel: int = -1,
    last: str = "serial",
) -> str:
    """Loops over `extents`, of which threads share the one of the number `parallel`; `last`: the
    kind of the innermost one."""
    for d in range(len(names) - 1, -1, -1):
        kind = "parallel" if d == parallel else last if d == len(names) - 1 else "serial"
        body = f"for {names[d]} in T.{kind}({extents[d]}):\n{indent(body, '    ')}"
    return body


def first_long(extents: Sequence[int], elements: int, axes: Sequence[int] | None = None) -> int:
    """The first loop of more than one iteration, of `axes` or of all, for threads to share; -1
    where there is none, or where the `elements` that all loops go through are few."""
    if elements <= ALONE:
        return -1
    every = range(len(extents)) if axes is None else axes
    return next((d for d in every if extents[d] > 1), -1)


def parts(extent: int) -> int:
    """Into how many equal parts of rows of `extent` elements threads may divide them; 1: none."""
    least = {8: ENOUGH, 4: ENOUGH, 2: FEWEST}
    return next((n for n, m in least.items() if extent % n == 0 and extent // n >= m), 1)


class Loops:
    """Loops over a shape, outside of which threads share one of the axes `shared`.

    Of the axis `last`, whose elements are neighbours, a thread takes several.
    """

    def __init__(self, shape: Sequence[int], shared: Sequence[int], last: int) -> None:
        self.shape = [int(n) for n in shape]
        self.indices = [f"i{d}" for d in range(len(shape))]
        self.parts = 1
        axis = first_long(self.shape, prod(self.shape), shared)
        if axis < 0:
            return
        extent = self.shape[axis]
        self.parts = parts(extent) if axis == last else extent
        each = self.shape[axis] = extent // self.parts
        if self.parts > 1:
            self.indices[axis] = f"part * {each} + i{axis}" if each > 1 else "part"

    def element(self, buffer: str) -> str:
        """An element of an array of the shape."""
        return f"{buffer}[{', '.join(self.indices) or '()'}]"

    def nest(self, first: int, end: int, body: str, last: str = "serial") -> str:
        """The loops of some axes around `body`; `last`: the kind of the innermost one."""
        axes = [d for d in range(first, end) if self.indices[d] != "part"]
        extents = [self.shape[d] for d in axes]
        return nest([f"i{d}" for d in axes], extents, body, last=last)

    def in_parts(self, body: str) -> str:
        """The loop that threads share."""
        return nest(["part"], [self.parts], body, 0) if self.parts > 1 else body

    def around(self, body: str) -> str:
        """All loops."""
        return self.in_parts(self.nest(0, len(self.shape), body))
