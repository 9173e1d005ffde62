"""Dataflow patterns: what they match, and rewriting."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched import graph
from autosched.errors import AutoschedError
from autosched.graph import nn
from autosched.graph import op as o
from autosched.graph.pattern import any, const, matches, op

X = graph.var("x", (1, 4, 8, 8))
W = graph.const(np.ones((4, 4, 3, 3), np.float32))
B = graph.const(np.arange(4, dtype=np.float32))


def function(result, *params):
    return graph.function(list(params) or [X], result)


def roots(pattern, *results, params=(X,)):
    """Operators of the roots of all matches."""
    f = graph.function(list(params), list(results))
    return [m.root.value.callee for m in matches(pattern, f)]


def test_operators_arguments_and_alternatives():
    conv = nn.conv2d(X, W, padding=1)
    biased = o.conv(X, W, B, pads=(1, 1, 1, 1))
    y = o.relu(o.add(conv, biased))
    table = [
        (op("conv2d")(any, const), ["Conv"]),  # the one without a bias
        (op("conv2d")(any, const, const), ["Conv"]),
        (op("conv2d")(any, const, ...), ["Conv", "Conv"]),
        (op("conv2d"), ["Conv", "Conv"]),
        (op("conv")(const, any, ...), []),
        (op("Conv")(any, const, None), ["Conv"]),
        (op("Relu")(op("Add")(op("Conv"), op("Conv"))), ["Relu"]),
        (op("Relu") | op("Add"), ["Add", "Relu"]),
        (op(), ["Conv", "Conv", "Add", "Relu"]),
        (op("Sigmoid"), []),
        (any, []),  # it names no operator
        # Either order of arguments, of what may be turned around.
        (op("Add")(op("Conv")(any, const, const), op("Conv")(any, const)), ["Add"]),
    ]
    for n, (pattern, expected) in enumerate(table):
        assert roots(pattern, y) == expected, n
    sub = o.sub(conv, o.relu(conv))
    assert roots(op("Sub")(op("Relu"), op("Conv")), sub) == []


def test_conditions_on_attributes_types_and_values():
    flat = o.softmax(o.flatten(X))
    other = o.softmax(X, axis=1)
    table = [
        (op("Softmax")(any, axis=1), ["Softmax"]),
        (op("Softmax")(any, axis=-1), ["Softmax"]),  # its default
        (op("Softmax")(any, axis=lambda a: a > -5), ["Softmax", "Softmax"]),
        (op("Softmax")(any).typed(shape=(1, None)), ["Softmax"]),
        (op("Softmax")(any.typed(shape=(None, 4, ...))), ["Softmax"]),
        (op("Softmax")(any).typed(dtype="float64"), []),
        (op("Softmax")(any).where(lambda v: len(v.shape) == 4), ["Softmax"]),
    ]
    for n, (pattern, expected) in enumerate(table):
        assert roots(pattern, flat, other) == expected, n
    one = o.mul(X, graph.const(1.0))
    assert roots(op("Mul")(any, const(1.0)), one) == ["Mul"]
    assert roots(op("Mul")(any, const(2.0)), one) == []


def test_one_pattern_twice_is_one_value():
    r = o.relu(X)
    swish, other = o.mul(r, o.sigmoid(r)), o.mul(r, o.sigmoid(X))
    shared = op("Relu")(any)
    by_object = op("Mul")(shared, op("Sigmoid")(shared))
    by_name = op("Mul")(any.named("v"), op("Sigmoid")(any.named("v")))
    for pattern in (by_object, by_name):
        (found,) = matches(pattern, function(o.add(swish, other)))
        assert found.root.vars[0] is swish.atom
    assert len(matches(op("Mul")(any, op("Sigmoid")(any)), function(o.add(swish, other)))) == 2


def test_a_match_names_its_values_and_attributes():
    conv = nn.conv2d(X, W, padding=1)
    layer = op("conv2d")(any.named("x"), const.named("w")).named("conv").optional(op("Relu"))
    found = matches(layer, function(o.relu(conv)))[-1]
    assert [b.value.callee for b in found.bindings] == ["Conv", "Relu"]
    assert found["x"].atom is X.atom
    assert found["w"].shape == (4, 4, 3, 3)
    assert found.attributes("conv")["pads"] == (1, 1, 1, 1)
    assert found.attributes("conv")["group"] == 1
    assert "bias" not in found
    with pytest.raises(AutoschedError, match="no value named 'bias'; named are: x, w, conv"):
        found["bias"]
    (second,) = matches(op("Split")(any)[1], function(o.split(X, outputs=2, axis=1)[1]))
    assert second.root.value.callee == "Split"


def test_rewriting_computes_the_same(rng):
    r = o.relu(o.relu(X))
    y = o.add(o.mul(r, graph.const(1.0)), o.mul(graph.const(1.0), o.exp(r)))
    mod = graph.module(main=function(y))
    same = graph.rewrite(mod, op("Mul")(any.named("v"), const(1.0)), lambda m: m["v"])
    same = graph.rewrite(same, op("Relu")(op("Relu").named("r")), lambda m: m["r"])
    assert [b.value.callee for b in same["main"].body.bindings] == ["Relu", "Exp", "Add"]
    x = rng.standard_normal((1, 4, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(graph.evaluate(mod, "main", x), graph.evaluate(same, "main", x))


def test_rewriting_takes_the_larger_match_and_may_read_what_it_replaces(rng):
    conv = nn.conv2d(X, W, padding=1)
    mod = graph.module(main=function(o.add(o.relu(conv), conv)))
    seen = []
    layer = op("conv2d")(any, const).optional(op("Relu")).named("y")

    def twice(match):
        seen.append(len(match.bindings))
        return o.mul(match["y"], graph.const(2.0))

    made = graph.rewrite(mod, layer, twice)
    assert seen == [2]
    x = rng.standard_normal((1, 4, 8, 8)).astype(np.float32)
    plain = graph.evaluate(graph.module(main=function(conv)), "main", x)
    np.testing.assert_allclose(
        graph.evaluate(made, "main", x), 2 * np.maximum(plain, 0) + plain, rtol=1e-6
    )


def test_rewriting_begins_anew_while_something_changes():
    y = X
    for _ in range(5):
        y = o.relu(y)
    mod = graph.module(main=function(y))
    pair = op("Relu")(op("Relu").named("r"))
    assert len(graph.rewrite(mod, pair, lambda m: m["r"])["main"].body.bindings) == 3
    assert len(graph.rewrite(mod, pair, lambda m: m["r"], most=9)["main"].body.bindings) == 1
    left = graph.rewrite(mod, pair, lambda m: None, most=9)
    assert left.same(mod)


def test_rewriting_goes_into_branches_and_is_a_pass():
    text = """
