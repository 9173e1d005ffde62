"""Adjoints of recurrences, against difference quotients."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import build, te
from autosched.errors import TensorExprError
from autosched.te.adjoint import adjoint

D = "float64"
STEPS, N = 5, 3


def run(outputs, inputs, arrays):
    """The outputs on arrays."""
    compiled = build(te.create_prim_func([*inputs, *outputs]))
    made = [np.empty([int(n) for n in t.shape], t.dtype) for t in outputs]
    compiled(*arrays, *made)
    return made


def two_states(x, w):
    """s[t] = tanh(sum of w s[t - 1]) + r[t - 1], r[t] = r[t - 1] x[t], by way of a stage."""
    s, r = (te.placeholder((STEPS, N), D, n) for n in "sr")
    k = te.reduce_axis((0, N), "k")
    product = te.compute((STEPS, N), lambda t, i: te.sum(s[t - 1, k] * w[i, k], axis=k), "product")
    updates = te.compute(
        (STEPS, N),
        lambda t, i: (te.tanh(product[t, i]) + r[t - 1, i], r[t - 1, i] * x[t, i]),
        "step",
    )
    starts = [te.compute((1, N), lambda _, i, c=c: x[0, i] * c, f"start{c}") for c in (1, 2)]
    return te.scan(starts, updates, [s, r])


def test_a_recurrence_of_two_states():
    rng = np.random.default_rng(3)
    x, w = te.placeholder((STEPS, N), D, "x"), te.placeholder((N, N), D, "w")
    states = two_states(x, w)
    seeds = [te.placeholder((STEPS, N), D, f"g{n}") for n in range(2)]
    arrays = [rng.standard_normal(t.shape) for t in (x, w, *seeds)]
    ends = {}
    for wrt, place in ((x, 0), (w, 1)):
        (found,) = run([adjoint(states, seeds, wrt)], [x, w, *seeds], arrays)
        way = rng.standard_normal(found.shape)
        for sign in (1, -1):
            moved = [a + sign * 1e-6 * way if n == place else a for n, a in enumerate(arrays[:2])]
            made = run(states, [x, w], moved)
            ends[sign] = sum(np.sum(g * y) for g, y in zip(arrays[2:], made, strict=True))
        assert np.sum(found * way) == pytest.approx((ends[1] - ends[-1]) / 2e-6, rel=1e-6)


def test_a_result_that_nothing_is_given_for():
    """The adjoint of the second state alone does not go through the first."""
    rng = np.random.default_rng(4)
    x, w = te.placeholder((STEPS, N), D, "x"), te.placeholder((N, N), D, "w")
    states = two_states(x, w)
    seed = te.placeholder((STEPS, N), D, "g")
    arrays = [rng.standard_normal(t.shape) for t in (x, w, seed)]
    (found,) = run([adjoint(states, [None, seed], x)], [x, w, seed], arrays)
    # r[t] = 2 x[0] x[1] ... x[t]
    products = 2 * np.cumprod(arrays[0], axis=0)
    expected = [
        sum(arrays[2][t] * products[t] / arrays[0][j] for t in range(j, STEPS))
        for j in range(STEPS)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_two_steps_back_are_refused():
    x, s = te.placeholder((STEPS,), D, "x"), te.placeholder((STEPS,), D, "s")
    start = te.compute((2,), lambda t: x[t], "start")
    update = te.compute((STEPS,), lambda t: s[t - 1] * s[t - 2] + x[t], "update")
    found = te.scan(start, update, s)
    with pytest.raises(TensorExprError, match="begins with 2 steps"):
        adjoint([found], [te.placeholder((STEPS,), D, "g")], x)
