"""What exporters, quantisers and old opsets write: each form compiled once and compared."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from graph_models import DOMAINS, info, microsoft, model, node_model, run
from onnx import TensorProto, helper
from onnx.helper import make_node

from autosched import graph, te
from autosched.graph import op
from autosched.graph.ops.resize import _axis, _index, _nearest
from autosched.tir import dtypes
from autosched.tir.whole import reference


def test_nodes_in_any_order_are_put_in_order(rng):
    """onnxruntime's float16 converter puts its casts at the end."""
    nodes = [
        make_node("Relu", ["b"], ["y"]),
        make_node("If", ["c"], ["b"],
                  then_branch=helper.make_graph([make_node("Neg", ["a"], ["t"])], "t", [],
                                                [info("t", [2, 3])]),
                  else_branch=helper.make_graph([make_node("Abs", ["a"], ["e"])], "e", [],
                                                [info("e", [2, 3])])),
        make_node("Add", ["x", "x"], ["a"]),
    ]  # fmt: skip
    proto = model(nodes, [info("x", [2, 3]), info("c", [], "bool")], [info("y", [2, 3])])
    x = rng.standard_normal((2, 3)).astype("f4")
    for c in (True, False):
        (y,) = run(proto, x, np.array(c))
        np.testing.assert_array_equal(y, np.maximum(-2 * x if c else np.abs(2 * x), 0))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_before_opset_13_takes_the_axes_from_axis_on_as_one(op, axis, rng):
    proto, inputs = node_model(op, [rng.standard_normal((2, 3, 4)).astype("f4")], 1, 11, axis=axis)
    x = inputs[0].reshape(int(np.prod((2, 3, 4)[: axis % 3])), -1)
    (found,) = run(proto, *inputs)
    e = np.exp(x - x.max(1, keepdims=True))
    want = {"Softmax": e / e.sum(1, keepdims=True),
            "LogSoftmax": np.log(e / e.sum(1, keepdims=True)),
            "Hardmax": (x == x.max(1, keepdims=True)).astype("f4")}[op]  # fmt: skip
    np.testing.assert_allclose(found, want.reshape(2, 3, 4), rtol=1e-5, atol=1e-6)


def test_attributes_of_the_first_opsets(rng):
    x = rng.standard_normal((1, 2, 3, 4)).astype("f4")
    proto, _ = node_model("TopK", [x], 2, 9, k=2, axis=3)
    values, places = run(proto, x)
    np.testing.assert_array_equal(values, -np.sort(-x, -1)[..., :2])
    np.testing.assert_array_equal(places, np.argsort(-x, -1, kind="stable")[..., :2])
    proto, _ = node_model("Cast", [x], 1, 1, to="INT32")
    assert run(proto, x)[0].dtype == "int32"
    proto, _ = node_model("Upsample", [x], 1, 1, height_scale=2.0, width_scale=1.0)
    np.testing.assert_array_equal(run(proto, x)[0], np.repeat(x, 2, 2))