@G.module
class Module:
    @G.function
    def main(p: G.Tensor((), "bool"), x: G.Tensor((3,), "float32")) -> G.Tensor((3,), "float32"):
        if p:
            a = op.relu(x)
            b = op.relu(a)
            y = b
        else:
            c = op.exp(x)
            y = c
        return y
"""
    from autosched.script import parse

    double = op("Relu")(op("Relu").named("r"))
    one = graph.rewrite_pass("once", double, lambda m: m["r"])
    run = at.passes.Sequential([one]).run(parse(text))
    assert [s.name for s in run.steps] == ["once"]
    assert run.after.script().count("op.relu") == 1


def test_a_chain_of_ten_thousand_is_matched_and_rewritten():
    from autosched.graph.ir import Binding, Body, Call, Function, Var

    x = Var("x", X.type)
    at_, out = x, []
    for n in range(10_000):
        v = Var("y", X.type)
        out.append(Binding((v,), Call("Relu" if n % 2 else "Neg", (at_,))))
        at_ = v
    f = Function("main", (x,), Body(tuple(out), (at_,)))
    made = graph.rewrite(
        graph.module(main=f), op("Relu")(op("Neg")(any.named("v"))), lambda m: o.abs(m["v"])
    )
    assert len(made["main"].body.bindings) == 5_000


def test_both_orders_of_arguments_are_tried_once_for_each_value():
    """A value used twice, 40 deep, has 2 ** 40 ways down to it."""
    y, p = X, op("Relu")
    for _ in range(40):
        y = o.add(o.add(y, 1.0), o.add(y, 2.0))
    for _ in range(80):
        p = op("Add")(p, any)
    assert not matches(p, function(y))
    p = op("Add")(any.named("x"), const(1.0))
    for _ in range(20):
        p = p.optional(op("Relu")).optional(op("Neg"))
    assert len(matches(p, function(y))) == 40


def test_wrong_patterns_and_rewritings_say_so():
    mod = graph.module(main=function(o.relu(X)))

    def deep():
        p = any
        for _ in range(200):
            p = op("Relu")(p)

    table = [
        (lambda: op("Nothing"), "no operator is named 'Nothing'"),
        (lambda: op("Relu")(3), "argument 0 of the pattern Relu is 3"),
        (lambda: op("Relu")(..., any), "argument 0 of the pattern Relu"),
        (lambda: op("Softmax")(any, axes=1), "Softmax has no attribute 'axes'"),
        (lambda: any | 1, "the other pattern of |"),
        (lambda: any.optional(1), "optional takes 1"),
        (lambda: any.where(1), "where takes 1"),
        (lambda: any.typed(dtype="float"), "there is no such dtype"),
        (lambda: any.named(""), "name of a pattern"),
        (deep, "more than 128 patterns deep"),
        (lambda: graph.rewrite(mod, op("Relu"), lambda m: 1), r"\(Relu\) gives 1"),
        (lambda: graph.rewrite(mod, op("Relu"), lambda m: (m.value, m.value)), "gives 2 values"),
        (
            lambda: graph.rewrite(mod, op("Relu"), lambda m: o.flatten(m.value)),
            r"of relu \(Relu\) gives G.Tensor\(\(1, 256\).*stands for is G.Tensor\(\(1, 4, 8, 8\)",
        ),
        (
            lambda: graph.rewrite(
                mod, op("Relu"), lambda m: o.add(m.value, graph.var("z", X.shape))
            ),
            "what the callback made in main uses the variable z, which is not bound before it",
        ),
        (lambda: graph.rewrite(mod, op("Relu"), lambda m: None, most=0), "most is 0"),
        (lambda: graph.rewrite(mod, 1, lambda m: None), "the pattern"),
    ]
    for make, message in table:
        with pytest.raises(AutoschedError, match=message):
            make()
