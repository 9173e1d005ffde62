"""Reducers known by name, what makes an identity neutral, and how both are recognised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.errors import TensorExprError
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.expr import Expr, Var
from autosched.tir.nodes import Reducer
from autosched.tir.operations import CONVERSIONS, OPS

KNOWN = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""Reducers known by name, and the operation they repeat."""


def identity(name: str, dtype: str) -> Expr:
    """The neutral element of a known reducer."""
    if name == "max":
        return ex.const(dtypes.minimum(dtype), dtype)
    if name == "min":
        return ex.const(dtypes.maximum(dtype), dtype)
    return ex.const(0 if name == "sum" else 1, dtype)


def known_reducer(name: str, dtype: str) -> Reducer:
    """The reducer sum, prod, max or min on `dtype`."""
    if dtype == "bool" and name in ("sum", "prod"):
        raise TensorExprError(
            f"{name} is not defined on bool; convert the operand with .astype(...)"
        )
    lhs, rhs = Var("x", dtype), Var("y", dtype)
    combined = ex.call(KNOWN[name], lhs, rhs)
    return Reducer(name, (lhs,), (rhs,), (combined,), (identity(name, dtype),))


def known_name(reducer: Reducer, commuted: bool = False) -> str | None:
    """Which known reducer this one is, by what it computes; None if it is none of them.

    `commuted`: `y + x` counts as the sum, too.
    """
    if len(reducer.lhs) != 1:
        return None
    (x,), (y,), (e,) = reducer.lhs, reducer.rhs, reducer.combine
    if not isinstance(e, ex.Call) or len(e.args) != 2:
        return None
    a, b = e.args
    if not ((a is x and b is y) or (commuted and a is y and b is x)):
        return None
    for name, op in KNOWN.items():
        if e.op == op and not (x.dtype == "bool" and name in ("sum", "prod")):
            return name if ex.same(reducer.identity[0], identity(name, x.dtype)) else None
    return None


def evaluate(e: Expr, values: dict[Var, Any]) -> Any:
    """Value of a combination in NumPy; `values` holds scalars or arrays."""
    if isinstance(e, Var):
        return values[e]
    if isinstance(e, ex.Const):
        return np.dtype(e.dtype).type(e.value)
    assert isinstance(e, ex.Call)
    args = [evaluate(a, values) for a in e.args]
    if e.op in CONVERSIONS:
        return dtypes.converted(args[0], e.args[0].dtype, e.dtype, e.op)
    return OPS[e.op].numpy(*args)


_ORDINARY = (1.5, 3.25, 40.0)
_EXTREME = (0.0, -2.5, -40.0, 1e4, -1e4)
"""Where a combination may be undefined or overflow, which says nothing of its identity."""


def check_identity(reducer: Reducer) -> None:
    """Try combine(identity, x) == x on a few values, of both signs, zero and large: an identity
    that is not neutral gives wrong results only in some schedules, which is hard to find later.

    Raises TensorExprError where it is not.
    """
    neutral = [np.dtype(i.dtype).type(i.value) for i in reducer.identity]  # type: ignore[attr-defined]
    twice = _combined(reducer, neutral, neutral)
    if any(np.isnan(f) and not np.isnan(n) for f, n in zip(twice, neutral, strict=True)):
        raise TensorExprError(
            f"reducer {reducer.name} combines its identity {_text(neutral)} with itself to "
            f"{_text(twice)}, as lanes and threads without an element do; expected "
            f"{_text(neutral)}: choose there, as in te.select(n == 0, 0.0, s / n)"
        )
    samples = [*_ORDINARY, *_EXTREME]
    dtype = reducer.lhs[0].dtype
    if len(reducer.lhs) == 1 and dtypes.is_int(dtype):
        # A large number is not neutral to a minimum. Of floats it may be beyond all that occur.
        samples += [0.99 * dtypes.minimum(dtype), 0.99 * dtypes.maximum(dtype)]
    for sample in samples:
        point = [_value(sample + n, v.dtype) for n, v in enumerate(reducer.lhs)]
        if len(point) > 1 and any(p == i for p, i in zip(point, neutral, strict=True)):
            continue  # parts of the identity alone may never occur: a count of 0, a mean of 1
        for first, second in ((neutral, point), (point, neutral)):
            found = _combined(reducer, first, second)
            if sample not in _ORDINARY and not all(np.isfinite(f) for f in found):
                continue
            if not all(np.allclose(f, p, rtol=1e-2) for f, p in zip(found, point, strict=True)):
                raise TensorExprError(
                    f"identity of reducer {reducer.name} is not neutral: combining "
                    f"{_text(first)} with {_text(second)} gives {_text(found)}; expected "
                    f"{_text(point)}: give another identity, or a combination that it leaves as is"
                )


def _combined(reducer: Reducer, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    values = dict(zip((*reducer.lhs, *reducer.rhs), (*first, *second), strict=True))
    with np.errstate(all="ignore"):
        return [evaluate(e, values) for e in reducer.combine]


def _value(sample: float, dtype: str) -> Any:
    """A sample in a dtype, or what is nearest to it there."""
    if dtypes.is_int(dtype):
        sample = min(max(sample, dtypes.minimum(dtype)), dtypes.maximum(dtype))
    return np.dtype(dtype).type(sample)


def _text(values: Sequence[Any]) -> str:
    items = ", ".join(str(np.asarray(v).item()) for v in values)
    return f"({items})" if len(values) > 1 else items
