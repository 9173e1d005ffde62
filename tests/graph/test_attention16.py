"""Attention in bfloat16: on intrinsics, in whole vectors or tiles."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.graph import op
from autosched.graph.compile import prepared, primitives
from autosched.graph.lowering import lower as lower_group
from autosched.graph.passes import attention16, bfloat16_attention
from autosched.lowering.lower import lower
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_states, variants_of
from autosched.sketch.space import Space
from autosched.target import Target
from autosched.tir.interp import run as interpret
from autosched.tir.whole import reference

TILES = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-cores=2")
VECTORS = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4 -num-cores=2")
NEITHER = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell -num-cores=2")
HOST = Target("llvm -num-cores=2")


def heads(rows=64, columns=96, depth=32, width=48, count=11, form="plain"):
    """Attention whose sizes are whole tiles, unless a test says other ones."""
    q = graph.var("q", (1, count, rows, depth))
    k, v = graph.var("k", (1, count, depth, columns)), graph.var("v", (1, count, columns, width))
    params, scores = [q, k, v], op.mul(op.matmul(q, k), 0.25)
    if form in MASKS:
        shape = {"r": rows, "c": columns, "h": count, "1": 1}
        mask = graph.var("mask", tuple(shape[n] for n in MASKS[form]))
        params.append(mask)
        scores = op.add(scores, mask)
    if form == "quotient":
        by = graph.var("by", (rows, columns))
        params.append(by)
        scores = op.div(scores, op.add(op.exp(by), 1.0))
    if form == "constant":
        scores = op.add(scores, graph.const(np.tri(rows, columns, dtype="f4")))
    if form == "selected":
        causal = graph.const(np.tri(rows, columns, dtype=bool))
        scores = op.where(causal, scores, graph.const(np.float32(-np.inf)))
    weights = op.softmax(op.exp(scores) if form == "exponential" else scores)
    if form == "shares":
        by = graph.var("by", (columns,))
        params.append(by)
        weights = op.div(weights, op.add(op.abs(by), 1.0))
    if form == "guarded":
        weights = op.where(op.isnan(weights), graph.const(np.float32(0)), weights)
    out = op.matmul(weights, v)
    results = [out, scores] if form == "scores too" else out
    return graph.module(main=graph.function(params, results))


MASKS = {"row of a mask": "111c", "mask": "rc", "column of a mask": "hr1", "mask of all": "1hrc"}


def inputs(mod, rng):
    """Random ones; of a mask one element in four is minus infinity, and a row of it as a whole."""
    data = [rng.standard_normal([int(n) for n in p.type.shape]).astype("f4")
            for p in mod["main"].params]  # fmt: skip
    if any(p.name == "mask" for p in mod["main"].params):
        data[3][rng.random(data[3].shape) < 0.25] = -np.inf
        data[3][(0,) * (data[3].ndim - 1)] = -np.inf
    return data


def products_of(mod):
    return str(bfloat16_attention(mod)).count("autosched_matmul_sums(")


@pytest.mark.parametrize(
    "changed",
    [{"depth": 40}, {"width": 40}, {"count": 1}, {"form": "scores too"}, {"form": "exponential"}],
    ids=str,
)
def test_products_that_stay_in_float32(changed):
    """Depths that are no whole vectors, few scores, scores that something else reads."""
    assert products_of(heads()) == 2
    assert products_of(heads(**changed)) == 0


FORMS = ("plain", "guarded", "quotient", "shares", "constant", "selected", *MASKS)
SIZES = ((37, 101, True), (64, 96, True), (37, 96, True), (37, 101, False))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("form", "rows", "columns", "whole_rows"),
    [
        # Each form where both rows and columns are filled up, two of them at all sizes.
        pytest.param(
            form,
            *size,
            marks=() if size == SIZES[0] or form in ("plain", "mask") else pytest.mark.long,
        )
        for form in FORMS
        for size in SIZES
    ],
)
def test_sizes_are_filled_up(rng, form, rows, columns, whole_rows):
    """With what changes no result: rows without any score left are no numbers in both."""
    mod = heads(rows, columns, count=29, form=form)
    data = inputs(mod, rng)
    changed = bfloat16_attention(mod, whole_rows)
    text = str(changed)
    assert text.count("autosched_matmul_sums(") == 2
    assert ("op.pad(" in text) == (columns % 16 != 0 or (whole_rows and rows % 16 != 0))
    assert ("op.slice(" in text) == (whole_rows and rows % 16 != 0)
    want = graph.evaluate(mod, "main", *data)
    (found,) = graph.build(changed, HOST)(*data)
    assert found.shape == want.shape == (1, 29, rows, 48)
    np.testing.assert_allclose(found, want, atol=3e-2)
    if form in MASKS or form == "guarded":
        assert np.isnan(want).any() == (form in MASKS)


def test_a_weight_of_one_number_is_not_taken_for_its_bits(rng):
    x = graph.var("x", (20, 30, 1))
    mod = graph.module(main=graph.function([x], op.matmul(x, graph.const(np.array([[1.5]], "f4")))))
    data = rng.standard_normal((20, 30, 1)).astype("f4")
    (found,) = graph.build(mod, HOST, precision="bfloat16")(data)
    np.testing.assert_allclose(found, data * 1.5, rtol=1e-2)


@pytest.mark.parametrize("rows", [64, 37])
@pytest.mark.parametrize("target", [TILES, VECTORS, NEITHER], ids=["tiles", "vectors", "neither"])
def test_attention_in_bfloat16_is_one_kernel(target, rows):
    ready = prepared(heads(rows, 101, count=29), precision="bfloat16", target=target)
    function = next(f for f in primitives(ready) if "softmax" in str(f))
    intrinsic = {TILES: "_amx", VECTORS: "dot_16x2_bf16bf16f32"}.get(target)
    text = default_schedule(lower_group(function), target).func.script()
    assert text.count("T.init()") == 4
    assert "tensorize" not in text if intrinsic is None else intrinsic in text


@pytest.mark.parametrize("rows", [pytest.param(32, marks=pytest.mark.long), 21])
@pytest.mark.parametrize("target", [TILES, VECTORS], ids=["tiles", "vectors"])
def test_kernels_of_attention_compute_what_the_definition_does(rng, monkeypatch, target, rows):
    """By the interpreter, on any machine; the definition by whole arrays."""
    monkeypatch.setattr(attention16, "LEAST", 1)
    ready = prepared(heads(rows, 33, 32, 16, 1), None, "bfloat16", target)
    function = next(f for f in primitives(ready) if "softmax" in str(f))
    func = lower_group(function)
    scheduled = default_schedule(func, target).func
    assert "tensorize" in scheduled.script()
    data = [rng.standard_normal([int(n) for n in b.shape]).astype("f4") for b in func.params]
    data = [np.arange(x.size) < 33 if b.dtype == "bool" else x
            for x, b in zip(data, func.params, strict=True)]  # fmt: skip
    found, want = ([*map(np.copy, data)] for _ in range(2))
    interpret(lower(scheduled), found)
    reference(func, want)
    np.testing.assert_allclose(found[-1], want[-1], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("drawn_at", [(0, 1), pytest.param((2, 3), marks=pytest.mark.long)])
def test_random_blocks_of_rows_compute_what_the_definition_does(rng, monkeypatch, drawn_at):
    """Rows of blocks and of registers are decisions of the search."""
    monkeypatch.setattr(attention16, "LEAST", 1)
    ready = prepared(heads(21, 32, 16, 16, 2), None, "bfloat16", VECTORS)
    (function,) = primitives(ready)
    func = lower_group(function)
    space = Space(func, VECTORS, variants_of(generate_states(func, VECTORS, limit=1)))
    assert space.variants[0].name.startswith("matmul.dots")
    drawn = space.sample(np.random.default_rng(0), 64)
    drawn = drawn.take(drawn.unique())
    assert len(drawn) >= 8
    data = [rng.standard_normal([int(n) for n in b.shape]).astype("f4") for b in func.params]
    want = [*map(np.copy, data)]
    reference(func, want)
    for row in drawn_at:
        found = [*map(np.copy, data)]
        interpret(lower(space.schedule(*space.candidate(drawn, row)).func), found)
        np.testing.assert_allclose(found[-1], want[-1], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("sizes", [(128, 160), (75, 75), (30, 250)])
def test_attention_in_bfloat16_is_near_that_in_float32(rng, sizes):
    mod = heads(*sizes, form="mask")
    data = inputs(mod, rng)
    compiled = graph.build(mod, HOST, precision="bfloat16")
    want = graph.evaluate(mod, "main", *data)
    np.testing.assert_allclose(compiled(*data)[0], want, atol=3e-2)
    tasks, _ = graph.extract_tasks(mod, HOST, precision="bfloat16")
    keys = {k.workload_key for k in compiled.by_name.values()}
    assert {t.workload_key for t in tasks} == keys


def _both(q, k):
    w = op.softmax(op.matmul(q, k))
    return op.matmul(w, w)


def _twice(q, k, v, u):
    inner = op.matmul(op.softmax(op.matmul(q, k)), v)
    return op.matmul(op.softmax(inner), u)


SHARED = {
    "weights are the values, too": (_both, [(2, 192, 32), (2, 32, 192)]),
    "one attention's result is another's scores": (
        _twice, [(2, 192, 32), (2, 32, 192), (2, 192, 192), (2, 192, 32)],
    ),
    "queries are the keys": (
        lambda y, u: op.matmul(op.softmax(op.mul(op.matmul(y, y), 0.1)), u),
        [(2, 192, 192), (2, 192, 32)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARED)
@pytest.mark.parametrize("whole_rows", [True, False])
def test_what_is_read_twice(rng, case, whole_rows):
    make, shapes = SHARED[case]
    params = [graph.var(f"x{n}", s) for n, s in enumerate(shapes)]
    mod = graph.module(main=graph.function(params, make(*params)))
    data = [rng.standard_normal(s).astype("f4") * 0.5 for s in shapes]
    want = graph.evaluate(mod, "main", *data)
    (found,) = graph.build(bfloat16_attention(mod, whole_rows), HOST)(*data)
    np.testing.assert_allclose(found, want, atol=3e-2)
