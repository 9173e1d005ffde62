"""Gradients: against finite differences, operator by operator, and as models."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.errors import AutoschedError
from autosched.graph import nn
from autosched.graph import op as o
from autosched.graph.builder import call
from autosched.graph.ir import Body, Function
from autosched.graph.ops import OPERATORS
from autosched.graph.reverse_host import RULES
from autosched.script import parse

D = "float64"
STEP = 1e-5


class Positive(tuple):
    """The shape of an input between 0.5 and 1.5."""


class Unit(tuple):
    """The shape of an input between -0.9 and 0.9."""


class Above(tuple):
    """The shape of an input between 1.1 and 2.1."""


def ints(*values):
    return np.array(values, "int64")


X = (2, 3, 4)
IMAGE = (1, 2, 5, 5)
PLACES = np.array([[[[0, 3], [10, 14]]]])
_PLAIN = """
Abs Asinh Atan Celu Cos Cosh Elu Erf Exp Flatten Gelu HardSigmoid HardSwish Identity LeakyRelu
LogSoftmax LpNormalization Mish Neg ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin
ReduceSum ReduceSumSquare Relu Selu Sigmoid Sin Sinh Softmax Softplus Softsign Tan Tanh
ThresholdedRelu Transpose
"""
_PAIRS = "Add Max Mean Min Mul Sub Sum"
# Operator -> [(inputs, attributes, results)]: a shape is a parameter, an array a constant.
CASES = {
    **{n: [([X], {}, 1)] for n in _PLAIN.split()},
    **{n: [([Positive(X)], {}, 1)] for n in ["Log", "Reciprocal", "Sqrt", "ReduceLogSum"]},
    **{n: [([Unit(X)], {}, 1)] for n in ["Acos", "Asin", "Atanh"]},
    "Acosh": [([Above(X)], {}, 1)],
    "ReduceProd": [([X], {"axes": (1, 2)}, 1)],
    **{
        n: [([X, X], {}, 1), ([X, (4,)], {}, 1)]
        for n in ["Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum"]
    },
    "Div": [([X, Positive((3, 1))], {}, 1)],
    "Pow": [([Positive(X), X], {}, 1), ([X, np.array(2.0)], {}, 1), ([X, np.array(3.0)], {}, 1)],
    "PRelu": [([X, Positive((4,))], {}, 1)],
    "Mod": [([X, Above(X)], {"fmod": 1}, 1)],
    "Cast": [([X], {"to": "float64"}, 1)],
    "CastLike": [([X, np.zeros(1)], {}, 1)],
    "Clip": [([X, np.array(-0.5), np.array(0.5)], {}, 1)],
    "Where": [([np.arange(24).reshape(X) % 3 == 0, X, X], {}, 1)],
    "MatMul": [
        ([(2, 3), (3, 4)], {}, 1),
        ([(2, 2, 3), (3, 4)], {}, 1),
        ([(3,), (3, 4)], {}, 1),
        ([(3, 1, 2, 3), (2, 3, 4)], {}, 1),
    ],
    "Gemm": [([(3, 2), (4, 3), (4,)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, 1)],
    "Einsum": [
        ([(2, 3), (3, 4)], {"equation": "ij,jk->ki"}, 1),
        ([(2, 3, 4), (2, 5, 4)], {"equation": "bij,bkj->bik"}, 1),
        ([(3, 3)], {"equation": "ii->i"}, 1),
    ],
    "autosched.MatMulPacked4": [
        ([(2, 7), np.arange(12, dtype="uint8").reshape(2, 2, 3) * 21, (2, 3)], {}, 1)
    ],
    "Concat": [([(2, 3), (2, 2)], {"axis": 1}, 1)],
    "Split": [([(2, 6)], {"axis": 1}, 2)],
    "Slice": [([(4, 7), ints(1), ints(6), ints(1), ints(2)], {}, 1)],
    "Pad": [
        ([(2, 3), ints(1, 0, 2, 1)], {}, 1),
        ([(2, 4), ints(0, 1, 0, 1)], {"mode": "reflect"}, 1),
    ],
    "Expand": [([(3, 1), ints(2, 3, 4)], {}, 1)],
    "Tile": [([(2, 3), ints(2, 2)], {}, 1)],
    "Reshape": [([X, ints(4, 6)], {}, 1)],
    "Squeeze": [([(2, 1, 3), ints(1)], {}, 1)],
    "Unsqueeze": [([(2, 3), ints(1)], {}, 1)],
    "Gather": [([(5, 3), ints(0, 2, 2)], {}, 1)],
    "GatherElements": [([(3, 3), np.array([[0, 1, 2], [2, 2, 0]])], {}, 1)],
    "GatherND": [([(3, 4), np.array([[0, 1], [2, 2]])], {}, 1)],
    "DepthToSpace": [([(1, 8, 2, 3)], {"blocksize": 2}, 1)],
    "SpaceToDepth": [([(1, 2, 4, 6)], {"blocksize": 2}, 1)],
    "CumSum": [([X, ints(1)], {}, 1), ([X, ints(2)], {"exclusive": 1, "reverse": 1}, 1)],
    "CumProd": [([(2, 3), ints(1)], {}, 1)],
    "Trilu": [([(3, 4)], {}, 1)],
    "Conv": [
        ([IMAGE, (3, 2, 3, 3), (3,)], {"strides": (2, 2), "pads": (1, 1, 1, 1)}, 1),
        ([IMAGE, (4, 1, 2, 2)], {"group": 2, "dilations": (2, 1)}, 1),
        ([IMAGE, (2, 1, 3, 3)], {"group": 2, "auto_pad": "SAME_UPPER", "strides": (2, 2)}, 1),
        ([(2, 3, 8), (4, 3, 3)], {}, 1),
        ([(1, 2, 4, 4, 4), (2, 2, 2, 2, 2)], {"strides": (2, 1, 2)}, 1),
    ],
    "ConvTranspose": [
        ([(1, 2, 3, 3), (2, 3, 3, 3)], {"strides": (2, 2), "pads": (1, 0, 1, 0)}, 1),
        ([(1, 2, 3, 3), (2, 1, 2, 2)], {"group": 2, "strides": (2, 2), "output_shape": (8, 8)}, 1),
    ],
    "MaxPool": [
        ([IMAGE], {"kernel_shape": (2, 2), "pads": (1, 1, 0, 0), "strides": (2, 2)}, 1),
        ([IMAGE], {"kernel_shape": (3, 3), "dilations": (2, 1), "ceil_mode": 1}, 1),
    ],
    "AveragePool": [
        ([IMAGE], {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, 1),
        ([(1, 2, 7)], {"kernel_shape": (3,), "ceil_mode": 1, "count_include_pad": 1}, 1),
    ],
    "LpPool": [([IMAGE], {"kernel_shape": (2, 2)}, 1)],
    "GlobalAveragePool": [([IMAGE], {}, 1)],
    "GlobalMaxPool": [([IMAGE], {}, 1)],
    "GlobalLpPool": [([IMAGE], {}, 1)],
    "BatchNormalization": [
        ([IMAGE, (2,), (2,), (2,), Positive((2,))], {}, 1),
        ([IMAGE, (2,), (2,), (2,), Positive((2,))], {"training_mode": 1}, 1),
    ],
    "InstanceNormalization": [([IMAGE, (2,), (2,)], {}, 1)],
    "LayerNormalization": [([X, (4,), (4,)], {}, 3), ([X, (3, 4), (3, 4)], {"axis": 1}, 1)],
    "RMSNormalization": [([X, (4,)], {}, 1)],
    "GroupNormalization": [([(1, 4, 3, 3), (4,), (4,)], {"num_groups": 2}, 1)],
    "LRN": [([(1, 4, 2, 2)], {"size": 3, "alpha": 0.5}, 1)],
    "Resize": [
        ([(1, 1, 3, 4), None, np.array([1.0, 1, 2, 2], "float32")], {"mode": "linear"}, 1),
        ([(1, 1, 4, 4), None, None, ints(1, 1, 7, 6)], {"mode": "cubic"}, 1),
        ([(1, 1, 4, 4), None, None, ints(1, 1, 8, 8)], {"mode": "nearest"}, 1),
    ],
    # What NumPy computes, by the rules of reverse_host.
    "Col2Im": [
        ([(1, 8, 9), ints(4, 4), ints(2, 2)], {}, 1),
        (
            [(2, 8, 4), ints(4, 4), ints(2, 2)],
            {"strides": (2, 2), "dilations": (2, 2), "pads": (0, 1, 1, 0)},
            1,
        ),
    ],
    "MaxUnpool": [
        ([(1, 1, 2, 2), PLACES], {"kernel_shape": (2, 2), "strides": (2, 2)}, 1),
        ([(1, 1, 2, 2), PLACES, ints(1, 1, 5, 5)], {"kernel_shape": (2, 2), "strides": (2, 2)}, 1),
    ],
    "ReverseSequence": [([(4, 2, 3), ints(2, 4)], {}, 1)],
    "Scatter": [([(3, 3), np.array([[0, 1, 2], [2, 0, 1]]), (2, 3)], {}, 1)],
    "ScatterElements": [
        ([(3, 3), np.array([[0, 1, 2], [2, 0, 1]]), (2, 3)], {}, 1),
        ([(3, 3), np.array([[0, 1, 2], [2, 1, 1]]), (2, 3)], {"reduction": "add", "axis": 1}, 1),
        ([(3, 3), np.array([[0, 1, 2], [2, 1, 1]]), (2, 3)], {"reduction": "max"}, 1),
        ([(3,), ints(0, 2, 2), np.array([2.0, 3, 4])], {"reduction": "mul"}, 1),
    ],
    "ScatterND": [
        ([(4, 3), np.array([[0], [2]]), (2, 3)], {}, 1),
        ([(4, 3), np.array([[0, 1], [0, 1], [3, 2]]), (3,)], {"reduction": "add"}, 1),
        ([(4, 3), np.array([[0], [2]]), (2, 3)], {"reduction": "min"}, 1),
    ],
    "TensorScatter": [
        ([(2, 2, 5, 3), (2, 2, 2, 3), ints(1, 3)], {}, 1),
        ([(2, 2, 5, 3), (2, 2, 2, 3), ints(1, 4)], {"mode": "circular"}, 1),
    ],
    "TopK": [([(3, 5), ints(2)], {}, 1), ([(3, 5), ints(2)], {"axis": 0, "largest": 0}, 1)],
    # T, B, I = 3, 1, 2, H = 2; the larger ones are in the long test.
    "RNN": [
        ([(3, 1, 2), (2, 2, 2), (2, 2, 2)], {"hidden_size": 2, "direction": "bidirectional"}, 2)
    ],
    "GRU": [([(3, 1, 2), (1, 6, 2), (1, 6, 2)], {"hidden_size": 2}, 1)],
    "LSTM": [([(3, 1, 2), (1, 8, 2), (1, 8, 2)], {"hidden_size": 2}, 3)],
    "Adjoint": [([X, X], {"of": "Tanh", "wrt": 0, "inputs": 1}, 1)],
}
FLAT = {"Ceil", "Floor", "Hardmax", "Round", "Sign"}
"""Whose derivative is zero: what they pass back is."""
RECURRENT = [
    ("RNN", [(4, 2, 3), (1, 2, 3), (1, 2, 2), (1, 4), None, (1, 2, 2)],
        {"hidden_size": 2, "direction": "reverse"}, 2),
    ("GRU", [(4, 2, 3), (1, 6, 3), (1, 6, 2), (1, 12), None, (1, 2, 2)],
        {"hidden_size": 2, "linear_before_reset": 1, "direction": "reverse"}, 1),
    ("LSTM", [(3, 2, 3), (1, 8, 3), (1, 8, 2), (1, 16), np.array([3, 2], "int32"), (1, 2, 2),
        (1, 2, 2), (1, 6)], {"hidden_size": 2}, 3),
]  # fmt: skip
"""With biases, sequences of several lengths, states to begin with and peepholes."""
CONVERTED = {"RoundBfloat16"}
"""Whose steps differences see, and which pass on what comes back, as conversions do."""
DISCRETE = {
    # Integers or conditions on one side: nothing is passed back.
    "And", "ArgMax", "ArgMin", "ConstantOfShape", "ConvInteger", "DequantizeLinear", "Equal",
    "EyeLike", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual",
    "autosched.ConvSums", "autosched.MatMulSums", "autosched.QuantizeRows",
    "MatMulInteger", "Not", "OneHot", "Or", "QLinearConv", "QLinearMatMul", "QuantizeLinear",
    "Range", "Shape", "Size", "Xor",
}  # fmt: skip


def made(shape, rng):
    """An input: of the class of its shape."""
    if isinstance(shape, Positive):
        return rng.uniform(0.5, 1.5, shape)
    if isinstance(shape, Unit):
        return rng.uniform(-0.9, 0.9, shape)
    if isinstance(shape, Above):
        return rng.uniform(1.1, 2.1, shape)
    return rng.standard_normal(shape)


def loss_of(name, inputs, attrs, results, rng):
    """A function whose result is a weighted sum of an operator's results, and its inputs."""
    params, arrays, args = [], [], []
    for n, a in enumerate(inputs):
        if isinstance(a, tuple):
            args.append(graph.var(f"x{n}", tuple(a), D))
            params.append(args[-1])
            arrays.append(made(a, rng))
        else:
            args.append(None if a is None else graph.const(a))
    out = call(name, args, attrs, results)
    total = None
    for y in out if results > 1 else (out,):
        weights = graph.const(rng.standard_normal(y.shape), D)
        part = o.reduce_sum(o.mul(y, weights), keepdims=0)
        total = part if total is None else o.add(total, part)
    return graph.function(params, total), arrays


