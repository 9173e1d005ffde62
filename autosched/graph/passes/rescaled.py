"""rescaled: what is quantised is multiplied by 1 / scale, by what multiplies it before if it can.

QuantizeLinear divides, which takes a vector some ten cycles. The sums of a product of integers are
multiplied anyway, once for each column:

    round((sums * by + bias) / s) + z   is about   round(sums * (by / s) + bias / s) + z

Where the quotient is near a half the results are a step apart.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from autosched.graph.ir import Array, Atom, Body, Call, Const, Var, reads, tensor_type
from autosched.graph.passes.bodies import body_pass
from autosched.graph.passes.emitting import Emitter

LEAST, MOST = 1e-30, 1e30
"""Scales whose reciprocals are numbers of full precision."""


@body_pass("rescaled")
def rescaled(body: Body) -> Body:
    """rewrite:
    f = op.mul(op.cast(sums, to="float32"), by)       f = op.mul(op.cast(sums, …), by / s)
    g = op.add(f, bias)                          ->   g = op.add(f, bias / s)
    q = op.quantize_linear(g, s, z)                   q = op.quantize_linear(g, 1, z)
    """
    counted = Counter(id(a) for b in body.bindings for a in reads(b.value))
    counted.update(id(a) for a in body.results)
    out = _Rescaler(counted)
    return out.rewritten(body, lambda _, call: out.quantised(call))


class _Rescaler(Emitter):
    """`readers` counts who reads a variable of the body that is rewritten, by its id."""

    def __init__(self, readers: Counter[int]) -> None:
        super().__init__()
        self.readers = readers

    def quantised(self, call: Call) -> Atom | None:
        """The call with a scale of 1; None where it stays."""
        if call.callee != "QuantizeLinear":
            return None
        x, scale, zero = (*call.args, None)[:3]
        by = scale.array if isinstance(scale, Const) else None
        if x is None or by is None or by.size != 1 or tensor_type(x).dtype != "float32":
            return None
        s = float(by.reshape(()))
        if by.dtype != np.float32 or s == 1 or not LEAST < s < MOST:
            return None
        real = self.divided(x, s)
        if real is None:
            real = self.emit("Mul", x, np.float32(1 / s))
        assert isinstance(scale, Const)
        one = np.ones(by.shape, np.float32)
        return self.emit("QuantizeLinear", real, one, zero, **dict(call.attrs))

    def divided(self, x: Atom, s: float) -> Atom | None:
        """x / s, where x is sums times constants, and constants may be added, for no other
        reader."""
        call = self.only(x)
        if call is None or call.callee not in ("Add", "Mul"):
            return None
        a, b = call.args
        known = b.array if isinstance(b, Const) else None
        if known is None or known.dtype != np.float32 or a is None:
            return None
        if call.callee == "Mul":
            made = self.maker.get(id(a))
            is_sum = isinstance(made, Call) and made.callee == "Cast" and _is_sum(made.args[0])
            return self.emit("Mul", a, _quotient(known, s)) if is_sum else None
        inner = self.divided(a, s)
        return None if inner is None else self.emit("Add", inner, _quotient(known, s))

    def only(self, x: Atom) -> Call | None:
        """The operator that makes a variable which has one reader."""
        made = self.maker.get(id(x)) if isinstance(x, Var) and self.readers[id(x)] == 1 else None
        return made if isinstance(made, Call) else None


def _is_sum(a: Atom | None) -> bool:
    return a is not None and tensor_type(a).dtype == "int32"


def _quotient(known: Array, s: float) -> Array:
    # A skeleton's values mean nothing, and may overflow.
    with np.errstate(all="ignore"):
        return (known.astype(np.float64) / s).astype(np.float32)
