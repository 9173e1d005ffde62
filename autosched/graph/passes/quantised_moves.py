"""quantised_moves: what moves elements, or takes the largest, works on what is stored.

Bytes take a quarter of the memory of the numbers that they stand for, and those are in the same
order where the scale is positive.
"""

from __future__ import annotations

import numpy as np

from autosched.graph.ir import Array, Atom, Body, Call, Const, tensor_type
from autosched.graph.passes.bodies import body_pass
from autosched.graph.passes.emitting import Emitter

MOVES = frozenset({
    "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice",
    "SpaceToDepth", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators whose results are elements of their first operand, and larger where those are."""
JOINS = "Concat"
"""The operator whose result is the elements of all its operands."""
_REAL = "DequantizeLinear"


@body_pass("quantised_moves")
def quantised_moves(body: Body) -> Body:
    """rewrite:
    y = op.dequantize_linear(q, s, z)
    m = op.max_pool(y)                         ->      m2 = op.max_pool(q)
    r = op.quantize_linear(m, s, z)                    r = m2
    """
    out = _Mover()
    return out.rewritten(body, lambda _, call: out.moved(call))


class _Mover(Emitter):
    """Knows which values have been dequantised, all their elements alike."""

    def real(self, a: Atom | None) -> tuple[Atom, Const, Const | None] | None:
        """What a value of float32 was made of, with one positive scale and one zero point."""
        call = self.maker.get(id(a))
        if not isinstance(call, Call) or call.callee != _REAL or call.attr("block_size", 0):
            return None
        q, scale, zero = (*call.args, None)[:3]
        by = _number(scale)
        if q is None or by is None or not np.all(np.isfinite(by)) or not np.all(by > 0):
            return None
        if zero is not None and _number(zero) is None:
            return None
        assert isinstance(scale, Const)
        assert zero is None or isinstance(zero, Const)
        if by.dtype != np.float32 or call.attr("output_dtype", None) is not None:
            return None
        return q, scale, zero

    def moved(self, call: Call) -> Atom | None:
        """What stands for the result of an operator on dequantised values; None where it stays."""
        if call.callee == "QuantizeLinear":
            return self.stored(call)
        parts = call.args if call.callee == JOINS else call.args[:1]
        if not parts or (call.callee not in MOVES and call.callee != JOINS):
            return None
        found = [self.real(a) for a in parts]
        one = found[0]
        if one is None or any(f is None or not _same(f[1:], one[1:]) for f in found):
            return None
        given = [f[0] for f in found if f is not None]
        if any(tensor_type(q).dtype != tensor_type(given[0]).dtype for q in given):
            return None
        made = self.emit(str(call.callee), *given, *call.args[len(parts) :], **dict(call.attrs))
        # Of a constant too: the pass `integers` takes weights as they are stored.
        (real,) = self.emit_several(1, _REAL, made, one[1], one[2])
        return real

    def stored(self, call: Call) -> Atom | None:
        """What a value was dequantised from, if it is quantised with the same numbers."""
        x, scale, zero = (*call.args, None)[:3]
        found = self.real(x)
        if found is None or not _same(found[1:], (scale, zero)):
            return None
        q, _, before = found
        kind = tensor_type(zero).dtype if zero is not None else call.attr("output_dtype", "uint8")
        both = (zero is None) == (before is None)
        return q if both and tensor_type(q).dtype == kind else None


def _number(a: Atom | None) -> Array | None:
    """The array of a constant of one element."""
    known = a.array if isinstance(a, Const) else None
    return known if known is not None and known.size == 1 else None


def _same(a: tuple[Atom | None, ...], b: tuple[Atom | None, ...]) -> bool:
    """Whether two scales and zero points are equal."""
    for one, other in zip(a, b, strict=True):
        known = _number(one), _number(other)
        if one is None and other is None:
            continue
        if known[0] is None or known[1] is None or known[0].dtype != known[1].dtype:
            return False
        if known[0].reshape(()) != known[1].reshape(()):
            return False
    return True