def compare(f, arrays, rng):
    """The gradients along a random direction are the difference quotient."""
    grads = graph.evaluate(graph.module(main=graph.gradient(f)), "main", *arrays)[1:]
    ways = [rng.standard_normal(x.shape) for x in arrays]
    ends = [
        float(graph.evaluate(graph.module(main=f), "main", *moved))
        for s in (STEP, -STEP)
        for moved in [[x + s * w for x, w in zip(arrays, ways, strict=True)]]
    ]
    assert [g.shape for g in grads] == [x.shape for x in arrays]
    found = sum(float(np.sum(g * w)) for g, w in zip(grads, ways, strict=True))
    assert found == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-5, abs=1e-6)


def test_every_operator_is_here():
    host = {n for n, row in OPERATORS.items() if row.is_host}
    assert host & CASES.keys() == RULES.keys()
    every = [*CASES, *FLAT, *CONVERTED, *DISCRETE, *(host - CASES.keys())]
    assert sorted(every) == sorted(OPERATORS)


NAMES = sorted(CASES)


@pytest.mark.parametrize("part", range(8))
def test_adjoints_are_difference_quotients(part):
    for name in NAMES[part::8]:
        for n, (inputs, attrs, results) in enumerate(CASES[name]):
            rng = np.random.default_rng(7)
            try:
                f, arrays = loss_of(name, inputs, attrs, results, rng)
                compare(f, arrays, rng)
            except Exception as e:
                raise AssertionError(f"{name}, case {n}: {e}") from e


