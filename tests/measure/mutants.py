"""Lowered programs with one small mistake each, as a code generator or a primitive might make it.

A `Mutant` stands for a trace: it replays one, lowers the program and makes the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from autosched.errors import VerifyError
from autosched.lowering.lower import lower
from autosched.schedule import Trace
from autosched.tir import dtypes, interp
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot, rewrite, walk
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Node,
    PrimFunc,
    loops_of,
    replace_node,
    sites,
)

Array = npt.NDArray[Any]
Mistake = tuple[str, Callable[[], PrimFunc]]
OUTSIDE = "writes an argument"
"""In kinds of mistakes of which guard zones are to show each access that leaves its buffer."""

OTHER_OP = {"add": "sub", "sub": "add", "mul": "add", "div": "mul", "max": "min", "min": "max"}
ORDERED = ("sub", "div", "lt", "le", "gt", "ge", "floordiv", "floormod")
POISON = interp.poison
FAINT = 1e-4
"""Of the root mean square: differences of floats below it may be another order of rounding."""


@dataclass(frozen=True)
class Mutant:
    """`trace`, lowered, with mistake number `number` of those that the program admits."""

    trace: Trace
    number: int

    def apply(self, func: PrimFunc) -> SimpleNamespace:
        """As a trace does it."""
        return SimpleNamespace(func=self.program(func)[1])

    def program(self, func: PrimFunc) -> tuple[str, PrimFunc]:
        """The kind of mistake, and the program with it."""
        found = mistakes(lower(self.trace.apply(func).func))
        kind, make = found[self.number % len(found)]
        return kind, make()


def mistakes(func: PrimFunc) -> list[Mistake]:
    """All mistakes of a lowered program, with what makes each."""
    found: list[Mistake] = []
    for loop in loops_of(func):
        if isinstance(loop.extent, int) and loop.extent > 1:
            short = replace(loop, extent=loop.extent - 1)
            found.append((f"short {loop.kind} loop", lambda a=loop, b=short: swap(func, a, b)))
    blocks = [s.block for s in sites(func)]
    for block in blocks:
        if len(blocks) > 1:
            found.append(("block left out", lambda a=block: replace_node(func, a, ())))
        for kind, other in _of_block(block, func.params):
            found.append((kind, lambda a=block, b=other: swap(func, a, b)))
    return found


def swap(func: PrimFunc, old: Node, new: For | Block) -> PrimFunc:
    """`func` with one node replaced."""
    return replace_node(func, old, (new,))


def _of_block(block: Block, params: Sequence[Buffer]) -> Iterator[tuple[str, Block]]:
    if block.reducer is not None and block.init:
        yield "no initial value", replace(block, init=False)
    for n, p in enumerate(block.predicates):
        rest = block.predicates[:n] + block.predicates[n + 1 :]
        yield "no predicate", replace(block, predicates=rest)
        for step in (-1, 1):
            moved = replace(p, bound=p.bound + step)
            yield "predicate off by one", replace(block, predicates=(*rest, moved))
    for name in ("reads", "writes"):
        accesses = getattr(block, name)
        for n, access in enumerate(accesses):
            for kind, other in _of_access(access):
                changed = (*accesses[:n], other, *accesses[n + 1 :])
                known = any(access.buffer is b for b in params)
                where = "an argument" if known else "an intermediate"
                yield f"{kind}, {name} {where}", replace(block, **{name: changed})
    for n, e in enumerate(block.body):
        for kind, other in _of_expr(e, block):
            body = (*block.body[:n], other, *block.body[n + 1 :])
            yield kind, replace(block, body=body)


def _of_access(access: Access) -> Iterator[tuple[str, Access]]:
    for n, index in enumerate(access.indices):
        if not isinstance(index, Affine):
            continue
        for step in (-1, 1):
            yield "index off by one", _with_index(access, n, index + step)
        for var, factor in index.terms:
            yield "wrong stride", _with_index(access, n, index + Affine.of(var, factor))
    if len(access.indices) > 1:
        yield "indices swapped", replace(access, indices=access.indices[::-1])


def _with_index(access: Access, place: int, index: Affine) -> Access:
    indices = list(access.indices)
    indices[place] = index
    return replace(access, indices=tuple(indices))


def _of_expr(e: Expr, block: Block) -> Iterator[tuple[str, Expr]]:
    def put(old: Expr, new: Expr) -> Expr:
        return rewrite(e, lambda x: new if x is old else None)

    for x in walk(e):
        if isinstance(x, Const) and x.dtype != "bool":
            yield "wrong constant", put(x, replace(x, value=x.value + 1))
        elif isinstance(x, Slot):
            for n, read in enumerate(block.reads):
                if n != x.index and read.buffer.dtype == x.dtype:
                    yield "wrong operand", put(x, Slot(n, x.dtype))
        elif isinstance(x, Call):
            if x.op in OTHER_OP:
                yield "wrong operation", put(x, replace(x, op=OTHER_OP[x.op]))
            if x.op in ORDERED:
                yield "operands swapped", put(x, replace(x, args=x.args[::-1]))
            if x.op in ("select", "if_then_else"):
                swapped = (x.args[0], x.args[2], x.args[1])
                yield "sides swapped", put(x, replace(x, args=swapped))


def inputs(func: PrimFunc, seed: int) -> list[Array]:
    """Arrays for all parameters: normal floats, small integers, poisoned outputs."""
    rng = np.random.default_rng(seed)
    written = {id(a.buffer) for s in sites(func) for a in s.block.writes}
    arrays = []
    for b in func.params:
        shape, dtype = tuple(int(n) for n in b.shape), dtypes.array_dtype(b.dtype)
        if id(b) in written:
            arrays.append(np.full(shape, POISON(b.dtype), dtype))
        elif dtypes.is_float(b.dtype):
            arrays.append(rng.standard_normal(shape).astype(dtype))
        else:
            arrays.append(rng.integers(max(-4, int(dtypes.minimum(b.dtype))), 5, shape, dtype))
    return arrays


def results(func: PrimFunc, seed: int) -> list[Array]:
    """What a program makes of `inputs`."""
    arrays = inputs(func, seed)
    interp.run(func, arrays)
    return arrays


def effect(right: Sequence[Array], mutant: PrimFunc, seed: int) -> str:
    """What the mistake changes, by the interpreter; `right` are the results without it.

    "none", "result", or "faint": floats differ no more than by another order of rounding. Two kinds
    the interpreter cannot judge, since a compiler and memory may well make the right thing of them:
    "bounds", an access leaves its buffer; "undefined", the result depends on elements of
    intermediates that were never written.
    """
    try:
        wrong = results(mutant, seed)
        with patch.object(interp, "poison", lambda dtype: 7):
            other = results(mutant, seed)
    except VerifyError:
        return "bounds"
    if any(_difference(a, b) for a, b in zip(wrong, other, strict=True)):
        return "undefined"
    sizes = [_difference(a, b) for a, b in zip(right, wrong, strict=True)]
    return "none" if max(sizes) == 0 else "faint" if max(sizes) < FAINT else "result"


def _difference(right: Array, wrong: Array) -> float:
    """The largest difference over the size of the values; 0 for equal arrays."""
    if right.dtype.kind != "f":
        return float((right != wrong).any())
    if not (np.isfinite(right) == np.isfinite(wrong)).all():
        return 1.0
    good = np.isfinite(right)
    a, b = right[good].astype(np.float64), wrong[good].astype(np.float64)
    scale = np.abs(a) + np.sqrt(np.mean(np.square(a))) if a.size else a
    return float(np.max(np.abs(a - b) / np.maximum(scale, 1e-30), initial=0.0))
