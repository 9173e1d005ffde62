"""Constants computed while a graph is made or simplified."""

from __future__ import annotations

import numpy as np

from autosched.graph import ops
from autosched.graph.errors import Unsupported
from autosched.graph.infer import (
    evaluate_operator,
    inference,
    is_text,
    split_static,
    type_of_array,
)
from autosched.graph.ir import Array, Call, Const

SMALL = 1 << 14
"""Elements of a result that is computed as soon as a call is made: shapes, positions, masks."""


def constant(array: Array) -> Const:
    """A constant of the graph; nothing writes into it any more."""
    kept = np.ascontiguousarray(array).reshape(array.shape)
    kept.flags.writeable = False
    return Const(type_of_array(kept), kept)


def folded(call: Call, outputs: int, limit: int = SMALL) -> tuple[Const, ...] | None:
    """The results of a call of constants; None where it depends on more, or is larger than
    `limit` elements. Raises Unsupported, naming the operator."""
    assert isinstance(call.callee, str)
    op = ops.find(call.callee)
    known = [a is None or (isinstance(a, Const) and a.array is not None) for a in call.args]
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
    made = evaluate_operator(call.callee, arrays, dict(call.attrs), outputs)
    return tuple(constant(a) for a in made)


def _array(a: object) -> Array | None:
    if a is None:
        return None
    if isinstance(a, Const):
        return a.value
    shape = tuple(a.type.known)  # type: ignore[attr-defined]
    return np.broadcast_to(np.zeros((), a.type.dtype), shape)  # type: ignore[attr-defined]
