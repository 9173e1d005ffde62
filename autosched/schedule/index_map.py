"""Layouts stated as Python functions of the indices, such as `lambda i, j: (i // 4, j, i % 4)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.checks import shown
from autosched.errors import ScheduleError, TensorExprError
from autosched.schedule.check import refuse, show
from autosched.schedule.layout import fused_strides
from autosched.tir import expr as ex
from autosched.tir.affine import Int, always, same_int
from autosched.tir.expr import Expr, Var
from autosched.tir.from_expr import from_expr

IndexMap = Callable[..., Any]
MOST_DIMS = 64
"""Dimensions of a layout that a function may state."""


def layout_of(index_map: IndexMap, shape: Sequence[Int], what: str) -> list[list[Any]]:
    """The layout that a Python function of the indices states. Refuses what is no layout."""
    axes = [Var(f"i{n}") for n in range(len(shape))]
    try:
        found = index_map(*axes)
    except (TypeError, TensorExprError) as e:
        raise ScheduleError(f"{what}: the index map does not take {len(axes)} indices: {e}") from e
    except Exception as e:  # it is the caller's code
        raise ScheduleError(
            f"{what}: the index map raised {type(e).__name__} on {len(axes)} indices: {e}"
        ) from e
    if isinstance(found, (tuple, list)) and len(found) > MOST_DIMS:
        refuse(f"{what}: the index map gives {len(found)} indices; expected up to {MOST_DIMS}")
    items = list(found) if isinstance(found, (tuple, list)) else [found]
    out = []
    for item in items:
        part = _digit_of(item, axes, shape) if isinstance(item, Expr) else None
        if part is None:
            refuse(
                f"{what}: each new index is x, x // a, x % b or x // a % b of one index x, or of "
                f"several fused row-major such as i * {show(shape[-1])} + j, or a swizzle "
                f"(x + digit of others) % extent of x; found {shown(item)}"
            )
        out.append(part)
    return out


def _digit_of(e: Expr, axes: Sequence[Var], shape: Sequence[Int]) -> list[Any] | None:
    e, mod = _by_constant(e, "floormod")
    if mod is not None and isinstance(e, ex.Call) and e.op == "add":
        return _swizzle_of(e.args, mod, axes, shape) or _plain_digit(e, mod, axes, shape)
    return _plain_digit(e, mod, axes, shape)


def _swizzle_of(
    sides: Sequence[Expr], mod: int, axes: Sequence[Var], shape: Sequence[Int]
) -> list[Any] | None:
    """`(j + digit) % mod`, in either order, where mod is the extent of j."""
    for one, other in (sides, sides[::-1]):
        d = next((n for n, a in enumerate(axes) if a is one), None)
        turn = None if d is None or not same_int(shape[d], mod) else _digit_of(other, axes, shape)
        if turn is not None and len(turn) < 4 and d not in np.ravel(turn[0]):
            return [d, 1, mod, turn]
    return None


def _plain_digit(
    e: Expr, mod: int | None, axes: Sequence[Var], shape: Sequence[Int]
) -> list[Any] | None:
    e, div = _by_constant(e, "floordiv")
    form = from_expr(e)
    if form is None or not always(form.const == 0):
        return None
    places = {a: n for n, a in enumerate(axes)}
    if any(isinstance(a, Var) and a not in places for a, _ in form.terms):
        return None
    terms = {places[a]: c for a, c in form.terms if isinstance(a, Var)}
    dims = sorted(terms, key=lambda d: int(terms[d]), reverse=True)
    steps = fused_strides(shape, dims)
    if not dims or len(dims) != len(form.terms):
        return None
    if not all(same_int(terms[d], s) for d, s in zip(dims, steps, strict=True)):
        return None
    head = dims[0] if len(dims) == 1 else dims
    if mod is not None:
        return [head, div or 1, mod]
    return [head] if div is None else [head, div]


def _by_constant(e: Expr, op: str) -> tuple[Expr, int | None]:
    """(a, n) of `op(a, n)`, or (e, None)."""
    if isinstance(e, ex.Call) and e.op == op and isinstance(e.args[1], ex.Const):
        return e.args[0], int(e.args[1].value)
    return e, None
