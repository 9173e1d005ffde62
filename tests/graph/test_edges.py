"""Attributes at their edges, and numbers that are none: what onnxruntime computes, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import node_model

from autosched import graph, te
from autosched.graph import op as graph_op
from autosched.graph.ops import suppression
from autosched.graph.ops.index import concat
from autosched.graph.ops.tensors import View

INF, NAN = np.inf, np.nan


def run(op, inputs, outputs=1, opset=17, compiled=False, **attrs):
    """The results of one node, by the evaluator or compiled."""
    proto, arrays = node_model(op, inputs, outputs, opset, **attrs)
    mod = graph.from_onnx(proto)
    made = graph.build(mod)(*arrays) if compiled else graph.evaluate(mod, "main", *arrays)
    return made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("compiled", [False, True])
def test_negative_pads_cut_elements_off(compiled, rng):
    x = rng.standard_normal((2, 6, 7)).astype("f4")
    proto, _ = node_model("Pad", [x], 1, 2, pads=[0, -1, 2, -1, -2, -3], value=1.5)
    mod = graph.from_onnx(proto)
    y = graph.build(mod)(x)[0] if compiled else graph.evaluate(mod, "main", x)
    want = np.pad(x[:1, 1:4, :4], ((0, 0), (0, 0), (2, 0)), constant_values=1.5)
    np.testing.assert_array_equal(y, want)


def test_pads_that_cut_all_off_are_refused(rng):
    proto, _ = node_model("Pad", [np.zeros((2, 3), "f4")], 1, 2, pads=[0, -2, 0, -1])
    with pytest.raises(graph.Unsupported, match=r"pads is \(0, -2, 0, -1\), which cuts off all"):
        graph.from_onnx(proto)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_clip_bounds_what_activations_take(rng):
    x = rng.standard_normal((4, 2, 3)).astype("f4")
    w, r = (rng.standard_normal((1, 5, k)).astype("f4") for k in (3, 5))
    y, _ = run("RNN", [x, w, r], 2, hidden_size=5, clip=0.4)
    h = np.zeros((2, 5))
    for t in range(4):
        h = np.tanh(np.clip(x[t] @ w[0].T + h @ r[0].T, -0.4, 0.4))
        np.testing.assert_allclose(y[t, 0], h, rtol=1e-5, atol=1e-6)


def test_each_activation_takes_the_next_alpha_and_beta_that_it_has(rng):
    x = rng.standard_normal((1, 2, 3)).astype("f4")
    w, r = (rng.standard_normal((2, 8, k)).astype("f4") for k in (3, 2))
    names = ["HardSigmoid", "Tanh", "LeakyRelu", "Sigmoid", "Elu", "Affine"]
    y, _, c = run("LSTM", [x, w, r], 3, hidden_size=2, direction="bidirectional",
                  activations=names, activation_alpha=[0.3, 0.1, 0.7],
                  activation_beta=[0.4], input_forget=1)  # fmt: skip
    forward, backward = (np.split(x[0] @ w[d].T, 4, -1) for d in range(2))
    hard = [np.clip(0.3 * g + 0.4, 0, 1) for g in forward[:2]]
    cell = hard[0] * np.tanh(forward[3])
    want = hard[1] * np.where(cell < 0, 0.1 * cell, cell)
    np.testing.assert_allclose(y[0, 0], want, rtol=1e-4, atol=1e-6)
    elu = np.where(backward[3] < 0, 0.7 * np.expm1(backward[3]), backward[3])
    cell = sigmoid(backward[0]) * elu
    np.testing.assert_allclose(c[1], cell, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(y[0, 1], sigmoid(backward[1]) * cell, rtol=1e-4, atol=1e-6)
    with pytest.raises(graph.Unsupported, match="the activations Tanh take fewer"):
        run("RNN", [x, w[:1, :2], r[:1, :2]], 2, activations=["Tanh"], activation_alpha=[1.0])


def test_a_layer_of_one_state_and_two_steps_backward(rng):
    """The inputs' product is in registers, and read from its last row to its first."""
    x = rng.standard_normal((2, 1, 4)).astype("f4")
    w, r = (rng.standard_normal((1, 4, k)).astype("f4") for k in (4, 1))
    inputs = [x, w, r, rng.standard_normal((1, 8)).astype("f4")]
    want, made = (
        run("LSTM", inputs, 3, hidden_size=1, direction="reverse", compiled=c) for c in (0, 1)
    )
    for a, b in zip(want, made, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("many", [5, 64])
def test_values_that_are_equal_have_no_variance_below_zero(many, compiled, rng):
    """Its root would be no number; what is left is the rounding of the mean."""
    x = np.repeat(rng.standard_normal((2, 7, 1)) * 100, many, axis=2).astype("f4")
    (y,) = run("MeanVarianceNormalization", [x], opset=13, compiled=compiled, axes=[2])
    assert (abs(y) <= 1.001).all()
    (y,) = run("MeanVarianceNormalization", [x], opset=13, compiled=compiled, axes=[0, 1])
    apart = x - x.astype("f8").mean((0, 1), keepdims=True)
    want = apart / np.sqrt((apart**2).mean((0, 1), keepdims=True))
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_nan_and_infinity_flow(compiled):
    x = np.array([1, NAN, INF, -INF, -2, 0], "f4")
    (sign,) = run("Sign", [x], compiled=compiled)
    np.testing.assert_array_equal(sign, [1, NAN, 1, -1, -1, 0])
    proto, _ = node_model("Pow", [x, np.float32(0.5)], 1)
    mod = graph.from_onnx(proto)
    root = graph.build(mod, params={"i1": np.float32(0.5)})(x)[0]
    np.testing.assert_array_equal(root, [1, NAN, INF, INF, NAN, 0])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_index_of_the_best_is_one_of_the_axis(op, compiled):
    x = np.array([[NAN] * 3, [1, 3, 3], [NAN, 2, 2], [INF] * 3, [-INF] * 3], "f4")
    first = {"ArgMax": [0, 1, 1, 0, 0], "ArgMin": [0, 0, 1, 0, 0]}[op]
    last = {"ArgMax": [2, 2, 2, 2, 2], "ArgMin": [2, 0, 2, 2, 2]}[op]
    for want, by in ((first, 0), (last, 1)):
        (y,) = run(op, [x], compiled=compiled, axis=1, keepdims=0, select_last_index=by)
        assert y.tolist() == want


def test_a_box_with_a_thousand_million_samples_is_refused():
    x, batch = np.ones((1, 1, 4, 4), "f4"), np.array([0])
    box = np.array([[0, 0, 1e9, 1e9]], "f4")
    with pytest.raises(graph.Unsupported, match=r"RoiAlign: box 0, .* at most 67108864"):
        run("RoiAlign", [x, box, batch], output_height=2, output_width=2)
    with pytest.raises(graph.Unsupported, match=r"RoiAlign: .*infinity"):
        run(
            "RoiAlign",
            [x, np.array([[0, 0, INF, 4]], "f4"), batch],
            output_height=2,
            output_width=2,
        )


def test_suppression_keeps_what_one_box_at_a_time_keeps(rng):
    n = sum(suppression.BLOCKS) + 130
    boxes = np.round(rng.uniform(0, 20, (1, n, 4))).astype("f4")  # many equal, some without area
    scores = np.round(rng.random((1, 2, n)), 2).astype("f4")
    low, high = (
        np.minimum(boxes[0, :, :2], boxes[0, :, 2:]),
        np.maximum(boxes[0, :, :2], boxes[0, :, 2:]),
    )
    area = np.prod(high - low, -1)

    def overlap(a, b):
        both = np.prod(np.maximum(np.minimum(high[a], high[b]) - np.maximum(low[a], low[b]), 0))
        return both > 0 and both / (area[a] + area[b] - both) > np.float32(0.25)

    for limit in (7, 40, 60, 1000):
        want = []
        for c in range(2):
            kept = []
            for k in np.argsort(-scores[0, c], kind="stable"):
                if scores[0, c, k] > 0.1 and len(kept) < limit:
                    kept += [] if any(overlap(m, k) for m in kept) else [k]
            want += [(0, c, k) for k in kept]
        given = [np.array([limit]), np.array([0.25], "f4"), np.array([0.1], "f4")]
        (found,) = run("NonMaxSuppression", [boxes, scores, *given])
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(("batch", "length", "bias"), [(2, 5, True), (3, 7, True), (2, 5, False)])
def test_a_product_of_reshaped_rows_whose_tiles_do_not_divide(batch, length, bias):
    """Rows read through a reshape are two axes, whose tiles overlap in the result."""
    rng = np.random.default_rng(0)
    weights, b = rng.standard_normal((7, 9)).astype("f4"), rng.standard_normal(9).astype("f4")
    x = graph.var("x", (batch, length, 7))
    rows = graph_op.reshape(x, shape=(batch * length, 7))
    given = (graph.const(weights), *([graph.const(b)] if bias else []))
    y = graph_op.relu(graph_op.gemm(rows, *given))
    model = graph.build(graph.module(main=graph.function([x], y)))
    a = rng.standard_normal((batch, length, 7)).astype("f4")
    want = np.maximum(a.reshape(-1, 7) @ weights + (b if bias else 0), 0)
    np.testing.assert_allclose(model(a)[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("shapes", "axis"), [
    ([(0, 1, 2), (0, 1, 3)], 2),
    ([(0, 4), (0, 4), (0, 0)], 1),
    ([(2, 0), (3, 0)], 0),
    ([(0, 4), (3, 4), (0, 4)], 0),
    ([(0, 4), (0, 4)], 0),
])  # fmt: skip
def test_parts_without_elements_count_for_the_shape(shapes, axis, compiled):
    """As of a detector that finds nothing: four columns of no boxes have four columns."""
    parts = [np.ones(shape, "f4") for shape in shapes]
    (y,) = run("Concat", parts, compiled=compiled, axis=axis)
    np.testing.assert_array_equal(y, np.concatenate(parts, axis))


def test_open_rows_of_no_columns_join():
    n, m = te.var("n"), te.var("m")
    rows = [View((size, 0), "float32", lambda *at: te.const(0.0, "float32")) for size in (n, m)]
    joined = concat(*rows, axis=0)
    assert joined.shape[1] == 0
    assert str(joined.shape[0]) == "m + n"


@pytest.mark.parametrize(("shape", "other"), [
    ((6, 1, 4, 5), (2, 3, 20)),
    ((2, 3, 20), (1, 6, 2, 2, 5, 1)),
    ((4, 6), (6, 4)),
    ((3, 4, 6, 5), (12, 1, 5, 6)),
    ((1, 1), ()),
    ((5, 1, 7, 1), (1, 35)),
])  # fmt: skip
def test_reshapes_in_parts(shape, other, rng):
    """Runs of axes that have as many elements, with ones between them."""
    x = rng.standard_normal(shape).astype("f4")
    (y,) = run("Reshape", [x, np.array(other, "i8")], compiled=True)
    np.testing.assert_array_equal(y, x.reshape(other))


def test_padding_of_a_reshaped_input_divides_no_index(rng):
    """A padded volume out of rows of tokens: no row of the padding is taken for another one."""
    tokens = rng.standard_normal((1, 1 + 4 * 6 * 5, 3 * 16)).astype("f4")
    x, w = graph.var("x", tokens.shape), rng.standard_normal((16, 1, 3, 3, 3)).astype("f4")
    split = graph_op.reshape(x, graph.const(np.array([1, tokens.shape[1], 3, 1, 16])))
    one = graph_op.squeeze(
        graph_op.slice(graph_op.transpose(split, perm=(2, 0, 3, 1, 4)),
                       graph.const(np.array([1])), graph.const(np.array([2])),
                       graph.const(np.array([0]))), graph.const(np.array([0])))  # fmt: skip
    rows = graph_op.slice(one, *(graph.const(np.array([n])) for n in (1, 999, 2)))
    volume = graph_op.reshape(
        graph_op.transpose(rows, perm=(0, 1, 3, 2)), graph.const(np.array([1, 16, 4, 6, 5]))
    )
    made = graph_op.conv(volume, graph.const(w), pads=(1,) * 6, strides=(1, 2, 2), group=16)
    module = graph.module(main=graph.function([x], made))
    (task, *_), _ = graph.extract_tasks(module)
    assert "//" not in task.prim_func.script()
    assert "%" not in task.prim_func.script()
    (y,) = graph.build(module)(tokens)
    np.testing.assert_allclose(y, graph.evaluate(module, "main", tokens), rtol=1e-4, atol=1e-4)


def test_a_whole_model_is_refused_for_a_gpu_and_its_kernels_are_not():
    x = graph.var("x", (8, 16))
    module = graph.module(main=graph.function([x], graph.op.softmax(x)))
    with pytest.raises(graph.Unsupported, match="runs on a CPU, the target is opencl"):
        graph.build(module, target="opencl")
    (task,) = graph.extract_tasks(module, "opencl")[0]
    assert task.target.is_gpu


@pytest.mark.sampled(5)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"])
def test_the_index_of_the_best_of_whole_numbers(dtype, op, compiled):
    """The least and the largest numbers that there are occur, in a row by themselves too."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([[low] * 3, [high] * 3, [low, high, low], [high, low, high]], dtype)
    best, size = (np.argmax if op == "ArgMax" else np.argmin), x.shape[1]
    for last in (0, 1):
        (y,) = run(op, [x], compiled=compiled, axis=1, keepdims=0, select_last_index=last)
        want = size - 1 - best(x[:, ::-1], 1) if last else best(x, 1)
        assert y.tolist() == want.tolist()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_mean_of_whole_numbers_is_rounded_towards_zero(compiled):
    x = np.array([[-1, 2, -4], [0, 3, -5]], "i8")
    (y,) = run("ReduceMean", [x], compiled=compiled, axes=[0], keepdims=0)
    assert y.tolist() == [0, 2, -4]


def test_a_mean_of_nothing_is_no_number():
    (y,) = run("ReduceMean", [np.zeros((2, 0), "f4")], compiled=False, axes=[1], keepdims=0)
    assert np.isnan(y).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_norms_and_logarithms_of_integers_and_of_infinities(compiled: bool) -> None:
    x = np.array([[3, 5], [1, 1]], "i4")
    for name, rows in (("L2", [5, 1]), ("LogSum", [2, 0]), ("LogSumExp", [5, 1])):
        (y,) = run(f"Reduce{name}", [x], compiled=compiled, axes=[1], keepdims=0)
        np.testing.assert_array_equal(y, np.array(rows, "i4"))
    far = np.array([[-np.inf, -np.inf], [np.inf, 1], [0, -np.inf]], "f4")
    (y,) = run("ReduceLogSumExp", [far], compiled=compiled, axes=[1], keepdims=0)
    np.testing.assert_array_equal(y, np.array([-np.inf, np.inf, 0], "f4"))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_slice_backwards_from_before_the_first_element(compiled):
    """Starts are taken to be of [0, n - 1] where steps are negative."""
    given = [np.arange(3, dtype="f4").reshape(1, 3), np.array([-3]), np.array([-(2**62)])]
    (y,) = run("Slice", [*given, np.array([0]), np.array([-2])], compiled=compiled)
    assert y.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_of_nothing(axis, compiled):
    (y,) = run("CumSum", [np.zeros((0, 3), "f4"), np.array(axis)], compiled=compiled)
    assert y.shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize(
    "make",
    [
        lambda x, y, z: graph_op.transpose(graph_op.slice(x, [0], [0], [1]), perm=(1, 0, 2)),
        lambda x, y, z: graph_op.slice(x, [2], [2], [0]),
        lambda x, y, z: graph_op.transpose(
            graph_op.reshape(y, shape=[0, 1, 3], allowzero=1), perm=(2, 1, 0)
        ),
        lambda x, y, z: graph_op.matmul(y, z),
        lambda x, y, z: graph_op.concat(graph_op.slice(x, [0], [0], [1]), x, axis=1),
        lambda x, y, z: graph_op.reduce_sum(y, [1]),
        lambda x, y, z: graph_op.add(y, y),
    ],
)
def test_values_without_elements(make, dtype):
    """Sliced to nothing, given, and summed over."""
    shapes = [(5, 1, 3), (3, 0), (0, 4)]
    inputs = [graph.var(f"x{n}", s, dtype) for n, s in enumerate(shapes)]
    mod = graph.module(main=graph.function(inputs, make(*inputs)))
    arrays = [np.ones(s, dtype) for s in shapes]
    found, want = graph.build(mod)(*arrays)[0], graph.evaluate(mod, "main", *arrays)
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(found, want)


SCALED = {
    "abs of a product": lambda x, s: graph_op.abs(graph_op.mul(x, graph_op.exp(s))),
    "product": lambda x, s: graph_op.mul(x, graph_op.sub(graph.const(np.float32(4)), s)),
    "relu of a sum": lambda x, s: graph_op.relu(graph_op.add(x, graph_op.exp(s))),
    "where": lambda x, s: graph_op.where(graph_op.less(x, graph_op.exp(s)), x, graph_op.neg(x)),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("shape", [(32, 4), (2, 64), (8, 32, 16)])
@pytest.mark.parametrize("reduce", [graph_op.reduce_sum, graph_op.reduce_max])
@pytest.mark.parametrize("case", SCALED)
def test_a_reduction_of_what_a_computed_scalar_scales(case, reduce, shape, rng):
    """The scalar's block has no loop of its own, wherever it is computed."""
    x, s = graph.var("x", shape), graph.var("s", ())
    arrays = [rng.standard_normal(shape).astype("f4"), np.float32(0.3)]
    for axis in range(len(shape)):
        made = reduce(SCALED[case](x, s), [axis], keepdims=0)
        mod = graph.module(main=graph.function([x, s], made))
        found, want = graph.build(mod, threads=1)(*arrays)[0], graph.evaluate(mod, "main", *arrays)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