@pytest.mark.long
@pytest.mark.parametrize("case", RECURRENT, ids=[c[0] for c in RECURRENT])
def test_recurrent_layers_with_all_inputs(case, rng):
    name, inputs, attrs, results = case
    f, arrays = loss_of(name, inputs, attrs, results, rng)
    compare(f, arrays, rng)


def test_a_recurrent_layer_is_trained_by_compiled_kernels(rng):
    """The gradient of an RNN in float32, compiled, is the evaluator's."""
    inputs = [(3, 1, 2), (1, 2, 2), (1, 2, 2)]
    f, arrays = loss_of("RNN", inputs, {"hidden_size": 2}, 1, rng)
    made = graph.module(main=graph.gradient(f))
    for y, z in zip(graph.build(made)(*arrays), graph.evaluate(made, "main", *arrays), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-12)


def test_a_fold_over_a_list_has_a_gradient(rng):
    """A recurrence that a program writes as a fold is dataflow once its length is known."""
    mod = parse("""
@G.module
class M:
    from prelude import foldl
    @G.function
    def main(xs: List[G.Tensor((1, 2), "float64")], w: G.Tensor((2, 2), "float64")):
        start = G.const([[0.0, 0.0]], "float64")
        last = foldl(lambda h, x: op.tanh(x + op.matmul(h, w)), start, xs)
        return op.reduce_sum(last, keepdims=0)
""")
    steps = graph.to_list([graph.var(f"x{n}", (1, 2), D) for n in range(3)])
    flat = graph.specialise(mod, "main", {"xs": steps})["main"]
    compare(flat, [rng.standard_normal(p.type.shape) for p in flat.params], rng)


