"""tables: functions of one byte are looked up.

Activations between quantised operators, such as x * sigmoid(x), are functions of one element of 256
values: what the operators would compute of each of these is computed now.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant, evaluated
from autosched.graph.infer import inference
from autosched.graph.ir import Array, Atom, Body, Call, Const, Var
from autosched.graph.ops.quantised import LOOKUP
from autosched.graph.passes.bodies import body_pass
from autosched.graph.passes.emitting import Emitter
from autosched.graph.types import TensorType

BYTES = 256
COSTLY = 2
"""Operators that round, from which on a look-up costs less than what it stands for; of operators
that take many instructions, one."""


class Function(NamedTuple):
    """A value as a function of a variable of bytes: its results, and how many of its operators
    round or take many instructions."""

    of: Var
    table: Array
    cost: int


@body_pass("tables")
def tables(body: Body) -> Body:
    """rewrite:
    y = op.dequantize_linear(q, s, z)
    t = op.tanh(y)                             ->      r = op.autosched_lookup(q, table)
    r = op.quantize_linear(t, s2, z2)
    """
    out = _Tables()
    return out.rewritten(body, out.looked_up)


class _Tables(Emitter):
    """`functions`: what is known of variables, by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: dict[int, Function] = {}

    def looked_up(self, result: Var, call: Call) -> Atom | None:
        """The look-up that stands for an operator's result, if it is bytes and that is faster."""
        found = self.function(result, call)
        if found is None:
            return None
        self.functions[id(result)] = found
        if not _is_unsigned(result) or found.cost < COSTLY:
            return None
        made = self.emit(LOOKUP, found.of, constant(found.table))
        self.functions[id(made)] = found
        return made

    def function(self, result: Var, call: Call) -> Function | None:
        """An operator of elements whose operands are functions of one byte, and numbers."""
        given: list[Atom | None] = []
        read: dict[int, Function] = {}
        for a in call.args:
            known = a if a is None else self.operand(a, result)
            if a is not None and known is None:
                return None
            if isinstance(known, Function):
                read[id(known)] = known
            given.append(constant(known.table) if isinstance(known, Function) else known)
        of = {id(f.of): f.of for f in read.values()}
        if len(of) != 1:
            return None
        info = inference(call, 1)
        if info.kind != "pointwise" or info.positional:
            return None
        try:
            table = evaluated(Call(call.callee, tuple(given), call.attrs), 1)[0].array
        except Unsupported:  # of one axis: the attributes are for several
            return None
        if table is None or table.shape != (BYTES,):
            return None
        mine = COSTLY if info.expensive else int(call.callee == "QuantizeLinear")
        (root,) = of.values()
        return Function(root, table, mine + sum(f.cost for f in read.values()))

    def operand(self, a: Atom, result: Var) -> Function | Const | None:
        """A function of a byte, or a number; None for any other operand."""
        if isinstance(a, Const):
            return None if a.array is None or a.array.size != 1 else constant(a.array.reshape(()))
        if not isinstance(a, Var) or not _same_shape(a, result):
            return None
        known = self.functions.get(id(a))
        if known is None and _is_unsigned(a):
            known = self.functions[id(a)] = Function(a, np.arange(BYTES, dtype=np.uint8), 0)
        return known


def _is_unsigned(v: Var) -> bool:
    return isinstance(v.type, TensorType) and v.type.dtype == "uint8"


def _same_shape(a: Var, b: Var) -> bool:
    return (
        isinstance(a.type, TensorType)
        and isinstance(b.type, TensorType)
        and a.type.shape is not None
        and a.type.shape == b.type.shape
    )
