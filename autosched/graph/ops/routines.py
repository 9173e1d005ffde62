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
from textwrap import indent

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.tensors import TensorLike, computed
from autosched.script.limits import LIMITS, Budget
from autosched.script.routines import RoutineReader
from autosched.script.source import Source
from autosched.te.tensor import Extent, Tensor
from autosched.tir import dtypes
from autosched.tir.routine import Routine
from autosched.tir.verify_routine import verify_routine

Type = tuple[tuple[int, ...], str]
"""Shape and dtype."""
ALONE = 1 << 14
"""Elements up to which one thread goes through all: sharing so few costs more than it saves."""
FEWEST = 16
"""Neighbouring elements of a part of a row, at least: a cache line of float32."""


def routine(
    name: str, inputs: Mapping[str, TensorLike], outputs: Mapping[str, Type], body: str
) -> tuple[Tensor, ...]:
    """The tensors `outputs` that the statements `body` store. Raises Unsupported for types that
    routines have not."""
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
    op = replace(made[0].op, auto_named=True)
    return tuple(Tensor(t.name, t.shape, t.dtype, op, t.value_index) for t in made)


def fixed(shape: Sequence[Extent]) -> tuple[int, ...]:
    """A shape in numbers. Raises Unsupported for symbolic sizes, which opaque blocks have not."""
    if not all(isinstance(n, int) for n in shape):
        raise Unsupported(f"the shape {shape} has symbolic sizes")
    return tuple(int(n) for n in shape if isinstance(n, int))


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


def first_long(extents: Sequence[int]) -> int:
    """The first loop of more than one iteration, for threads to share; -1 where there is too little
    to do."""
    size = 1
    for n in extents:
        size *= n
    long = [d for d, n in enumerate(extents) if n > 1]
    return long[0] if long and size > ALONE else -1


def parts(extent: int) -> int:
    """Into how many equal parts of rows of `extent` elements threads may divide them; 1: none."""
    return next((n for n in (8, 4, 2) if extent % n == 0 and extent // n >= FEWEST), 1)