def test_the_flat_pass_zeros_back(rng):
    for name in sorted(FLAT):
        f, arrays = loss_of(name, [X], {}, 1, rng)
        made = graph.gradient(f)
        assert not graph.evaluate(graph.module(main=made), "main", *arrays)[1].any(), name


def test_operators_without_an_adjoint_are_refused_by_name():
    x = graph.var("x", (4, 4), D)
    table = [
        (o.det(x), "Det has no adjoint: it is computed on the host, and what it passes back is"),
        (o.compress(x, graph.const([True, False])), "what Compress gives has a type that depends"),
        (
            o.scatter_elements(ONES, graph.const(np.zeros((4, 4), "int64")), x, reduction="mul"),
            "ScatterElements has no adjoint by its updates where reduction is 'mul'",
        ),
    ]
    for y, message in table:
        (p,) = (v for v in _params(y))
        f = graph.function([p], o.reduce_sum(y, keepdims=0) if y.type.shape else y)
        with pytest.raises(graph.Unsupported, match=message):
            graph.gradient(f)


ONES = graph.const(np.ones((4, 4)))


def test_the_places_of_a_max_pool_do_not_matter(rng):
    x = graph.var("x", IMAGE, D)
    y, _ = o.max_pool(x, kernel_shape=(2, 2), outputs=2)
    compare(graph.function([x], o.reduce_sum(o.exp(y), keepdims=0)), [made(IMAGE, rng)], rng)


