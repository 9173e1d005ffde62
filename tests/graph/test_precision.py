"""precision="bfloat16": asked for, products round their operands; otherwise nothing does."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import info, model, reference, residual_net
from onnx import helper
from test_graph_integers import operators

from autosched import graph
from autosched.errors import ArgumentError
from autosched.graph import passes
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.tir import dtypes


def rounded(x):
    return dtypes.to_float32(dtypes.from_float32(x))


def test_products_of_bfloat16(rng):
    """Sums of rounded operands, by NumPy: a product, and a Gemm with a bias."""
    a, b = rng.standard_normal((10, 12)).astype("f4"), rng.standard_normal((12, 7)).astype("f4")
    c, bias = rng.standard_normal((9, 7)).astype("f4"), rng.standard_normal(9).astype("f4")
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Gemm", ["p", "c", "bias"], ["y"], transB=1),
    ]
    weights = {"b": b, "c": c, "bias": bias}
    module = graph.from_onnx(model(nodes, [info("a", a.shape)], [info("y", [10, 9])], weights))
    (found,) = graph.build(module, precision="bfloat16")(a)
    first = rounded(a) @ rounded(b)
    want = rounded(first) @ rounded(c).T + bias
    # The first sums may round to the bfloat16 beside, of which one is 2^-8 of it.
    np.testing.assert_allclose(found, want, rtol=1e-2, atol=1e-2)
    (plain,) = graph.build(module)(a)
    np.testing.assert_allclose(plain, (a @ b) @ c.T + bias, rtol=1e-5, atol=1e-5)
    assert not np.allclose(found, plain, rtol=1e-4, atol=1e-4)


def test_a_network(rng):
    proto = residual_net(rng)
    module = graph.from_onnx(proto)
    built = graph.build(module, precision="bfloat16")
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    (y,), (want,) = built(x), reference(proto, x)
    error = np.linalg.norm(y - want) / np.linalg.norm(want)
    assert 1e-5 < error < 0.02
    keys = {t.workload_key for t in graph.extract_tasks(module, precision="bfloat16")[0]}
    assert keys == {k.workload_key for k in built.kernels}
    assert not operators(passes.optimise(module, "bfloat16")) & {"Conv", "Gemm"}
    with pytest.raises(ArgumentError, match="precision"):
        graph.build(module, precision="float8")


def test_targets_with_bfloat16_take_its_instruction(rng):
    w = graph.const(rng.standard_normal((64, 48)).astype("f4"))
    x = graph.var("x", (32, 64))
    module = graph.module(main=graph.function([x], graph.op.matmul(x, w)))
    target = Target("llvm -mcpu=cooperlake -num-cores=2")
    (task,) = graph.extract_tasks(module, target, precision="bfloat16")[0]
    assert "dot_16x2_bf16bf16f32" in default_schedule(task.prim_func, target).mod.script()
    (task,) = graph.extract_tasks(module, target)[0]
    assert "tensorize" not in default_schedule(task.prim_func, target).mod.script()


@pytest.mark.parametrize(
    ("group", "depth", "each", "taken"),
    [(4, 32, 32, True), (2, 6, 16, True), (3, 2, 48, True), (2, 3, 16, False), (4, 8, 8, False)],
)
def test_groups_of_bfloat16(rng, group, depth, each, taken):
    """Groups whose results fill vectors lie one by one; all are NumPy's sums, and none sees what is
    not finite in another."""
    w = rng.standard_normal((group * each, depth, 3, 3)).astype("f4")
    x = rng.standard_normal((2, group * depth, 5, 6)).astype("f4")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], group=group, pads=[1] * 4)]
    proto = model(nodes, [info("x", x.shape)], [info("y", [2, group * each, 5, 6])], {"w": w})
    module = graph.from_onnx(proto)
    (want,) = reference(
        model(nodes, [info("x", x.shape)], [info("y", [2, group * each, 5, 6])],
              {"w": rounded(w)}), rounded(x),
    )  # fmt: skip
    target = Target("llvm -mcpu=cooperlake -num-cores=2")
    built = graph.build(module, target, precision="bfloat16")
    names = [k.implementation for k in built.kernels]
    assert any(n.startswith("conv_sums.groups") for n in names) == taken
    if target.missing_here():
        built = graph.build(module, precision="bfloat16")
    np.testing.assert_allclose(built(x)[0], want, rtol=1e-4, atol=1e-4)
    x[:, 0] = np.inf
    assert np.isfinite(built(x)[0][:, each:]).all()
