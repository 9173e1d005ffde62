"""The ways in which a condition may be true: what is known is known in each of them."""

from __future__ import annotations

from autosched.tir import dtypes
from autosched.tir.expr import Call, Expr

MOST_CASES = 8
"""Ways of a condition to be true that are looked at one by one."""

Way = list[tuple[Expr, bool]]


def ways_of(e: Expr, truth: bool) -> list[Way]:
    """The ways in which a condition may be true (or false): in each, all these are so."""
    if isinstance(e, Call):
        if e.op == "not":
            return ways_of(e.args[0], not truth)
        if e.op in ("and", "or"):
            left, right = (ways_of(a, truth) for a in e.args)
            if (e.op == "or") == truth:
                return [*left, *right]
            if len(left) * len(right) > MOST_CASES:
                return [[(e, truth)]]
            return [[*x, *y] for x in left for y in right]
        if e.op == ("ne" if truth else "eq") and dtypes.is_int(e.args[0].dtype):
            return [[(Call(op, e.args, "bool"), True)] for op in ("lt", "gt")]
    return [[(e, truth)]]
