"""Constants computed while a graph is made or simplified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from autosched.graph import ops
from autosched.graph.conversion import Patterns, held
from autosched.graph.errors import Unsupported
from autosched.graph.infer import (
    evaluate_operator,
    inference,
    is_text,
    split_static,
    type_of_array,
)
from autosched.graph.ir import Array, Call, Const
from autosched.tir import dtypes

SMALL = 1 << 14
"""Elements of a result that is computed as soon as a call is made: shapes, positions, masks."""
TINY = 64
"""Elements of arguments whose results are kept, should they be asked for again."""

KEPT = frozenset({"DequantizeLinear"})
"""What stays for the pass `integers`, which needs the integers, and computes what it leaves."""

BOUNDED = frozenset({
    "BitCast", "BitShift", "Compress", "NonZero", "ReverseSequence", "Scatter", "ScatterElements",
    "ScatterND", "TopK", "Unique",
})  # fmt: skip
"""Host operators whose results are about as large as their arguments, whatever these say."""


NUMBERS: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Equal": np.equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
"""Operators on two numbers that NumPy computes as their definitions do: counters of recursion are
computed thousands of times, each with numbers of its own."""
COUNTED = frozenset({"int8", "int16", "int32", "int64", "uint8", "float32", "float64"})
"""Dtypes of these numbers."""


def constant(array: Array) -> Const:
    """A constant of the graph; nothing writes into it any more."""
    kept = np.ascontiguousarray(array).reshape(array.shape)
    kept.flags.writeable = False
    return Const(type_of_array(array), kept)


def is_weight(call: Call) -> bool:
    """Whether a call makes floats of a matrix of bytes: a weight that the pass `int8` may take as
    it is stored."""
    given = call.args[0] if call.callee == "Cast" and call.args else None
    return (
        isinstance(given, Const)
        and given.type.dtype in ("int8", "uint8")
        and len(given.type.known) == 2
        and str(call.attr("to")).startswith("float")
    )


def folded(call: Call, outputs: int, limit: int = SMALL) -> tuple[Const, ...] | None:
    """The results of a call of constants; None where it depends on more, or is larger than
    `limit` elements. Raises Unsupported, naming the operator."""
    assert isinstance(call.callee, str)
    if call.callee in KEPT:
        return None
    number = _number(call)
    if number is not None:
        return (number,)
    op = ops.find(call.callee)
    known = [a is None or (isinstance(a, Const) and a.array is not None) for a in call.args]
    if call.callee in BOUNDED and op.compute is None and all(known):
        return _on_host(call, outputs, limit)
    if op.compute is None or split_static(op, call.args, dict(call.attrs)) is None:
        return None
    if any(isinstance(a, Const) and a.array is not None and is_text(a.array) for a in call.args):
        raise Unsupported(f"{call.callee}: arrays of text are not supported")
    if all(known):
        found = inference(call, outputs)
        if any(t.elements > limit for t in found.types):
            return None
    else:
        found = inference(call, outputs)
        if found.reads or found.kind == "host" or any(t.elements > limit for t in found.types):
            return None
    # What is not read may be anything.
    arrays = [_array(a) for a in call.args]
    known_type = not any(isinstance(a, Patterns) for a in arrays)  # from what NumPy calls it
    if not known_type or sum(0 if a is None else a.size for a in arrays) > TINY:
        return _evaluated(call.callee, arrays, call.attrs, outputs)
    keys = tuple(None if a is None else (a.dtype.str, a.shape, a.tobytes()) for a in arrays)
    return _again(call.callee, keys, call.attrs, outputs)


def _number(call: Call) -> Const | None:
    """The result of one of NUMBERS on two numbers; None for another call."""
    rule = NUMBERS.get(str(call.callee))
    if rule is None or call.attrs or len(call.args) != 2:
        return None
    x, y = call.args
    if not isinstance(x, Const) or not isinstance(y, Const) or x.type != y.type:
        return None
    if x.array is None or y.array is None or x.type.shape != () or x.type.dtype not in COUNTED:
        return None
    with np.errstate(all="ignore"):
        return constant(np.asarray(rule(x.array, y.array)))


def _on_host(call: Call, outputs: int, limit: int) -> tuple[Const, ...] | None:
    """The results of a host operator of constants, None for large ones: exporters write positions
    by ScatterND, and what follows NonZero has a shape only when that is known."""
    arrays = [_array(a) for a in call.args]
    if sum(0 if a is None else a.size for a in arrays) > limit:
        return None
    if any(a is not None and is_text(a) for a in arrays):
        return None
    static = [t for t in inference(call, outputs).types if t.is_static]
    if any(t.elements > limit for t in static):
        return None
    return _evaluated(str(call.callee), arrays, call.attrs, outputs)


def evaluated(call: Call, outputs: int) -> tuple[Const, ...]:
    """The results of a call of constants, whatever their size. Raises Unsupported, naming the
    operator."""
    assert isinstance(call.callee, str)
    return _evaluated(call.callee, [_array(a) for a in call.args], call.attrs, outputs)


def _evaluated(
    name: str, arrays: Sequence[Array | None], attrs: tuple[tuple[str, Any], ...], outputs: int
) -> tuple[Const, ...]:
    return tuple(constant(a) for a in evaluate_operator(name, arrays, dict(attrs), outputs))


@lru_cache(maxsize=4096)
def _again(
    name: str,
    keys: tuple[tuple[str, tuple[int, ...], bytes] | None, ...],
    attrs: tuple[tuple[str, Any], ...],
    outputs: int,
) -> tuple[Const, ...]:
    """The shape arithmetic of one layer is that of the next."""
    arrays = [None if k is None else np.frombuffer(k[2], k[0]).reshape(k[1]) for k in keys]
    return _evaluated(name, arrays, attrs, outputs)


def _array(a: object) -> Array | None:
    if a is None:
        return None
    if isinstance(a, Const):
        return held(a.value, a.type.dtype)
    shape = tuple(a.type.known)  # type: ignore[attr-defined]
    dtype: str = a.type.dtype  # type: ignore[attr-defined]
    return held(np.broadcast_to(np.zeros((), dtypes.array_dtype(dtype)), shape), dtype)
