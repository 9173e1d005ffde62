"""Running sums and products as routines: one element after the other, rows side by side.

The sum of an element is that of the one before and one addition, which waits for it; so vectors go
along another axis, and where there is none behind, several rows take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from textwrap import indent
from typing import Any

from autosched.graph.ops.reduce import STRETCH
from autosched.graph.ops.registry import find
from autosched.graph.ops.routines import Loops, first_long, fixed, nest, routine
from autosched.graph.ops.tensors import TensorLike, in_wider, normal_axis
from autosched.graph.strategies import Input, Strategy, strategy
from autosched.target import Target

ROWS = 8
"""Rows that take turns: a sum is ready when its turn comes again."""

Statement = Callable[[Callable[[str], str]], str]
"""Makes the statement that sets one element. Its argument makes the indices of an element of the
same row from the one along the axis: of row o0 of a matrix, "k" gives "o0, k", and the statement
may be "y[o0, k] = y[o0, k - 1] + x[o0, k]"."""


def running(name: str, combined: str, first: int) -> Callable[..., Any]:
    """The definition of an operator: `combined` is the text of what it makes of {sum} and {new},
    `first` what it begins with."""

    def compute(x: TensorLike, *, axis: Any, exclusive: int = 0, reverse: int = 0) -> Any:
        shape = fixed(x.shape)
        along = normal_axis(int(axis if isinstance(axis, int) else axis[0]), len(shape))
        n = shape[along]
        here, before = (f"{n - 1} - k", f"{n} - k") if reverse else ("k", "k - 1")

        def set_first(at: Callable[[str], str]) -> str:
            begin = str(n - 1 if reverse else 0)
            value = f"T.{x.dtype}({first})" if exclusive else f"x[{at(begin)}]"
            return f"y[{at(begin)}] = {value}"

        def set_next(at: Callable[[str], str]) -> str:
            new = f"x[{at(before if exclusive else here)}]"
            return f"y[{at(here)}] = {combined.format(sum=f'y[{at(before)}]', new=new)}"

        write = _of_rows if along == len(shape) - 1 else _of_vectors
        body = write(shape, along, set_first, set_next)
        (made,) = routine(name, {"x": x}, {"y": (shape, x.dtype)}, body)
        return made

    return in_wider(compute)


def _of_vectors(shape: tuple[int, ...], along: int, first: Statement, following: Statement) -> str:
    """Vectors go along the axes behind."""
    loops = Loops(shape, [d for d in range(len(shape)) if d != along], len(shape) - 1)

    def at(k: str) -> str:
        return ", ".join(k if d == along else i for d, i in enumerate(loops.indices))

    def inner(statement: Statement) -> str:
        return loops.nest(along + 1, len(shape), statement(at), "vectorized")

    sums = _in_turn(shape[along], inner(following))
    return loops.in_parts(loops.nest(0, along, f"{inner(first)}\n{sums}"))


def _of_rows(shape: tuple[int, ...], along: int, first: Statement, following: Statement) -> str:
    """Rows of the axis before take turns."""
    outer, rows = shape[: max(along - 1, 0)], shape[along - 1] if along else 1
    names = [f"o{d}" for d in range(len(outer))]

    def element(row: str) -> Callable[[str], str]:
        return lambda k: ", ".join([*names, row, k] if along else [k])

    def block(places: Sequence[str]) -> str:
        every = [element(row) for row in places]
        turns = "\n".join(following(at) for at in every)
        return "\n".join(first(at) for at in every) + "\n" + _in_turn(shape[along], turns)

    shared = first_long([*outer, rows // ROWS], prod(shape))
    body = []
    if rows >= ROWS:
        within = block([f"b * {ROWS} + {r}" for r in range(ROWS)])
        body.append(nest(["b"], [rows // ROWS], within, 0 if shared == len(outer) else -1))
    if rows % ROWS:
        body.append(block([str(r) for r in range(rows - rows % ROWS, rows)]))
    return nest(names, outer, "\n".join(body), shared)


def _in_turn(n: int, body: str) -> str:
    """The loop over all elements but the first."""
    return f"for k in T.serial(1, {n}):\n{indent(body, '    ')}"


def _strategy(name: str, combined: str, first: int) -> None:
    """By a routine where the axis is long, and there are elements enough side by side to fill the
    time of an addition."""
    by_stretches, in_order = find(name).compute, running(name.lower(), combined, first)
    assert by_stretches is not None

    @strategy(name)
    def choose(s: Strategy, attrs: Any, inputs: Sequence[Input | None], target: Target) -> None:
        (x, *_) = inputs
        assert x is not None
        axis = normal_axis(
            int(attrs.axis if isinstance(attrs.axis, int) else attrs.axis[0]), len(x.shape)
        )
        fits = all(isinstance(n, int) for n in x.shape) and x.shape[axis] > 2 * STRETCH
        behind = x.shape[axis + 1 :] or x.shape[max(axis - 1, 0) : axis]
        fits = fits and bool(behind) and prod(behind) >= ROWS and not target.is_gpu
        s.add(by_stretches, name="by stretches", plevel=10)
        s.add(in_order, name="in order", plevel=15, when=fits)


_strategy("CumSum", "{sum} + {new}", 0)
_strategy("CumProd", "{sum} * {new}", 1)
