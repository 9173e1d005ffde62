"""Calls of functions with symbolic sizes: bound from shapes, checked, prepared once a shape."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import ArgumentError
from autosched.runtime.function import SHAPES_KEPT, Function


@pytest.fixture(scope="module")
def function() -> Function:
    """out = x + the row sums of x * w[::2], through an intermediate of n rows."""
    n, m = te.var("n"), te.var("m")
    x, w = te.placeholder((n, m), "int64", "x"), te.placeholder((2 * m,), "int64", "w")
    k = te.reduce_axis((0, m), "k")
    s = te.compute((n, 100), lambda i, j: te.sum(x[i, k] * w[2 * k], axis=k), name="s")
    out = te.compute((n, m), lambda i, j: x[i, j] + s[i, 99], name="out")
    built = at.build(te.create_prim_func([x, w, out]))
    return built.function


def arrays(n: int, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n * 100 + m)
    x, w = rng.integers(-9, 9, (n, m)), rng.integers(-9, 9, 2 * m)
    return [x, w, np.full((n, m), 77)]


def right(found: Sequence[np.ndarray]) -> bool:
    x, w, out = found
    return bool(np.array_equal(out, x + (x @ w[::2])[:, None]))


def test_many_shapes(function: Function) -> None:
    """More than are kept, and the first ones again."""
    for n in (*range(1, SHAPES_KEPT + 5), 1, 2):
        for m in (1, 5):
            given = arrays(n, m)
            function(*given)
            assert right(given)
    assert len(function._calls) == SHAPES_KEPT


def test_shape_is_prepared_once(function: Function) -> None:
    given = arrays(3, 4)
    function(*given)
    before = dict(function._calls)
    for _ in range(3):
        function(*given)
    assert function._calls == before


def test_other_buffers(function: Function) -> None:
    """What is no NumPy array but a buffer is bound, too."""
    given = arrays(2, 3)
    function(memoryview(given[0]), given[1], given[2])
    assert right(given)


def test_timed(function: Function) -> None:
    given = arrays(4, 6)
    assert function.native_seconds(*given, number=3) > 0
    assert right(given)
    assert function.with_threads(1).time_evaluator(repeat=2)(*given).median > 0


def test_threads(function: Function) -> None:
    """Calls at once, of equal and of different shapes: each has a workspace to itself."""
    wrong: list[tuple[int, int]] = []

    def work(seed: int) -> None:
        for k in range(40):
            n, m = 1 + (seed + k) % 3, 1 + k % 5
            given = arrays(n, m)
            function(*given)
            if not right(given):
                wrong.append((n, m))

    workers = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def shaped(*shapes: tuple[int, ...], dtype: str = "int64") -> list[np.ndarray]:
    return [np.zeros(s, dtype) for s in shapes]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (shaped((3, 4), (8,), (5, 4)), r"n is 3 in x.shape\[0\] but 5 in out.shape\[0\]"),
        (shaped((3, 4), (8,), (3, 2)), r"m is 4 in x.shape\[1\] but 2 in out.shape\[1\]"),
        (
            shaped((3, 4), (9,), (3, 4)),
            r"w.shape\[0\] is 9; expected m \* 2 = 8 with m = 4 .x.shape",
        ),
        (
            shaped((0, 4), (8,), (0, 4)),
            "extent 0 in dimension 0; expected n for a size n of at least 1",
        ),
        (shaped((3, 0), (0,), (3, 0)), "extent 0 in dimension 1"),
        (shaped((3, 4), (8, 1), (3, 4)), r"has shape \(8, 1\); expected \(m \* 2,\)"),
        (shaped((), (8,), (3, 4)), r"has shape \(\); expected \(n, m\)"),
        (shaped((3, 4), (8,)), "takes 3 arrays"),
        (shaped((3, 4), (8,), (3, 4), dtype="int32"), "has dtype int32; expected int64"),
        (
            [np.zeros((3, 4), "int64"), [1], np.zeros((3, 4), "int64")],
            "is a list, not a NumPy array",
        ),
    ],
)
def test_what_does_not_fit(function: Function, given: list[np.ndarray], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        function(*given)


def test_overlap(function: Function) -> None:
    x, w, _ = arrays(3, 4)
    with pytest.raises(ArgumentError, match=r"output out .* overlaps x"):
        function(x, w, x)


def test_shown(function: Function) -> None:
    assert "x: int64[n, m], w: int64[m * 2], out: int64[n, m] out" in repr(function)
