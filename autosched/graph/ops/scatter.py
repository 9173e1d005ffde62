"""ScatterElements and ScatterND as routines: updates written at places that data name.

Threads share an axis along which the places are not data: each goes through all updates, in their
order, and writes its own part of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from autosched.graph.errors import Unsupported
from autosched.graph.ops.routines import Loops, first_long, fixed, nest, routine
from autosched.graph.ops.tensors import TensorLike, is_empty, normal_axis

COMBINED = {
    "none": "{new}",
    "add": "{old} + {new}",
    "mul": "{old} * {new}",
    "max": "T.max({old}, {new})",
    "min": "T.min({old}, {new})",
}
_OF_BOOL = {"none": "{new}", "add": "{old} | {new}", "mul": "{old} & {new}",
            "max": "{old} | {new}", "min": "{old} & {new}"}  # fmt: skip


def scatter_elements(
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Any:
    """x with updates at places whose index along an axis is data."""
    shape, few = fixed(x.shape), fixed(updates.shape)
    rank = len(shape)
    at = normal_axis(axis, rank)
    _check(x, indices, updates, reduction)
    if len(indices.shape) != rank or tuple(indices.shape) != tuple(updates.shape):
        raise Unsupported("indices and updates have other shapes than expected")
    if any(d != at and n > m for d, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True))):
        raise Unsupported("indices have more elements than the data along another axis")
    loops = Loops(few, [d for d in range(rank) if d != at], rank - 1)
    place = [f"row{d}" if d == at else i for d, i in enumerate(loops.indices)]
    body = index_from_first("ScatterElements", f"row{at}", loops.element("indices"), shape[at])
    body += _store(place, loops, x.dtype, reduction)
    return _scattered("scatter_elements", x, indices, updates, loops.around(body))


def scatter_nd(
    x: TensorLike, indices: TensorLike, updates: TensorLike, *, reduction: str = "none"
) -> Any:
    """x with slices written at rows of indices."""
    _check(x, indices, updates, reduction)
    shape, few = fixed(x.shape), fixed(updates.shape)
    (*lead, width) = fixed(indices.shape)
    if not 0 < width <= len(shape) or few != (*lead, *shape[width:]):
        raise Unsupported("indices and updates have other shapes than expected")
    loops = Loops(few, range(len(lead), len(few)), len(few) - 1)
    outer = loops.indices[: len(lead)]
    body = ""
    for d in range(width):
        found = f"indices[{', '.join([*outer, str(d)])}]"
        body += index_from_first("ScatterND", f"row{d}", found, shape[d])
    place = [*(f"row{d}" for d in range(width)), *loops.indices[len(lead) :]]
    store = _store(place, loops, x.dtype, reduction)
    body += loops.nest(len(lead), len(few), store, "vectorized")
    body = loops.nest(0, len(lead), body)
    return _scattered("scatter_nd", x, indices, updates, loops.in_parts(body))


def _scattered(
    name: str, x: TensorLike, indices: TensorLike, updates: TensorLike, body: str
) -> Any:
    """The statements, on a copy of x."""
    shape = fixed(x.shape)
    names = [f"c{d}" for d in range(len(shape))]
    at = ", ".join(names)
    copy = f"out[{at}] = x[{at}]"
    copied = nest(names, shape, copy, first_long(shape, prod(shape)), "vectorized")
    inputs = {"x": x, "indices": indices, "updates": updates}
    (made,) = routine(name, inputs, {"out": (shape, x.dtype)}, f"{copied}\n{body}")
    return made


def _check(x: TensorLike, indices: TensorLike, updates: TensorLike, reduction: str) -> None:
    if indices.dtype not in ("int32", "int64"):
        raise Unsupported(f"indices are {indices.dtype}; expected int64")
    if updates.dtype != x.dtype:
        raise Unsupported(f"updates are {updates.dtype}; expected {x.dtype}")
    if reduction not in COMBINED:
        raise Unsupported(f"attribute reduction is {reduction!r}")
    if is_empty(x.shape) or is_empty(updates.shape):
        raise Unsupported("there is nothing to write, or nowhere to")


def index_from_first(operator: str, name: str, found: str, extent: int) -> str:
    """Statements that name an index counted from the first element."""
    return (
        f"{name}_given = T.int64({found})\n"
        f"assert {name}_given >= {-extent} and {name}_given < {extent}, "
        f'"{operator}: an index is beyond the {extent} elements of its axis"\n'
        f"{name} = T.select({name}_given < 0, {name}_given + {extent}, {name}_given)\n"
    )


def _store(place: Sequence[str], loops: Loops, dtype: str, reduction: str) -> str:
    old, new = f"out[{', '.join(place)}]", loops.element("updates")
    combined = (_OF_BOOL if dtype == "bool" else COMBINED)[reduction]
    return f"{old} = {combined.format(old=old, new=new)}"
