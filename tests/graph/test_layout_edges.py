"""What the caller gives and gets keeps its layout: a kernel of its own copies what is large."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.ir import Binding, Body, Call, Function, Var
from autosched.graph.joined import with_joined_axes
from autosched.graph.lowering import lower
from autosched.graph.types import TensorType
from autosched.tir.form_parts import blocks
from autosched.tir.interp import run as interpret

COPY = "autosched_laid_out"


def weight(rng, *shape):
    return graph.const((rng.standard_normal(shape) * 0.1).astype("f4"))


def conv(x, w):
    return op.conv(x, w, pads=(1, 1, 1, 1))


def copies(model) -> int:
    return sum(k.name.startswith(COPY) for k in model.kernels)


def checked(function, *inputs):
    """The compiled function, equal to the evaluator."""
    module = graph.module(main=function)
    model = graph.build(module)
    found = model(*inputs)
    want = graph.evaluate(module, "main", *inputs)
    for ours, theirs in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    return model


@pytest.mark.parametrize("make", [
    lambda x, a, b: conv(x, a),
    lambda x, a, b: op.relu(conv(x, a) + x),  # the copy is read twice
    lambda x, a, b: op.softmax(conv(x, a), axis=1),
    lambda x, a, b: op.concat(conv(x, a), conv(x, b), axis=1),
])  # fmt: skip
def test_an_input_of_windows_is_copied_once(rng, make):
    x = graph.var("x", (1, 16, 20, 21))
    made = make(x, weight(rng, 16, 16, 3, 3), weight(rng, 16, 16, 3, 3))
    model = checked(graph.function([x], made), rng.standard_normal((1, 16, 20, 21)).astype("f4"))
    assert copies(model) == 1


@pytest.mark.parametrize("make", [
    lambda x: op.max_pool(x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    lambda x: op.average_pool(x, kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
    lambda x: op.resize(x, None, graph.const(np.array([1, 1, 2, 2], "f4")), mode="linear"),
])  # fmt: skip
def test_pools_of_short_rows_and_sizes_are_copied_on_both_sides(rng, make):
    x = graph.var("x", (1, 128, 14, 16))
    model = checked(
        graph.function([x], make(x)), rng.standard_normal((1, 128, 14, 16)).astype("f4")
    )
    assert copies(model) == 2


@pytest.mark.parametrize(
    ("kernel", "stride", "pad"), [((3, 3), (2, 2), 1), ((3, 3), (1, 1), 0), ((2, 3), (2, 1), 1)]
)
@pytest.mark.parametrize("pool", [op.max_pool, op.average_pool])
def test_pools_of_long_rows_read_them_as_they_lie(rng, pool, kernel, stride, pad):
    x = graph.var("x", (1, 9, 11, 60))
    made = pool(x, kernel_shape=kernel, strides=stride, pads=(pad,) * 4)
    model = checked(graph.function([x], made), rng.standard_normal((1, 9, 11, 60)).astype("f4"))
    assert copies(model) == 0


def test_a_result_that_others_read_lies_both_ways(rng):
    """The caller's copy beside that of the next convolution."""
    x = graph.var("x", (1, 16, 24, 24))
    pooled = op.max_pool(x, kernel_shape=(2, 2))
    f = graph.function([x], (pooled, conv(pooled, weight(rng, 24, 16, 3, 3))))
    model = checked(f, rng.standard_normal((1, 16, 24, 24)).astype("f4"))
    assert copies(model) == 2


def test_what_no_window_slides_over_is_read_as_it_lies(rng):
    """Beside a convolution that reads a copy."""
    x = graph.var("x", (1, 16, 24, 24))
    f = graph.function([x], (op.exp(x), conv(x, weight(rng, 16, 16, 3, 3))))
    groups = passes.optimise(graph.module(main=f)).graphs.values()
    layouts = {g.name: g.params[0].type.layout for g in groups if g.is_primitive}
    assert layouts == {"exp": (), COPY: (), "conv": (0, 2, 3, 1)}
    checked(f, rng.standard_normal((1, 16, 24, 24)).astype("f4"))


