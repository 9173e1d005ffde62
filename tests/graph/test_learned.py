"""Operators of ai.onnx.ml against the reference evaluator of the package onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autosched import graph

STUMP: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.0, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
}  # fmt: skip
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def model(op: str, x: np.ndarray, outputs: int = 1, opset: int = 3, **attrs: Any) -> ModelProto:
    """A model of one operator."""
    names = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attrs)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    info = helper.make_tensor_value_info("x", kind, x.shape)
    made = helper.make_graph(
        [node], "g", [info], [helper.make_empty_tensor_value_info(n) for n in names]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(made, opset_imports=opsets)


def same(op: str, x: np.ndarray, outputs: int = 1, **attrs: Any) -> graph.CompiledModel:
    """Compare the evaluator and the compiled model with the reference."""
    proto = model(op, x, outputs, **attrs)
    mod, expected = graph.from_onnx(proto), ReferenceEvaluator(proto).run(None, {"x": x})
    compiled = graph.build(mod)
    evaluated = graph.evaluate(mod, "main", x)
    for found in (compiled(x), evaluated if isinstance(evaluated, tuple) else (evaluated,)):
        for got, want in zip(found, expected, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return compiled


def forest(
    rng: np.random.Generator, trees: int, depth: int, features: int, mode: str
) -> dict[str, list[Any]]:
    """Attributes of random trees, the numbers of whose nodes are not those of their rows."""
    out: dict[str, list[Any]] = {
        f"nodes_{n}": [] for n in ("treeids", "nodeids", "featureids", "values", "modes",
                                   "truenodeids", "falsenodeids")
    }  # fmt: skip

    def node(tree: int, number: int, left: int) -> None:
        leaf = left == 0 or (left < depth and rng.random() < 0.3)
        children = (0, 0) if leaf else (2 * number, 2 * number + 1)
        feature, value = int(rng.integers(features)), float(rng.integers(-2, 3))
        row = (tree, number, feature, value, "LEAF" if leaf else mode, *children)
        for values, value in zip(out.values(), row, strict=True):
            values.append(value)
        for child in children if not leaf else ():
            node(tree, child, left - 1)

    for tree in range(trees):
        node(tree, 1, depth)
    return out


def leaves(trees: dict[str, list[Any]], kind: str, ids: list[int], weights: Any) -> dict[str, Any]:
    """What the leaves add to each of `ids`."""
    rows = [n for n, m in enumerate(trees["nodes_modes"]) if m == "LEAF" for _ in ids]
    return {
        f"{kind}_treeids": [trees["nodes_treeids"][n] for n in rows],
        f"{kind}_nodeids": [trees["nodes_nodeids"][n] for n in rows],
        f"{kind}_ids": [*ids] * (len(rows) // len(ids)),
        f"{kind}_weights": [float(w) for w in weights(len(rows))],
    }


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_regression_trees(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    trees = forest(rng, data.draw(st.integers(1, 4)), data.draw(st.integers(0, 4)), 3,
                   data.draw(st.sampled_from(MODES)))  # fmt: skip
    targets = data.draw(st.integers(1, 3))
    x = rng.integers(-2, 3, (data.draw(st.integers(1, 5)), 3)).astype("float32")
    attrs: dict[str, Any] = leaves(trees, "target", [*range(targets)], rng.standard_normal)
    if data.draw(st.booleans()):
        attrs["base_values"] = [float(v) for v in rng.standard_normal(targets)]
    how = data.draw(st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]))
    compiled = same("TreeEnsembleRegressor", x, n_targets=targets, aggregate_function=how,
                    **trees, **attrs)  # fmt: skip
    assert compiled.host_operators == ()


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("labels", [[0, 1, 2], [7, 3, 5]])
def test_classification_trees(labels: list[int], post: str, rng: np.random.Generator) -> None:
    trees = forest(rng, 3, 3, 4, "BRANCH_LEQ")
    weights = leaves(trees, "class", [0, 1, 2], rng.standard_normal)
    x = rng.standard_normal((6, 4)).astype("float32")
    same("TreeEnsembleClassifier", x, 2, classlabels_int64s=labels, post_transform=post,
         **trees, **weights)  # fmt: skip


TWO: list[tuple[str, int, list[float], list[int], list[list[float]]]] = [
    ("NONE", 0, [0.3, 0.9], [4, 8], [[0.7, 0.3], [0.1, 0.9]]),
    ("NONE", 1, [0.3, 0.9], [4, 8], [[0, 0.3], [0, 0.9]]),
    ("LOGISTIC", 0, [0.3, 0.9], [4, 8], [[0.4255575, 0.5744425], [0.2890505, 0.7109495]]),
    ("LOGISTIC", 1, [0.6, 0.2], [8, 4], [[0.5, 0.6456563], [0.5, 0.5498340]]),
    ("SOFTMAX", 0, [0.6, 0.2], [8, 4], [[0.4, 0.6], [0.8, 0.2]]),
    ("SOFTMAX", 1, [0.3, 0.9], [4, 8], [[0.4255575, 0.5744425], [0.2890505, 0.7109495]]),
    ("SOFTMAX_ZERO", 1, [-0.3, 0.9], [4, 8], [[0, 1], [0, 1]]),
    ("NONE", 0, [-0.3, 0.9], [4, 8], [[0.3, -0.3], [-0.9, 0.9]]),
    ("NONE", 1, [-0.6, 0.2], [4, 8], [[0, -0.6], [0, 0.2]]),
    ("LOGISTIC", 0, [-0.6, 0.2], [4, 8], [[0.6456563, 0.3543437], [0.4501660, 0.5498340]]),
    ("SOFTMAX", 0, [-0.3, 0.9], [4, 8], [[0.3, -0.3], [-0.9, 0.9]]),
]
"""What onnxruntime 1.32 computes where one of two classes has weights; the reference differs."""


@pytest.mark.parametrize(("post", "number", "weights", "labels", "scores"), TWO)
def test_trees_of_two_classes(
    post: str, number: int, weights: list[float], labels: list[int], scores: list[list[float]]
) -> None:
    x = np.array([[-1], [1]], "float32")
    ends = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [number] * 2}
    proto = model("TreeEnsembleClassifier", x, 2, classlabels_int64s=[4, 8], post_transform=post,
                  class_weights=weights, **STUMP, **ends)  # fmt: skip
    found = graph.evaluate(graph.from_onnx(proto), "main", x)
    assert found[0].tolist() == labels
    np.testing.assert_allclose(found[1], scores, rtol=1e-5)


@pytest.mark.parametrize(
    ("post", "scores"),
    [
        ("LOGISTIC", [[0.8175744, 0.1824256], [0.0758582, 0.9241418]]),
        ("NONE", [[2.5, -1.5], [-1.5, 2.5]]),
        ("SOFTMAX", [[2.5, -1.5], [-1.5, 2.5]]),
    ],
)
def test_two_classes_by_one_row_of_coefficients(post: str, scores: list[list[float]]) -> None:
    x = np.array([[-1], [1]], "float32")
    proto = model("LinearClassifier", x, 2, coefficients=[2.0], intercepts=[0.5],
                  classlabels_ints=[4, 8], post_transform=post)  # fmt: skip
    label, found = graph.evaluate(graph.from_onnx(proto), "main", x)
    assert label.tolist() == [4, 8]
    np.testing.assert_allclose(found, scores, rtol=1e-4)


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_GT", "BRANCH_NEQ"])
@pytest.mark.parametrize("tracks", [0, 1])
def test_missing_values_go_where_the_tree_says(mode: str, tracks: int) -> None:
    x = np.array([[np.nan], [-1]], "float32")
    ends = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0]}
    changed = {**STUMP, "nodes_modes": [mode, "LEAF", "LEAF"]}
    proto = model("TreeEnsembleRegressor", x, target_weights=[1.0, 2.0],
                  nodes_missing_value_tracks_true=[tracks, 0, 0], **changed, **ends)  # fmt: skip
    mod = graph.from_onnx(proto)
    want = 1 if tracks or mode == "BRANCH_NEQ" else 2
    for found in (graph.evaluate(mod, "main", x), graph.build(mod)(x)[0]):
        assert found[0].tolist() == [want]


NUMBERS = [0.5, -1.0, 2.0]
SINGLE: dict[str, tuple[str, int, dict[str, Any]]] = {
    "binarizer": ("Binarizer", 1, {"threshold": 0.25}),
    "imputer": ("Imputer", 1, {"imputed_value_floats": NUMBERS, "replaced_value_float": 0.0}),
    "scaler": ("Scaler", 1, {"offset": NUMBERS, "scale": NUMBERS}),
    "l1": ("Normalizer", 1, {"norm": "L1"}),
    "l2": ("Normalizer", 1, {"norm": "L2"}),
    "linear": ("LinearRegressor", 1, {"coefficients": NUMBERS * 2, "targets": 2,
                                      "intercepts": [1.0, 2.0]}),
    "logistic": ("LinearClassifier", 2, {"coefficients": [*NUMBERS, 1.0, 0.0, 3.0],
                                         "intercepts": [0.0, 1.0], "classlabels_ints": [5, 2],
                                         "post_transform": "SOFTMAX"}),
    **{
        f"support vectors, {kind}": ("SVMRegressor", 1, {
            "kernel_type": kind, "kernel_params": [0.5, 0.25, 2.0], "coefficients": [1.0, -2.0],
            "support_vectors": [*NUMBERS, 1.0, 0.0, 3.0], "rho": [0.5], "n_supports": 2})
        for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", SINGLE)
def test_steps_of_pipelines(case: str, rng: np.random.Generator) -> None:
    op, outputs, attrs = SINGLE[case]
    x = rng.standard_normal((4, 3)).astype("float32")
    x[1, 1] = 0
    same(op, x, outputs, **attrs)


def test_categories() -> None:
    x = np.array([[3], [1], [7], [3]])
    same("OneHotEncoder", x, cats_int64s=[1, 3, 4], zeros=1)
    same("LabelEncoder", x, keys_int64s=[1, 3], values_floats=[0.5, 2.0], default_float=-3.0)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_a_single_row_keeps_its_shape(norm: str) -> None:
    """As onnxruntime has it; the reference wants matrices."""
    x = np.array([3, 0, 1], "float32")
    (size,) = {"MAX": [3], "L1": [4], "L2": [np.sqrt(10)]}[norm]
    mod = graph.from_onnx(model("Normalizer", x, norm=norm))
    found = np.asarray(graph.evaluate(mod, "main", x))
    assert found.shape == (3,)
    np.testing.assert_allclose(found, x / size, rtol=1e-6)


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("kinds", [("int64", "float32"), ("float32", "int64")])
def test_keys_and_values_as_tensors(kinds: tuple[str, str], default: bool) -> None:
    x = np.array([[3, 1], [7, 3]], kinds[0])
    numbers = {
        "keys_tensor": np.array([1, 3], kinds[0]),
        "values_tensor": np.array([5, 2], kinds[1]),
    }
    if default:
        numbers["default_tensor"] = np.array([9], kinds[1])
    made = {k: numpy_helper.from_array(a, k) for k, a in numbers.items()}
    found = graph.evaluate(graph.from_onnx(model("LabelEncoder", x, opset=4, **made)), "main", x)
    lacking = 9 if default else -1 if kinds[1] == "int64" else 0
    assert np.asarray(found).dtype == kinds[1]
    assert np.asarray(found).tolist() == [[2, 5], [lacking, 2]]


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "text as labels": ("LinearClassifier", {"coefficients": [1.0], "classlabels_strings": ["a"]},
                       "labels are text; encode the labels as integers"),
    "text as a tensor": ("LabelEncoder", {
        "keys_floats": [1.0], "values_tensor": helper.make_tensor("v", 8, [1], [b"a"])},
        "keys or values are text"),
    "fewer values than keys": ("LabelEncoder", {"keys_floats": [1.0, 2.0], "values_int64s": [1]},
                               "2 keys and 1 values"),
    "a transform of two classes": ("LinearClassifier", {
        "coefficients": [1.0], "intercepts": [0.0], "classlabels_ints": [0, 1],
        "post_transform": "PROBIT"}, "post_transform PROBIT is not supported"),
    "maps": ("ZipMap", {"classlabels_int64s": [0, 1]}, "export with the option zipmap=False"),
    "another operator": ("SVMClassifier", {}, "the file has no function for it"),
    "what is no operator of ONNX": ("TreeLeaves", {}, "the file has no function for it"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    op, attrs, message = REFUSED[case]
    proto = model(op, np.ones((2, 1), "float32"), **attrs)
    with pytest.raises(graph.Unsupported, match=message):
        graph.from_onnx(proto)


def test_functions_of_the_file_come_first() -> None:
    proto = model("Scaler", np.ones((2, 1), "float32"))
    body = [helper.make_node("Neg", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("ai.onnx.ml", "Scaler", ["a"], ["b"], body, opsets))
    found = graph.evaluate(graph.from_onnx(proto), "main", np.ones((2, 1), "float32"))
    assert np.asarray(found).tolist() == [[-1], [-1]]


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a cycle": ({"nodes_truenodeids": [1, 1, 0]}, "cycle"),
    "no such node": ({"nodes_truenodeids": [9, 0, 0]}, "a node is not there"),
    "no such feature": ({"nodes_featureids": [5, 0, 0]}, "feature 5 of 2"),
    "a negative feature": ({"nodes_featureids": [-3, 0, 0]}, "feature -3 of 2"),
    "two nodes of one number": (
        {"nodes_nodeids": [0, 1, 1], "nodes_falsenodeids": [1, 0, 0]},
        "two nodes of one number",
    ),
    "a node beside the tree": ({"nodes_falsenodeids": [1, 0, 0]}, "one root a tree"),
    "a tree that is a cycle": (
        {
            "nodes_treeids": [0, 1, 1],
            "nodes_truenodeids": [0, 2, 1],
            "nodes_falsenodeids": [0, 2, 1],
            "nodes_modes": ["LEAF", "BRANCH_LEQ", "BRANCH_LEQ"],
            "target_nodeids": [0, 0],
        },
        "one root a tree",
    ),
    "other lengths": ({"nodes_values": [0.0]}, "lists of one length"),
    "unknown comparison": ({"nodes_modes": ["LIKE", "LEAF", "LEAF"]}, "nodes_modes is"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_trees_that_are_none(case: str) -> None:
    ends = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0]}
    attrs = {**STUMP, **ends, "target_weights": [1.0, 2.0]}
    changed, message = BROKEN[case]
    if case == "a cycle":
        changed = {**changed, "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
                   "nodes_falsenodeids": [2, 2, 0]}  # fmt: skip
    proto = model("TreeEnsembleRegressor", np.ones((2, 2), "float32"), **{**attrs, **changed})
    with pytest.raises(graph.Unsupported, match=message):
        graph.from_onnx(proto)
