"""Parallel loops of routines: which are apart, and what threads compute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autosched as at
from autosched.errors import ArgumentError, ScriptError, VerifyError
from autosched.runtime.function import Function
from autosched.script import parse
from autosched.tir.parallel_loops import loops_apart
from autosched.tir.routine import Routine
from autosched.tir.run_routine import run_routine
from autosched.tir.verify_routine import unproved

HEAD = """
@T.routine
def main(x: T.Buffer((12, 8)), at: T.Buffer((12,), "int64"), y: T.Buffer((12, 8))):
"""


def read(body: str) -> Routine:
    text = HEAD + "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    func = parse(text)
    assert isinstance(func, Routine)
    assert parse(func.script()).same(func)
    return func


APART = [
    "for i in T.parallel(12):\n    for j in range(8):\n        y[i, j] = x[11 - i, j]",
    "for i in T.parallel(1, 12):\n    for j in range(8):\n        y[i - 1, j] += x[i, j]",
    "for i in T.parallel(4):\n    for k in range(3):\n        y[i * 3 + k, 0] = x[i, k]",
    "for c in T.parallel(2):\n    for i in range(12):\n        for j in range(4):\n"
    "            y[T.clamp_index(at[i], 12), c * 4 + j] += x[i, c * 4 + j]",
    "for i in T.parallel(12):\n    t = T.alloc_buffer((8,))\n    for j in range(8):\n"
    "        t[j] = x[i, j]\n    y[i, 0] = t[T.clamp_index(at[i], 8)]",
    "for i in T.parallel(at[0], at[1]):\n    y[T.wrap_index(i, 12), i] = x[0, 0]",
]
TOGETHER = [
    "for i in T.parallel(12):\n    y[T.clamp_index(at[i], 12), 0] += x[i, 0]",
    "for i in T.parallel(11):\n    y[i, 0] = y[i + 1, 0]",
    "for i in T.parallel(12):\n    y[0, 0] += x[i, 0]",
    "for i in T.parallel(4):\n    for k in range(4):\n        y[T.min(i * 3 + k, 11), 0] = x[i, k]",
    "for i in T.parallel(3):\n    for k in range(4):\n        y[i * 3 + k, 0] = x[i, k]",
    "for i in T.parallel(4):\n    y[i, 0] = 1.0\n    y[i * 2, 1] = 2.0",
    "t = T.alloc_buffer(())\nfor i in T.parallel(12):\n    t[()] = x[i, 0]\n    y[i, 0] = t[()]",
    "for i in T.parallel(at[0], at[1]):\n    y[i * 4611686018427387904, 0] += x[0, 0]",
    "for i in T.parallel(at[0], at[1]):\n    y[0, i * 6 + 1 - i * 4] += x[0, 0]",
]


@pytest.mark.parametrize("body", APART)
def test_iterations_that_are_apart_are_divided_over_threads(body: str) -> None:
    func = read(body)
    assert len(loops_apart(func)) == 1
    assert at.build(func, target="llvm").artifact.info.parallel


@pytest.mark.parametrize("body", TOGETHER)
def test_others_run_in_order(body: str) -> None:
    func = read(body)
    assert not loops_apart(func)
    assert not at.build(func, target="llvm").artifact.info.parallel


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([*APART[:-1], *TOGETHER[:-2]]), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_threads_compute_what_the_interpreter_does(body: str, seed: int, threads: int) -> None:
    func, rng = read(body), np.random.default_rng(seed)
    x, y = (rng.standard_normal((12, 8)).astype("float32") for _ in range(2))
    where, expected = rng.integers(-3, 15, 12), y.copy()
    run_routine(func, [x, where, expected])
    Function(at.build(func, target="llvm").artifact, threads=threads)(x, where, y)
    np.testing.assert_array_equal(y, expected)


ASSERTED = """
for i in T.parallel(12):
    n = at[i]
    assert n >= -8 and n < 8, "a {column} isn't there"
    k = T.select(n < 0, n + 8, n)
    y[i, k] = x[i, k]
"""


def test_an_assertion_stops_the_call_and_proves_what_follows() -> None:
    func = read(ASSERTED)
    assert not unproved(func)
    built = at.build(func, target="llvm")
    x, y, expected = np.ones((12, 8), "float32"), *np.zeros((2, 12, 8), "float32")
    where = np.arange(12) - 8
    built(x, where, y)
    run_routine(func, [x, where, expected])
    np.testing.assert_array_equal(y, expected)
    for wrong in (8, -9):
        where[7] = wrong
        with pytest.raises(ArgumentError, match=r"main stopped: a \{column\} isn't there"):
            built(x, where, y)
        with pytest.raises(VerifyError, match=r"routine main: a \{column\} isn't there"):
            run_routine(func, [x, where, y])


def test_a_stop_in_a_loop_ends_the_call() -> None:
    func = read(ASSERTED + "\ny[0, 0] = 5.0")
    y = np.zeros((12, 8), "float32")
    with pytest.raises(ArgumentError, match="isn't there"):
        at.build(func, target="llvm")(np.ones((12, 8), "float32"), np.full(12, 9), y)
    assert not y.any()


def test_an_assertion_says_what_is_wrong() -> None:
    with pytest.raises(ScriptError, match="expected a text after the condition"):
        read("assert at[0] > 0\ny[0, 0] = 1.0")


HALF = 1 << 62
WRAPS = [
    'n = at[0]\nassert n >= 0 and n + 1 < 8, "beyond"\ny[0, n + 1] = 1.0',
    f'n = at[0]\nassert n >= -{HALF} and n <= {HALF}, "far"\n'
    f'assert n + {HALF} < 8, "beyond"\ny[0, n + {HALF}] = 1.0',
    f"n = at[0]\nif n >= -{HALF} and n <= {HALF}:\n    if n + {HALF} < 8:\n"
    f"        y[0, n + {HALF}] = 1.0",
    f"n = at[0]\nif n >= -{HALF} and n <= {HALF}:\n    if n - -{HALF} < 8:\n"
    f"        y[0, n - -{HALF}] = 1.0",
]


@pytest.mark.parametrize("body", WRAPS)
def test_a_sum_that_may_wrap_round_proves_nothing(body: str) -> None:
    assert unproved(read(body))


@pytest.mark.parametrize("body", WRAPS[1:])
def test_an_index_that_wraps_round_stops_the_call(body: str) -> None:
    func, where = read(body), np.full(12, HALF)
    x, y = np.zeros((2, 12, 8), "float32")
    with pytest.raises(VerifyError, match="out of bounds"):
        run_routine(func, [x, where, y])
    with pytest.raises(ArgumentError, match="out of bounds"):
        at.build(func, target="llvm")(x, where, y)
