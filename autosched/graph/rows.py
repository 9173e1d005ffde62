"""Products of many axes of rows as products of one.

A dense layer on (N, H, W, C) has N * H tiles of W rows; on (N * H * W, C), the same memory, tiles
run over all rows, and none hangs over the end of an axis of 7 or 14.
"""

from __future__ import annotations

from math import prod

from autosched.graph.infer import inference
from autosched.graph.ir import Atom, Binding, Body, Call, Const, Function, Var
from autosched.graph.types import TensorType

TILE = 4
"""Rows of which tiles are multiples, or parts, on most targets."""


def with_one_axis_of_rows(function: Function) -> Function:
    """A primitive function whose axes of rows are one, where it is a product with a matrix and
    operators on single elements before and after it; else the function itself."""
    rows, product = next(((r, b) for b in function.body.bindings if (r := _rows(b))), ((), None))
    if product is None:
        return function
    assert isinstance(product.value, Call)
    matrix = product.value.args[1]
    params: list[Var] = []
    for p in function.params:
        made = p.type if p is matrix else _flat(p, rows)
        if made is None:
            return function
        params.append(Var(p.name, made))
    known: dict[int, Atom] = {id(p): q for p, q in zip(function.params, params, strict=True)}
    bindings: list[Binding] = []
    for b in function.body.bindings:
        value = b.value
        if not isinstance(value, Call) or len(b.vars) != 1:
            return function
        if any(isinstance(a, Const) and len(a.type.known) > 1 for a in value.args):
            return function
        alone = inference(value, 1).kind == "pointwise" and all(a is not matrix for a in value.args)
        made = _flat(b.vars[0], rows)
        if made is None or len(made.known) != 2 or not (alone or b is product):
            return function
        args = tuple(None if a is None else known.get(id(a), a) for a in value.args)
        known[id(b.vars[0])] = v = Var(b.vars[0].name, made)
        bindings.append(Binding((v,), Call(value.callee, args, value.attrs)))
    results = tuple(known.get(id(a), a) for a in function.body.results)
    return Function(function.name, tuple(params), Body(tuple(bindings), results), function.attrs)


def _rows(b: Binding) -> tuple[int, ...]:
    """The extents of the rows of a product with a matrix, where they are several axes, and tiles
    would hang over the end of the last one; else ()."""
    value = b.value
    if not isinstance(value, Call) or value.callee != "MatMul":
        return ()
    types = [a.type if isinstance(a, (Var, Const)) else None for a in value.args]
    left, right = (t if isinstance(t, TensorType) and t.is_static else None for t in types)
    if left is None or right is None or len(right.known) != 2:
        return ()
    rows = tuple(int(n) for n in left.known[:-1])
    return rows if sum(n != 1 for n in rows) >= 2 and rows[-1] % TILE else ()


def _flat(v: Var, rows: tuple[int, ...]) -> TensorType | None:
    """The type of a value with its axes of rows as one; its own where it is a vector; else None."""
    t = v.type
    if not isinstance(t, TensorType) or not t.is_static:
        return None
    if len(t.known) <= 1:
        return t
    plain = not t.layout or t.layout == tuple(range(len(t.known)))
    if not plain or t.known[:-1] != rows:
        return None
    return TensorType((prod(rows), t.known[-1]), t.dtype)
