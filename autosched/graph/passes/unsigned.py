"""unsigned: bytes between quantised operators are unsigned.

Processors multiply unsigned by signed bytes (vpdpbusd), and weights are signed. A value q of int8
with the zero point z stands for the numbers that u = q + 128 of uint8 stands for with z + 128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autosched.graph.ir import Array, Atom, Binding, Body, Call, Const, Var, reads, tensor_type
from autosched.graph.passes.bodies import body_pass
from autosched.graph.passes.emitting import Emitter
from autosched.graph.passes.quantised_moves import JOINS, MOVES
from autosched.graph.types import TensorType

HALF = 128


@body_pass("unsigned")
def unsigned(body: Body) -> Body:
    """rewrite:
    q = op.quantize_linear(x, s, z)            ->      u = op.quantize_linear(x, s, z2)
    y = op.dequantize_linear(q, s, z)                  y = op.dequantize_linear(u, s, z2)
    """
    out = _Unsigned()
    for b in body.bindings:
        v = b.value
        one = isinstance(v, Call) and isinstance(v.callee, str) and len(b.vars) == 1
        if not (one and isinstance(v, Call) and out.changed(b.vars[0], v)):
            for atom in reads(v):
                out.signed(atom)
            out.keep(Binding(b.vars, out.value(v)))
    for atom in body.results:
        out.signed(atom)
    return out.body(body.results)


class _Unsigned(Emitter):
    """Bindings written anew. `stored` is what stands for a value of int8, by its variable's id."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[int, Atom] = {}

    def signed(self, atom: Atom) -> None:
        """Let an operator that takes int8 read an atom."""
        u = self.stored.get(id(atom))
        if u is not None and id(atom) not in self.known:
            wide = self.emit("Sub", self.emit("Cast", u, to="int32"), np.int32(HALF))
            self.known[id(atom)] = self.emit("Cast", wide, to="int8")

    def unsigned(self, atom: Atom | None) -> Atom | None:
        """What stands for a value of int8; None for anything else."""
        if not isinstance(atom, Var) or not _is_signed(atom):
            return None
        if id(atom) not in self.stored:
            now = self.known.get(id(atom), atom)
            wide = self.emit("Add", self.emit("Cast", now, to="int32"), np.int32(HALF))
            self.stored[id(atom)] = self.emit("Cast", wide, to="uint8")
            self.known[id(atom)] = now
        return self.stored[id(atom)]

    def changed(self, result: Var, call: Call) -> bool:
        """Write an operator of int8 as one of uint8, if it is one that may be."""
        callee = str(call.callee)
        rule = _move if callee in MOVES or callee == JOINS else _RULES.get(callee)
        return rule is not None and rule(self, result, call)

    def put(self, result: Var, call: Call, args: list[Any], **attrs: Any) -> bool:
        """The call of other arguments for a result; one that was int8 is uint8."""
        for a in args:
            if isinstance(a, Var):
                self.signed(a)
        given = [self.known.get(id(a), a) if isinstance(a, Var) else a for a in args]
        made = self.emit(str(call.callee), *given, **{**dict(call.attrs), **attrs})
        if _is_signed(result):
            self.stored[id(result)] = made
        else:
            self.name(result, made)
        return True


def _is_signed(a: Atom | None) -> bool:
    return a is not None and isinstance(a.type, TensorType) and a.type.dtype == "int8"


def _zero(zero: Atom | None, scale: Atom | None) -> Array | None:
    """The zero point of what stands for a value of int8; None where it is not known."""
    if zero is None:
        assert scale is not None
        return np.full([int(n) for n in tensor_type(scale).known], HALF, np.uint8)
    if not isinstance(zero, Const) or zero.array is None:
        return None
    return (zero.array.astype(np.int32) + HALF).astype(np.uint8)


def _quantize(out: _Unsigned, result: Var, call: Call) -> bool:
    x, scale, zero = (*call.args, None)[:3]
    made = _zero(zero, scale) if _is_signed(result) else None
    if made is None:
        return False
    attrs = {} if call.attr("output_dtype", None) is None else {"output_dtype": "uint8"}
    return out.put(result, call, [x, scale, made], **attrs)


def _dequantize(out: _Unsigned, result: Var, call: Call) -> bool:
    q, scale, zero = (*call.args, None)[:3]
    made = _zero(zero, scale) if isinstance(q, Var) and _is_signed(q) else None
    return made is not None and out.put(result, call, [out.unsigned(q), scale, made])


def _move(out: _Unsigned, result: Var, call: Call) -> bool:
    bytes_ = [a for a in call.args if _is_signed(a)]
    if not bytes_ or not all(id(a) in out.stored for a in bytes_):
        return False
    return out.put(result, call, [out.stored.get(id(a), a) for a in call.args])


def _integers(out: _Unsigned, result: Var, call: Call) -> bool:
    """ConvInteger and MatMulInteger, whose first operand has a zero point or none."""
    x, w, zero, *more = (*call.args, None)
    if not isinstance(x, Var) or not _is_signed(x):
        return False
    made: Any = np.uint8(HALF) if zero is None else _zero(zero, None)
    if made is None:
        return False
    return out.put(result, call, [out.unsigned(x), w, made, *more])


_RULES: dict[str, Callable[[_Unsigned, Var, Call], bool]] = {
    "ConvInteger": _integers,
    "DequantizeLinear": _dequantize,
    "MatMulInteger": _integers,
    "QuantizeLinear": _quantize,
}
