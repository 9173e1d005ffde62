"""simplify: what the numbers of constants make unnecessary.

Batch normalisation is a multiplication and an addition; where they, or others by channel, follow a
convolution that nothing else reads, they go into its weight and bias. Instance normalisation of
channels that were reshaped into groups, and back, is group normalisation, as exporters write it.
The gates of a GRU that are not linear before reset have weights apart. Operators that change
nothing go.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.graph.builder import const
from autosched.graph.fold import constant
from autosched.graph.ir import Array, Atom, Binding, Body, Call, Const, Var, reads
from autosched.graph.ops.recurrent import APART
from autosched.graph.passes.bodies import Renaming, body_pass
from autosched.graph.types import TensorType

_CONVOLUTIONS = {"Conv": 0, "ConvTranspose": 1}
"""Operator -> the axis of its weight that the channels of the result are on."""


@body_pass("simplify")
def simplify(body: Body) -> Body:
    """rewrite:
    a = op.conv(x, w)
    b = op.batch_normalization(a, …)           ->      b = op.conv(x, w2, b2)
    """
    readers: dict[int, int] = {}
    for atom in (*(a for b in body.bindings for a in reads(b.value)), *body.results):
        readers[id(atom)] = readers.get(id(atom), 0) + 1
    now = Renaming()
    maker: dict[int, Binding] = {}
    for b in body.bindings:
        value = now.value(b.value)
        if isinstance(value, Call):
            value = _gru_apart(value)
        if isinstance(value, Call) and len(b.vars) == 1 and isinstance(value.callee, str):
            same = _unchanged(value, b.vars[0])
            if same is not None:
                now.known[id(b.vars[0])] = same
                readers[id(same)] = readers.get(id(same), 0) + readers.get(id(b.vars[0]), 0) - 1
                continue
            done = _into_convolution(value, maker, readers)
            if done is not None:
                value = done
            elif (grouped := _group_normalization(value, b.vars[0], maker, readers)) is not None:
                value = grouped
            elif value.callee == "BatchNormalization":
                value = _scaled(now, b, value)
        made = Binding(b.vars, value)
        for v in b.vars:
            maker[id(v)] = made
        now.out.append(made)
    return now.body(body.results)


def _gru_apart(call: Call) -> Call:
    """A GRU whose recurrent weight two products read, each a part of it, with one for each."""
    weight = call.args[2] if call.callee == "GRU" and not call.attr("linear_before_reset") else None
    if not isinstance(weight, Const) or weight.array is None:
        return call
    hidden = weight.array.shape[2]
    gates, own = np.split(np.asarray(weight.value), [2 * hidden], 1)
    args = (*call.args[:2], constant(gates), constant(own), *call.args[3:])
    attrs = tuple((name, value) for name, value in call.attrs if name != "linear_before_reset")
    return Call(APART, args, attrs)


def _unchanged(call: Call, result: Var) -> Atom | None:
    """The argument that a call gives back as it is."""
    first = call.args[0] if call.args else None
    if first is None or not isinstance(first, Var) or first.type != result.type:
        return None
    if isinstance(result.type, TensorType) and result.type.shape is None:
        return None  # of equal types nothing is known
    if call.callee in ("Identity", "Cast", "Reshape", "Expand", "Squeeze", "Unsqueeze", "Flatten"):
        return first
    neutral = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0}.get(str(call.callee))
    other = call.args[1] if len(call.args) > 1 else None
    if neutral is not None and isinstance(other, Const) and other.array is not None:
        is_neutral = other.array.size <= 64 and bool(np.all(other.array == neutral))
        # x + 0 is x but for the sign of a zero.
        return first if is_neutral else None
    return None


def _group_normalization(
    call: Call, result: Var, maker: dict[int, Binding], readers: dict[int, int]
) -> Call | None:
    """Group normalisation, of a Reshape that undoes one before an instance normalisation."""
    norm = _only(call.args[0], maker, readers) if call.callee == "Reshape" else None
    if norm is None or norm.callee != "InstanceNormalization":
        return None
    into = _only(norm.args[0], maker, readers)
    scales = norm.args[1:]
    if into is None or into.callee != "Reshape" or not all(isinstance(s, Const) for s in scales):
        return None
    x, grouped = into.args[0], norm.args[0]
    assert isinstance(grouped, Var)
    old, new = (a.type if isinstance(a, Var) else None for a in (x, grouped))
    if not isinstance(old, TensorType) or not isinstance(new, TensorType) or old != result.type:
        return None
    if old.shape is None or new.shape is None or len(old.shape) < 3:
        return None
    channels, groups = old.shape[1], new.shape[1]
    if not isinstance(channels, int) or not isinstance(groups, int) or channels % groups:
        return None
    if old.shape[0] != new.shape[0]:
        return None
    each = [
        const(np.repeat(np.asarray(s.value), channels // groups))
        for s in scales
        if isinstance(s, Const) and s.array is not None
    ]
    attrs = (("num_groups", groups), ("epsilon", norm.attr("epsilon", 1e-5)))
    return Call("GroupNormalization", (x, *each), attrs) if len(each) == 2 else None


def _only(a: Atom | None, maker: dict[int, Binding], readers: dict[int, int]) -> Call | None:
    """The operator of which one other reads the result."""
    made = maker.get(id(a)) if a is not None and readers.get(id(a)) == 1 else None
    return made.value if made is not None and isinstance(made.value, Call) else None


def _affine(call: Call) -> tuple[Atom, Array | None, Array | None] | None:
    """(x, factor, offset) of an operator that computes x * factor + offset, by channel of x: arrays
    of one element, or one a channel."""
    if call.callee == "BatchNormalization":
        x, *parts = call.args
        if x is None or call.attr("training_mode", 0):
            return None
        if not all(isinstance(p, Const) and p.array is not None for p in parts):
            return None
        scale, offset, mean, variance = (
            np.asarray(p.value, np.float64) for p in parts if isinstance(p, Const)
        )
        factor = scale / np.sqrt(variance + call.attr("epsilon", 1e-5))
        return x, factor, offset - mean * factor
    if call.callee not in ("Add", "Mul", "Sub", "Div"):
        return None
    a, b = call.args
    if isinstance(a, Const) and call.callee in ("Add", "Mul"):
        a, b = b, a
    if not isinstance(a, Var) or not isinstance(b, Const) or b.array is None:
        return None
    values = _by_channel(b, a)
    if values is None:
        return None
    if call.callee in ("Add", "Sub"):
        return a, None, values if call.callee == "Add" else -values
    if call.callee == "Mul":
        return a, values, None
    # A quotient by 0 stays one: weights times infinity are NaN where they are 0.
    return (a, 1 / values, None) if np.all(values) else None


def _by_channel(c: Const, x: Var) -> Array | None:
    """A constant as one number, or one a channel of x; None where it is neither."""
    t = x.type
    if not isinstance(t, TensorType) or t.shape is None or c.type.dtype != t.dtype:
        return None
    if len(t.shape) < 2:
        return None
    array = np.asarray(c.value, np.float64)
    if array.size == 1 and array.ndim <= len(t.shape):
        return array.reshape(1)
    wide = (1,) * (len(t.shape) - array.ndim) + array.shape
    if len(wide) == len(t.shape) and wide == (1, t.shape[1], *([1] * (len(t.shape) - 2))):
        return array.reshape(-1)
    return None


def _into_convolution(
    call: Call, maker: dict[int, Binding], readers: dict[int, int]
) -> Call | None:
    """The convolution that computes what `call` makes of one's result."""
    found = _affine(call)
    if found is None:
        return None
    x, factor, offset = found
    before = maker.get(id(x))
    if before is None or readers.get(id(x)) != 1 or not isinstance(before.value, Call):
        return None
    conv = before.value
    axis = _CONVOLUTIONS.get(str(conv.callee))
    if axis is None:
        return None
    data, weight, bias = (*conv.args, None)[:3]
    if not isinstance(weight, Const) or weight.array is None:
        return None
    if axis == 1 and conv.attr("group", 1) != 1:
        return None
    if bias is not None and (not isinstance(bias, Const) or bias.array is None):
        return None
    t = x.type if isinstance(x, Var) else None
    assert isinstance(t, TensorType)
    filters = int(t.known[1])
    w = np.asarray(weight.value)
    add: Any = np.zeros(filters) if bias is None else np.asarray(bias.value, np.float64)
    if factor is not None:
        shape = [1] * w.ndim
        shape[axis] = factor.size
        w = w * factor.reshape(shape)
        add = add * factor
    if offset is not None:
        add = add + offset
    args = (data, const(w.astype(t.dtype)), const(add.astype(t.dtype)))
    return Call(conv.callee, args, conv.attrs)


def _scaled(now: Renaming, b: Binding, call: Call) -> Call:
    """A batch normalisation as x * factor + offset: the square roots are taken now."""
    found = _affine(call)
    t = b.vars[0].type
    if found is None or not isinstance(t, TensorType) or t.shape is None:
        return call
    x, factor, offset = found
    assert factor is not None
    assert offset is not None
    shape = (-1, *([1] * (len(t.shape) - 2))) if len(t.shape) > 1 else (-1,)
    v = Var(f"{b.vars[0].name}_scaled", t)
    by, plus = (const(p.astype(t.dtype).reshape(shape)) for p in (factor, offset))
    now.out.append(Binding((v,), Call("Mul", (x, by))))
    return Call("Add", (v, plus))
