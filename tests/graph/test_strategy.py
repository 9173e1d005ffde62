"""Strategies: which implementation is taken, and that all compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.errors import BuildError, WorkloadError
from autosched.graph import nn, op
from autosched.graph import strategies as module
from autosched.graph.compile import compile_module
from autosched.graph.kernels import Choice, task_of
from autosched.graph.ops import alternatives, conv
from autosched.graph.passes import optimise
from autosched.sketch.default import default_schedule
from autosched.target import Target


@pytest.fixture
def restored():
    """The strategies as they were before the test."""
    from autosched.graph import ops  # noqa: F401

    before = dict(module._STRATEGIES)
    yield
    module._STRATEGIES.clear()
    module._STRATEGIES.update(before)


def conv_module(rng, window, co=8, ci=5, size=13, pads=(1, 1, 1, 1)):
    x = graph.var("x", (1, ci, size, size + 2))
    w = graph.const(rng.standard_normal((co, ci, *window)).astype("f4"))
    b = graph.const(rng.standard_normal(co).astype("f4"))
    return graph.module(main=graph.function([x], op.relu(op.conv(x, w, b, pads=pads))))


def only(name):
    """A strategy that has one implementation."""

    def function(s, attrs, inputs, target):
        everything = module.Strategy()
        alternatives.conv_strategy(everything, attrs, inputs, target)
        alternatives_of = {i.name: i for i in everything.valid}
        s.valid.append(alternatives_of[name])

    return function


@pytest.mark.parametrize(
    ("name", "window", "pads"),
    [("conv.winograd", (3, 3), (1, 1, 1, 1)), ("conv.winograd", (3, 3), (0, 0, 0, 0)),
     ("conv.product", (1, 1), (0, 0, 0, 0))],
)  # fmt: skip
def test_implementations_of_conv_agree(restored, rng, name, window, pads):
    mod = conv_module(rng, window, pads=pads)
    x = rng.standard_normal((1, 5, 13, 15)).astype("f4")
    (want,) = graph.build(mod)(x)
    graph.strategy("Conv")(only(name))
    compiled = graph.build(mod)
    assert compiled.kernels[0].implementation.startswith(f"{name} (plevel ")
    np.testing.assert_allclose(compiled(x)[0], want, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(graph.evaluate(mod, "main", x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("window", "size", "attrs"),
    [((3, 3, 3), (3, 7, 10), {"pads": (1,) * 6}),
     ((3, 3, 3), (5, 6, 5), {}),
     ((1, 3, 3), (4, 9, 6), {"pads": (0, 1, 1, 0, 0, 1)}),
     ((2, 3, 3), (6, 5, 8), {"pads": (2, 1, 0, 1, 0, 1), "strides": (2, 1, 1)}),
     ((3, 3, 3), (7, 5, 5), {"pads": (2, 1, 1, 2, 1, 1), "dilations": (2, 1, 1)})],
)  # fmt: skip
def test_volumes_by_winograd_agree(restored, rng, window, size, attrs):
    """Planes are transformed; along depth products are summed, those in the padding left out."""
    x = graph.var("x", (2, 5, *size))
    w = graph.const(rng.standard_normal((9, 5, *window)).astype("f4"))
    b = graph.const(rng.standard_normal(9).astype("f4"))
    mod = graph.module(main=graph.function([x], op.relu(op.conv(x, w, b, **attrs))))
    data = rng.standard_normal((2, 5, *size)).astype("f4")
    want = graph.evaluate(mod, "main", data)
    graph.strategy("Conv")(only("conv.winograd"))
    compiled = graph.build(mod)
    assert compiled.kernels[0].implementation.startswith("conv.winograd (plevel ")
    np.testing.assert_allclose(compiled(data)[0], want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("group", "depth", "each", "window", "attrs"),
    [(4, 5, 16, (3, 3), {"pads": (1, 1, 1, 1)}),
     (3, 8, 37, (3, 2), {"strides": (2, 1), "pads": (0, 1, 2, 0), "dilations": (1, 2)}),
     (2, 3, 24, (3,), {"pads": (2, 1), "strides": (3,)})],
)  # fmt: skip
def test_weights_group_by_group_agree(rng, group, depth, each, window, attrs):
    """Taken without asking where a group fills a vector."""
    size = (9, 11)[: len(window)]
    x = graph.var("x", (2, group * depth, *size))
    w = graph.const(rng.standard_normal((group * each, depth, *window)).astype("f4"))
    b = graph.const(rng.standard_normal(group * each).astype("f4"))
    mod = graph.module(main=graph.function([x], op.conv(x, w, b, group=group, **attrs)))
    data = rng.standard_normal((2, group * depth, *size)).astype("f4")
    compiled = graph.build(mod, target=Target("llvm -mcpu=haswell"))
    assert compiled.kernels[-1].implementation.startswith("conv.groups (plevel ")
    want = graph.evaluate(mod, "main", data)
    np.testing.assert_allclose(compiled(data)[0], want, rtol=1e-4, atol=1e-4)


def test_rows_of_dense_agree(restored, rng):
    x, w = graph.var("x", (2, 48)), graph.const(rng.standard_normal((7, 48)).astype("f4"))
    mod = graph.module(main=graph.function([x], nn.dense(x, w)))
    a = rng.standard_normal((2, 48)).astype("f4")
    (want,) = graph.build(mod)(a)

    @graph.strategy("dense")
    def rows(s, attrs, inputs, target):
        s.add(alternatives.gemm_rows, name="dense.rows", plevel=1)

    compiled = graph.build(mod)
    assert compiled.kernels[0].implementation == "dense.rows (plevel 1): default schedule"
    np.testing.assert_allclose(compiled(a)[0], want, rtol=1e-5, atol=1e-5)


def test_a_users_strategy_takes_the_place(restored, rng):
    seen = []

    @graph.strategy("conv2d")
    def mine(s, attrs, inputs, target):
        if any(d < 1 for d in attrs.dilations):
            raise WorkloadError("dilation should be a positive value")
        seen.append((attrs.kernel_shape, attrs.strides, inputs[0].shape, inputs[1].constant))
        s.add(conv.conv, name="mine.low", plevel=3)
        s.add(conv.conv, name="mine.high", plevel=20)
        s.add(conv.conv, name="mine.never", plevel=99, when=attrs.group != 1)

    compiled = graph.build(conv_module(rng, (3, 3)))
    assert compiled.kernels[0].implementation == "mine.high (plevel 20): default schedule"
    assert seen[0] == ((3, 3), (1, 1), (1, 5, 13, 15), True)

    @graph.strategy("conv2d")
    def none(s, attrs, inputs, target):
        s.add(conv.conv, name="never", when=False)

    with pytest.raises(BuildError, match="has no implementation"):
        graph.build(conv_module(rng, (3, 3)))
    with pytest.raises(WorkloadError, match="no operator is named 'nothing'"):
        graph.strategy("nothing")


@pytest.mark.parametrize(
    "prepare",
    [
        lambda w: np.concatenate([w, w]) if w.any() else w,
        lambda w: w.astype("f8" if w.any() else "f4"),
    ],
)
def test_a_weight_that_is_prepared_otherwise_than_zeros_is_refused(restored, rng, prepare):
    """The kernel is made for what zeros become, and would read past what the weight becomes."""

    @graph.strategy("conv2d")
    def mine(s, attrs, inputs, target):
        s.add(conv.conv, name="mine", prepare={1: prepare})

    mod = conv_module(rng, (3, 3), co=4)
    with pytest.raises(BuildError, match=r"by mine .*its prepare function gave .* for zeros"):
        graph.build(mod)


def test_recorded_times_decide(restored, rng):
    mod = conv_module(rng, (3, 3))
    target = Target("llvm")
    (function,) = [f for f in optimise(mod).graphs.values() if f.is_primitive]
    rows = {i.name: i for i in module.implementations(function, target)}
    assert list(rows) == ["conv.direct", "conv.winograd"]
    times = {task_of(function, rows["conv.direct"]).script(): 2e-3,
             task_of(function, rows["conv.winograd"]).script(): 1e-3}  # fmt: skip

    def choose(func, where):
        return Choice(default_schedule(func, where).func, times[func.script()], "record 7")

    compiled = compile_module(mod, target, choose=choose)
    (kernel,) = compiled.kernels
    assert kernel.implementation == "conv.winograd: record 7, 1000 us"
    assert kernel.seconds == 1e-3


def test_an_implementation_brings_its_schedule(restored, rng):
    @graph.strategy("conv2d")
    def mine(s, attrs, inputs, target):
        def schedule(sch):
            for block in ("bias", "relu"):
                sch.parallel(sch.get_loops(sch.get_block(block))[1])

        s.add(conv.conv, name="mine", schedule=schedule)

    mod = conv_module(rng, (3, 3))
    compiled = graph.build(mod)
    assert compiled.kernels[0].implementation == "mine (plevel 10): its own schedule"
    x = rng.standard_normal((1, 5, 13, 15)).astype("f4")
    np.testing.assert_allclose(compiled(x)[0], graph.evaluate(mod, "main", x), rtol=1e-4, atol=1e-5)
