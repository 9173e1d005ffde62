"""Attention is one kernel: two products with a softmax in between."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.graph import op
from autosched.graph.passes import fuse, reciprocals

HEADS, DEPTH = 3, 20


def heads_of(x, rows):
    return op.transpose(op.reshape(x, shape=(2, rows, HEADS, DEPTH)), perm=(0, 2, 1, 3))


def attention(rows=37, columns=45, form="plain"):
    """Queries of `rows`, keys and values of `columns`, of a batch of two, and what is done to the
    scores: nothing, or as exporters write it."""
    q = graph.var("q", (2, rows, HEADS * DEPTH))
    k, v = (graph.var(n, (2, columns, HEADS * DEPTH)) for n in "kv")
    mask = graph.var("mask", (2, 1, 1, columns))
    a, b, c = heads_of(q, rows), heads_of(k, columns), heads_of(v, columns)
    if form == "halves":  # each operand by the root of the scale
        a, b = op.mul(a, 0.5), op.mul(b, 0.5)
    scores = op.matmul(a, op.transpose(b, perm=(0, 1, 3, 2)))
    params = [q, k, v]
    if form == "divided":
        scores = op.add(op.div(scores, np.float32(DEPTH**0.5)), mask)
        params.append(mask)
    weights = op.softmax(scores, axis=0 if form == "other axis" else -1)
    if form == "guarded":  # of rows that are masked as a whole
        weights = op.where(op.isnan(weights), graph.const(np.float32(0)), weights)
    out = op.matmul(weights, c)
    if form == "joined":
        out = op.reshape(op.transpose(out, perm=(0, 2, 1, 3)), shape=(2, rows, HEADS * DEPTH))
    results = [out, weights] if form == "weights too" else out
    return graph.module(main=graph.function(params, results))


def run(mod, rng):
    """The results of the compiled model and of the evaluator."""
    main = mod["main"]
    data = [rng.standard_normal([int(n) for n in p.type.shape]).astype("f4") for p in main.params]
    compiled = graph.build(mod)
    want = graph.evaluate(mod, "main", *data)
    want = want if isinstance(want, tuple) else (want,)
    for found, expected in zip(compiled(*data), want, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return compiled


def kernels_with(compiled, word):
    return [k for k in compiled.kernels if k.func is not None and word in k.func.script()]


@pytest.mark.parametrize("form", ["plain", "halves", "divided", "guarded", "joined"])
def test_attention_is_one_kernel(rng, form):
    compiled = run(attention(form=form), rng)
    (kernel,) = kernels_with(compiled, "exp(")
    assert kernel.func.script().count("T.init()") == 4, "two products, a maximum and a sum"


@pytest.mark.parametrize("form", ["weights too", "other axis"])
def test_what_is_no_attention_by_rows_is_apart(rng, form):
    """Weights that are a result, and a softmax over the batch."""
    compiled = run(attention(form=form), rng)
    assert all(k.func.script().count("T.init()") <= 2 for k in kernels_with(compiled, "exp("))


@pytest.mark.parametrize(("rows", "columns"), [(1, 300), (17, 100)])
def test_few_rows_are_apart(rng, rows, columns):
    """One query, as of a language model that writes, and more columns than packing pays for."""
    compiled = run(attention(rows, columns), rng)
    assert all(k.func.script().count("T.init()") <= 2 for k in kernels_with(compiled, "exp("))


def test_a_value_that_two_attentions_share(rng):
    """Two queries of one set of keys and values: two kernels, each whole."""
    q = [graph.var(n, (1, 2, 24, 16)) for n in "qp"]
    k, v = graph.var("k", (1, 2, 40, 16)), graph.var("v", (1, 2, 40, 16))
    turned = op.transpose(k, perm=(0, 1, 3, 2))
    found = [op.matmul(op.softmax(op.matmul(x, turned)), v) for x in q]
    compiled = run(graph.module(main=graph.function([*q, k, v], found)), rng)
    assert len(kernels_with(compiled, "exp(")) <= 2


def test_a_softmax_of_its_own_product(rng):
    """The values are the scores: their product is read twice, and stays apart."""
    q, k = graph.var("q", (2, 24, 16)), graph.var("k", (2, 24, 16))
    scores = op.matmul(q, op.transpose(k, perm=(0, 2, 1)))
    out = op.matmul(op.softmax(scores), scores)
    run(graph.module(main=graph.function([q, k], out)), rng)


@pytest.mark.parametrize(
    ("reader", "is_product"),
    [("softmax", True), ("erf", True), ("add, softmax", True), ("floor", False), ("both", False)],
)
def test_quotients_become_products_where_the_last_bit_does_not_matter(reader, is_product):
    x = graph.var("x", (4, 8))
    y = op.div(x, np.float32(3))
    result = {
        "softmax": lambda: op.softmax(y),
        "erf": lambda: op.erf(y),
        "add, softmax": lambda: op.softmax(op.add(y, x)),
        "floor": lambda: op.floor(y),
        "both": lambda: op.add(op.softmax(y), op.floor(y)),
    }[reader]()
    text = str(reciprocals(graph.module(main=graph.function([x], result))))
    assert ("op.mul(" in text, "op.div(" in text) == (is_product, not is_product)


@pytest.mark.parametrize("by", [0.0, 1e-39, 3e38, float("inf"), float("nan")])
def test_quotients_by_numbers_without_a_reciprocal_stay(by):
    x = graph.var("x", (4, 8))
    mod = graph.module(main=graph.function([x], op.softmax(op.div(x, np.float32(by)))))
    assert "op.div(" in str(reciprocals(mod))


def test_a_quotient_before_many_additions_is_looked_at_no_farther():
    """The depth of what follows it is bounded, as is that of Python's calls."""
    x = graph.var("x", (4, 8))
    y = op.div(x, np.float32(3))
    for _ in range(3000):
        y = op.add(y, x)
    text = str(reciprocals(graph.module(main=graph.function([x], op.softmax(y)))))
    assert "op.div(" in text


