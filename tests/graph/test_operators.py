"""Operators beside onnx's own evaluator: compiled, and evaluated."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import node_model, reference

from autosched import graph
from autosched.graph.infer import inference
from autosched.graph.ir import Binding

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype("f4")


def ints(*values):
    return np.array(values, "i8")


CASES = {
    "add broadcast": ("Add", [floats(2, 3, 4), floats(3, 1)], {}),
    "div ints": ("Div", [ints(7, -7, 8, -9), ints(2, 2, -3, -3)], {}),
    "pow": ("Pow", [np.abs(floats(3, 4)), floats(4)], {}),
    "clip": ("Clip", [floats(3, 4), np.float32(-0.5), np.float32(0.5)], {}),
    "where": ("Where", [floats(2, 3) > 0, floats(2, 3), floats(3)], {}),
    "max of three": ("Max", [floats(2, 3), floats(3), floats(2, 1)], {}),
    "leaky relu": ("LeakyRelu", [floats(3, 4)], {"alpha": 0.2}),
    "hard sigmoid": ("HardSigmoid", [floats(3, 4) * 4], {"alpha": 0.3}),
    "cast": ("Cast", [floats(3, 4) * 5], {"to": 7}),
    "reduce mean": ("ReduceMean", [floats(2, 3, 4)], {"axes": [0, 2]}),
    "reduce sum": ("ReduceSum", [floats(2, 3, 4), ints(1)], {"keepdims": 0}),
    "reduce log sum exp": ("ReduceLogSumExp", [floats(2, 3, 4)], {"axes": [1], "keepdims": 0}),
    "arg max": ("ArgMax", [floats(2, 5, 3)], {"axis": 1, "keepdims": 0}),
    "cumulative sum": ("CumSum", [floats(2, 5), np.int64(1)], {"reverse": 1}),
    "softmax": ("Softmax", [floats(2, 5, 3)], {"axis": 1}),
    "layer norm": ("LayerNormalization", [floats(2, 3, 8), floats(8), floats(8)], {}),
    "instance norm": ("InstanceNormalization", [floats(2, 3, 4, 4), floats(3), floats(3)], {}),
    "conv stride": ("Conv", [floats(1, 4, 9, 8), floats(6, 4, 3, 3), floats(6)],
                    {"strides": [2, 1], "pads": [1, 0, 1, 2]}),
    "conv groups": ("Conv", [floats(2, 4, 7, 7), floats(8, 1, 3, 3)],
                    {"group": 4, "dilations": [2, 2], "auto_pad": "SAME_UPPER"}),
    "conv 1d": ("Conv", [floats(1, 3, 12), floats(5, 3, 4)], {"strides": [3]}),
    "conv transpose": ("ConvTranspose", [floats(1, 3, 4, 5), floats(3, 4, 3, 3), floats(4)],
                       {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 0]}),
    "max pool": ("MaxPool", [floats(1, 3, 9, 9)],
                 {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "average pool": ("AveragePool", [floats(1, 3, 8, 8)],
                     {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "matmul batch": ("MatMul", [floats(2, 1, 3, 4), floats(5, 4, 6)], {}),
    "matmul vector": ("MatMul", [floats(4), floats(3, 4, 5)], {}),
    "gemm": ("Gemm", [floats(4, 3), floats(5, 4), floats(5)],
             {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    "reshape": ("Reshape", [floats(2, 3, 4), ints(0, -1, 2)], {}),
    "transpose": ("Transpose", [floats(2, 3, 4)], {"perm": [2, 0, 1]}),
    "slice": ("Slice", [floats(5, 6), ints(4, -5), ints(-10, 6), ints(0, 1), ints(-2, 2)], {}),
    "split": ("Split", [floats(2, 7), ints(3, 4)], {"axis": 1}),
    "expand": ("Expand", [floats(3, 1), ints(2, 1, 4)], {}),
    "tile": ("Tile", [floats(2, 3), ints(2, 2)], {}),
    "concat": ("Concat", [floats(2, 3), floats(2, 1), floats(2, 2)], {"axis": -1}),
    "gather": ("Gather", [floats(5, 3), np.array([[0, -1], [2, 4]], "i8")], {}),
    "gather elements": ("GatherElements", [floats(2, 4), np.array([[0, -1], [2, 1]], "i8")],
                        {"axis": 1}),
    "gather nd": ("GatherND", [floats(3, 4, 2), np.array([[0, 1], [2, 3]], "i8")], {}),
    "pad reflect": ("Pad", [floats(3, 5), ints(1, 2, 0, 1)], {"mode": "reflect"}),
    "pad constant": ("Pad", [floats(3, 5), ints(1, 2, 0, 1), np.float32(2.5)], {}),
    "resize nearest": ("Resize", [floats(1, 2, 4, 5), None, np.array([1, 1, 2, 3], "f4")],
                       {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    "resize linear": ("Resize", [floats(1, 2, 4, 5), None, None, ints(1, 2, 7, 8)],
                      {"mode": "linear"}),
    "depth to space": ("DepthToSpace", [floats(1, 8, 3, 2)], {"blocksize": 2, "mode": "CRD"}),
    "trilu": ("Trilu", [floats(4, 5)], {"upper": 0}),
    "quantize": ("QuantizeLinear", [floats(3, 4) * 50, np.float32(0.5), np.uint8(100)], {}),
    "dequantize": ("DequantizeLinear", [RNG.integers(-128, 128, (3, 4)).astype("i1"),
                                        np.array([0.5, 2, 1], "f4"), np.array([1, 2, 3], "i1")],
                   {"axis": 0}),
    "lstm": ("LSTM", [floats(4, 2, 3), floats(2, 20, 3), floats(2, 20, 5), floats(2, 40)],
             {"hidden_size": 5, "direction": "bidirectional"}),
    "gru": ("GRU", [floats(4, 2, 3), floats(1, 15, 3), floats(1, 15, 5), floats(1, 30), None,
                    floats(1, 2, 5)], {"hidden_size": 5}),
    "gru linear before reset": ("GRU", [floats(4, 2, 3), floats(1, 15, 3), floats(1, 15, 5),
                                        floats(1, 30)],
                                {"hidden_size": 5, "linear_before_reset": 1}),
}  # fmt: skip
OUTPUTS = {"split": 2, "lstm": 3, "gru": 2, "gru linear before reset": 2}
STATIC = {"Reshape", "Slice", "Split", "Expand", "Tile", "Pad", "Resize", "CumSum", "ReduceSum"}


@pytest.mark.parametrize("case", sorted(CASES))
def test_operator(case: str) -> None:
    name, inputs, attrs = CASES[case]
    opset = 21 if case == "dequantize" else 17
    proto, arrays = node_model(name, inputs, OUTPUTS.get(case, 1), opset, **attrs)
    fixed = {}
    if name in STATIC:  # shapes are given as initializers, as exporters do
        from onnx import numpy_helper

        for info, a in list(zip(proto.graph.input, arrays, strict=True))[1:]:
            proto.graph.initializer.append(numpy_helper.from_array(a, info.name))
            fixed[info.name] = a
    given = [a for i, a in zip(proto.graph.input, arrays, strict=True) if i.name not in fixed]
    want = _reference(case, proto, arrays)
    mod = graph.from_onnx(proto)
    for got in (graph.build(mod)(*given), _several(graph.evaluate(mod, "main", *given))):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def _several(results):
    return results if isinstance(results, tuple) else (results,)


def _reference(case, proto, arrays):
    if case == "lstm":  # onnx's evaluator has one direction only
        return _lstm(*arrays)
    return reference(proto, *arrays)


def _lstm(x, w, r, b):
    """The bidirectional case, by NumPy; gates in the order i, o, f, c."""

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    ys, hs, cs = [], [], []
    for d in range(2):
        h, c, rows = np.zeros((2, 5)), np.zeros((2, 5)), []
        for step in x if d == 0 else x[::-1]:
            gates = step @ w[d].T + h @ r[d].T + b[d, :20] + b[d, 20:]
            i, o, f, g = np.split(gates, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            rows.append(h)
        ys.append(rows if d == 0 else rows[::-1])
        hs.append(h)
        cs.append(c)
    return [np.stack(ys, axis=1).astype("f4"), np.stack(hs).astype("f4"), np.stack(cs).astype("f4")]


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("add broadcast", "pointwise"),
        ("transpose", "view"),
        ("slice", "view"),
        ("reduce sum", "reduction"),
        ("matmul batch", "anchor"),
        ("conv stride", "anchor"),
        ("softmax", "anchor"),
        ("concat", "map"),
        ("gather", "map"),
        ("lstm", "anchor"),
    ],
)
def test_kinds_are_derived(case: str, kind: str) -> None:
    name, inputs, attrs = CASES[case]
    opset = 21 if case == "dequantize" else 17
    proto, arrays = node_model(name, inputs, OUTPUTS.get(case, 1), opset, **attrs)
    if name in STATIC:
        from onnx import numpy_helper

        for info, a in list(zip(proto.graph.input, arrays, strict=True))[1:]:
            proto.graph.initializer.append(numpy_helper.from_array(a, info.name))
    (b,) = graph.from_onnx(proto)["main"].body.bindings
    assert isinstance(b, Binding)
    assert inference(b.value, len(b.vars)).kind == kind