@pytest.mark.parametrize(
    ("old", "new"), [(28, 42), (7, 5), (10, 3), (13, 1), (3, 200), (41, 40), (640, 427)]
)
@pytest.mark.parametrize("mode", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_nearest_indices_are_quotients(old, new, mode):
    for transform in ("half_pixel", "asymmetric", "align_corners"):
        axis = _axis(old, new, new / old, transform, (0.0, 1.0))
        want = [min(max(_nearest(axis.place(i), mode), 0), old - 1) for i in range(new)]
        at = _index(axis, mode)
        func = te.create_prim_func([te.compute((new,), at, name="at")])
        out = np.empty(new, func.params[0].dtype)
        reference(func, [out])
        assert out.tolist() == want


def test_transforms_of_a_signal_without_a_last_axis(rng):
    signal = rng.standard_normal((2, 40)).astype("f4")
    step, window = np.array(8), np.hanning(16).astype("f4")
    (flat,) = run(node_model("STFT", [signal, step, window], 1)[0], signal, step, window)
    deep = signal[..., None]
    (same,) = run(node_model("STFT", [deep, step, window], 1)[0], deep, step, window)
    np.testing.assert_array_equal(flat, same)


def test_a_loop_whose_state_grows(rng):
    body = helper.make_graph(
        [make_node("Identity", ["go"], ["more"]),
         make_node("Concat", ["s", "x"], ["longer"], axis=0)],
        "body",
        [info("i", [], "int64"), info("go", [], "bool"), info("s", [1, 3])],
        [info("more", [], "bool"), info("longer", [None, 3])],
    )  # fmt: skip
    nodes = [make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    proto = model(nodes, [info("x", [1, 3])], [info("y", [4, 3])], {"n": np.array(3)})
    x = rng.standard_normal((1, 3)).astype("f4")
    np.testing.assert_array_equal(graph.build(graph.from_onnx(proto))(x)[0], np.repeat(x, 4, 0))


def test_groups_that_are_a_part_of_a_vector(rng):
    """RegNet's: tiles of 5 groups of 8 channels have two and a half vectors."""
    x = rng.standard_normal((1, 40, 4, 4)).astype("f4")
    w = rng.standard_normal((40, 8, 3, 3)).astype("f4")
    nodes = [make_node("Conv", ["x", "w"], ["c"], group=5, strides=[2, 2], pads=[1, 1, 1, 1]),
             make_node("Relu", ["c"], ["y"])]  # fmt: skip
    proto = model(nodes, [info("x", x.shape)], [info("y", None)], {"w": w})
    mod = graph.from_onnx(proto)
    want = graph.evaluate(mod, "main", x)
    np.testing.assert_allclose(graph.build(mod)(x)[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("groups", "each"), [(2, 60), (4, 28), (5, 6), (5, 12), (3, 37)])
def test_groups_that_end_within_a_tile(groups, each, rng):
    """ShuffleNet's: tiles of 28 channels a group were 32 wide, where the next group begins."""
    shapes = {"w1": (3 * groups, 4, 1, 1), "w2": (each * groups, 3, 1, 1),
              "b2": (each * groups,), "w3": (4, each * groups, 1, 1)}  # fmt: skip
    weights = {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}
    nodes = [make_node("Conv", ["x", "w1"], ["a"]),
             make_node("Conv", ["a", "w2", "b2"], ["b"], group=groups),
             make_node("Relu", ["b"], ["c"]),
             make_node("Conv", ["c", "w3"], ["y"])]  # fmt: skip
    x = rng.standard_normal((1, 4, 6, 6)).astype("f4")
    mod = graph.from_onnx(model(nodes, [info("x", x.shape)], [info("y", None)], weights))
    want = graph.evaluate(mod, "main", x)
    np.testing.assert_allclose(graph.build(mod)(x)[0], want, rtol=1e-4, atol=1e-3)


def test_a_scale_after_a_concatenation_of_four(rng):
    """DenseNet's: what the scale would go into is no convolution."""
    x = rng.standard_normal((1, 2, 3, 3)).astype("f4")
    by = rng.standard_normal((1, 8, 1, 1)).astype("f4")
    nodes = [make_node("Concat", ["x"] * 4, ["c"], axis=1), make_node("Mul", ["c", "by"], ["y"])]
    proto = model(nodes, [info("x", x.shape)], [info("y", None)], {"by": by})
    (y,) = graph.build(graph.from_onnx(proto))(x)
    np.testing.assert_allclose(y, np.concatenate([x] * 4, 1) * by, rtol=1e-6)


# Operators of onnxruntime


@pytest.mark.parametrize(("channels", "groups"), [(12, 3), (8, 4), (6, 1)])
@pytest.mark.parametrize("spatial", [(5,), (4, 3)])
def test_group_normalisation_as_exporters_write_it(channels, groups, spatial, rng):
    """Instance normalisation between two reshapes is one kernel, channels last behind a
    convolution."""
    shape = (2, channels, *spatial)
    weight = rng.standard_normal((channels, channels, *[1] * len(spatial))).astype("f4")
    scale, offset = rng.standard_normal((2, groups)).astype("f4")
    proto = model(
        [make_node("Conv", ["x", "w"], ["c"]), make_node("Reshape", ["c", "to"], ["g"]),
         make_node("InstanceNormalization", ["g", "s", "b"], ["n"], epsilon=1e-3),
         make_node("Reshape", ["n", "back"], ["y"])],
        [info("x", shape)], [info("y", shape)],
        {"w": weight, "s": scale, "b": offset, "to": np.array([0, groups, -1]),
         "back": np.array(shape)},
    )  # fmt: skip
    x = rng.standard_normal(shape).astype("f4")
    made = graph.build(graph.from_onnx(proto))
    assert [k.name for k in made.kernels] == ["conv", "group_normalization"]
    c = np.einsum("oi,ni...->no...", weight.reshape(channels, channels), x)
    g = c.reshape(2, groups, -1).astype("f8")
    n = (g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-3)
    want = (n * scale[:, None] + offset[:, None]).reshape(shape)
    np.testing.assert_allclose(made(x)[0], want, rtol=1e-4, atol=1e-4)


S, Z = np.float32(0.1), np.uint8(7)
Q = np.arange(0, 240, 10, dtype=np.uint8).reshape(2, 3, 2, 2)
F = (Q.astype("f4") - 7) * S


def quantised(x, scale=S, zero=Z):
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype("u1")


def test_quantised_operators_of_onnxruntime():
    pair = (S, Z, Q[:1], S, Z, np.float32(0.3), Z)
    near = {"QLinearAdd": F + F[:1], "QLinearMul": F * F[:1]}
    for name, want in near.items():
        (found,) = microsoft(name, [Q, *pair])
        np.testing.assert_array_equal(found, quantised(want, np.float32(0.3)))
    one = {
        "QLinearSigmoid": 1 / (1 + np.exp(-F)),
        "QLinearGlobalAveragePool": F.mean((2, 3), keepdims=True),
        "QLinearLeakyRelu": np.where(F < 0, F * np.float32(0.2), F),
    }
    for name, want in one.items():
        attrs = {"alpha": 0.2} if name == "QLinearLeakyRelu" else {}
        (found,) = microsoft(name, [Q, S, Z, S, Z], **attrs)
        np.testing.assert_allclose(found.astype(int), quantised(want).astype(int), atol=1)
    (found,) = microsoft("QLinearAveragePool", [Q, S, Z, S, Z], kernel_shape=[2, 2])
    np.testing.assert_allclose(
        found.astype(int), quantised(F.mean((2, 3), keepdims=True)).astype(int), atol=1
    )
    zero, scale = np.array(Z), np.array(S)
    node = make_node("QLinearConcat", ["s", "z", "x", "s", "z", "x", "s", "z"], ["y"],
                     domain="com.microsoft", axis=1)  # fmt: skip
    proto = model([node], [helper.make_tensor_value_info("x", TensorProto.UINT8, Q.shape)],
                  [helper.make_tensor_value_info("y", TensorProto.UINT8, (2, 6, 2, 2))],
                  {"s": scale, "z": zero})  # fmt: skip
    proto.opset_import.append(DOMAINS[1])
    np.testing.assert_array_equal(run(proto, Q)[0], np.concatenate([Q, Q], 1))


def test_products_of_onnxruntime(rng):
    a, b = rng.standard_normal((2, 3, 4)).astype("f4"), rng.standard_normal((2, 5, 4)).astype("f4")
    (found,) = microsoft("FusedMatMul", [a, b], transB=1, alpha=0.5)
    np.testing.assert_allclose(found, a @ b.swapaxes(1, 2) / 2, rtol=1e-5, atol=1e-6)
    c = rng.standard_normal((3, 2, 4)).astype("f4")  # rows first
    (found,) = microsoft("FusedMatMul", [c, b], transBatchA=1, transB=1)
    want = c.swapaxes(0, 1) @ b.swapaxes(1, 2)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    w = rng.integers(0, 255, (5, 4)).astype("u1")
    scales, zeros = np.linspace(0.01, 0.02, 5).astype("f4"), np.full(5, 9, "u1")
    x = rng.integers(0, 255, (3, 4)).astype("u1")
    bias = rng.integers(-900, 900, 5).astype("i4")
    (found,) = microsoft(
        "QGemm", [x, S, Z, w, scales, zeros, bias, np.float32(1), Z], transB=1, alpha=1.0
    )
    real = (x.astype("f4") - 7) * S @ ((w - 9.0) * scales[:, None]).T + bias * S * scales
    np.testing.assert_allclose(found.astype(int), quantised(real, 1).astype(int), atol=1)
    image = rng.standard_normal((1, 2, 4, 4)).astype("f4")
    kernel = rng.standard_normal((3, 2, 1, 1)).astype("f4")
    (found,) = microsoft(
        "FusedConv", [image, kernel], activation="Clip", activation_params=[0.0, 1.0]
    )
    want = np.clip(np.einsum("nchw,mc->nmhw", image, kernel[..., 0, 0]), 0, 1)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_layers_of_onnxruntime(rng):
    x, skip = rng.standard_normal((2, 2, 3, 8)).astype("f4")
    gamma, beta, bias = rng.standard_normal((3, 8)).astype("f4")
    for given in ([x, skip, gamma, beta, bias], [x, skip, gamma, beta]):
        total = x + skip + (bias if len(given) == 5 else 0)
        (found,) = microsoft("SkipLayerNormalization", given, epsilon=1e-5)
        mean, var = total.mean(-1, keepdims=True), total.var(-1, keepdims=True)
        want = (total - mean) / np.sqrt(var + 1e-5) * gamma + beta
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    (found,) = microsoft("QuickGelu", [x])
    np.testing.assert_allclose(found, x / (1 + np.exp(-1.702 * x)), rtol=1e-4, atol=1e-6)
    (a,), (b,) = microsoft("FastGelu", [x, bias]), microsoft("FastGelu", [x + bias])
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    with pytest.raises(graph.Unsupported, match=r"node 0 \(com\.microsoft\.Attention\)"):
        microsoft("Attention", [x, gamma])
    with pytest.raises(graph.Unsupported, match="attribute past_present is not supported"):
        microsoft("QuickGelu", [x], past_present=1)


@pytest.mark.parametrize("shape", [(1,), (2,), (2, 12)], ids=str)
def test_quantised_lstm_of_onnxruntime(shape, rng):
    """Scales of all weights, of a direction's or of a gate's; zero points may be left out."""
    directions, hidden, width = shape[0], 3, 5
    x = rng.standard_normal((4, 2, width)).astype("f4")
    w = rng.integers(-99, 99, (directions, width, 4 * hidden)).astype("i1")
    r = rng.integers(-99, 99, (directions, hidden, 4 * hidden)).astype("i1")
    scales = rng.uniform(0.01, 0.02, (2, *shape)).astype("f4")
    spread = [s.reshape(*shape, *[1] * (3 - s.ndim)) for s in scales]
    meant = [q.swapaxes(1, 2) * s for q, s in zip((w, r), spread, strict=True)]
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if directions > 1 else "forward"}
    node = make_node("LSTM", ["x", "w", "r"], ["y"], **attrs)
    proto = model([node], [info("x", x.shape)], [info("y", (4, directions, 2, hidden))],
                  {"w": meant[0], "r": meant[1]})  # fmt: skip
    (want,) = run(proto, x)
    for zero in (np.zeros(shape, "i1"), None):
        given = [x, w, r, *[None] * 5, scales[0], zero, scales[1], zero]
        (found,) = microsoft("DynamicQuantizeLSTM", given, **attrs)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_sixteen_bits_between_quantisation_and_back(rng):
    x = rng.standard_normal((3, 5)).astype("f4")
    weights = {"s": np.float32(1e-4), "z": np.uint16(40000)}
    nodes = [make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]  # fmt: skip
    outputs = [helper.make_tensor_value_info("q", TensorProto.UINT16, [3, 5]), info("y", [3, 5])]
    proto = model(nodes, [info("x", [3, 5])], outputs, weights, opset=21)
    q = np.clip(np.rint(x / weights["s"]) + 40000, 0, 65535)
    between, found = run(proto, x)
    assert between.dtype == np.uint16
    np.testing.assert_array_equal(between, q)
    np.testing.assert_allclose(found, (q - 40000) * weights["s"], rtol=1e-6)


def test_bfloat16_is_read_as_float32(rng):
    """Weights exactly, a Cast rounds, results are float32. Two products of a feed-forward layer."""
    bf16 = TensorProto.BFLOAT16

    def rounded(a):
        return dtypes.to_float32(dtypes.from_float32(a))

    w, v = (rounded(rng.standard_normal(s)) for s in ((6, 8), (8, 3)))
    nodes = [
        helper.make_node("Cast", ["x"], ["b"], to=bf16),
        helper.make_node("MatMul", ["b", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["p"]),
        helper.make_node("Add", ["p", "y"], ["o"]),
    ]
    weights = [helper.make_tensor(n, bf16, a.shape, a.ravel()) for n, a in (("w", w), ("v", v))]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6]),
        helper.make_tensor_value_info("y", bf16, [4, 3]),
        helper.make_tensor_value_info("o", bf16, [4, 3]),
    ]
    proto = helper.make_model(helper.make_graph(nodes, "g", infos[:2], infos[2:], weights))
    x, y = (rng.standard_normal(s).astype("f4") for s in ((4, 6), (4, 3)))
    want = np.maximum(rounded(x) @ w, 0) @ v + y
    mod = graph.from_onnx(proto)
    (got,) = graph.build(mod)(x, y)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(graph.evaluate(mod, "main", x, y), want, rtol=1e-5, atol=1e-5)
    half = y.astype(ml_dtypes.bfloat16)  # as other libraries hold such arrays
    np.testing.assert_allclose(
        graph.build(mod)(x, half)[0], graph.build(mod)(x, half.astype("f4"))[0]
    )
    bare = graph.from_skeleton(graph.skeleton(proto, {}))
    assert _keys(bare)
    assert _keys(bare) == _keys(mod)


