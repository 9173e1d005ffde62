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
        given = index_map(*axes)
    except (TypeError, TensorExprError) as e:
        raise ScheduleError(f"{what}: the index map does not take {len(axes)} indices: {e}") from e
    except Exception as e:  # it is the caller's code
        raise ScheduleError(
            f"{what}: the index map raised {type(e).__name__} on {len(axes)} indices: {e}"
        ) from e
    items = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(items) > MOST_DIMS:
        refuse(f"{what}: the index map gives {len(items)} indices; expected up to {MOST_DIMS}")
    readings = [_readings(item, axes, shape) if isinstance(item, Expr) else [] for item in items]
    for item, found in zip(items, readings, strict=True):
        if not found:
            refuse(
                f"{what}: each new index is x, x // a, x % b or x // a % b of one index x, or of "
                f"several fused row-major such as i * {show(shape[-1])} + j, or a swizzle "
                f"(x + digit of others) % extent of x; found {shown(item)}"
            )
    # Where both addends of a swizzle may be turned, it is the one that no other item tells.
    told = {d for found in readings if len(found) == 1 for d in np.ravel(found[0][0])}
    return [
        next((r for r in found if told.isdisjoint(np.ravel(r[0]))), found[0]) for found in readings
    ]


def _readings(e: Expr, axes: Sequence[Var], shape: Sequence[Int]) -> list[list[Any]]:
    """The items of a layout that an index may stand for: a swizzle may have two."""
    inner, mod = _by_constant(e, "floormod")
    if mod is not None and isinstance(inner, ex.Call) and inner.op == "add":
        turned = _swizzles(inner.args, mod, axes, shape)
        if turned:
            return turned
    plain = _plain_digit(inner, mod, axes, shape)
    return [] if plain is None else [plain]


def _swizzles(
    sides: Sequence[Expr], mod: int, axes: Sequence[Var], shape: Sequence[Int]
) -> list[list[Any]]:
    """`(j + digit) % mod`, in either order, where mod is the extent of j."""
    out: list[list[Any]] = []
    for one, other in (sides, sides[::-1]):
        d = next((n for n, a in enumerate(axes) if a is one), None)
        if d is None or not same_int(shape[d], mod):
            continue
        turns = [t for t in _readings(other, axes, shape) if len(t) < 4 and d not in np.ravel(t[0])]
        out += [[d, 1, mod, t] for t in turns]
    return out


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
