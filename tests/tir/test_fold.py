"""Folding of expressions: what is decided, and what must stay as it was written."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.tir.expr import Expr, Slot, Var, call, cast, const
from autosched.tir.fold import fold
from autosched.tir.prove import Facts

I, J = Var("i"), Var("j")  # noqa: E741
X = Slot(0, "float32")
N = Slot(1, "int32")
FACTS = Facts({I: 8, J: 4})


def f32(value: float) -> Expr:
    return const(value, "float32")


FOLDED: list[tuple[Expr, str]] = [
    (f32(0.1) + f32(0.2), f"T.float32({float(np.float32(0.1) + np.float32(0.2))!r})"),
    (f32(1) / f32(3), f"T.float32({float(np.float32(1) / np.float32(3))!r})"),
    (X * f32(1), "slot0"),
    (X / f32(1), "slot0"),
    (X - f32(0), "slot0"),
    (N + const(0, "int32"), "slot1"),
    (N * const(0, "int32"), "T.int32(0)"),
    (call("max", N, N), "slot1"),
    ((I * 4 + J) // 4, "i"),
    ((I * 4 + J) % 4, "j"),
    (I < 8, "True"),
    (I * 4 + J < 32, "True"),
    (I > 7, "False"),
    (call("ne", I, const(9)), "True"),
    (call("not", call("not", call("lt", X, f32(1)))), "slot0 < T.float32(1.0)"),
    (call("if_then_else", I < 8, X, f32(0)), "slot0"),
    (
        call("if_then_else", I < 5, call("if_then_else", I < 6, X, f32(0)), f32(1)),
        "T.if_then_else(i < 5, slot0, T.float32(1.0))",
    ),
    (call("and", I < 8, J < 3), "j < 3"),
    (call("or", I < 4, call("ge", I, const(4))), "True"),
    (cast(const(3, "int32"), "float32"), "T.float32(3.0)"),
    (cast(const(2.75, "float32"), "int32"), "T.int32(2)"),
    (call("floordiv", const(-7, "int32"), const(2, "int32")), "T.int32(-4)"),
]


@pytest.mark.parametrize(("e", "text"), FOLDED)
def test_what_is_folded(e: Expr, text: str) -> None:
    assert repr(fold(e, FACTS)) == text


KEPT = [
    X + f32(0),  # -0.0 + 0.0 is 0.0
    X * f32(0),  # NaN and infinities
    X - f32(-0.0),
    f32(0) / f32(0),
    call("exp", f32(1)),  # implementations differ in the last bit
    call("add", const(120, "int8"), const(100, "int8")),  # overflows: left to run time
    call("floordiv", const(1, "int32"), const(0, "int32")),
    cast(f32(float("nan")), "int32"),
    cast(const(3e9, "float64"), "int32"),
    const(0.1, "float16") + const(0.2, "float16"),  # computed in float32
    cast(f32(1), "bfloat16"),
    cast(const(1.0, "bfloat16"), "float32"),
    I < 7,
    call("lt", X, X),  # false for NaN as well, but nothing here knows that
    call("lt", N, const(100, "int32")),
]


@pytest.mark.parametrize("e", KEPT)
def test_what_is_kept(e: Expr) -> None:
    assert repr(fold(e, FACTS)) == repr(e)


@pytest.mark.parametrize("op", ["select", "if_then_else"])
def test_only_guards_stand_in_for_guards(op: str) -> None:
    """Both values of a select are computed: what one reads stays guarded."""
    inner = call("if_then_else", I < 6, X, f32(0))
    found = fold(call(op, I < 5, inner, f32(1)), FACTS)
    kept = inner if op == "select" else X
    assert repr(found) == repr(call(op, I < 5, kept, f32(1)))


def test_both_sides_of_and_are_computed() -> None:
    inner = call("lt", call("if_then_else", I < 6, X, f32(0)), f32(1))
    both = call("and", I < 5, inner)
    assert repr(fold(both, FACTS)) == repr(both)