def _keys(mod):
    return [t.workload_key for t in graph.extract_tasks(mod)[0]]


def test_positions_written_into_constants_are_constants(rng):
    """Two ScatterND into a table of positions, as of a relative attention, and the places of a
    mask: all that is computed of them is known, and no operator runs in NumPy."""
    weights = {
        "table": np.zeros((3, 3), "i8"),
        "row": np.array([[0]]),
        "ones": np.ones((1, 3), "i8"),
        "corner": np.array([[2, 1]]),
        "two": np.array([2]),
        "mask": np.array([True, False, True, True]),
    }
    nodes = [
        make_node("ScatterND", ["table", "row", "ones"], ["a"]),
        make_node("ScatterND", ["a", "corner", "two"], ["b"]),
        make_node("Gather", ["x", "b"], ["y"], axis=0),
        make_node("NonZero", ["mask"], ["n"]),
        make_node("Gather", ["x", "n"], ["z"], axis=0),
    ]
    proto = model(nodes, [info("x", [4])], [info("y", [3, 3]), info("z", None)], weights)
    built = graph.build(graph.from_onnx(proto))
    assert built.host_operators == ()
    x = rng.standard_normal(4).astype("f4")
    y, z = built(x)
    np.testing.assert_array_equal(y, x[[[1, 1, 1], [0, 0, 0], [0, 2, 0]]])
    np.testing.assert_array_equal(z, x[[[0, 2, 3]]])