def test_equal_elements_of_a_scatter_share_what_comes_back():
    x, u = graph.var("x", (2,), D), graph.var("u", (3,), D)
    y = o.scatter_elements(x, graph.const(ints(0, 0, 1)), u, reduction="max")
    f = graph.gradient(graph.function([x, u], o.reduce_sum(y, keepdims=0)))
    given = np.array([1.0, 5.0]), np.array([1.0, 1.0, 2.0])
    _, dx, du = graph.evaluate(graph.module(main=f), "main", *given)
    np.testing.assert_allclose(dx, [1 / 3, 1])
    np.testing.assert_allclose(du, [1 / 3, 1 / 3, 0])


def _params(value):
    """The parameters that a value depends on."""
    found, stack = {}, [value]
    while stack:
        v = stack.pop()
        stack += v.parents
        if v.binding is None and not v.parents and hasattr(v.atom, "name"):
            found[id(v.atom)] = v
    return found.values()


def convnet(rng):
    """A loss of a small network, all of whose weights are parameters."""
    x, t = graph.var("x", (4, 1, 8, 8)), graph.var("t", (4, 3))
    k, b, w = graph.var("k", (4, 1, 3, 3)), graph.var("b", (4,)), graph.var("w", (3, 64))
    h = o.max_pool(o.relu(o.conv(x, k, b, pads=(1, 1, 1, 1))), kernel_shape=(2, 2), strides=(2, 2))
    y = o.log_softmax(nn.dense(o.flatten(h), w))
    loss = o.neg(o.reduce_mean(o.reduce_sum(o.mul(y, t), axes=(1,), keepdims=0), keepdims=0))
    arrays = [rng.standard_normal(v.shape).astype("f4") * 0.3 for v in (x, t, k, b, w)]
    arrays[1] = np.eye(3, dtype="f4")[[0, 1, 2, 0]]
    return graph.function([x, t, k, b, w], loss), arrays


