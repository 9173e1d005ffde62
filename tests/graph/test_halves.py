"""The pass `halves`: values of float16 are float32 between operators, on a CPU."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from language import module

from autosched import graph
from autosched.graph import op
from autosched.graph.compile import primitives
from autosched.graph.passes import optimise
from autosched.target import Target

RNG = np.random.default_rng(5)


def half(*shape: int) -> np.ndarray:
    """Values about 0 whose sums of a few hundred products keep three digits."""
    return (RNG.standard_normal(shape) * 0.25).astype("f2")


def types_of(given: graph.IRModule, target: str = "llvm -mcpu=x86-64-v3") -> list[Any]:
    """Types of what the kernels of a module read and write."""
    ready = optimise(given, target=Target(target))
    return [a.type for f in primitives(ready) for a in (*f.params, *f.body.results)]


def perceptron(rows: int) -> tuple[graph.IRModule, list[np.ndarray]]:
    """Two products with constant weights, and what they should give."""
    x, w, v = half(rows, 64), half(64, 96), half(96, 32)
    given = graph.var("x", x.shape, "float16")
    made = graph.function([given], op.matmul(op.relu(op.matmul(given, w)), v))
    want = np.maximum(x.astype("f4") @ w.astype("f4"), 0) @ v.astype("f4")
    return graph.module(main=made), [x, want]


@pytest.mark.parametrize("rows", [1, 8, 9, 40])
def test_products_of_many_rows_are_of_float32(rows: int) -> None:
    """Those of few rows read their weights in 16 bits."""
    made, (x, want) = perceptron(rows)
    found = graph.build(made)(x)[0]
    assert found.dtype == "float16"
    np.testing.assert_allclose(found, want, rtol=4e-3, atol=4e-3)
    dtypes = Counter(t.dtype for t in types_of(made))
    if rows > 8:
        assert dtypes["float16"] == 2  # the input and the result
    else:
        assert dtypes["float32"] == 0 or dtypes["float16"] >= 4


def test_a_gpu_computes_in_float16() -> None:
    made, _ = perceptron(40)
    dtypes = {t.dtype for t in types_of(made, "cuda -arch=sm_80")}
    assert dtypes == {"float16"}


def test_an_explicit_cast_rounds() -> None:
    x = np.full((4, 300), 2049, "f4")  # no float16
    given = graph.var("x", x.shape, "float32")
    narrow = op.cast(given, to="float16")
    made = graph.function([given], op.cast(op.add(narrow, narrow), to="float32"))
    found = graph.build(graph.module(main=made))(x)[0]
    np.testing.assert_array_equal(found, 2 * x.astype("f2").astype("f4"))


def test_a_cache_of_keys_stays_as_it_was_given() -> None:
    """Nothing but what comes anew is moved in another type, and the one query reads 16 bits."""
    past, x, w = half(1, 2, 30, 16), half(1, 2, 1, 16), half(16, 16)
    inputs = [graph.var("past", past.shape, "float16"), graph.var("x", x.shape, "float16")]
    keys = op.concat(inputs[0], op.matmul(inputs[1], w), axis=2)
    scores = op.softmax(op.matmul(inputs[1], op.transpose(keys, perm=(0, 1, 3, 2))))
    made = graph.module(main=graph.function(inputs, [keys, scores]))
    found = graph.build(made)(past, x)
    new = (x.astype("f4") @ w.astype("f4")).astype("f2")
    want = np.concatenate([past, new], 2)
    np.testing.assert_allclose(found[0], want, rtol=2e-3, atol=1e-3)
    s = x.astype("f4") @ want.astype("f4").swapaxes(2, 3)
    e = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(found[1], e / e.sum(-1, keepdims=True), rtol=4e-3, atol=1e-3)
    wide = [t for t in types_of(made) if t.dtype == "float32"]
    assert all(t.shape[2:] in ((1, 16), (1, 31)) for t in wide)


@pytest.mark.parametrize("operator", ["scatter_nd", "scatter_elements", "where", "trilu"])
def test_a_cache_that_is_written_to_stays_as_it_was_given(operator: str) -> None:
    cache, new = half(8, 32, 16), half(2, 16)
    inputs = [graph.var("cache", cache.shape, "float16"), graph.var("new", new.shape, "float16")]
    row = np.array([[3, 1], [5, 0]])
    if operator == "scatter_nd":
        made, want = op.scatter_nd(inputs[0], row, inputs[1]), cache.copy()
        want[row[:, 0], row[:, 1]] = new
    elif operator == "scatter_elements":
        at = np.full((8, 2, 16), [[[4], [30]]])
        updates = op.expand(inputs[1], [8, 2, 16])
        made, want = op.scatter_elements(inputs[0], at, updates, axis=1), cache.copy()
        want[:, [4, 30]] = new
    elif operator == "where":
        keep = RNG.standard_normal(cache.shape) > 0
        made = op.where(keep, inputs[0], op.slice(inputs[1], [0], [1], [0]))
        want = np.where(keep, cache, new[:1])
    else:
        made, want = op.trilu(inputs[0], upper=0), np.tril(cache)
    written = graph.module(main=graph.function(inputs, made))
    np.testing.assert_array_equal(graph.build(written)(cache, new)[0], want)
    assert "float32" not in {t.dtype for t in types_of(written)}


def test_bodies_of_branches_read_what_was_widened_outside() -> None:
    x, w = half(20, 64), half(64, 64)
    made = module(
        "@G.function\n"
        "def main(x: G.Tensor((20, 64), 'float16'), w: G.Tensor((64, 64), 'float16'),\n"
        "         c: G.Tensor((), 'bool')):\n"
        "    y = op.relu(op.matmul(x, w))\n"
        "    return op.add(y, y) if c else op.tanh(y)\n"
    )
    compiled = graph.build(made)
    want = np.maximum(x.astype("f4") @ w.astype("f4"), 0)
    for choice, result in ((True, want + want), (False, np.tanh(want))):
        found = compiled(x, w, np.array(choice))[0]
        assert found.dtype == "float16"
        np.testing.assert_allclose(found, result, rtol=4e-3, atol=4e-3)