@pytest.mark.parametrize(("shape", "window"), [
    ((1, 16, 9, 9), (3, 3)),    # small
    ((1, 3, 64, 64), (3, 3)),   # three channels lie in one cache line
    ((1, 64, 20, 20), (1, 1)),  # each element is read once
    ((16, 64, 1, 8), (1, 1)),
])  # fmt: skip
def test_what_gains_nothing_is_not_copied(rng, shape, window):
    x = graph.var("x", shape)
    f = graph.function([x], op.conv(x, weight(rng, 8, shape[1], *window)))
    assert copies(checked(f, rng.standard_normal(shape).astype("f4"))) == 0


@pytest.mark.parametrize("make", [
    lambda x, w: op.global_average_pool(x),
    lambda x, w: op.conv(x, w, strides=(3, 3)),
    lambda x, w: op.conv(x, w, strides=(5, 4)),
])  # fmt: skip
def test_elements_that_are_read_once_are_not_copied(rng, make):
    x = graph.var("x", (1, 16, 24, 24))
    f = graph.function([x], make(x, weight(rng, 8, 16, 3, 3)))
    assert copies(checked(f, rng.standard_normal((1, 16, 24, 24)).astype("f4"))) == 0


def last_axes(model) -> list[str]:
    """The last axis of what the convolution of each kernel stores."""
    found = (b for k in model.kernels for b in blocks(k.func) if b.name == "conv")
    return [b.writes[0].indices[-1].single_var().name for b in found]


