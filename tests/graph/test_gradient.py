"""Gradients: against finite differences, operator by operator, and as models."""

from __future__ import annotations

import numpy as np
import pytest
from adjoint_cases import (
    CASES,
    CONVERTED,
    DISCRETE,
    FLAT,
    IMAGE,
    RECURRENT,
    Above,
    Positive,
    Unit,
    X,
    ints,
)

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
    assert host & CASES.keys() <= RULES.keys() <= CASES.keys()
    every = [*CASES, *FLAT, *CONVERTED, *DISCRETE, *(host - CASES.keys())]
    assert sorted(every) == sorted(OPERATORS)


NAMES = sorted(CASES)


@pytest.mark.sampled(2)
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
        (o.bit_cast(x, to="float64"), "BitCast has no adjoint: it is computed on the host, and"),
        (o.unique(x), "what Unique gives has a type that depends"),
    ]
    for y, message in table:
        (p,) = (v for v in _params(y))
        f = graph.function([p], o.reduce_sum(y, keepdims=0) if y.type.shape else y)
        with pytest.raises(graph.Unsupported, match=message):
            graph.gradient(f)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_at_zero_and_far_from_it(dtype):
    at = np.array([-20, -9, -1, 0, 100, 1000], dtype)
    wide = at.astype("f8")
    slope = 1 / (1 + np.exp(-wide))
    bent = np.tanh(np.logaddexp(0, wide))
    wanted = {o.mish: bent + wide * (1 - bent**2) * slope, o.softplus: slope,
              o.celu: np.exp(np.minimum(wide, 0)), o.elu: np.exp(np.minimum(wide, 0))}  # fmt: skip
    x = graph.var("x", at.shape, dtype)
    for operator, want in wanted.items():
        (found,) = results(operator(x), [x], at)
        rtol = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}[dtype]
        np.testing.assert_allclose(found, want, rtol, 1e-7, err_msg=operator.__name__)


def test_the_places_of_a_max_pool_do_not_matter(rng):
    x = graph.var("x", IMAGE, D)
    y, _ = o.max_pool(x, kernel_shape=(2, 2), outputs=2)
    compare(graph.function([x], o.reduce_sum(o.exp(y), keepdims=0)), [made(IMAGE, rng)], rng)


def results(y, params, *arrays):
    """The gradients of the sum of a value on arrays."""
    made = graph.gradient(graph.function(params, o.reduce_sum(y, keepdims=0)))
    return graph.evaluate(graph.module(main=made), "main", *arrays)[1:]


def test_factors_of_a_scatter_that_are_zero():
    x, u = graph.var("x", (3,), D), graph.var("u", (6,), D)
    y = o.scatter_elements(x, graph.const(ints(0, 1, 1, 2, 2, 2)), u, reduction="mul")
    given = np.array([0.0, 3, 2]), np.array([7.0, 0, 4, 0, 5, 0])
    _, du = results(y, [x, u], *given)
    np.testing.assert_allclose(du, [0, 12, 0, 0, 0, 0])


@pytest.mark.parametrize("rank", [3, 2, 1])
def test_the_gradient_of_a_determinant_is_the_cofactors(rank, rng):
    a = rng.standard_normal((3, rank)) @ rng.standard_normal((rank, 3))
    x = graph.var("x", (3, 3), D)
    (found,) = results(o.det(x), [x], a)
    minors = [[np.delete(np.delete(a, i, 0), j, 1) for j in range(3)] for i in range(3)]
    signs = (-1.0) ** np.add.outer(range(3), range(3))
    np.testing.assert_allclose(found, signs * np.linalg.det(minors), atol=1e-12)


def test_what_samples_and_transforms_pass_back_compiles(rng, tmp_path):
    """In float32, beside what kernels compute; a saved model has it, too."""
    x, grid = graph.var("x", (1, 2, 4, 5)), graph.var("grid", (1, 3, 4, 2))
    signal, window = graph.var("signal", (2, 16)), graph.var("window", (8,))
    pieces = o.stft(signal, graph.const(ints(4)[0]), window)
    y = o.add(
        o.reduce_sum(o.exp(o.grid_sample(x, grid)), keepdims=0),
        o.reduce_mean(o.mul(pieces, pieces), keepdims=0),
    )
    made = graph.module(main=graph.gradient(graph.function([x, grid, signal, window], y)))
    arrays = [rng.uniform(-0.9, 0.9, p.type.shape).astype("f4") for p in made["main"].params]
    expected = graph.evaluate(made, "main", *arrays)
    model = graph.build(made)
    model.save(tmp_path / "model")
    again = graph.load(tmp_path / "model")
    for one, two, known in zip(model(*arrays), again(*arrays), expected, strict=True):
        np.testing.assert_allclose(one, known, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(one, two)


def test_second_derivatives_of_samples_are_known_where_these_are_linear():
    x, grid = graph.var("x", (1, 1, 3, 3), D), graph.var("grid", (1, 2, 2, 2), D)
    y = o.reduce_sum(o.grid_sample(x, grid), keepdims=0)
    once = graph.gradient(graph.function([x, grid], y))
    for n in (1, 2):
        first = Function("main", once.params, Body(once.body.bindings, (once.body.results[n],)))
        with pytest.raises(graph.Unsupported, match="second derivatives are known by inputs in"):
            graph.gradient(first, wrt=["grid"], seeds=True)


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


def test_gradients_come_in_the_order_of_wrt():
    x, y, z = (graph.var(n, (), D) for n in "xyz")
    f = graph.function([x, y, z], o.mul(o.mul(x, y), o.mul(y, z)))
    module = graph.module(main=graph.gradient(f, wrt=["z", "x", "z"]))
    for made in (module, graph.gradient(graph.module(main=f), wrt=["z", "x"])):
        assert made["main"].attr("outputs")[1:] == ("d_z", "d_x")
        value, *found = graph.evaluate(made, "main", *map(np.float64, (2, 3, 5)))
        assert (float(value), [float(v) for v in found]) == (90, [18, 45])


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


@pytest.mark.parametrize(
    ("shape", "f"),
    [
        ((0,), o.exp),
        ((0, 3), lambda x: o.softmax(x) * x),
        ((3,), lambda x: o.exp(o.slice(x, [0], [0], [0]))),
        ((0, 3), lambda x: o.matmul(x, graph.const(np.ones((3, 2))))),
    ],
)
def test_a_tensor_without_elements_gets_a_gradient_of_zeros(shape, f):
    x = graph.var("x", shape, D)
    made = graph.gradient(graph.function([x], o.reduce_sum(f(x), keepdims=0)))
    found = graph.evaluate(graph.module(main=made), "main", np.ones(shape))
    np.testing.assert_array_equal(found[1], np.zeros(shape))


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