def test_what_follows_rows_written_where_data_say_is_compiled(rng):
    """Images among the tokens of a text: how many rows are written is data, the result's shape is
    not, so that the layers behind are kernels."""
    weights = {"w": rng.standard_normal((4, 3)).astype("f4")}
    nodes = [
        make_node("NonZero", ["mask"], ["n"]),
        make_node("Transpose", ["n"], ["at"]),
        make_node("GatherND", ["image", "at"], ["rows"]),
        make_node("ScatterND", ["text", "at", "rows"], ["mixed"]),
        make_node("MatMul", ["mixed", "w"], ["y"]),
    ]
    inputs = [info("mask", [2, 5], "bool"), info("text", [2, 5, 4])]
    proto = model(nodes, [*inputs, info("image", [2, 5, 4])], [info("y", [2, 5, 3])], weights)
    built = graph.build(graph.from_onnx(proto))
    assert set(built.host_operators) == {"NonZero", "Transpose", "GatherND", "ScatterND"}
    text, image = (rng.standard_normal((2, 5, 4)).astype("f4") for _ in range(2))
    for mask in (rng.random((2, 5)) < 0.5, np.zeros((2, 5), bool)):
        (y,) = built(mask, text, image)
        mixed = np.where(mask[..., None], image, text)
        np.testing.assert_allclose(y, mixed @ weights["w"], rtol=1e-5, atol=1e-5)