def test_gradients_are_tasks_and_kernels_like_others_and_train(rng):
    f, arrays = convnet(rng)
    made = graph.module(main=graph.gradient(f, wrt=["k", "b", "w"]))
    constants = {c.digest: c.array for c in graph.constants(made)}
    assert parse(made.script(), constants=constants).same(made)
    model = graph.build(made)
    assert [i.name for i in model.outputs][1:] == ["d_k", "d_b", "d_w"]
    for y, z in zip(model(*arrays), graph.evaluate(made, "main", *arrays), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-3, atol=1e-5)
    tasks, _ = graph.extract_tasks(made)
    assert {t.workload_key for t in tasks} == {k.workload_key for k in model.kernels}
    assert any("adjoint" in t.name for t in tasks)
    losses = []
    for _ in range(30):
        loss, *grads = model(*arrays)
        losses.append(float(loss))
        arrays[2:] = [a - 0.3 * g for a, g in zip(arrays[2:], grads, strict=True)]
    assert losses[-1] < 0.3 * losses[0]


def test_gradients_of_gradients(rng):
    x = graph.var("x", (5,), D)
    f = graph.function([x], o.reduce_sum(o.mul(o.tanh(x), o.exp(x)), keepdims=0))
    once = graph.gradient(f)
    # The first derivative alone, then that of each of its elements, weighted.
    first = Function("main", once.params, Body(once.body.bindings, once.body.results[1:]))
    twice = graph.gradient(first, seeds=True)
    point, v = rng.standard_normal(5), rng.standard_normal(5)
    made = graph.evaluate(graph.module(main=twice), "main", point, v)[1]
    ends = [graph.evaluate(graph.module(main=first), "main", point + s * v) for s in (STEP, -STEP)]
    np.testing.assert_allclose(made, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-5, atol=1e-7)


def test_seeds_weights_of_several_results(rng):
    x = graph.var("x", (3,), D)
    f = graph.function([x], [o.exp(x), o.mul(x, x)])
    made = graph.gradient(f, seeds=True)
    assert [p.name for p in made.params] == ["x", "d_exp", "d_mul"]
    a, s, t = (rng.standard_normal(3) for _ in range(3))
    *_, g = graph.evaluate(graph.module(main=made), "main", a, s, t)
    np.testing.assert_allclose(g, np.exp(a) * s + 2 * a * t)


def test_what_does_not_matter_is_zero_or_left_out():
    x, y, n = graph.var("x", (2,), D), graph.var("y", (3,), D), graph.var("n", (1,), "int64")
    f = graph.function([x, y, n], o.reduce_sum(o.gather(x, n), keepdims=0))
    made = graph.gradient(f)
    assert made.attr("outputs")[1:] == ("d_x", "d_y")
    out = graph.evaluate(graph.module(main=made), "main", np.ones(2), np.ones(3), ints(1))
    np.testing.assert_array_equal(out[1], [0, 1])
    np.testing.assert_array_equal(out[2], [0, 0, 0])


def test_wrong_arguments_say_so():
    x, n = graph.var("x", (2,), D), graph.var("n", (2,), "int64")
    scalar = graph.function([x], o.reduce_sum(x, keepdims=0))
    table = [
        (lambda: graph.gradient(3), "the function"),
        (lambda: graph.gradient(scalar, seeds=1), "seeds"),
        (lambda: graph.gradient(scalar, wrt="x"), "expected names of parameters"),
        (lambda: graph.gradient(scalar, wrt=["z"]), "wrt has 'z'; the floating-point parameters"),
        (lambda: graph.gradient(graph.function([x], o.exp(x))), "one floating-point result of one"),
        (lambda: graph.gradient(graph.function([x], o.greater(x, x))), "no floating-point result"),
        (lambda: graph.gradient(graph.function([n], n)), "no floating-point parameter"),
    ]
    for make, message in table:
        with pytest.raises(AutoschedError, match=message):
            make()
