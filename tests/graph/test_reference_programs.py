"""Programs that a user has to be able to run: building, strategies, external code, and those of the
language reference that `test_language` has not."""

from __future__ import annotations

import json

import numpy as np
import pytest
from language import SCALAR, dense_twice, module, value

import autosched as at
from autosched import graph
from autosched.errors import ScriptError, WorkloadError
from autosched.graph import external, op, passes, strategies
from autosched.graph.ops import alternatives, conv
from autosched.graph.pattern import any as anything
from autosched.graph.pattern import op as call_of
from autosched.script import parse


def test_one_build_has_every_product(rng):
    x, w = (rng.standard_normal(s).astype("f4") for s in ((1, 64), (32, 64)))
    m = graph.build(dense_twice(), target="llvm", params={"w": w})
    (step,) = json.loads(m.graph_json)["program"]["steps"]
    assert [c["kernel"] for c in step["calls"]] == [k.name for k in m.kernels]
    (weight,) = m.params.values()  # a panel of 32 columns
    np.testing.assert_array_equal(weight.reshape(64, 32), w.T)
    ((target, lowered),) = m.lowered.items()
    assert target.startswith("llvm")
    assert parse(lowered.script()).same(lowered)
    assert m.external == {}
    assert m.plan.bytes >= 0
    np.testing.assert_allclose(m(x)[0], 2 * np.maximum(x @ w.T, 0), rtol=1e-5, atol=1e-5)


