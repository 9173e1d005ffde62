"""int8: products whose weights the file stores as 8 bits are sums of integers, where a caller asks.

A weight-only quantised model stores (w - zw) * sw and multiplies floats. With this pass the other
operand is rounded to 8 bits as well, each row between its least and its largest element, which are
computed as the model runs; x is about u * sx + m, where m is the least one:

    sum x * (w - zw) * sw  =  ((sum u * w  -  zw * sum u) * sx  +  m * sum (w - zw)) * sw

Weights that the file stores as floats stay as they are: rounding those is `graph.quantise`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autosched.errors import WorkloadError
from autosched.graph.ir import (
    Array,
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    tensor_type,
)
from autosched.graph.ops.quantised import ROWS, SUMS
from autosched.graph.passes.bodies import body_pass
from autosched.graph.passes.emitting import Emitter, array_of
from autosched.passes.base import Pass
from autosched.tir.module import IRModule

LONGEST = 1 << 16
"""Terms of a sum of products of bytes that int32 holds."""
ATTRIBUTE = "int8"
"""Of main: how many products took the form, and how many there are of floats."""


class Stored(NamedTuple):
    """A constant as the file stores it: (values - zero) * scale, which broadcast over the values.
    `real` is whether it has been made float."""

    values: Array
    zero: Array
    scale: Array
    real: bool = True


class Weight(NamedTuple):
    """A matrix (K, N) of int8, with a zero point (None: all are 0) and a scale a column."""

    values: Array
    zero: Array | None
    scale: Array


@dataclass
class _Count:
    """Products of matrices that took the form, and all whose operands are floats."""

    taken: int = 0
    whole: int = 0


def _changed(body: Body, count: _Count) -> Body:
    """rewrite:
    f = op.cast(w, to="float32")                  u, r = op.autosched_quantize_rows(x)
    c = op.matmul(x, op.mul(f, sw))        ->     sx, m = r[..., :1], r[..., 1:]
                                                  s = op.autosched_matmul_sums(u, w)
                                                  f = op.mul(op.cast(s, to="float32"), sx)
                                                  c = op.mul(op.add(f, op.mul(m, n)), sw)
    """
    out = _Rewriter()
    for b in body.bindings:
        value = out.value(b.value)
        made = None
        if isinstance(value, Call) and out.is_product(value):
            made = out.product(value)
            count.whole += 1
            count.taken += made is not None
        if made is None:
            out.keep(Binding(b.vars, value))
        else:
            out.name(b.vars[0], made)
    return out.body(body.results)


def _apply(module: IRModule) -> IRModule:
    count = _Count()
    changed = body_pass("int8")(lambda body: _changed(body, count))(module)
    main = changed.graphs.get("main")
    if not isinstance(main, Function):
        return changed
    attrs = {**dict(main.attrs), ATTRIBUTE: (count.taken, count.whole)}
    made = Function(main.name, main.params, main.body, tuple(sorted(attrs.items())))
    return changed.with_function("main", made)


int8 = Pass("int8", _apply)
"""The pass: `MatMul` and `Gemm` of a float32 operand by a matrix that is stored in 8 bits."""


def int8_products(module: IRModule) -> tuple[int, int]:
    """Of a module that was prepared with precision="int8": how many products of matrices took the
    form, and how many there were of floats. Raises WorkloadError for another module."""
    main = module.graphs.get("main") if isinstance(module, IRModule) else None
    found = main.attr(ATTRIBUTE) if isinstance(main, Function) else None
    if found is None:
        raise WorkloadError(
            'int8_products takes the module of a model built with precision="int8": model.module'
        )
    taken, whole = found
    return int(taken), int(whole)


class _Rewriter(Emitter):
    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[tuple[int, bool], tuple[Atom, ...]] = {}

    def is_product(self, call: Call) -> bool:
        """Whether a call is a product of matrices of floats. Where the other operand has been
        quantised by the file it is one of integers already, which the pass `integers` makes."""
        data = self.maker.get(id(call.args[0])) if call.callee in ("MatMul", "Gemm") else None
        quantised = isinstance(data, Call) and data.callee == "DequantizeLinear"
        return call.callee in ("MatMul", "Gemm") and not quantised

    def product(self, call: Call) -> Atom | None:
        """What stands for a product; None where it stays."""
        data, kernel, bias = (*call.args, None)[:3]
        if data is None or isinstance(data, Const) or not _is_float(data):
            return None
        turned = bool(call.attr("transB", 0))
        if call.attr("transA", 0) or (bias is not None and call.attr("beta", 1.0) != 1):
            return None
        weight = _by_column(self.stored(kernel), turned)
        if weight is None:
            return None
        real = self.scaled(data, weight, call.attr("alpha", 1.0))
        return real if bias is None else self.emit("Add", real, bias)

    def scaled(self, data: Atom, weight: Weight, alpha: float) -> Atom:
        """The product of rows, rounded to bytes, by a weight."""
        zero = weight.zero
        key = id(data), zero is not None
        if key not in self.rows:
            self.rows[key] = self.emit_several(2 if zero is None else 3, ROWS, data)
        rows, steps, *totals = self.rows[key]
        scale, low = (
            self.emit("Slice", steps, starts=(n,), ends=(n + 1,), axes=(-1,)) for n in (0, 1)
        )
        sums = self.emit(SUMS["MatMul"], rows, weight.values)
        ones = weight.values.sum(0, dtype=np.int64)
        if zero is not None:
            sums = self.emit("Sub", sums, self.emit("Mul", totals[0], zero.astype(np.int32)))
            ones = ones - len(weight.values) * zero
        real = self.emit("Mul", self.emit("Cast", sums, to="float32"), scale)
        real = self.emit("Add", real, self.emit("Mul", low, ones.astype(np.float32)))
        return self.emit("Mul", real, (weight.scale * alpha).astype(np.float32))

    def stored(self, a: Atom | None) -> Stored | None:
        """A constant of 8 bits, as integers, however the file makes floats of it."""
        if isinstance(a, Const):
            known = a.array is not None and a.type.dtype in ("int8", "uint8")
            return Stored(a.value, np.zeros((), np.int64), np.ones(()), False) if known else None
        call = self.maker.get(id(a))
        if not isinstance(call, Call) or not isinstance(call.callee, str):
            return None
        rule = _RULES.get(call.callee)
        if rule is not None:
            return rule(self, call)
        if call.callee == "Mul" and isinstance(call.args[0], Const):
            call = Call("Mul", (call.args[1], call.args[0]), call.attrs)
        return _affine(self.stored(call.args[0]), call) if call.callee in _AFFINE else None

    def cast(self, call: Call) -> Stored | None:
        found = self.stored(call.args[0])
        return found._replace(real=True) if found and call.attr("to") == "float32" else None

    def transposed(self, call: Call) -> Stored | None:
        found = self.stored(call.args[0])
        if found is None:
            return None
        order = call.attr("perm") or tuple(range(found.values.ndim))[::-1]
        zero, scale = (np.broadcast_to(a, found.values.shape) for a in (found.zero, found.scale))
        values = found.values.transpose(order)
        return Stored(values, zero.transpose(order), scale.transpose(order), found.real)

    def dequantised(self, call: Call) -> Stored | None:
        """The constant of a DequantizeLinear whose scale is one, or one an index of an axis."""
        found = self.stored(call.args[0])
        parts = [array_of(a) for a in call.args[1:]]
        if found is None or found.real or any(p is None for p in parts):
            return None
        if call.attr("block_size", 0) or parts[0] is None or parts[0].dtype != np.float32:
            return None
        wide = [1] * found.values.ndim
        if any(p is not None and p.size > 1 for p in parts):
            wide[call.attr("axis", 1)] = -1
        scale, *zero = (p.reshape(wide) for p in parts if p is not None)
        less = zero[0].astype(np.int64) if zero else found.zero
        return Stored(found.values, less, scale.astype(np.float64))


_RULES = {
    "Cast": _Rewriter.cast,
    "Transpose": _Rewriter.transposed,
    "DequantizeLinear": _Rewriter.dequantised,
}
_AFFINE = ("Mul", "Div", "Sub")


def _affine(found: Stored | None, call: Call) -> Stored | None:
    """A constant scaled, or less whole numbers that are its zero point."""
    other = array_of(call.args[1])
    if found is None or not found.real or other is None or other.dtype != np.float32:
        return None
    if np.broadcast_shapes(other.shape, found.values.shape) != found.values.shape:
        return None
    if call.callee == "Sub":
        whole = np.array_equal(other, np.rint(other)) and np.all(np.abs(other) <= 255)
        plain = bool(np.all(found.scale == 1) and np.all(found.zero == 0))
        return found._replace(zero=other.astype(np.int64)) if whole and plain else None
    wide = other.astype(np.float64)
    return found._replace(scale=found.scale * wide if call.callee == "Mul" else found.scale / wide)


def _by_column(found: Stored | None, turned: bool) -> Weight | None:
    """A stored matrix as a right operand; None where its scale or zero point is not by column."""
    if found is None or not found.real or found.values.ndim != 2:
        return None
    zero, scale = (np.broadcast_to(a, found.values.shape) for a in (found.zero, found.scale))
    values = found.values
    if turned:
        values, zero, scale = values.T, zero.T, scale.T
    if values.shape[0] > LONGEST or not all(np.all(a == a[:1]) for a in (zero, scale)):
        return None
    shift = 128 if values.dtype == np.uint8 else 0
    less = zero[0] - shift
    stored = np.ascontiguousarray((values.astype(np.int16) - shift).astype(np.int8))
    return Weight(stored, less if less.any() else None, scale[0])


def _is_float(a: Atom) -> bool:
    t = tensor_type(a)
    return t.is_static and t.dtype == "float32" and len(t.known) >= 2
