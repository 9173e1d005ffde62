"""Quantising float models: ranges, errors, and the integer products that builds make of them."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import info, model, reference, residual_net
from onnx import helper
from test_graph_integers import operators

from autosched import graph
from autosched.errors import ArgumentError
from autosched.graph import passes
from autosched.graph.calibration import SCHEMES, Observer, divergence, steps_of


def observed(values, scheme, percentile=99.0):
    found = Observer()
    found.widen(values)
    found.count(values)
    return found.range(scheme, percentile)


def test_ranges(rng):
    """All of them hold 0; outliers widen that of minmax alone."""
    values = np.append(rng.standard_normal(100_000), [40.0]).astype("f4")
    low, high = observed(values, "minmax")
    assert (low, high) == (values.min(), 40.0)
    low, high = observed(values, "percentile")
    np.testing.assert_allclose((low, high), np.quantile(values, (0.005, 0.995)), atol=0.05)
    low, high = observed(values, "entropy")
    assert -values.min() / 2 < high < 10
    assert low == max(values.min(), -high)
    for scheme in SCHEMES:
        low, high = observed(np.full(10, 3.0, "f4"), scheme)
        assert low == 0 <= high, scheme
        low, high = observed(np.zeros(10, "f4"), scheme)
        assert low == high == 0
    scale, zero = steps_of(-1.0, 3.0)
    assert (np.float32((0 - np.float32(zero)) * scale), zero) == (np.float32(-64 * scale), 64)
    assert steps_of(0.0, 0.0) == (1, 0)


def test_divergence_by_the_formula(rng):
    sizes = rng.integers(0, 9, 64).astype("f8")
    kept, levels = 40, 8
    p = sizes[:kept].copy()
    q = np.zeros(kept)
    for level in range(levels):
        bins = range(level * kept // levels, (level + 1) * kept // levels)
        filled = [b for b in bins if p[b] > 0]
        for b in filled:
            q[b] = sum(p[bins[0] : bins[-1] + 1]) / len(filled)
    p[-1] += sizes[kept:].sum()
    p, q = p / p.sum(), q / q.sum()
    want = sum(a * np.log(a / max(b, 1e-12)) for a, b in zip(p, q, strict=True) if a > 0)
    assert divergence(sizes, kept, levels) == pytest.approx(want)


@pytest.mark.parametrize("scheme", ["minmax", "entropy"])
def test_a_network_of_integers_is_near_the_float_one(scheme, rng):
    proto = residual_net(rng)
    module = graph.from_onnx(proto)
    x = rng.standard_normal((6, 3, 12, 12)).astype("f4")
    found = graph.quantise(module, {"x": x}, scheme=scheme)
    assert [(e.operator, e.name) for e in found.layers] == [
        ("Conv", "a"), ("Conv", "n"), ("Gemm", "y")
    ]  # fmt: skip
    assert all(0 < e.error < 0.1 for e in found.layers), found.table()
    assert 0 < found.outputs["y"] < 0.05
    names = operators(passes.optimise(found.module))
    assert not names & {"Conv", "Gemm"}
    assert {"autosched.ConvSums", "autosched.MatMulSums"} <= names
    fresh = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    (y,) = graph.build(found.module)(fresh)
    (want,) = reference(proto, fresh)
    assert np.linalg.norm(y - want) / np.linalg.norm(want) < 0.1
    # What the report says is what the evaluator finds.
    parts = [(graph.evaluate(found.module, "main", a[None]), reference(proto, a[None])[0])
             for a in x]  # fmt: skip
    error = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in parts)
                    / sum(np.sum(b**2) for _, b in parts))  # fmt: skip
    assert found.outputs["y"] == pytest.approx(error, rel=0.05)
    assert found.table().count("\n") == 4


def test_layers_that_are_skipped_and_layers_that_are_none(rng):
    """A product of two activations stays; so does what is named; two layers read one tensor."""
    weights = {n: rng.standard_normal((8, 8)).astype("f4") for n in ("q", "k", "v")}
    nodes = [helper.make_node("MatMul", ["x", n], [f"x{n}"]) for n in weights]
    nodes += [
        helper.make_node("Transpose", ["xk"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["xq", "t"], ["s"]),
        helper.make_node("MatMul", ["s", "xv"], ["y"]),
    ]
    module = graph.from_onnx(model(nodes, [info("x", [4, 8])], [info("y", [4, 8])], weights))
    x = rng.standard_normal((4, 8)).astype("f4")
    found = graph.quantise(module, [{"x": x}, {"x": -x}], skip=["xv"])
    assert [e.name for e in found.layers] == ["xq", "xk"]
    text = found.module.script()
    assert text.count("op.quantize_linear") == 1
    assert text.count("op.matmul(") == 5


def test_samples_that_do_not_fit(rng):
    module = graph.from_onnx(residual_net(rng))
    x = np.zeros((1, 3, 12, 12), "f4")
    for samples, message in (
        ([], "samples is empty"),
        ({"z": x}, "samples has z; expected x"),
        ({"x": x[:, :2]}, r"have the shape \(1, 2, 12, 12\); expected \(1, 3, 12, 12\)"),
        ({"x": x.astype("f8")}, "are float64; expected float32"),
        ({"x": x[:0]}, "a multiple of its first axis"),
    ):
        with pytest.raises(ArgumentError, match=message):
            graph.quantise(module, samples)
    for more, message in (
        ({"scheme": "best"}, "scheme"),
        ({"percentile": 3}, "percentile is 3"),
        ({"skip": ["conv9"]}, "skip has 'conv9'; the layers are a, n, y"),
    ):
        with pytest.raises(ArgumentError, match=message):
            graph.quantise(module, {"x": x}, **more)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite(scheme, value, rng):
    """They are refused where a layer reads them, and there alone."""
    w = rng.standard_normal((8, 8)).astype("f4")
    nodes = [
        helper.make_node("Clip", ["m", "low", "high"], ["c"]),
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    weights = {"w": w, "low": np.float32(-1), "high": np.float32(1)}
    inputs = [info("x", [4, 8]), info("m", [4, 8])]
    module = graph.from_onnx(model(nodes, inputs, [info("y", [4, 8])], weights))
    x, m = rng.standard_normal((2, 8, 8)).astype("f4")
    bad = x.copy()
    bad[6, 1] = value
    with pytest.raises(
        ArgumentError, match=r"sample 1 .* gives layer 'y' no range: input 'x' holds NaN"
    ):
        graph.quantise(module, {"x": bad, "m": m}, scheme)
    huge = np.full_like(x, 3e38)
    if np.isinf(value):
        assert graph.quantise(module, {"x": x, "m": bad}, scheme).layers[0].error < 0.1
    nodes = [
        helper.make_node("Add", ["x", "x"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    for text in (
        "sample 0 .* its inputs are finite, yet make NaN",
        "weight of layer 'y' holds NaN",
    ):
        module = graph.from_onnx(model(nodes, inputs[:1], [info("y", [4, 8])], {"w": w}))
        with pytest.raises(ArgumentError, match=text):
            graph.quantise(module, {"x": huge}, scheme)
        huge, w[3, 4] = x, value


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_samples_that_give_no_range(scheme, rng):
    """Steps of a constant 0 would be those of no data; the layer can be left as it is."""
    module = graph.from_onnx(residual_net(rng))
    x = np.zeros((2, 3, 12, 12), "f4")
    with pytest.raises(ArgumentError, match=r"layer 'a' reads nothing but 0 .* or 'a' in skip"):
        graph.quantise(module, {"x": x}, scheme)
    assert [e.name for e in graph.quantise(module, {"x": x}, scheme, skip=["a"]).layers] == [
        "n",
        "y",
    ]