def test_a_strategy_of_a_convolution_by_a_user(rng, monkeypatch):
    monkeypatch.setattr(strategies, "_STRATEGIES", dict(strategies._STRATEGIES))

    @graph.strategy("conv2d")
    def conv2d_strategy(s, attrs, inputs, target):
        if any(d < 1 for d in attrs.dilations):
            raise WorkloadError("dilation should be a positive value")
        s.add(conv.conv, name="conv2d.direct", plevel=10)
        s.add(
            alternatives.conv_winograd,
            name="conv2d.winograd",
            plevel=15,
            when=attrs.group == 1 and attrs.kernel_shape == (3, 3) and attrs.strides == (1, 1),
            prepare={1: alternatives.F4.weights},
        )

    taken = []
    x = rng.standard_normal((1, 4, 12, 12)).astype("f4")
    for window, group in (((3, 3), 1), ((3, 3), 2), ((2, 2), 1)):
        w = rng.standard_normal((8, 4 // group, *window)).astype("f4")
        data = graph.var("x", x.shape)
        mod = graph.module(main=graph.function([data], op.conv(data, graph.const(w), group=group)))
        m = graph.build(mod)
        taken.append(m.kernels[0].implementation)
        known = graph.evaluate(mod, "main", x)
        np.testing.assert_allclose(m(x)[0], known, rtol=1e-3, atol=1e-4)
    names = [
        "conv2d.winograd (plevel 15)",
        "conv2d.direct (plevel 10)",
        "conv2d.direct (plevel 10)",
    ]
    assert [t.split(":")[0] for t in taken] == names
    attrs = type("Attrs", (), {"dilations": (0, 1)})
    with pytest.raises(WorkloadError, match="dilation should be a positive value"):
        conv2d_strategy(graph.Strategy(), attrs, [], None)


def test_one_fused_function_its_key_and_an_external_compiler(rng, monkeypatch):
    external.generator("blas")  # the built-in ones are there
    monkeypatch.setattr(external, "_GENERATORS", dict(external._GENERATORS))
    mod = dense_twice()
    x, w = (rng.standard_normal(s).astype("f4") for s in ((1, 64), (32, 64)))
    expected = 2 * np.maximum(x @ w.T, 0)
    fused = passes.fuse(mod)
    (name,) = (n for n, f in fused.graphs.items() if f.is_primitive)
    assert name == "fused_gemm_relu_add"
    out = np.empty((1, 32), "f4")
    at.build(graph.lower(fused[name]), target="llvm")(x, w, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    (task,), _ = graph.extract_tasks(mod)
    assert [k.workload_key for k in graph.build(mod).kernels] == [task.workload_key]

    dense = call_of("Gemm")(anything, anything)

    @graph.external_codegen("mine", patterns=[dense])
    def mine(function, target):
        return lambda a, b, out: np.matmul(a, b.T, out=out)

    m = graph.build(graph.partition(mod, "mine"), target="llvm")
    assert m.external["mine"].functions == ("mine_0",)
    np.testing.assert_allclose(m(x, w)[0], expected, rtol=1e-5, atol=1e-5)


def test_a_relation_between_the_shapes_of_parameters():
    """`where Broadcast`: of parameters without types, each call has its own."""
    text = "@G.function\ndef add(x, y): return op.add(x, y)\n@G.function\ndef main():\n"
    both = "(add(G.const([[1.0], [2.0]]), G.const([10.0, 20.0, 30.0])), add(1, 2))"
    mod = module(f"{text}    return {both}")
    assert value(graph.evaluate(mod)) == ([[11.0, 21.0, 31.0], [12.0, 22.0, 32.0]], 3)
    with pytest.raises(ScriptError, match=r"Add.*\(2,\).*\(3,\)"):
        module(f"{text}    return add(G.const([1.0, 2.0]), G.const([1.0, 2.0, 3.0]))")


def test_an_option_of_a_tensor_is_no_option_of_a_scalar():
    """`@inc_scalar(%big)` is refused."""
    text = f"""
from prelude import Option
@G.function
def inc_scalar(x: Option[{SCALAR}]) -> Option[{SCALAR}]:
    match x:
        case Some(v):
            return Some(v + 1)
        case Nothing():
            return Nothing()
@G.function
def main(big: Option[G.Tensor(SHAPE, "int32")]): return inc_scalar(big)
"""
    mod = module(text.replace("SHAPE", "()"))
    assert value(graph.evaluate(mod, "main", graph.Tagged("Some", (2,)))) == ("Some", 3)
    with pytest.raises(ScriptError, match=r"argument 1, big .*Option\[G.Tensor\(\(10, 10\)"):
        module(text.replace("SHAPE", "(10, 10)"))


LISTS = """
@G.data("A")
class List:
    Cons: (A, List[A])
    Nil: ()
@G.function
def list_sum(xs: List[int32]) -> int32:
    match xs:
        case Cons(x, rest):
            return x + list_sum(rest)
        case Nil():
            return 0
@G.function("A")
def match_order_beware(xs: List[A]) -> int32:
    match xs:
        case _:
            return 0
        case Cons(_, rest):
            return 1 + match_order_beware(rest)
        case Nil():
            return 0
@G.function("A, B")
def map(f: G.Fn[[A], B], xs: List[A]) -> List[B]:
    match xs:
        case Cons(x, rest):
            return Cons(f(x), map(f, rest))
        case Nil():
            return Nil()
@G.function("A, B")
def foldl(f: G.Fn[[B, A], B], start: B, xs: List[A]) -> B:
    match xs:
        case Cons(x, rest):
            return foldl(f, f(start, x), rest)
        case Nil():
            return start
@G.function("A, B")
def foldr(f: G.Fn[[A, B], B], end: B, xs: List[A]) -> B:
    match xs:
        case Cons(x, rest):
            return f(x, foldr(f, end, rest))
        case Nil():
            return end
@G.function
def double(xs: List[int32]) -> List[int32]: return map(lambda x: x * 2, xs)
@G.function("A")
def concat(xs: List[A], ys: List[A]) -> List[A]:
    return foldr(lambda x, rest: Cons(x, rest), ys, xs)
@G.function("A")
def flatten(xs: List[List[A]]) -> List[A]: return foldr(concat, Nil(), xs)
@G.function
def main():
    xs = Cons(1, Cons(2, Cons(3, Nil)))
    return (list_sum(xs), match_order_beware(xs), double(xs), foldl(lambda a, x: a - x, 0, xs),
            foldr(lambda x, a: x - a, 0, xs), flatten(Cons(xs, Cons(double(xs), Nil))))
"""


def test_lists_that_the_program_defines_itself():
    made = value(graph.evaluate(module(LISTS)))
    assert made == (6, 0, [2, 4, 6], -6, 2, [1, 2, 3, 2, 4, 6])


CELLS = """
from prelude import *
@G.function("S, X")
def encode(cell: G.Fn[[S, X], S], xs: List[X], init: S) -> S:
    return foldl(cell, init, xs)
@G.function("S, Y")
def decode(cell: G.Fn[[S], Option[G.Tuple[S, Y]]], init: S) -> List[Y]:
    return unfoldr(cell, init)
@G.function("S, X, Y")
def general_rnn(cell: G.Fn[[S, X], G.Tuple[S, Y]], init: S, xs: List[X]) -> G.Tuple[S, List[Y]]:
    return map_accumr(cell, init, xs)
@G.function("S, T, X, Y, Z")
def bidirectional_rnn(
    one: G.Fn[[S, X], G.Tuple[S, Y]], two: G.Fn[[T, X], G.Tuple[T, Z]], init: S, other: T,
    xs: List[X],
) -> List[G.Tuple[Y, Z]]:
    return zip(map_accumr(one, init, xs)[1], map_accuml(two, other, xs)[1])
@G.function
def cell(h, x, w, r): return op.tanh(op.matmul(x, w) + op.matmul(h, r))
"""
ROW, HIDDEN = (f'G.Tensor({shape}, "float32")' for shape in ("(1, 3)", "(1, 4)"))
PARAMS = (
    f'xs: List[{ROW}], w: G.Tensor((3, 4), "float32"), r: G.Tensor((4, 4), "float32"), h: {HIDDEN}'
)
RNN = f"""
@G.function
def encoded({PARAMS}):
    return encode(lambda state, x: cell(state, x, w, r), xs, h)
@G.function
def general({PARAMS}):
    def step(state, x):
        new = cell(state, x, w, r)
        return (new, new)
    return general_rnn(step, h, xs)
@G.function
def both({PARAMS}):
    def step(state, x):
        new = cell(state, x, w, r)
        return (new, new)
    pairs = bidirectional_rnn(step, step, h, h, xs)
    return map(lambda p: op.concat(p[0], p[1], axis=1), pairs)
@G.function
def decoded(h: {HIDDEN}, r: G.Tensor((4, 4), "float32")):
    def step(p: G.Tuple[{HIDDEN}, int32]) -> Option[G.Tuple[G.Tuple[{HIDDEN}, int32], {HIDDEN}]]:
        new = op.tanh(op.matmul(p[0], r))
        if p[1] > 0:
            return Some(((new, p[1] - 1), new))
        return Nothing()
    return decode(step, (h, 4))
"""


def test_networks_over_lists_are_the_operator_and_numpy(rng):
    """`encode` is a fold, `general_rnn` map_accumr, a bidirectional RNN both directions zipped."""
    mod = module(CELLS + RNN)
    xs = rng.standard_normal((5, 1, 3)).astype("f4")
    w, r = rng.standard_normal((3, 4)).astype("f4"), rng.standard_normal((4, 4)).astype("f4")
    h = np.zeros((1, 4), "f4")
    given = graph.to_list(list(xs)), w, r, h

    def steps(order):
        state, found = h, []
        for x in order:
            state = np.tanh(x @ w + state @ r)
            found.append(state)
        return found

    close = {"rtol": 1e-5, "atol": 1e-6}
    forward, backward = steps(xs), steps(xs[::-1])[::-1]
    got = graph.evaluate(mod, "encoded", *given)
    np.testing.assert_allclose(got, forward[-1], **close)
    from autosched.graph.infer import evaluate_operator

    weights = (w.T[None].copy(), r.T[None].copy())
    onnx = evaluate_operator("RNN", (xs, *weights), {"hidden_size": 4}, 2)
    np.testing.assert_allclose(got, onnx[1][0], **close)
    end, outs = graph.evaluate(mod, "general", *given)
    np.testing.assert_allclose(end, backward[0], **close)
    np.testing.assert_allclose(np.stack(graph.from_list(outs)), np.stack(backward), **close)
    pairs = graph.from_list(graph.evaluate(mod, "both", *given))
    wanted = [np.concatenate(p, axis=1) for p in zip(backward, forward, strict=True)]
    np.testing.assert_allclose(np.stack(pairs), np.stack(wanted), **close)


def test_a_decoder_is_an_unfold(rng):
    r, h = rng.standard_normal((4, 4)).astype("f4"), rng.standard_normal((1, 4)).astype("f4")
    rows = graph.from_list(graph.evaluate(module(CELLS + RNN), "decoded", h, r))
    assert len(rows) == 4
    for row in rows:
        h = np.tanh(h @ r)
        np.testing.assert_allclose(row, h, rtol=1e-5, atol=1e-6)
