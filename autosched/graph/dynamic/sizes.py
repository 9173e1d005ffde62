"""Arithmetic of sizes that the readings do not tell.

A model of one length is read at three. Sums, products and parts of sizes are functions of the
length that are known from these. Remainders, quotients, roundings and comparisons may agree at all
three and differ between: 64, 63 and 33 are no multiples of 5, and 40 is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from autosched.graph.dynamic.lengths import Grid
from autosched.graph.errors import Unsupported
from autosched.graph.ir import Array, Call, Const
from autosched.graph.onnx_import.scope import Origins

Sizes = tuple[tuple[Call, Const], ...]
"""Calls, and what they made."""

ROUNDED = frozenset({"Cast", "Ceil", "Floor", "Round", "Trunc"})
WATCHED = frozenset({"Div", "Equal", "Mod", *ROUNDED})


def watched(origins: Origins) -> Sizes:
    """The calls of an import on numbers and rows of them that are watched, in its order."""
    return tuple(
        (call, made)
        for call, _, made in origins.values()
        if call.callee in WATCHED and len(made.type.known) < 2 and _rounds(call)
    )


def _rounds(call: Call) -> bool:
    given = call.args[0]
    if call.callee not in ROUNDED:
        return not (call.callee == "Div" and _kind(given) == "f")
    return _kind(given) == "f" and (call.callee != "Cast" or "int" in str(call.attr("to")))


def _kind(atom: object) -> str:
    return atom.value.dtype.kind if isinstance(atom, Const) else ""


def check_sizes(grid: Grid, readings: Sequence[Sizes]) -> None:
    """`readings`: at the points of the grid. Raises Unsupported for a result that these do not
    tell."""
    names = {tuple(call.callee for call, _ in sizes) for sizes in readings}
    if len(names) != 1:
        raise Unsupported("other operators on sizes at other lengths")
    for calls in zip(*readings, strict=True):
        args = [[a.value for a in _constants(call)] for call, _ in calls]
        made = [const.value for _, const in calls]
        if not _grow(args) and not _known(grid, str(calls[0][0].callee), args, made):
            raise Unsupported(
                f"{calls[0][0].callee} of a size is no multiple of the length and a number"
            )


def _constants(call: Call) -> Iterator[Const]:
    return (a for a in call.args if isinstance(a, Const))


def _grow(args: Sequence[Sequence[Array]]) -> bool:
    """Whether the arguments are the same, or rows that the longer ones begin with."""
    for a, *others in zip(*args, strict=True):
        for shorter in others:
            if shorter.ndim != a.ndim or not np.array_equal(
                a[: len(shorter)] if a.ndim else a, shorter
            ):
                return False
    return True


def _known(grid: Grid, name: str, args: Sequence[Sequence[Array]], made: Sequence[Array]) -> bool:
    if any(a.shape != b.shape for others in args[1:] for a, b in zip(args[0], others, strict=True)):
        return False
    given = [a[0] for a in args]
    if name in ROUNDED:
        return all((x == y).all() for x, y in zip(given, made, strict=True)) and grid.multiple(
            made, 1
        )
    if name == "Equal":
        # Affine differences do not pass 0 between corners of one sign.
        less = [_wide(x) - _wide(y) for x, y in args]
        signs = [np.sign(d) for d in less]
        if less[0].dtype.kind == "f" or any((s != signs[0]).any() for s in signs[1:]):
            return False
        return grid.affine(less) is not None
    by = args[0][1]
    same = by.all() and all((others[1] == by).all() for others in args)
    return bool(same) and grid.multiple(given, np.broadcast_to(by, given[0].shape))


def _wide(a: Array) -> Array:
    return a.astype(np.float64 if a.dtype.kind == "f" else np.int64)