@pytest.mark.parametrize(("shape", "filters", "window", "stride", "along"), [
    ((1, 1, 9, 128), 17, (3, 3), (1, 1), True),
    ((2, 3, 9, 65), 17, (3, 5), (2, 1), True),
    ((1, 2, 70), 33, (9,), (1,), True),
    ((1, 1, 5, 6, 32), 20, (3, 3, 3), (1, 1, 1), True),
    ((1, 3, 9, 21), 5, (3, 3), (1, 1), True),       # a vector of channels has empty lanes
    ((1, 1, 9, 28), 17, (3, 3), (1, 1), False),     # one of a row has, too
    ((1, 3, 9, 128), 17, (3, 3), (1, 2), False),    # a row is read with gaps
    ((1, 8, 9, 128), 17, (3, 3), (1, 1), False),
])  # fmt: skip
def test_a_convolution_of_few_channels_runs_along_its_rows(
    rng, shape, filters, window, stride, along
):
    """Nothing turns what it stores; but where others read it, it has its channels last."""
    x = graph.var("x", shape)
    pads = tuple(k // 2 for k in window) * 2
    w = weight(rng, filters, shape[1], *window)
    made = op.relu(op.conv(x, w, strides=stride, pads=pads))
    data = rng.standard_normal(shape).astype("f4")
    first = checked(graph.function([x], made), data)
    assert last_axes(first) == (["vx"] if along else ["vc"])
    again = op.conv(made, weight(rng, 16, filters, *window), pads=pads)
    both = checked(graph.function([x], again), data)
    assert last_axes(both)[0] == "vc"


@pytest.mark.parametrize("shape", [(1, 16, 17, 19), (1, 32, 15, 15), (1, 8, 7, 8, 8)])
def test_statistics_of_uneven_sizes_build(rng, shape):
    """A reduction split unevenly has a guard over it, which no write cache may have."""
    x = graph.var("x", shape)
    ones = graph.const(np.ones(shape[1], "f4"))
    f = graph.function([x], op.group_normalization(x, ones, ones, num_groups=2))
    checked(f, rng.standard_normal(shape).astype("f4"))


def test_what_is_channels_last_already_is_not_copied(rng):
    x = graph.var("x", (1, 20, 20, 32))
    turned = conv(op.transpose(x, perm=(0, 3, 1, 2)), weight(rng, 32, 32, 3, 3))
    f = graph.function([x], op.transpose(turned, perm=(0, 2, 3, 1)))
    assert copies(checked(f, rng.standard_normal((1, 20, 20, 32)).astype("f4"))) == 0


def test_one_function_copies_all_of_one_shape(rng):
    x, y = (graph.var(n, (1, 16, 20, 20)) for n in "xy")
    w = weight(rng, 16, 16, 3, 3)
    f = graph.function([x, y], (conv(x, w), conv(y, w)))
    laid = passes.optimise(graph.module(main=f))
    assert [n for n in laid.graphs if n.startswith(COPY)] == [COPY]
    checked(f, *(rng.standard_normal((1, 16, 20, 20)).astype("f4") for _ in "xy"))


def laid(shape, layout):
    return TensorType(shape, "float32", layout)


CHANNELS_LAST = (0, 2, 3, 1)


@pytest.mark.parametrize(("shape", "layout", "readers", "stored"), [
    ((1, 24, 5, 7), CHANNELS_LAST, [(1, 2, 12, 35)], (1, 35, 24)),
    ((2, 24, 5, 7), CHANNELS_LAST, [(2, 2, 12, 35), (2, 3, 8, 35)], (2, 35, 24)),
    ((1, 24, 5, 7), CHANNELS_LAST, [(24, 35)], (1, 35, 24)),
    ((4, 6, 5, 7), (), [(24, 35)], (24, 35)),
    ((4, 6, 5, 7), (), [(24, 5, 7)], (24, 5, 7)),
    ((1, 24, 5, 7), CHANNELS_LAST, [(1, 2, 12, 35), (24, 5, 7)], None),  # one by height and width
    ((1, 24, 4, 7), CHANNELS_LAST, [(1, 24, 2, 14)], (1, 28, 24)),
    ((2, 6, 4, 7), (1, 0, 2, 3), [(12, 28)], (6, 2, 28)),  # images lie within channels
    ((2, 6, 5, 7), CHANNELS_LAST, [(2, 210)], (2, 35, 6)),
])  # fmt: skip
def test_axes_read_by_position_are_one(shape, layout, readers, stored):
    """Of height and width, which every reader has as one, and of nothing else."""
    x = Var("x", laid(shape, layout))
    outs, bindings = [], []
    for n, to in enumerate(readers):
        r, y = Var(f"r{n}", laid(to, ())), Var(f"y{n}", laid(to, ()))
        bindings += [
            Binding((r,), Call("Reshape", (x,), (("shape", to),))),
            Binding((y,), Call("Tanh", (r,))),
        ]
        outs.append(y)
    body = Body(tuple(bindings), tuple(outs))
    function = Function("f", (x,), body, (("primitive", True),))
    made = with_joined_axes(function)
    if stored is None:
        assert made is function
    else:
        assert made.params[0].type.stored == stored
    a = np.random.default_rng(0).standard_normal(shape).astype("f4")
    given = a.transpose(layout) if layout else a
    func = lower(function)
    assert func.params[0].shape == (stored or given.shape)
    results = [np.empty(to, "f4") for to in readers]
    interpret(func, [np.ascontiguousarray(given).reshape(func.params[0].shape), *results])
    for to, result in zip(readers, results, strict=True):
        np.testing.assert_allclose(result, np.tanh(a.reshape(to)), rtol=1e-6)


@pytest.mark.parametrize("heads_last", [False, True])
def test_attention_over_an_image(rng, heads_last):
    """Heads read (N, C, H * W) of what a convolution made; with a convolution over the heads, whose
    result lies with them last."""
    x = graph.var("x", (2, 16, 6, 7))
    q, k, v = (op.reshape(conv(x, weight(rng, 32, 16, 3, 3)), shape=(2, 4, 8, 42))
               for _ in range(3))  # fmt: skip
    weights = op.matmul(op.transpose(q, perm=(0, 1, 3, 2)), k)
    if heads_last:
        weights = op.conv(weights, weight(rng, 4, 4, 1, 1))
    made = op.matmul(op.softmax(weights), op.transpose(v, perm=(0, 1, 3, 2)))
    back = op.reshape(op.transpose(made, perm=(0, 1, 3, 2)), shape=(2, 32, 6, 7))
    function = graph.function([x], conv(back, weight(rng, 16, 32, 3, 3)))
    model = checked(function, rng.standard_normal((2, 16, 6, 7)).astype("f4"))
    shapes = {p.shape for kernel in model.kernels for p in kernel.func.params}
    assert (2, 42, 32) in shapes
