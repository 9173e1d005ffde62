"""Indices that leave a tensor: refused with the ways to keep them inside, which all work."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import TensorExprError
from autosched.script import parse_func
from autosched.tir.interp import run

N = 10
A = te.placeholder((N,), name="A")
B = te.placeholder((N,), name="B", dtype="int32")
M = te.placeholder((N,), name="M", dtype="bool")
F = te.placeholder((N,), name="F")


def made(index: Callable[[Any], Any], n: int = N) -> Any:
    out = te.compute((n,), lambda i: A[index(i)], name="C")
    return te.create_prim_func([A, B, M, F, out])


def test_an_index_from_memory_is_refused_with_the_ways_to_keep_it_inside() -> None:
    with pytest.raises(TensorExprError) as caught:
        te.create_prim_func([A, B, te.compute((N,), lambda i: A[B[i]], name="C")])
    text = str(caught.value)
    assert "block 'C' reads A[" in text
    assert "is not provably in [0, 10)" in text
    ways = re.findall(
        r"(te\.(?:clamp_index|wrap_index|if_then_else)\(.*?\)) (?=takes|counts|reads)", text
    )
    assert len(ways) == 3
    b = np.array([3, 9, 0, 1, 4, 4, 2, 7, 8, 5], "int32")
    a = np.arange(N, dtype="float32") + 1
    for way in ways:
        value = way if way.startswith("te.if") else f"A[{way}]"
        body = eval(f"lambda i: {value}", {"te": te, "A": A, "B": B})
        func = te.create_prim_func([A, B, te.compute((N,), body, name="C")])
        out = np.empty(N, "float32")
        at.build(func)(a, b, out)
        np.testing.assert_array_equal(out, a[b])


@pytest.mark.parametrize(("index", "mode"), [(te.clamp_index, "clip"), (te.wrap_index, "wrap")])
def test_named_ways_are_those_of_numpy(index: Any, mode: Any) -> None:
    func = te.create_prim_func([A, B, te.compute((N,), lambda i: A[index(B[i], N)], name="C")])
    a = np.random.default_rng(0).normal(size=N).astype("float32")
    b = np.array([-(10**9), -11, -10, -1, 0, 3, 9, 10, 11, 10**9], "int32")
    expected, out = np.take(a, b, mode=mode), np.empty(N, "float32")
    at.build(func)(a, b, out)
    np.testing.assert_array_equal(out, expected)
    sch = at.Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("C"))[0])
    out[:] = np.nan
    at.build(sch)(a, b, out)
    np.testing.assert_array_equal(out, expected)
    assert parse_func(func.script()).same(func)


def test_named_ways_in_script() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((10,)), B: T.Buffer((10,), "int64"), C: T.Buffer((10,)), D: T.Buffer((10,))):
    for i in range(10):
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            C[vi] = A[T.clamp_index(B[vi], 10)]
            D[vi] = A[T.wrap_index(B[vi], 10)]
"""
    func = parse_func(text)
    assert parse_func(func.script()).same(func)
    a, b = np.arange(10, dtype="float32"), np.array([-12, -10, -1, 0, 3, 5, 9, 10, 11, 1 << 40])
    c, d = np.empty_like(a), np.empty_like(a)
    at.build(func)(a, b, c, d)
    np.testing.assert_array_equal(c, np.take(a, b, mode="clip"))
    np.testing.assert_array_equal(d, a[b % 10])


@pytest.mark.parametrize("index", [te.clamp_index, te.wrap_index])
def test_misuse_of_named_ways(index: Any) -> None:
    with pytest.raises(TensorExprError, match="the index is float32; expected an integer"):
        index(te.const(1.0), 4)
    with pytest.raises(TensorExprError, match="the extent is 0; expected an integer from 1 up"):
        index(te.const(1), 0)


