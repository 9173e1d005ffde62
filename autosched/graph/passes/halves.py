"""halves: on a CPU, values of float16 are computed and kept in float32 between operators.

A CPU without arithmetic of float16 widens what it reads and rounds what it writes, in every loop.
A product reads each operand many times, so its loop did little else: the product before GELU of a
vision transformer made 153 GFLOP/s where one of float32 makes 230. The engines that such models
are compared with compute in float32, too.

What a program says stays: inputs and results are float16, and an explicit Cast to float16 rounds.
Products of few rows are bound by reading their other operand, so they read it in 16 bits, and what
is only moved, as a cache of keys and values is, stays as it was given.
"""

from __future__ import annotations

from math import prod

import numpy as np

from autosched.errors import AutoschedError
from autosched.graph.higher import HIGHER
from autosched.graph.infer import infer
from autosched.graph.ir import Atom, Binding, Body, Call, Const, Var, tensor_type
from autosched.graph.passes.bodies import body_pass
from autosched.graph.passes.quantised_moves import JOINS, MOVES
from autosched.graph.types import TensorType, Type

FEW_ROWS = 8
"""Of a product, up to which reading its other operand bounds it."""
SMALL = 64
"""Elements up to which a constant is widened at once: it may be a static input."""
MOVED = MOVES | {
    JOINS, "GatherElements", "GatherND", "Pad", "ScatterElements", "ScatterND", "Split",
    "TensorScatter", "Tile", "Trilu", "Where",
}  # fmt: skip
"""Operators that compute nothing, but for scatters with a reduction."""
PRODUCTS = frozenset(("Conv", "Gemm", "MatMul"))


@body_pass("halves")
def halves(body: Body) -> Body:
    """rewrite:
    y = op.matmul(x, w)            ->      y32 = op.matmul(op.cast(x, to="float32"), w32)
                                           y = op.cast(y32, to="float16")
    z = op.relu(y)                         z32 = op.relu(y32)
                                           z = op.cast(z32, to="float16")
    """
    wide = _Widening()
    for b in body.bindings:
        if not (isinstance(b.value, Call) and wide.widen(b, b.value)):
            wide.out.append(b)
    return Body(tuple(wide.out), body.results)


class _Widening:
    """Bindings written anew. A value of float16 stays bound for what reads it as such; where
    nothing does, it is dead code."""

    def __init__(self) -> None:
        self.out: list[Binding] = []
        self.known: dict[int, Atom] = {}

    def widen(self, b: Binding, call: Call) -> bool:
        """Bind a call's results in float32, rounded ones after them; False where it stays."""
        types = self._types(b, call)
        if types is None:
            return False
        vars_ = tuple(
            v if t == v.type else Var(v.name, t) for v, t in zip(b.vars, types, strict=True)
        )
        args = tuple(self._of(a) if _is_half(a) else a for a in call.args)
        self.out.append(Binding(vars_, Call(call.callee, args, call.attrs)))
        for narrow, v in zip(b.vars, vars_, strict=True):
            if v is not narrow:
                self.known[id(narrow)] = v
                self.out.append(Binding((narrow,), Call("Cast", (v,), (("to", "float16"),))))
        return True

    def _types(self, b: Binding, call: Call) -> tuple[Type, ...] | None:
        """Types of the results of operands in float32, None for a call that stays as it is."""
        halves = [a for a in call.args if _is_half(a)]
        if not isinstance(call.callee, str) or call.callee in ("Cast", *HIGHER) or not halves:
            return None
        if call.callee in PRODUCTS and _rows(call, b.vars[0]) <= FEW_ROWS:
            return None
        known = [id(a) in self.known for a in halves if isinstance(a, Var)]
        moves = call.callee in MOVED and call.attr("reduction", "none") == "none"
        if moves and not (known and all(known)):
            return None
        if not any(known) and not any(map(_is_half, b.vars)):
            return None
        wider = tuple(_wider(a) if _is_half(a) else a for a in call.args)
        try:
            types = infer(Call(call.callee, wider, call.attrs), len(b.vars))
        except AutoschedError:  # an operator of float16 alone
            return None
        same = all(t in (v.type, _float32(v.type)) for v, t in zip(b.vars, types, strict=True))
        return types if same else None

    def _of(self, a: Atom | None) -> Atom:
        """A value of float16 in float32."""
        assert isinstance(a, (Var, Const))
        found = self.known.get(id(a))
        if found is None:
            found = _wider(a)
            if isinstance(found, Var):
                self.out.append(Binding((found,), Call("Cast", (a,), (("to", "float32"),))))
            self.known[id(a)] = found
        return found


def _is_half(a: Atom | None) -> bool:
    t = a.type if isinstance(a, (Var, Const)) else None
    return isinstance(t, TensorType) and t.dtype == "float16"


def _float32(t: Type) -> Type:
    half = isinstance(t, TensorType) and t.dtype == "float16"
    return TensorType(t.shape, "float32") if half and isinstance(t, TensorType) else t


def _wider(a: Atom | None) -> Var | Const:
    """A constant of few elements in float32; for others a variable of that type."""
    assert isinstance(a, (Var, Const))
    t = tensor_type(a)
    wide = TensorType(t.shape, "float32")
    if isinstance(a, Const) and a.array is not None and a.array.size <= SMALL:
        array = a.array.astype(np.float32)
        array.flags.writeable = False
        return Const(wide, array)
    return Var(getattr(a, "name", "w"), wide)


def _rows(call: Call, result: Var) -> float:
    """Rows of a product of matrices, pixels of a convolution; many where a size is not known."""
    t = result.type
    if not isinstance(t, TensorType) or t.shape is None or not t.is_static:
        return float("inf")
    shape = tuple(map(int, t.known))
    if call.callee == "Conv":
        return prod(shape[:1] + shape[2:])
    return shape[-2] if len(shape) > 1 else 1
