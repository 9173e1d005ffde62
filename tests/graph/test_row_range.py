"""Bags of rows: a reduction over a range whose bounds are data, and loops over such."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from control_models import any_shape
from graph_models import info, model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autosched import graph
from autosched.graph import op


def reduced(found: np.ndarray, kind: str, keepdims: int) -> np.ndarray:
    """What NumPy computes of rows, with what there is of none."""
    keep = bool(keepdims)
    if kind == "max":
        return found.max(0, keepdims=keep, initial=-np.inf)
    total = found.sum(0, keepdims=keep)
    if kind == "sum":
        return total
    return total / len(found) if len(found) else np.full_like(total, np.nan)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_range_of_rows_is_reduced_as_numpy_does(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(7,), (5, 3), (4, 2, 9), (6, 64)]))
    kind, keepdims = data.draw(st.sampled_from(["sum", "mean", "max"])), data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.standard_normal(shape).astype(data.draw(st.sampled_from(["float32", "float64"])))
    rows = rng.integers(-shape[0], shape[0], 11) if data.draw(st.booleans()) else None
    arrays = [x, np.zeros(1, "int64"), np.zeros(1, "int32"), *([] if rows is None else [rows])]
    params = [graph.var(f"x{n}", a.shape, a.dtype.name) for n, a in enumerate(arrays)]
    made = op.autosched_reduce_row_range(*params, kind=kind, keepdims=int(keepdims))
    module = graph.module(main=graph.function(params, made))
    compiled = graph.build(module)
    assert compiled.host_operators == ()
    for _ in range(6):
        low, high = (data.draw(st.integers(-14, 14)) for _ in range(2))
        given_ = [x, np.array([low]), np.array([high], "int32"), *arrays[3:]]
        want = reduced((x if rows is None else x[rows])[low:high], kind, keepdims)
        np.testing.assert_allclose(compiled(*given_)[0], want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            graph.evaluate(module, "main", *given_), want, rtol=1e-5, atol=1e-6
        )


def bags_model(number: int, reduction: str, gathers: bool, asks: bool):
    """A loop over bags, as exporters write EmbeddingBag: rows of `w` from one offset to the next,
    `gathers`: those that `x` names, `asks`: a bag of none is 0."""
    range_ = "x" if gathers else "w"
    rows = [helper.make_node("Slice", [range_, "start", "end", "first"], ["found"])]
    if gathers:
        rows.append(helper.make_node("Gather", ["w", "found"], ["rows"]))
    given = "rows" if gathers else "found"
    axes = {"axes": [0]} if reduction != "ReduceSum" else {}
    inputs = [given, *(["first"] if reduction == "ReduceSum" else [])]
    last = helper.make_node(reduction, inputs, ["y"], keepdims=0, **axes)
    if asks:
        other = helper.make_graph([*rows, last], "other", [], [info("y", [6])])
        none = helper.make_graph(
            [helper.make_node("Identity", ["nothing"], ["z"])], "none", [], [info("z", [6])]
        )
        made = [
            helper.make_node("Equal", ["start", "end"], ["is_empty"]),
            helper.make_node("If", ["is_empty"], ["bag"], then_branch=none, else_branch=other),
        ]
    else:
        made = [*rows, helper.make_node("Identity", ["y"], ["bag"])]
        made.insert(-1, last)
    body = helper.make_graph(
        [
            helper.make_node("Add", ["n", "one"], ["next"]),
            helper.make_node("Reshape", ["n", "shape"], ["n1"]),
            helper.make_node("Reshape", ["next", "shape"], ["n2"]),
            helper.make_node("Gather", ["offsets", "n1"], ["start"]),
            helper.make_node("Gather", ["offsets", "n2"], ["end"]),
            *made,
            helper.make_node("Identity", ["true"], ["more"]),
        ],
        "body",
        [info("n", [], "int64"), info("go", [], "bool")],
        [info("more", [], "bool"), any_shape("bag")],
    )
    return model(
        [helper.make_node("Loop", ["count", "true"], ["bags"], body=body)],
        [info("x", [20], "int64"), info("offsets", [number + 1], "int64")],
        [any_shape("bags")],
        {
            "w": np.random.default_rng(0).standard_normal((20, 6)).astype("f4"),
            "count": np.int64(number),
            "first": np.array([0]),
            "one": np.int64(1),
            "shape": np.array([1]),
            "true": np.array(True),
            "nothing": np.zeros(6, "f4"),
        },
        opset=17,
    )


@pytest.mark.parametrize("reduction", ["ReduceSum", "ReduceMean", "ReduceMax"])
@pytest.mark.parametrize(("number", "gathers", "asks"), [
    (12, True, False), (3, True, False), (12, False, True), (3, False, True),
])  # fmt: skip
def test_loops_over_bags_are_kernels(number, reduction, gathers, asks, rng):
    proto = bags_model(number, reduction, gathers, asks)
    compiled = graph.build(graph.from_onnx(proto))
    assert set(compiled.host_operators) <= {"Loop"}
    w = np.random.default_rng(0).standard_normal((20, 6)).astype("f4")
    for _ in range(3):
        x = rng.integers(0, 20, 20)
        offsets = np.sort(rng.integers(0, 21, number + 1))
        if not asks and reduction == "ReduceMean":
            offsets = np.arange(number + 1)
        if asks:
            offsets[1] = offsets[0]
        table = w[x] if gathers else w
        kind = reduction[6:].lower()
        want = [reduced(table[a:b], kind, 0) for a, b in pairwise(offsets)]
        if asks:
            want = [
                np.zeros(6) if a == b else y
                for (a, b), y in zip(pairwise(offsets), want, strict=True)
            ]
        np.testing.assert_allclose(compiled(x, offsets)[0], want, rtol=1e-5, atol=1e-6)


def test_a_row_that_there_is_not_stops_the_loop(rng):
    compiled = graph.build(graph.from_onnx(bags_model(12, "ReduceSum", True, False)))
    x, offsets = rng.integers(0, 20, 20), np.arange(13)
    x[3] = 20
    with pytest.raises(graph.Unsupported, match="beyond the 20 elements"):
        compiled(x, offsets)
    x[3] = 19
    assert compiled(x, offsets)[0].shape == (12, 6)