INSIDE: dict[str, Any] = {
    "clamped int32": lambda i: te.max(te.min(B[i], 9), 0),
    "clamped from the other side": lambda i: te.min(te.max(B[i], 0), 9),
    "modulo": lambda i: B[i] % 10,
    "quotient of clamped": lambda i: te.clamp_index(B[i], 100) // 10,
    "select": lambda i: te.select(te.any(B[i] < 0, B[i] > 9), te.const(0, "int32"), B[i]),
    "wrapped by hand": lambda i: te.clamp_index(te.select(B[i] < 0, B[i] + 10, B[i]), 10),
    "bool": lambda i: te.cast(M[i], "int64"),
    "absolute": lambda i: te.min(te.abs(te.clamp_index(B[i], 20) - 9), 9),
    "product modulo": lambda i: te.cast(B[i] * B[i], "int64") % 10,
    "modulus of data": lambda i: te.clamp_index(B[i], 99) % (te.clamp_index(B[i], 9) + 1),
    "quotient by data": lambda i: te.clamp_index(B[i], 10) // (te.clamp_index(B[i], 9) + 1),
    "float": lambda i: te.clamp_index(te.cast(te.floor(F[i]), "int32"), 10),
    "square": lambda i: te.min(i, 3) * te.min(i, 3),
    "product of axes": lambda i: (i // 4) * (i % 4),
}


@pytest.mark.parametrize("name", INSIDE)
def test_indices_that_stay_inside_are_taken(name: str) -> None:
    func = made(INSIDE[name])
    assert parse_func(func.script()).same(func)
    rng = np.random.default_rng(1)
    a, f = rng.normal(size=N).astype("float32"), rng.uniform(-20, 20, N).astype("float32")
    b, m = rng.integers(-40, 40, N).astype("int32"), rng.integers(0, 2, N).astype(bool)
    out, expected = np.empty(N, "float32"), np.empty(N, "float32")
    run(func, [a, b, m, f, expected])
    at.build(func)(a, b, m, f, out)
    np.testing.assert_array_equal(out, expected)


def test_guards_in_every_form_are_understood() -> None:
    x = B[0]  # a value that data decide
    guards = {
        "all": te.all(x >= 0, x < 10),
        "not any": te.logical_not(te.any(x < 0, x >= 10)),
        "either of two ranges": te.any(te.all(x >= 0, x < 4), te.all(x > 5, x <= 9)),
        "not the first": te.all(x >= -1, x < 10, x != -1),
        "one of three": te.any(x == 2, x == 5, x == 9),
    }
    for name, guard in guards.items():
        out = te.compute((4,), lambda i, g=guard: te.if_then_else(g, A[x], 0.0), name="C")
        assert te.create_prim_func([A, B, out]).admitted, name
    for guard in (te.all(x >= 0, x <= 10), te.any(x >= 0, x < 10), x != 3, M[0]):
        out = te.compute((4,), lambda i, g=guard: te.if_then_else(g, A[x], 0.0), name="C")
        with pytest.raises(TensorExprError, match="not provably in"):
            te.create_prim_func([A, B, M, out])


OUTSIDE: dict[str, Any] = {
    "square": lambda i: i * i,
    "clamped too high": lambda i: te.max(te.min(B[i], 10), 0),
    "clamped below only": lambda i: te.max(B[i], 0),
    "modulo of more": lambda i: B[i] % 11,
    "negative modulus": lambda i: te.clamp_index(B[i], 10) % (te.clamp_index(B[i], 9) - 4),
    "overflow of int64": lambda i: te.clamp_index(B[i], 9) * 2**61 // 2**61 + 1,
    "overflow of int32": lambda i: (te.max(te.min(B[i], 8), 0) + (2**31 - 8)) - (2**31 - 8),
    "magnitude of the least integer": lambda i: te.min(te.abs(B[i]), 9),
    "data without a condition": lambda i: B[i],
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_indices_that_may_leave_are_refused(name: str) -> None:
    with pytest.raises(TensorExprError, match="is not provably in"):
        made(OUTSIDE[name])


def test_a_square_that_stays_inside_is_taken() -> None:
    a, out = np.arange(N, dtype="float32"), np.empty(4, "float32")
    func = te.create_prim_func([A, te.compute((4,), lambda i: A[i * i], name="C")])
    at.build(func)(a, out)
    np.testing.assert_array_equal(out, [0, 1, 4, 9])


def test_symbolic_extents() -> None:
    n = te.var("n")
    x, k = te.placeholder((n,), name="x"), te.placeholder((N,), name="k", dtype="int64")
    for index in (lambda i: te.clamp_index(k[i], n), lambda i: te.wrap_index(k[i], n)):
        func = te.create_prim_func([x, k, te.compute((N,), lambda i, f=index: x[f(i)], name="y")])
        assert parse_func(func.script()).same(func)
    guarded = te.compute(
        (N,),
        lambda i: te.if_then_else(te.all(k[i] >= 0, k[i] < n), x[k[i]], 0.0),
        name="y",
    )
    te.create_prim_func([x, k, guarded])
    for wrong in (lambda i: te.clamp_index(k[i], n + 1), lambda i: k[i] % (n + 1)):
        with pytest.raises(TensorExprError, match=r"not provably in \[0, n\)"):
            te.create_prim_func([x, k, te.compute((N,), lambda i, f=wrong: x[f(i)], name="y")])
