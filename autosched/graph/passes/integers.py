"""integers: products of quantised numbers are sums of products of integers.

A product or convolution of dequantised operands, and ONNX's integer operators, become the int32
sums of products of what is stored, and pointwise operators behind them, which fuse:

    (x - zx) * sx  times  (w - zw) * sw   =   (sum x * (w - zw)  -  zx * sum (w - zw)) * (sx * sw)

The weight w is a constant: its zero point is taken off it now, and the second sum is a number a
column. What is dequantised and is no such operand stays, for the float operators that read it; the
recurrent weight of an LSTM stays bytes in memory, which each step reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from autosched.graph.fold import constant, evaluated
from autosched.graph.ir import Array, Atom, Binding, Body, Call, Const, Var, tensor_type
from autosched.graph.ops.quantised import SUMS, bits_of_sums
from autosched.graph.ops.recurrent import BYTES
from autosched.graph.passes.bodies import Renaming, body_pass
from autosched.graph.passes.emitting import Emitter, all_known, array_of

_BYTES = ("int8", "uint8")
_WHOLE = "MatMulInteger"
_HALF = np.int32(128)


@body_pass("integers")
def integers(body: Body) -> Body:
    """rewrite:
    a = op.dequantize_linear(q, sx, zx)
    b = op.dequantize_linear(w, sw, zw)            ->      s = op.autosched_matmul_sums(q, w2)
    c = op.matmul(a, b)                                    f = op.cast(op.add(s, n), to="float32")
                                                           c = op.mul(f, sxw)
    """
    out = _Rewriter()

    def rule(_: Var, call: Call) -> Atom | None:
        found = _RULES.get(str(call.callee))
        return None if found is None else found(out, call)

    return _without_constants(out.rewritten(body, rule))


def _without_constants(body: Body) -> Body:
    """The body where what is left of dequantised constants is computed."""
    now = Renaming()
    stored: dict[int, Call] = {}
    for b in body.bindings:
        value = now.value(b.value)
        given = value.args if isinstance(value, Call) else ()
        if isinstance(value, Call) and value.callee == "DequantizeLinear" and all_known(given):
            (made,) = evaluated(value, 1)
            now.known[id(b.vars[0])], stored[id(made)] = made, value
            continue
        if isinstance(value, Call) and value.callee == "LSTM" and id(given[2]) in stored:
            value = _of_bytes(value, stored[id(given[2])])
        now.out.append(Binding(b.vars, value))
    return now.body(body.results)


def _of_bytes(call: Call, weight: Call) -> Call:
    """An LSTM whose recurrent weight stays int8, if it has one scale, or one a row, and no zero
    points; else the call."""
    q, scale, *zero = map(array_of, weight.args)
    assert q is not None  # the caller has asked
    assert scale is not None
    whole = scale.size == 1
    by_row = weight.attr("block_size", 0) == q.shape[2] and weight.attr("axis", 1) % 3 == 2
    plain = q.dtype == np.int8 and scale.dtype == np.float32
    if not plain or not (whole or by_row) or any(z is not None and z.any() for z in zero):
        return call
    rows = np.broadcast_to(scale.reshape(-1)[0] if whole else scale[..., 0], q.shape[:2])
    x, w, _, *rest = call.args
    return Call(BYTES, (x, w, constant(q), constant(rows), *rest), call.attrs)


class Quantised(NamedTuple):
    """An operand: integers, with the scale and the zero point they have (None: 0)."""

    q: Atom
    scale: Atom
    zero: Atom | None
    axis: int


@dataclass(frozen=True)
class Weight:
    """A constant operand: what it is multiplied by as int8 or int16, the sums of that over what a
    result sums over, and its scale, both of shapes that broadcast over the results."""

    values: Array
    sums: Array
    scale: Array


class _Rewriter(Emitter):
    """Knows operands that are quantised."""

    def quantised(self, a: Atom | None) -> Quantised | None:
        """What an operand is dequantised from, if it is bytes with a scale of float32."""
        call = self.maker.get(id(a))
        if not isinstance(call, Call) or call.callee != "DequantizeLinear":
            return None
        q, scale, zero = (*call.args, None)[:3]
        if q is None or scale is None or call.attr("block_size", 0):
            return None
        if tensor_type(q).dtype not in _BYTES or tensor_type(scale).dtype != "float32":
            return None
        return Quantised(q, scale, zero, call.attr("axis", 1))


def _single(a: Atom | None) -> bool:
    return a is None or tensor_type(a).elements == 1


def _weight(
    q: Atom | None, scale: Atom | None, zero: Atom | None, axis: int, columns: int,
    summed: tuple[int, ...],
) -> Weight | None:  # fmt: skip
    """A constant operand, whose scale is one, or one an index of the axis `columns`; `scale` None
    is 1. None where it is no constant, or is scaled along another axis."""
    values, by = array_of(q), np.ones((), np.float32) if scale is None else array_of(scale)
    less = np.zeros((), np.int64) if zero is None else array_of(zero)
    if values is None or by is None or less is None or values.dtype.name not in _BYTES:
        return None
    wide = [1] * values.ndim
    wide[columns] = -1
    parts = []
    for part in (by, less):
        if part.size > 1 and (part.ndim != 1 or axis % values.ndim != columns):
            return None
        parts.append(part.reshape(wide if part.size > 1 else [1] * values.ndim))
    whole = values.astype(np.int64) - parts[1].astype(np.int64)
    # Not by the values: a skeleton has none, and the kernels of its model.
    fits = not np.any(parts[1].astype(np.int64) - (128 if values.dtype == np.uint8 else 0))
    stored = whole.astype(np.int8 if fits else np.int16)
    return Weight(stored, whole.sum(summed, keepdims=True), parts[0])


def _scaled(
    out: _Rewriter,
    sums: Atom,
    weight: Weight,
    x: Quantised,
    bias: Atom | None,
    shape: Callable[[Array], Array],
    alpha: float = 1.0,
) -> Atom:
    """The sums of a product as the real numbers that they stand for. `shape` lays what is by
    column out over the results; the bias broadcasts over them."""
    by = out.emit("Mul", x.scale, shape(weight.scale.astype(np.float32)))
    if alpha != 1:
        by = out.emit("Mul", by, np.float32(alpha))
    whole = _offset(out, weight, x.zero, shape)
    if whole is not None:
        sums = out.emit("Add", sums, whole)
    real = out.emit("Mul", out.emit("Cast", sums, to="float32"), by)
    return real if bias is None else out.emit("Add", real, bias)


def _offset(
    out: _Rewriter, weight: Weight, zero: Atom | None, shape: Callable[[Array], Array]
) -> Atom | None:
    """What a zero point of the other operand adds to the sums, as int32; None for nothing."""
    known = array_of(zero)
    if zero is None or (known is not None and not known.any()):
        return None
    # Sums wrap around as int32 do, so what is added may as well.
    less = shape((-weight.sums).astype(np.int32))
    return out.emit("Mul", out.emit("Cast", _scalar(out, zero), to="int32"), less)


def _scalar(out: _Rewriter, a: Atom) -> Atom:
    """A tensor of one element as one without axes."""
    return a if not tensor_type(a).known else out.emit("Reshape", a, np.zeros(0, np.int64))


def _conv(out: _Rewriter, call: Call) -> Atom | None:
    data, kernel, bias = (*call.args, None)[:3]
    x, w = out.quantised(data), out.quantised(kernel)
    if x is None or w is None or not (_single(x.scale) and _single(x.zero)):
        return None
    axes = tuple(range(1, len(tensor_type(w.q).known)))
    weight = _weight(w.q, w.scale, w.zero, w.axis, 0, axes)
    if weight is None:
        return None
    shape = _by_channel(len(axes) - 1)
    x = x._replace(scale=_scalar(out, x.scale))
    sums = _conv_sums(out, call, x.q, weight, x.zero)
    if bias is not None and len(axes) > 1:
        bias = out.emit("Reshape", bias, np.array([-1, *[1] * (len(axes) - 1)], np.int64))
    return _scaled(out, sums, weight, x, bias, shape)


def _conv_sums(
    out: _Rewriter, call: Call, x: Atom | None, weight: Weight, zero: Atom | None
) -> Atom:
    bits = bits_of_sums(weight.values)
    return out.emit(SUMS["Conv"], x, weight.values, zero, **dict(call.attrs), bits=bits)


def _by_channel(spatial: int) -> Callable[[Array], Array]:
    """(M, 1, ...) as (M, 1 for each spatial axis)."""
    return lambda a: a.reshape(-1, *[1] * spatial)


def _matmul(out: _Rewriter, call: Call) -> Atom | None:
    x, w = (out.quantised(a) for a in call.args)
    if x is None or w is None or not (_single(x.scale) and _single(x.zero)):
        return None
    x = x._replace(scale=_scalar(out, x.scale))
    weight = _matrix(x.q, w.q, w.scale, w.zero, w.axis)
    if weight is not None:
        sums = out.emit(SUMS["MatMul"], x.q, weight.values)
        return _scaled(out, sums, weight, x, None, lambda a: a)
    if not (_single(w.scale) and _single(w.zero)):
        return None
    signed = _signed_right(out, x.q, w.q, x.zero, w.zero)
    sums = out.emit(_WHOLE, x.q, w.q, x.zero, w.zero) if signed is None else signed
    by = out.emit("Mul", x.scale, _scalar(out, w.scale))
    return out.emit("Mul", out.emit("Cast", sums, to="float32"), by)


def _signed_right(
    out: _Rewriter, x: Atom, w: Atom, x_zero: Atom | None, w_zero: Atom | None
) -> Atom | None:
    """The sums of two matrices of uint8 that are no constants, as those of x by s = w - 128, which
    is int8: processors multiply unsigned by signed bytes. None where it is another product.

        sum (x - zx) * (w - zw)  =  sum x * s  -  zx * sum s  -  zs * (sum x - terms * zx)
    """
    types = [tensor_type(a) for a in (x, w)]
    if any(t.dtype != "uint8" or len(t.known) < 2 for t in types):
        return None
    terms = types[0].known[-1]
    if not isinstance(terms, int) or not (_single(x_zero) and _single(w_zero)):
        return None

    def number(zero: Atom | None) -> Any:
        return np.int32(0) if zero is None else out.emit("Cast", _scalar(out, zero), to="int32")

    def total(a: Atom, axis: int) -> Atom:
        return out.emit("ReduceSum", out.emit("Cast", a, to="int32"), np.array([axis]), keepdims=1)

    signed = out.emit("Cast", out.emit("Sub", out.emit("Cast", w, to="int32"), _HALF), to="int8")
    sums = out.emit(SUMS["MatMul"], x, signed)
    zx, zs = number(x_zero), out.emit("Sub", number(w_zero), _HALF)
    if not _is_zero(zx):
        sums = out.emit("Sub", sums, out.emit("Mul", total(signed, -2), zx))
    if not _is_zero(zs):
        rest = out.emit("Sub", total(x, -1), out.emit("Mul", zx, np.int32(terms)))
        sums = out.emit("Sub", sums, out.emit("Mul", rest, zs))
    return sums


def _is_zero(number: Any) -> bool:
    known = array_of(number) if isinstance(number, (Const, Var)) else number
    return known is not None and not np.any(known)


def _matrix(
    x: Atom, q: Atom | None, scale: Atom | None, zero: Atom | None, axis: int
) -> Weight | None:
    """The right operand of a product of matrices, if it is a constant."""
    if q is None or min(len(tensor_type(a).known) for a in (x, q)) < 2:
        return None
    rank = len(tensor_type(q).known)
    return _weight(q, scale, zero, axis, rank - 1, (rank - 2,))


def _gemm(out: _Rewriter, call: Call) -> Atom | None:
    data, kernel, c = (*call.args, None)[:3]
    x, w = out.quantised(data), out.quantised(kernel)
    if x is None or w is None or not (_single(x.scale) and _single(x.zero)):
        return None
    if call.attr("transA", 0) or (c is not None and call.attr("beta", 1.0) != 1):
        return None
    turned = bool(call.attr("transB", 0))
    weight = _weight(w.q, w.scale, w.zero, w.axis, 0 if turned else 1, (1 if turned else 0,))
    if weight is None:
        return None
    if turned:
        values = np.ascontiguousarray(weight.values.T)
        weight = Weight(values, weight.sums.T, weight.scale.T)
    x = x._replace(scale=_scalar(out, x.scale))
    sums = out.emit(SUMS["MatMul"], x.q, weight.values)
    return _scaled(out, sums, weight, x, c, lambda a: a.reshape(-1) if a.size > 1 else
                   a.reshape(()), call.attr("alpha", 1.0))  # fmt: skip


def _matmul_integer(out: _Rewriter, call: Call) -> Atom | None:
    a, b, a_zero, b_zero = (*call.args, None, None)[:4]
    assert a is not None
    weight = _matrix(a, b, None, b_zero, -1)
    if weight is None and b is not None:
        return _signed_right(out, a, b, a_zero, b_zero)
    if weight is None or not _single(a_zero):
        return None
    sums = out.emit(SUMS["MatMul"], a, weight.values)
    less = _offset(out, weight, a_zero, lambda s: s)
    return sums if less is None else out.emit("Add", sums, less)


def _conv_integer(out: _Rewriter, call: Call) -> Atom | None:
    x, w, x_zero, w_zero = (*call.args, None, None)[:4]
    assert w is not None
    axes = tuple(range(1, len(tensor_type(w).known)))
    weight = _weight(w, None, w_zero, 0, 0, axes)
    if weight is None or not _single(x_zero):
        return None
    sums = _conv_sums(out, call, x, weight, x_zero)
    less = _offset(out, weight, x_zero, _by_channel(len(axes) - 1))
    return sums if less is None else out.emit("Add", sums, less)


_RULES: dict[str, Callable[[_Rewriter, Call], Atom | None]] = {
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "Gemm": _gemm,
    "MatMul": _matmul,
    _WHOLE: _matmul_integer,
}
