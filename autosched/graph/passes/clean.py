"""fold, common_subexpressions, dead_code."""

from __future__ import annotations

import numpy as np

from autosched.graph.fold import folded
from autosched.graph.higher import HIGHER
from autosched.graph.ir import Binding, Body, Call, Const, Var, reads
from autosched.graph.passes.bodies import Renaming, body_pass, key_of
from autosched.graph.types import TensorType
from autosched.tir.dtypes import array_dtype

ROOM = 1 << 20
"""Elements that a constant may have though what it is made of has fewer."""


@body_pass("fold")
def fold(body: Body) -> Body:
    """Calls of constants are computed, unless the result is much larger than they are, and so are
    those whose results have no elements.

    rewrite:
        a = op.cast(G.const([1, 2], "int64"), to="float32")
        b = op.mul(x, a)                           ->      b = op.mul(x, G.const([1.0, 2.0], …))
    """
    now = Renaming()
    for b in body.bindings:
        if not isinstance(b.value, Call) or not isinstance(b.value.callee, str):
            now.out.append(Binding(b.vars, now.value(b.value)))
            continue
        for a in b.value.args:
            empty = _empty(a) if isinstance(a, Var) and id(a) not in now.known else None
            if isinstance(a, Var) and empty is not None:
                now.known[id(a)] = empty
        value = now.value(b.value)
        assert isinstance(value, Call)
        made = _without_elements(b, b.value.callee) or _constants(value, len(b.vars))
        if made is None:
            now.out.append(Binding(b.vars, value))
        else:
            now.known.update({id(v): c for v, c in zip(b.vars, made, strict=True)})
    return now.body(body.results)


def _without_elements(b: Binding, operator: str) -> tuple[Const, ...] | None:
    """The results of a call of an operator all of which are empty; None for others."""
    made = [e for v in b.vars if (e := _empty(v)) is not None]
    return None if operator in HIGHER or len(made) < len(b.vars) else tuple(made)


def _empty(v: Var) -> Const | None:
    """What a variable without elements is: te has no empty tensors."""
    t = v.type
    if not isinstance(t, TensorType) or not t.is_static or t.elements:
        return None
    return Const(t, np.empty(tuple(map(int, t.known)), array_dtype(t.dtype)))


def _constants(call: Call, outputs: int) -> tuple[Const, ...] | None:
    if not call.args:
        return None
    constants = [a for a in call.args if isinstance(a, Const)]
    if len(constants) != sum(a is not None for a in call.args):
        return None
    if any(c.array is None for c in constants):
        return None
    limit = max(2 * sum(c.type.elements for c in constants), ROOM)
    return folded(call, outputs, limit)


@body_pass("common_subexpressions")
def common_subexpressions(body: Body) -> Body:
    """Calls of one operator with equal arguments and attributes are made once.

    rewrite:
        a = op.exp(x)
        b = op.exp(x)                              ->      a = op.exp(x)
        c = op.add(a, b)                                   c = op.add(a, a)
    """
    now = Renaming()
    seen: dict[object, Binding] = {}
    for b in body.bindings:
        value = now.value(b.value)
        if isinstance(value, Call) and isinstance(value.callee, str):
            args = tuple(key_of(a, {}) for a in value.args)
            key = (value.callee, args, value.attrs, len(b.vars))
            first = seen.setdefault(key, b)
            if first is not b:
                now.known.update({id(v): w for v, w in zip(b.vars, first.vars, strict=True)})
                continue
        now.out.append(Binding(b.vars, value))
    return now.body(body.results)


@body_pass("dead_code")
def dead_code(body: Body) -> Body:
    """Bindings that no result depends on go.

    rewrite:
        a = op.exp(x)
        b = op.relu(x)                             ->      b = op.relu(x)
        return b                                           return b
    """
    live = {id(a) for a in body.results}
    kept = []
    for b in reversed(body.bindings):
        if any(id(v) in live for v in b.vars):
            live |= {id(a) for a in reads(b.value)}
            kept.append(b)
    return Body(tuple(reversed(kept)), body.results)
