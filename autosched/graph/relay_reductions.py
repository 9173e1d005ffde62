"""Operators of the predecessor's text that go along axes: what they are here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.checks import shown
from autosched.errors import WorkloadError
from autosched.graph.builder import const
from autosched.graph.ir import Atom
from autosched.graph.relay_calls import Attrs, Emitter, Translate, known, shape

REDUCED = frozenset({"sum", "mean", "max", "min", "prod", "all", "any", "variance", "std",
                     "argmax", "argmin"})  # fmt: skip
"""Operators with the attribute `exclude`."""


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes that an attribute names; all where it names none."""
    if axis is None:
        return tuple(range(rank))
    return tuple(n % rank for n in (axis if isinstance(axis, tuple) else (axis,)))


def included(e: Emitter, args: Sequence[Atom], a: Attrs) -> dict[str, Any]:
    """The attributes of a reduction over the axes that it names, in the place of all others."""
    left = {k: v for k, v in a.items() if k != "exclude"}
    if not a.get("exclude"):
        return left
    rank = len(shape(e, args[0]))
    named = _axes(a.get("axis"), rank)
    return {**left, "axis": tuple(n for n in range(rank) if n not in named)}


def _reduced(op: str, e: Emitter, x: Atom, a: Attrs, keepdims: Any) -> Atom:
    axis = a.get("axis")
    more: dict[str, Any] = {}
    if axis is not None:
        more["axes"] = axis if isinstance(axis, tuple) else (axis,)
    if axis == ():
        more["noop_with_empty_axes"] = 1
    return e.call(op, [x], keepdims=int(keepdims), **more)[0]


def _truth(op: str) -> Translate:
    """`all` and `any`."""

    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        whole = e.call("Cast", args, to="int32")[0]
        return e.call("Cast", [_reduced(op, e, whole, a, a.get("keepdims", 0))], to="bool")[0]

    return translate


def _variance(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    """Of a tensor, and of its mean where that is given."""
    if known(e, args[0]).dtype == "float16":
        wide = [e.call("Cast", [x], to="float32")[0] for x in args]
        return e.call("Cast", [_variance(e, wide, a)], to="float16")[0]
    x = args[0]
    mean = args[1] if len(args) > 1 else _reduced("ReduceMean", e, x, a, 1)
    d = e.call("Sub", [x, mean])[0]
    square = e.call("Mul", [d, d])[0]
    found = _reduced("ReduceMean", e, square, a, a.get("keepdims", 0))
    if not a.get("unbiased"):
        return found
    extents = shape(e, x)
    n = int(np.prod([extents[k] for k in _axes(a.get("axis"), len(extents))]))
    if n < 2:
        raise WorkloadError(f"unbiased is 1 over {n} elements; expected 2 or more")
    return e.call("Mul", [found, const(n / (n - 1), known(e, x).dtype)])[0]


def _std(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    return e.call("Sqrt", [_variance(e, args, a)])[0]


def _l2_normalize(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    if known(e, args[0]).dtype == "float16":  # squares of half of its numbers are infinite
        wide = e.call("Cast", args, to="float32")
        return e.call("Cast", [_l2_normalize(e, wide, a)], to="float16")[0]
    (x,) = args
    squares = _reduced("ReduceSum", e, e.call("Mul", [x, x])[0], a, 1)
    least = const(a["eps"], known(e, x).dtype)
    return e.call("Div", [x, e.call("Sqrt", e.call("Max", [squares, least]))[0]])[0]


def _cumsum(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    (x,) = args
    if a.get("dtype"):
        x = e.call("Cast", [x], to=a["dtype"])[0]
    axis = a.get("axis")
    if axis is None:
        x, axis = e.call("Reshape", [x], shape=(-1,))[0], 0
    at = const(np.asarray(axis, np.int64))
    return e.call("CumSum", [x, at], exclusive=int(a.get("exclusive") or 0))[0]


def _topk(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    axis, kind = a.get("axis", -1), a.get("ret_type", "both")
    if kind not in ("both", "values", "indices"):
        raise WorkloadError(f"ret_type is {shown(kind)}; expected both, values or indices")
    k = a.get("k", 1)
    count = const(np.array([k if k > 0 else shape(e, args[0])[axis]], np.int64))
    largest = int(not a.get("is_ascend", 0))
    values, at = e.call("TopK", [args[0], count], 2, axis=axis, largest=largest)
    if kind == "values":
        return values
    places = e.call("Cast", [at], to=a.get("dtype", "int32"))[0]
    return places if kind == "indices" else e.together([values, places])


_AXES = "axis keepdims"
REDUCTIONS: dict[str, tuple[str, Translate]] = {
    "all": (_AXES, _truth("ReduceMin")),
    "any": (_AXES, _truth("ReduceMax")),
    "variance": (f"{_AXES} unbiased", _variance),
    "std": (f"{_AXES} unbiased", _std),
    "nn.l2_normalize": ("eps axis", _l2_normalize),
    "cumsum": ("axis dtype exclusive", _cumsum),
    "topk": ("k axis ret_type is_ascend dtype", _topk),
}
"""Operators, the attributes that are read, and what they are here."""
