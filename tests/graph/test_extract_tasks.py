"""`graph.extract_tasks` is a build stopped before code generation."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import info, model, residual_net
from onnx import TensorProto, helper

from autosched import graph
from autosched.errors import WorkloadError
from autosched.graph import nn, op
from autosched.graph.compile import prepared, primitives
from autosched.graph.kernels import select
from autosched.graph.tasks import kernel_groups
from autosched.target import Target

TARGET = Target("llvm")


def attention(rng):
    """Products with constant and computed operands, a softmax, views, a normalisation."""
    x = graph.var("x", (1, 6, 16))
    q, k, v = (op.matmul(x, graph.const(rng.standard_normal((16, 16)).astype("f4"))) for _ in "qkv")
    s = op.softmax(op.matmul(q, op.transpose(k, perm=(0, 2, 1))), axis=-1)
    y = op.add(op.matmul(s, v), x)
    scale, shift = (graph.const(rng.standard_normal(16).astype("f4")) for _ in "sb")
    return graph.module(main=graph.function([x], op.layer_normalization(y, scale, shift)))


def twins(rng):
    """The same product three times, once with a weight that is no constant."""
    x, w = graph.var("x", (4, 8)), graph.var("w", (8, 8))
    a, b = (graph.const(rng.standard_normal((8, 8)).astype("f4")) for _ in "ab")
    y = op.matmul(op.matmul(op.matmul(x, a), b), w)
    return graph.module(main=graph.function([x, w], y))


def pointwise(rng):
    x = graph.var("x", (3, 5))
    return graph.module(main=graph.function([x], op.tanh(op.add(x, x))))


def loop_net(limit):
    """A Loop of `limit` iterations over a product."""
    weights = {"w": np.eye(4, dtype="f4"), "m": np.asarray(limit, "i8"), "go": np.asarray(True)}
    body = helper.make_graph(
        [helper.make_node("MatMul", ["s", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["t"]),
         helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [helper.make_tensor_value_info("n", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []), info("s", [4, 4])],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), info("t", [4, 4])],
    )  # fmt: skip
    node = helper.make_node("Loop", ["m", "go", "x"], ["y"], body=body)
    return model([node], [info("x", [4, 4])], [info("y", [4, 4])], weights)


MODULES = {
    "residual": lambda rng: graph.from_onnx(residual_net(rng)),
    "attention": attention,
    "twins": twins,
    "pointwise": pointwise,
    "loop": lambda rng: graph.from_onnx(loop_net(7)),
}


@pytest.mark.parametrize("name", MODULES)
def test_keys_are_those_of_the_compiled_kernels(name, rng):
    mod = MODULES[name](rng)
    tasks, weights = graph.extract_tasks(mod, TARGET)
    kernels = graph.build(mod, TARGET).by_name.values()
    assert {t.workload_key for t in tasks} == {k.workload_key for k in kernels}
    assert len({t.workload_key for t in tasks}) == len(tasks) == len(weights)


def test_keys_of_every_implementation_are_those_a_build_looks_up(rng):
    mod = graph.from_onnx(residual_net(rng))
    ready = prepared(mod)
    asked = []

    def choose(func, target):
        asked.append(graph_key(func))
        return

    for function in primitives(ready):
        select(function, TARGET, choose)
    groups = kernel_groups(ready, TARGET)
    assert set(asked) == {a.key for g in groups for a in g.alternatives}
    assert {"conv.direct", "conv.winograd"} <= {a.name for g in groups for a in g.alternatives}


def graph_key(func):
    from autosched import SearchTask

    return SearchTask(prim_func=func, target=TARGET).workload_key


def test_equal_keys_give_weights(rng):
    tasks, weights = graph.extract_tasks(twins(rng), TARGET)
    assert sorted(weights) == [1.0, 2.0]  # one weight is no constant: another layout, another key
    (heavy,) = [t for t, w in zip(tasks, weights, strict=True) if w == 2.0]
    assert "layout_free" in dict(heavy.prim_func.attrs)


def test_a_loop_counts_its_iterations(rng):
    _, weights = graph.extract_tasks(graph.from_onnx(loop_net(7)), TARGET)
    assert max(weights) == 7.0


def test_inputs_made_constants_change_the_keys(rng):
    x, w = graph.var("x", (4, 32)), graph.var("w", (16, 32))
    mod = graph.module(main=graph.function([x, w], nn.dense(x, w)))
    given = {"w": np.ones((16, 32), "f4")}
    ((free,), _), ((fixed,), _) = (graph.extract_tasks(mod, TARGET, p) for p in (None, given))
    assert free.workload_key != fixed.workload_key
    assert graph.build(mod, TARGET, params=given).kernels[0].workload_key == fixed.workload_key


def test_a_module_without_main_is_refused():
    x = graph.var("x", (2,))
    with pytest.raises(WorkloadError, match="has no graph function main"):
        graph.extract_tasks(graph.module(other=graph.function([x], op.relu(x))), TARGET)
