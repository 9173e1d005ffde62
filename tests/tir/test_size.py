"""Symbolic sizes: arithmetic is that of integers, and comparisons hold for all sizes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.errors import ScheduleError
from autosched.tir.affine import always, ceildiv, imax, imin, same_int, sometimes
from autosched.tir.expr import Expr
from autosched.tir.size import Size, below_zero, exact_quotient, size_of
from autosched.tir.size_atoms import SizeVar, Undecided

N, M = SizeVar("n"), SizeVar("m")
n, m = Size.of(N), Size.of(M)
VALUES = [(x, y) for x in (1, 2, 3, 7, 8, 9, 16, 31) for y in (1, 2, 5, 8, 17)]

LEAVES = st.one_of(st.sampled_from(["n", "m"]), st.integers(-9, 9))
TREES = st.recursive(
    LEAVES,
    lambda below: st.one_of(
        st.tuples(st.sampled_from("+-*"), below, below),
        st.tuples(st.just("//"), below, st.integers(1, 12)),
        st.tuples(st.just("%"), below, st.integers(1, 12)),
    ),
    max_leaves=7,
)


def evaluate(tree: Any, x: Any, y: Any) -> Any:
    if not isinstance(tree, tuple):
        return {"n": x, "m": y}.get(tree, tree) if isinstance(tree, str) else tree
    op, a, b = tree[0], evaluate(tree[1], x, y), evaluate(tree[2], x, y)
    return {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "//": lambda: a // b,
        "%": lambda: a % b,
    }[op]()


def at(size: Any, x: int, y: int) -> int:
    return int(size.substitute({N: x, M: y})) if isinstance(size, Size) else int(size)


@given(TREES)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_arithmetic(tree: Any) -> None:
    size = evaluate(tree, n, m)
    for x, y in VALUES:
        assert at(size, x, y) == evaluate(tree, x, y)
    if isinstance(size, Size):
        again = size_of(size.to_expr())
        assert isinstance(again, Size)
        assert again.key == size.key
        assert repr(again) == repr(size), "reading the text gives other text"
        low = below_zero(size)
        assert all(at(low, x, y) <= min(0, at(size, x, y)) for x, y in VALUES)


@given(TREES, TREES)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_comparisons_hold_for_all_sizes(a: Any, b: Any) -> None:
    p, q = evaluate(a, n, m), evaluate(b, n, m)
    numbers = [(at(p, x, y), at(q, x, y)) for x, y in VALUES]
    for found, each in (
        (p < q, [x < y for x, y in numbers]),
        (p <= q, [x <= y for x, y in numbers]),
        (p > q, [x > y for x, y in numbers]),
        (p >= q, [x >= y for x, y in numbers]),
        (p == q, [x == y for x, y in numbers]),
        (p != q, [x != y for x, y in numbers]),
    ):
        if always(found):
            assert all(each)
        if not sometimes(found):
            assert not any(each)
    quotient = exact_quotient(p, q) if not same_int(q, 0) else None
    if quotient is not None:
        assert all(at(quotient, x, y) * at(q, x, y) == at(p, x, y) for x, y in VALUES)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (n - 1, n),
        ((n + 7) // 8 * 8, n + 8),
        (n - 1, (n + 7) // 8 * 8),
        ((n - 1) // 8, (n + 7) // 8),
        (((n + 7) // 8 - 1) * 8, n),
        (n * m - n, n * m),
        ((n + 7) // 8 * m - 1, (n + 7) * m),
        (0, n),
    ],
)
def test_known_inequalities(a: Any, b: Any) -> None:
    """What schedules with tails need is decided, not only sound."""
    assert always(a < b)
    assert not sometimes(a >= b)
    assert imin(a, b) is a
    assert imax(a, b) is b


def test_simple_forms() -> None:
    assert n - n == 0
    assert type(n - n) is int
    assert ceildiv(8 * n, 8) is not None
    assert same_int(ceildiv(8 * n, 8), n)
    assert same_int((n // 4) // 2, n // 8)
    assert same_int((2 * n + 6) // 4, (n + 3) // 2)
    assert same_int((n * m - 1) // m, n - 1)
    assert same_int((16 * n - 1) // n, 15)
    assert repr(ceildiv(n, 8)) == "(n + 7) // 8"


def test_undecided() -> None:
    assert sometimes(n < m)
    assert not always(n < m)
    with pytest.raises(Undecided, match="the lesser of n and m"):
        imin(n, m)
    with pytest.raises(Undecided, match="does not come out the same"):
        bool(n < 5)
    with pytest.raises(Undecided, match="n is a symbolic size, where a constant is needed"):
        int(n)
    with pytest.raises(Undecided, match="no simple form"):
        _ = m // n
    assert not (n == m), "written differently"  # noqa: SIM201
    assert n != m


def test_mixing() -> None:
    e = N * 2 + n
    assert isinstance(e, Expr)
    assert same_int(size_of(e), 3 * n)  # type: ignore[arg-type]
    assert same_int(n + np.int64(3), n + 3)
    for mixed in (lambda: np.arange(3) * n, lambda: n + np.arange(3), lambda: np.arange(3) < n):
        with pytest.raises(ScheduleError, match="symbolic sizes has no population"):
            mixed()
    size, var = pickle.loads(pickle.dumps(((n * m + 7) // 8, N)))
    assert same_int(size - size, 0)
    assert var in list(size.variables())
