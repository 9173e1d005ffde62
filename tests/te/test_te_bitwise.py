"""&, |, ^, ~, << and >>: of integers, of conditions, in indices; in te and in script."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import ScriptError, TensorExprError
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc

OPERATORS = [
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
]  # fmt: skip


def same_everywhere(func: PrimFunc, inputs: list[Any], wanted: Any) -> None:
    """Built, interpreted, and both again after text."""
    again = parse_func(func.script())
    assert again.script() == func.script()
    for program in (func, again):
        for run in (at.build(program, target="llvm"), lambda *a, p=program: interp.run(p, a)):
            out = np.zeros_like(wanted)
            run(*inputs, out)
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda f: f.__name__)
def test_operators_on_integers(op: Callable[[Any, Any], Any], dtype: str) -> None:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    a = rng.integers(info.min, info.max, 64, dtype, endpoint=True)
    b = (
        a[::-1].copy()
        if op not in (operator.lshift, operator.rshift)
        else (rng.integers(0, 2 * info.bits, 64).clip(0, info.max).astype(dtype))
    )
    A, B = (te.placeholder((64,), dtype, name=n) for n in "AB")
    C = te.compute((64,), lambda i: op(A[i], B[i]), name="C")
    same_everywhere(te.create_prim_func([A, B, C]), [a, b], op(a, b))
    D = te.compute((64,), lambda i: ~op(A[i], 3) + op(5, A[i] & 3), name="D")
    three, five = np.array(3, dtype), np.array(5, dtype)
    same_everywhere(te.create_prim_func([A, D]), [a], ~op(a, three) + op(five, a & three))


@pytest.mark.parametrize("op", OPERATORS[:3], ids=lambda f: f.__name__)
def test_operators_on_conditions(op: Callable[[Any, Any], Any]) -> None:
    a = np.arange(-8, 8, dtype="int32")
    A = te.placeholder((16,), "int32", name="A")
    C = te.compute(
        (16,), lambda i: te.select(op(A[i] > -3, ~(A[i] > 4)), A[i], te.const(0, "int32")), name="C"
    )
    same_everywhere(te.create_prim_func([A, C]), [a], np.where(op(a > -3, ~(a > 4)), a, 0))
    B = te.compute((16,), lambda i: op(A[i] > -3, True), name="B")
    same_everywhere(te.create_prim_func([A, B]), [a], op(a > -3, True))


def test_shifts_and_masks_of_axes_are_index_forms() -> None:
    A = te.placeholder((4, 4), name="A")
    C = te.compute((16,), lambda i: A[i >> 2, i & 3] + A[(i << 1) // 8, 0], name="C")
    func = te.create_prim_func([A, C])
    assert "A[vi // 4, vi % 4]" in func.script()
    a = np.arange(16, dtype="float32").reshape(4, 4)
    n = np.arange(16)
    same_everywhere(func, [a], a[n >> 2, n & 3] + a[n // 4, 0])
    with pytest.raises(TensorExprError, match=r"reaches 0\.\.4 and is not provably in"):
        te.create_prim_func([A, te.compute((17,), lambda i: A[i >> 2, i & 3], name="C")])


def test_precedence_survives_the_text() -> None:
    A = te.placeholder((8,), "int32", name="A")
    a = np.arange(-4, 4, dtype="int32")
    D = te.compute(
        (8,),
        lambda i: (
            (A[i] | 5 ^ A[i] & 6 << 1) + ((A[i] + 1 >> 1) & ~(A[i] * 3 | 8)) - (A[i] ^ (7 - A[i]))
        ),
        name="D",
    )
    wanted = (a | 5 ^ a & 6 << 1) + ((a + 1 >> 1) & ~(a * 3 | 8)) - (a ^ (7 - a))
    same_everywhere(te.create_prim_func([A, D]), [a], wanted.astype("int32"))


def test_floats_and_different_types_are_refused() -> None:
    A, B = te.placeholder((4,), name="A"), te.placeholder((4,), "int32", name="B")
    for make in (lambda: A[0] & A[1], lambda: A[0] << 1, lambda: ~A[0], lambda: 1 | A[0]):
        with pytest.raises(TensorExprError, match="is not defined on float32; expected integers"):
            make()
    with pytest.raises(TensorExprError, match="& is not defined on float32"):
        B[0] & A[0]
    with pytest.raises(TensorExprError, match="<< is not defined on bool"):
        (B[0] > 1) << (B[0] > 2)
    for wrong in (lambda: A[0] @ A[1], lambda: divmod(B[0], 2)):
        with pytest.raises(TensorExprError, match="an expression has no"):
            wrong()
    text = te.create_prim_func([A, te.compute((4,), lambda i: A[i] + 1.0, name="C")]).script()
    with pytest.raises(ScriptError, match="& is not defined on float32"):
        parse_func(text.replace("A[vi] + ", "A[vi] & "))


def test_tensors_of_rank_0_have_the_operators() -> None:
    S = te.placeholder((), "int32", name="S")
    C = te.compute((4,), lambda i: (S & 6) + (1 << S) + ~S - abs(S) + (+S), name="C")
    s = np.array(5, "int32")
    wanted = np.full(4, (5 & 6) + (1 << 5) + ~5, "int32")
    same_everywhere(te.create_prim_func([S, C]), [s], wanted)
