"""Operators and forms of models that few exporters write, and what of them is refused."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from graph_models import info, microsoft, model, run
from onnx import TensorProto, helper
from onnx.helper import make_node

from autosched import graph
from autosched.graph.onnx_import import OpenModel


def test_max_roi_pool_has_the_bins_of_onnxruntime():
    """Boxes whose ends are halves, outside, or in the wrong order."""
    x = (np.arange(20, dtype="f4") * 7 % 20).reshape(1, 1, 4, 5)
    ends = [[0, 0, 4, 3], [1.5, 0.5, 3, 2], [-3, -2, 1, 1], [3, 3, 2, 2], [2, 2, 40, 40]]
    rois = np.array([[0, *e] for e in ends], "f4")
    nodes = [make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 2], spatial_scale=0.75)]
    proto = model(nodes, [info("x", [1, 1, 4, 5]), info("r", [5, 5])], [info("y", [5, 1, 2, 2])])
    (y,) = run(proto, x, rois)
    want = [[15, 16, 17, 16], [7, 14, 17, 9], [0, 0, 0, 15], [4, 4, 4, 4], [19, 0, 0, 0]]
    np.testing.assert_array_equal(y.reshape(5, 4), want)
    np.testing.assert_array_equal(graph.build(graph.from_onnx(proto))(x, rois)[0], y)


def test_inverse_of_matrices(rng):
    x = rng.standard_normal((2, 3, 3)).astype("f4")
    (y,) = microsoft("Inverse", [x])
    np.testing.assert_allclose(y @ x, np.broadcast_to(np.eye(3), x.shape), atol=1e-5)
    with pytest.raises(graph.Unsupported, match="Inverse: Singular matrix"):
        microsoft("Inverse", [np.ones((2, 2), "f4")])


def test_a_text_that_nothing_reads_is_no_input():
    text = helper.make_tensor_value_info("t", TensorProto.STRING, ["n"])
    proto = model([make_node("Relu", ["x"], ["y"])], [info("x", [2]), text], [info("y", [2])])
    (y,) = run(proto, np.array([-1, 1], "f4"))
    np.testing.assert_array_equal(y, [0, 1])
    assert len(graph.from_skeleton(graph.skeleton(proto))["main"].params) == 1
    node = make_node("StringNormalizer", ["t"], ["z"])
    proto.graph.node.append(node)
    with pytest.raises(graph.Unsupported, match="'t' has the element type string"):
        graph.from_onnx(proto, shapes={"t": (1,)})


@pytest.mark.parametrize("shape", [[0, -1], [0, 3, -1]])
def test_minus_one_beside_a_size_of_0_is_no_number(shape):
    nodes = [make_node("Reshape", ["x", "s"], ["y"])]
    proto = model(nodes, [info("x", [0, 3])], [info("y", [0])], {"s": np.array(shape)})
    with pytest.raises(graph.Unsupported, match="-1 stands beside a size of 0"):
        graph.from_onnx(proto)


def test_windows_over_four_axes_are_refused():
    for name in ("Conv", "ConvTranspose"):
        w = {"w": np.ones((2, 2, 1, 1, 1, 1), "f4")}
        proto = model([make_node(name, ["x", "w"], ["y"])], [info("x", [1, 2, 2, 2, 2, 2])],
                      [info("y", [1, 2, 2, 2, 2, 2])], w)  # fmt: skip
        with pytest.raises(graph.Unsupported, match="over 4 spatial axes; 1 to 3"):
            graph.from_onnx(proto)


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
@pytest.mark.parametrize("zero", [None, 3])
@pytest.mark.parametrize("block", [0, 2])
def test_quantised_to_four_bits_saturates_there(kind, zero, block, rng):
    """The type is that of the zero point, or the attribute; values are stored as bytes."""
    x = (rng.standard_normal((4, 6)) * 8).astype("f4")
    number, shape = getattr(TensorProto, kind), [4, 3] if block else []
    scale = rng.uniform(0.1, 0.4, shape).astype("f4")
    attrs = {"axis": 1, "block_size": block} if block else {}
    typed = {} if zero else {"output_dtype": number}
    nodes = [make_node("QuantizeLinear", ["x", "s"], ["q"], **attrs, **typed),
             make_node("DequantizeLinear", ["q", "s"], ["y"], **attrs)]  # fmt: skip
    proto = model(nodes, [info("x", [4, 6])], [info("y", [4, 6])], {"s": scale}, opset=21)
    if zero:
        made = helper.make_tensor("z", number, shape, [zero] * int(np.prod(shape)))
        proto.graph.initializer.append(made)
        for node in proto.graph.node:
            node.input.append("z")
    low, high = (-8, 7) if kind == "INT4" else (0, 15)
    each = np.repeat(scale, 2, axis=1) if block else scale
    want = (np.clip(np.round(x / each) + (zero or 0), low, high) - (zero or 0)) * each
    np.testing.assert_allclose(run(proto, x)[0], want, rtol=1e-6)
    np.testing.assert_allclose(graph.build(graph.from_onnx(proto))(x)[0], want, rtol=1e-6)


def test_constants_of_four_bits_go_with_their_modules(rng):
    """A model for the sizes of each call is read many times."""
    values = rng.integers(-8, 8, 600).tolist()
    weight = helper.make_tensor("", TensorProto.INT4, [6, 100], values)
    nodes = [make_node("Constant", [], ["w"], value=weight),
             make_node("DequantizeLinear", ["w", "s"], ["v"]),
             make_node("MatMul", ["x", "v"], ["y"])]  # fmt: skip
    scale = np.asarray(0.1, "f4")
    proto = model(nodes, [info("x", ["n", 6])], [info("y", ["n", 100])], {"s": scale}, opset=21)
    opened = OpenModel(proto)
    read = [graph.constants(opened.module({"x": [n, 6]})) for n in (1, 2, 3)]
    shapes = {weakref.ref(c): c.type.shape for one in read for c in one}
    assert sorted(shapes.values()) == [(), (6, 100), (6, 100), (6, 100)]
    read.clear()
    gc.collect()
    assert [shape for c, shape in shapes.items() if c() is not None] == [()]  # the initializer


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_negative_pads_cut_before_others_are_put_around(rng, mode: str) -> None:
    x = rng.standard_normal((5, 4)).astype("f4")
    for low, high in (((-1, 2), (3, -1)), ((2, -2), (-2, 1)), ((-1, -1), (-2, 2))):
        nodes = [make_node("Pad", ["x", "p"], ["y"], mode=mode)]
        pads = np.array([*low, *high])
        (y,) = run(model(nodes, [info("x", x.shape)], [info("y", None)], {"p": pads}), x)
        ends = list(zip(low, high, strict=True))
        kept = [slice(max(-a, 0), min(b, 0) or None) for a, b in ends]
        around = [(max(a, 0), max(b, 0)) for a, b in ends]
        np.testing.assert_array_equal(y, np.pad(x[tuple(kept)], around, mode=mode))
