"""te.gradient against differences, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import autosched as at
from autosched import ops, te
from autosched.errors import TensorExprError

Floats = NDArray[np.float64]


def evaluated(
    outputs: Sequence[te.Tensor], inputs: Sequence[te.Tensor], given: Sequence[Floats]
) -> list[Floats]:
    func = at.build(te.create_prim_func([*inputs, *outputs]), target="llvm")
    found = [np.empty([int(n) for n in t.shape], t.dtype) for t in outputs]
    func(*given, *found)
    return found


def test_a_loss_by_weights_is_as_differences_have_it() -> None:
    x, w, b, u = (te.placeholder(s, "float64", n) for n, s in
                  (("x", (5, 4)), ("w", (4, 3)), ("b", (3,)), ("u", (2,))))  # fmt: skip
    i, j = te.reduce_axis((0, 5), "i"), te.reduce_axis((0, 3), "j")
    y = te.tanh(ops.matmul(x, w) + b)
    loss = te.compute((), lambda: te.sum(y[i, j] * y[i, j], axis=[i, j]), name="loss")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal([int(n) for n in t.shape]) for t in (x, w, b, u)]
    grads = te.gradient(loss, [w, b, u])
    assert [g.shape for g in grads] == [(4, 3), (3,), (2,)]
    found = evaluated(grads, [x, w, b, u], given)
    assert not found[2].any()
    for n, grad in ((1, found[0]), (2, found[1])):
        for place in np.ndindex(grad.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in given]
                moved[n][place] += step
                ends.append(evaluated([loss], [x, w, b, u], moved)[0])
            np.testing.assert_allclose(
                grad[place], (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8
            )


def test_a_head_goes_before() -> None:
    x, h = te.placeholder((4, 6), "float64", "x"), te.placeholder((4,), "float64", "h")
    k = te.reduce_axis((0, 6), "k")
    y = te.compute((4,), lambda i: te.sum(te.exp(x[i, k]), axis=k), name="y")
    (grad,) = te.gradient(y, [x], h)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((4, 6)), rng.standard_normal(4)]
    (found,) = evaluated([grad], [x, h], given)
    np.testing.assert_allclose(found, np.exp(given[0]) * given[1][:, None], rtol=1e-12)


def test_whplacehas_no_gradient_is_refused() -> None:
    x, n = te.placeholder((4,), name="x"), te.placeholder((4,), "int32", "n")
    y = te.exp(x)
    for call, message in (
        (lambda: te.gradient(y, [x]), "has the shape .4,.; give a head"),
        (
            lambda: te.gradient(y, [x], te.placeholder((3,))),
            r"head is float32\[3\]; expected float32\[4\]",
        ),
        (lambda: te.gradient(y, [n], y), "n holds int32; a derivative is one of floats"),
        (lambda: te.gradient(y, x), "inputs"),
        (lambda: te.gradient(3, [x]), "expected a tensor"),
    ):
        with pytest.raises(TensorExprError, match=message):
            call()