def test_large_constants_are_not_written_while_a_file_is_read():
    many = 20_000
    weights = {"at": np.array([[1]]), "one": np.array([1.0], "f4"), "t": np.zeros(many, "f4")}
    nodes = [make_node("ScatterND", ["t", "at", "one"], ["y"])]
    proto = model(nodes, [info("x", [1])], [info("y", [many])], weights)
    (b,) = graph.from_onnx(proto)["main"].body.bindings
    assert b.value.callee == "ScatterND"


@pytest.mark.filterwarnings("error")
def test_a_product_over_zero_is_infinite(rng):
    """The quotient is not put into the weights: what is 0 there would be NaN."""
    w = np.array([[0, 1], [1, 1]], "f4")
    nodes = [make_node("MatMul", ["x", "w"], ["h"]), make_node("Div", ["h", "zero"], ["y"])]
    weights = {"w": w, "zero": np.zeros((), "f4")}
    proto = model(nodes, [info("x", [1, 2])], [info("y", [1, 2])], weights)
    (y,) = graph.build(graph.from_onnx(proto))(np.array([[1, 2]], "f4"))
    np.testing.assert_array_equal(y, np.full((1, 2), np.inf, "f4"))


def test_products_of_integers_are_divided_as_integers():
    nodes = [make_node("MatMul", ["x", "w"], ["h"]), make_node("Div", ["h", "two"], ["y"])]
    weights = {"w": np.array([[1, 3], [2, 5]]), "two": np.array(2)}
    proto = model(nodes, [info("x", [1, 2], "int64")], [info("y", [1, 2], "int64")], weights)
    (y,) = graph.build(graph.from_onnx(proto))(np.array([[1, 1]]))
    np.testing.assert_array_equal(y, [[1, 4]])


