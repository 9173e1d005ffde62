"""bfloat16: products of float32 take their operands in half as many bits, where a caller asks."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.graph.ir import Atom, Body, Call, Const, Var, tensor_type
from autosched.graph.ops.quantised import SUMS
from autosched.graph.passes.bodies import body_pass
from autosched.graph.passes.emitting import Emitter
from autosched.graph.types import TensorType
from autosched.tir import dtypes

PRECISIONS = ("float32", "bfloat16", "int8")
"""What products of float32 may be computed in: sums of bfloat16 are float32, of int8 int32."""


@body_pass("bfloat16")
def bfloat16(body: Body) -> Body:
    """Convolutions and products of matrices with constant weights round both operands to bfloat16
    and sum in float32: relative errors of 2^-9 an operand. Weights take half of their memory.

    rewrite:
        c = op.matmul(x, w)           ->      h = op.cast(x, to="bfloat16")
                                              c = op.autosched_matmul_sums(h, w16)
    """
    out = Emitter()
    narrow: dict[int, Atom] = {}

    def rule(_: Var, call: Call) -> Atom | None:
        parts = _product(call)
        if parts is None:
            return None
        data, weight, bias, name, attrs = parts
        if id(data) not in narrow:
            narrow[id(data)] = out.emit("Cast", data, to="bfloat16")
        sums = out.emit(name, narrow[id(data)], _rounded(weight), **attrs)
        return sums if bias is None else out.emit("Add", sums, _beside(bias, name, sums))

    return out.rewritten(body, rule)


def _product(call: Call) -> tuple[Var, Const, Const | None, str, dict[str, Any]] | None:
    """Data, weight, bias, the operator of the sums, and its attributes; None for other calls, and
    for products whose weights or bias are no constants of float32."""
    if call.callee not in ("Conv", "Gemm", "MatMul"):
        return None
    data, weight, bias = (*call.args, None)[:3]
    attrs = dict(call.attrs)
    known = isinstance(weight, Const) and weight.array is not None
    if not isinstance(data, Var) or not isinstance(weight, Const) or not known:
        return None
    if bias is not None and (not isinstance(bias, Const) or bias.array is None):
        return None
    types = (tensor_type(data), weight.type)
    if any(t.dtype != "float32" for t in types) or min(len(t.known) for t in types) < 2:
        return None
    if call.callee == "Gemm":
        alpha, beta = attrs.pop("alpha", 1.0), attrs.pop("beta", 1.0)
        if alpha != 1 or (bias is not None and beta != 1) or attrs.pop("transA", 0):
            return None
        if attrs.pop("transB", 0):
            turned = np.ascontiguousarray(weight.value.T)
            weight = Const(TensorType(turned.shape, "float32"), turned)
    name = SUMS["Conv" if call.callee == "Conv" else "MatMul"]
    return data, weight, bias, name, attrs


def _rounded(weight: Const) -> Const:
    """A weight as bfloat16: NumPy has its patterns as uint16."""
    array = dtypes.from_float32(weight.value)
    array.flags.writeable = False
    return Const(TensorType(weight.type.shape, "bfloat16"), array)


def _beside(bias: Const, name: str, sums: Atom) -> Const:
    """A bias that broadcasts over the sums: that of a convolution is one a channel."""
    if name != SUMS["Conv"]:
        return bias
    rank = len(tensor_type(sums).known)
    array = bias.value.reshape(-1, *[1] * (rank - 2))
    return Const(TensorType(array.shape, "float32"), array)