@pytest.mark.parametrize("constant", ["keys", "values"])
def test_products_with_constants_are_apart(rng, constant):
    """They are packed when the model is compiled."""
    x, known = graph.var("x", (64, 32)), rng.standard_normal((32, 64)).astype("f4")
    other = graph.var("y", (32, 64) if constant == "values" else (64, 32))
    k, v = (other, known.T.copy()) if constant == "values" else (known, other)
    k, v = (graph.const(z) if isinstance(z, np.ndarray) else z for z in (k, v))
    out = op.matmul(op.softmax(op.matmul(x, k)), v)
    compiled = run(graph.module(main=graph.function([x, other], out)), rng)
    assert all(k.func.script().count("T.init()") <= 2 for k in kernels_with(compiled, "exp("))


def test_groups_of_attention_take_what_is_between(rng):
    """The names of the kernels say what is in them."""
    names = [str(n) for n in fuse(attention(form="divided")).graphs]
    assert any("matmul_div_add_softmax" in n for n in names)


@pytest.mark.parametrize("columns", [33, 40, 100])
def test_rows_without_any_key_are_even_where_masked_scores_are_scaled(rng, columns):
    """The maximum of a row and what it is subtracted from are rounded alike: of 4e8 the product
    that is not rounded is up to 16 away."""
    q, k, v = (graph.var(n, s) for n, s in zip("qkv", [(20, 16), (16, columns), (columns, 16)],
                                               strict=True))  # fmt: skip
    there, by = graph.var("there", (20, 1), "bool"), graph.var("by", (1, 1))
    scores = op.where(there, op.matmul(q, k), graph.const(np.float32(-1e9)))
    params = [q, k, there, by, v]
    mod = graph.module(main=graph.function(params, op.matmul(op.softmax(op.mul(scores, by)), v)))
    data = [rng.standard_normal([int(n) for n in p.type.shape]) for p in mod["main"].params]
    data = [d.astype("f4") for d in data]
    data[2], data[3] = data[2] > 0, np.full((1, 1), 0.3, "f4")
    want = graph.evaluate(mod, "main", *data)
    for target in ("llvm -num-cores=1", "llvm -num-cores=1 -mcpu=x86-64-v3"):
        np.testing.assert_allclose(graph.build(mod, target)(*data)[0], want, rtol=1e-4, atol=1e-5)