@pytest.mark.parametrize(
    ("shape", "addend", "flat"),
    [((2, 7, 3, 20), (2, 7, 3, 12), True), ((3, 5, 20), (12,), True), ((3, 8, 20), (12,), False),
     ((2, 5, 20), (5, 12), False), ((2, 5, 20), (2, 1, 12), False), ((2, 5, 20), (1, 1, 1), False)],
)  # fmt: skip
def test_rows_of_dense_layers_are_one_axis(rng, shape, addend, flat):
    """Where all that is added has all rows, or none; the results are the same either way."""
    x, y = graph.var("x", shape), graph.var("y", addend)
    w = graph.const(rng.standard_normal((20, 12)).astype("f4"))
    result = op.relu(op.add(op.matmul(op.mul(x, 0.5), w), y))
    mod = graph.module(main=graph.function([x, y], result))
    data = [rng.standard_normal(s).astype("f4") for s in (shape, addend)]
    compiled = graph.build(mod)
    ((func,),) = (m.functions.values() for m in compiled.lowered.values())
    assert (len(func.params[0].shape) == 2) is flat
    want = np.maximum(data[0] * np.float32(0.5) @ w.value + data[1], 0)
    assert compiled(*data)[0].shape == want.shape
    np.testing.assert_allclose(compiled(*data)[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("heads", [1, 3])
def test_products_of_attention_read_heads_out_of_longer_rows(rng, heads):
    """Queries, keys and values of 2 windows in one array: the keys' rows start in its middle."""
    depth, count = 8, 19
    x = graph.var("x", (2, count, 3 * heads * depth))
    split = op.transpose(op.reshape(x, shape=(2, count, 3, heads, depth)), perm=(2, 0, 3, 1, 4))
    q, k, v = (op.gather(split, graph.const(np.array(n)), axis=0) for n in range(3))
    scores = op.matmul(q, op.transpose(k, perm=(0, 1, 3, 2)))
    mod = graph.module(main=graph.function([x], op.matmul(scores, v)))
    data = rng.standard_normal((2, count, 3 * heads * depth)).astype("f4")
    a, b, c = data.reshape(2, count, 3, heads, depth).transpose(2, 0, 3, 1, 4)
    compiled = graph.build(mod)
    np.testing.assert_allclose(compiled(data)[0], a @ b.swapaxes(2, 3) @ c, rtol=1e-3, atol=1e-3)
    scheduled = [f.script() for m in compiled.lowered.values() for f in m.functions.values()]
    assert sum("_packed" in text for text in scheduled) == 1
