"""Tensors of rank 0 in arithmetic: tensors where nothing else stands there, else values."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import TensorExprError
from autosched.script import parse_func
from autosched.te.tensor import Tensor
from autosched.tir.interp import run

CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "add": (lambda a: a + 1, lambda a: a + 1),
    "left": (lambda a: 2 - a, lambda a: 2 - a),
    "twice": (lambda a: a * a, lambda a: a * a),
    "chain": (lambda a: te.exp(a) * 2 - a, lambda a: np.exp(a) * 2 - a),
    "sign": (lambda a: -a + abs(a), lambda a: -a + abs(a)),
    "power": (lambda a: a**2 / (a + 3), lambda a: a**2 / (a + 3)),
    "choice": (lambda a: te.if_then_else(a > 0.0, a, a * 0.5), lambda a: np.where(a > 0, a, a / 2)),
    "select": (lambda a: te.select(a > 0.0, a, -a), lambda a: abs(a)),
    "cast": (lambda a: (a * 7).astype("int32"), lambda a: (a * 7).astype("i4")),
    "operator": (lambda a: at.ops.relu(a - 1), lambda a: np.maximum(a - 1, 0)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("start", [0.75, -1.5])
def test_as_numpy(name: str, start: float) -> None:
    make, numpy = CASES[name]
    a = te.placeholder((), name="A")
    b = make(a)
    assert isinstance(b, Tensor)
    assert b.shape == ()
    func = te.create_prim_func([a, b])
    assert parse_func(func.script()).same(func)
    x = np.asarray(np.float32(start))
    for call in (lambda *arrays: run(func, arrays), at.build(func)):
        y = np.zeros((), b.dtype)
        call(x, y)
        np.testing.assert_allclose(y, numpy(x), rtol=1e-6)


def test_of_a_sum_and_through_stages() -> None:
    x = te.placeholder((5,), name="x")
    k = te.reduce_axis((0, 5), name="k")
    total = te.compute((), lambda: te.sum(x[k], axis=k), name="total")
    mean = total / 5.0
    out = x - mean
    s = te.create_schedule(out.op)
    s[mean].compute_inline()
    data, found = np.arange(5, dtype="f4") ** 2, np.zeros(5, "f4")
    at.build(s, [x, out])(data, found)
    np.testing.assert_allclose(found, data - data.mean(), rtol=1e-6)


def test_inside_a_larger_expression_it_is_written_out() -> None:
    """Those of a compute's own function make no stages."""
    x = te.placeholder((4,), name="x")
    a, k = te.placeholder((), name="A"), te.reduce_axis((0, 4), name="k")
    scaled = te.compute((4,), lambda i: x[i] * (a * 2 + 1) + te.max(a, 0.0), name="scaled")
    summed = te.compute((), lambda: te.sum(a * 2, axis=k), name="summed")
    func = te.create_prim_func([x, a, scaled, summed])
    assert len(func.body) == 2
    data = np.arange(4, dtype="f4"), np.asarray(np.float32(1.5))
    out, total = np.zeros(4, "f4"), np.zeros((), "f4")
    at.build(func)(*data, out, total)
    np.testing.assert_allclose(out, data[0] * 4 + 1.5, rtol=1e-6)
    np.testing.assert_allclose(total, 12.0, rtol=1e-6)


Q, X, M = te.placeholder((), name="q"), te.placeholder((8,), name="X"), te.placeholder((8, 2))
UNDECIDED: dict[str, Callable[[], Any]] = {
    "if": lambda: te.compute((8,), lambda i: X[i] if Q > 0 else 0.0),
    "if on an equality": lambda: te.compute((8,), lambda i: X[i] if Q == 0 else 0.0),
    "if of rank 2": lambda: 1 if M > 0 else 2,
    "unpickled": lambda: bool(pickle.loads(pickle.dumps(Q > 0))),
    "min": lambda: min(Q, 2.0),
    "max": lambda: max(2.0, Q),
    "max of tensors": lambda: max(X, X * 2),
    "max of a scalar of NumPy": lambda: max(np.float32(2), Q),
    "and": lambda: (Q > 0) and (Q < 1),
    "not": lambda: not Q * 2 <= X,
    "a range": lambda: 0 < Q < 1,
    "inverted": lambda: bool(~(Q > 0)),
    "sorted": lambda: sorted([Q, X]),
}


@pytest.mark.parametrize("name", UNDECIDED)
def test_a_comparison_has_no_truth_value(name: str) -> None:
    """Else Python takes one branch for all values, and nothing says so."""
    with pytest.raises(TensorExprError, match=r"no truth value .*use te.if_then_else"):
        UNDECIDED[name]()


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_scalar_of_numpy_is_compared(name: str, rank: int) -> None:
    compare, bound = getattr(operator, name), np.float32(1)
    x = te.placeholder((3,) * rank, name="x")
    flags = te.compute(x.shape, lambda *i: te.if_then_else(compare(bound, x(*i)), 1.0, 0.0))
    whole = te.if_then_else(compare(bound, x), 1.0, 0.0) if name not in ("eq", "ne") else flags + 0
    data = np.arange(3, dtype="f4") if rank else np.asarray(np.float32(0))
    found = np.zeros_like(data), np.zeros_like(data)
    at.build(te.create_prim_func([x, flags, whole]))(data, *found)
    for one in found:
        np.testing.assert_array_equal(one, compare(bound, data))


def test_whether_there_is_a_tensor() -> None:
    flags = te.placeholder((4,), "bool", name="flags")
    computed = te.compute((4,), lambda i: X[i] > 0, name="computed")
    assert all([Q, X, M, Q * 2, X + Q, flags, computed])
    assert (X or Q) is X


def test_indices_and_elements() -> None:
    x = te.placeholder((4,), name="x")
    at_ = te.placeholder((), "int64", name="at")
    last = 3 - te.clamp_index(at_, 4)
    one = te.compute((), lambda: x[last], name="one")
    func = te.create_prim_func([x, at_, one])
    out = np.zeros((), "f4")
    at.build(func)(np.arange(4, dtype="f4"), np.asarray(1), out)
    assert out == 2.0
