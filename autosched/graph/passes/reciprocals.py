"""reciprocals: quotients by a constant in attention and in the error function are products.

A vector divides in some ten cycles. A product by the reciprocal differs in the last bit. A softmax
makes of that a relative error of its argument's last bit, as it does of any rounding before; where
a quotient may be rounded to an integer, it stays one.
"""

from __future__ import annotations

import numpy as np

from autosched.graph.builder import const
from autosched.graph.ir import Binding, Body, Call, Const, reads
from autosched.graph.passes.bodies import Renaming, body_pass

_TOLERANT = ("Softmax", "Erf")
BETWEEN = 4
"""Masks that may be added one after the other."""


@body_pass("reciprocals")
def reciprocals(body: Body) -> Body:
    """rewrite:
    a = op.div(x, 8.0)                    ->      a = op.mul(x, 0.125)
    b = op.softmax(op.add(a, mask))               b = op.softmax(op.add(a, mask))
    """
    users: dict[int, list[Binding | None]] = {}
    for b in body.bindings:
        for atom in reads(b.value):
            users.setdefault(id(atom), []).append(b)
    for atom in body.results:
        users.setdefault(id(atom), []).append(None)
    now = Renaming()
    for b in body.bindings:
        product = _product(b, users)
        now.out.append(b if product is None else Binding(b.vars, product))
    return now.body(body.results)


def _product(b: Binding, users: dict[int, list[Binding | None]]) -> Call | None:
    value = b.value
    if not isinstance(value, Call) or value.callee != "Div" or not _is_tolerated(b, users):
        return None
    x, by = value.args
    known = by.array if isinstance(by, Const) else None
    if known is None or known.size != 1 or known.dtype != np.float32:
        return None
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / known
    if not np.all(np.isfinite(inverse)) or not np.all(np.abs(inverse) >= np.finfo("f4").tiny):
        return None
    return Call("Mul", (x, const(inverse.astype(np.float32))))


def _is_tolerated(
    b: Binding, users: dict[int, list[Binding | None]], between: int = BETWEEN
) -> bool:
    """Whether all that reads a result is a softmax or erf, maybe after a mask was added."""
    for user in users.get(id(b.vars[0]), [None]):
        call = None if user is None else user.value
        if user is None or not isinstance(call, Call):
            return False
        if call.callee in _TOLERANT:
            continue
        masks = between > 0 and call.callee in ("Add", "Where")
        if not masks or not _is_tolerated(user, users, between - 1):
            return False
    return True
