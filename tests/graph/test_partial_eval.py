"""Functional programs that become dataflow, and those that cannot."""

from __future__ import annotations

import numpy as np
import pytest
from test_language import PROGRAMS, program, value

from autosched import graph
from autosched.errors import ArgumentError
from autosched.graph.builder import const
from autosched.graph.ir import Binding, Body, Call, Function, Var
from autosched.graph.passes import partial_eval
from autosched.graph.types import Hole, TensorType
from autosched.script import Limits, parse
from autosched.tir.module import IRModule


@pytest.mark.parametrize(("name", "expected", "text"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_programs_give_the_same_value_afterwards(name, expected, text):
    mod = partial_eval(program(text))
    assert value(graph.evaluate(mod)) == expected
    assert parse(mod.script()).same(mod)
    assert not [b for b in mod["main"].body.bindings if isinstance(b.value, Function)]


FOLD = """
@G.module
class M:
    from prelude import foldl, map_accuml
    @G.function
    def cell(h, x, w, r):
        return op.tanh(op.matmul(x, w) + op.matmul(h, r))
    @G.function
    def main(xs: List[G.Tensor((1, 8), "float32")], w: G.Tensor((8, 8), "float32"),
             r: G.Tensor((8, 8), "float32"), h: G.Tensor((1, 8), "float32")):
        def step(state, x):
            new = cell(state, x, w, r)
            return (new, new)
        end, outs = map_accuml(step, h, xs)
        return (end, foldl(lambda a, x: a + x, h, outs))
"""


def operators(f):
    return [b.value.callee for b in f.body.bindings if isinstance(b.value, Call)]


def test_a_fold_rnn_becomes_dataflow_and_compiles(rng):
    mod = parse(FOLD)
    steps = 4
    known = graph.to_list([graph.var(f"x{i}", (1, 8)) for i in range(steps)])
    flat = graph.specialise(mod, "main", {"xs": known})
    assert parse(flat.script()).same(flat)
    # Each cell is computed once, though its value is both a state and an output.
    found = operators(flat["main"])
    assert sorted(found) == sorted(["MatMul", "MatMul", "Add", "Tanh", "Add"] * steps)
    xs = [rng.standard_normal((1, 8)).astype("f4") for _ in range(steps)]
    w, r = (rng.standard_normal((8, 8)).astype("f4") for _ in range(2))
    h = np.zeros((1, 8), "f4")
    expected = graph.evaluate(mod, "main", graph.to_list(xs), w, r, h)
    for got in (graph.evaluate(flat, "main", *xs, w, r, h), graph.build(flat)(*xs, w, r, h)):
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_build_evaluates_a_functional_program():
    mod = parse("""
@G.module
class M:
    from prelude import iterate
    @G.function
    def main(x: G.Tensor((4,), "float32")):
        return iterate(lambda y: y * 2.0 + 1.0, 3)(x)
""")
    x = np.arange(4, dtype="f4")
    (y,) = graph.build(mod)(x)
    np.testing.assert_allclose(y, x * 8 + 7)


LEFT = """
@G.module
class M:
    from prelude import foldl, map
    @G.function
    def power(x: G.Tensor((), "float32"), n: G.Tensor((), "int32")) -> G.Tensor((), "float32"):
        if n <= 0:
            return 1.0
        return x * power(x, n - 1)
    @G.function
    def main(x: G.Tensor((), "float32"), n: G.Tensor((), "int32")):
        def add(total: G.Tensor((), "float32"), k: G.Tensor((), "int32")):
            if k <= 0:
                return total
            return add(total + x, k - 1)
        scale = 1.0 + 1.0
        return (power(x, n), power(x, 3), add(0.0, n) * scale)
    @G.function
    def total(xs: List[G.Tensor((), "float32")], x: G.Tensor((), "float32")):
        return foldl(lambda a, y: a + y * x, 0.0, xs)
"""


def test_what_hangs_on_data_is_left():
    mod = parse(LEFT)
    after = partial_eval(mod)
    assert parse(after.script()).same(after)
    x, n = np.float32(1.5), np.int32(5)
    expected = value(graph.evaluate(mod, "main", x, n))
    assert value(graph.evaluate(after, "main", x, n)) == expected == (1.5**5, 1.5**3, 15.0)
    assert "total" not in after  # nothing calls it
    np.testing.assert_allclose(graph.build(mod)(x, n), expected)  # recursion on tensors compiles
    folded = graph.specialise(mod, "total")
    xs = graph.to_list([np.float32(1), np.float32(2)])
    assert graph.evaluate(folded, "total", xs, x) == graph.evaluate(mod, "total", xs, x) == 4.5


def test_a_long_list_is_folded_and_unknown_names_are_refused():
    mod = parse(LEFT)
    many = graph.to_list([np.float32(1)] * 3000)
    after = graph.specialise(mod, "total", {"xs": many})
    assert operators(after["total"]).count("Add") == 3000
    assert graph.evaluate(after, "total", np.float32(2)) == 6000
    with pytest.raises(ArgumentError, match="no parameter 'ys'; it has xs, x"):
        graph.specialise(mod, "total", {"ys": many})


def chain(length: int):
    """A module of bindings in a row, whose types are all to be found."""
    x = Var("x", TensorType((8,), "float32"))
    last, bindings, one = x, [], const(1.0, "float32")
    for _ in range(length):
        v = Var("v", Hole())
        bindings.append(Binding((v,), Call("Add", (last, one))))
        last = v
    return IRModule({}, {"main": Function("main", (x,), Body(tuple(bindings), (last,)))})


def run_chain(length: int) -> None:
    mod = graph.check(chain(length))
    assert partial_eval(mod).same(mod)
    assert graph.evaluate(mod, "main", np.zeros(8, "f4"))[0] == length
    wide = Limits(characters=1 << 24, nodes=10_000_000, seconds=200)
    assert parse(mod.script(), limits=wide).same(mod)


def test_a_chain_of_bindings():
    run_chain(3_000)


@pytest.mark.long
def test_a_chain_of_50000_bindings():
    run_chain(50_000)
