"""Functional programs that become dataflow, and those that cannot."""

from __future__ import annotations

import sys
from itertools import product
from textwrap import indent

import numpy as np
import pytest
from test_language import PROGRAMS, program, value

from autosched import graph
from autosched.errors import ArgumentError
from autosched.graph import fold, infer
from autosched.graph import op as o
from autosched.graph.builder import const
from autosched.graph.infer import evaluate_operator
from autosched.graph.ir import Binding, Body, Call, Function, Var
from autosched.graph.passes import lambda_lift, partial_eval
from autosched.graph.passes.partial_eval import specialise
from autosched.graph.pattern import any, op
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


def chain(length: int, *names: str):
    """A module of operators in a row, whose types are all to be found."""
    x = Var("x", TensorType((8,), "float32"))
    last, bindings, one = x, [], const(1.0, "float32")
    for n in range(length):
        v = Var("v", Hole())
        name = names[n % len(names)]
        bindings.append(Binding((v,), Call(name, (last, one) if name == "Add" else (last,))))
        last = v
    return IRModule({}, {"main": Function("main", (x,), Body(tuple(bindings), (last,)))})


WIDE = Limits(characters=1 << 24, nodes=10_000_000, seconds=200)


def run_chain(length: int) -> None:
    """All that there is over bindings in a row: Python's stack holds 1,000."""
    mod = graph.check(chain(length, "Add"))
    zeros = np.zeros(8, "f4")
    assert partial_eval(mod).same(mod)
    assert lambda_lift(mod).same(mod)
    assert graph.evaluate(mod, "main", zeros)[0] == length
    assert parse(mod.script(), limits=WIDE).same(mod)
    d = graph.gradient(mod["main"], seeds=True)
    assert d.body.results[1] is d.params[1]
    twice = op("Add")(op("Add")(any.named("v"), any), any)
    made = graph.rewrite(mod, twice, lambda m: o.neg(m["v"]))
    assert len(made["main"].body.bindings) == length // 2
    apart = graph.partition(mod, "cc")
    assert len(apart["cc_0"].body.bindings) == length
    deep = graph.check(chain(length, "Neg", "Softmax"))
    assert len(graph.gradient(deep["main"], seeds=True).body.bindings) == 2 * length
    (y,) = graph.build(deep)(zeros)
    assert y.sum() == pytest.approx(1)


def run_functions(length: int) -> None:
    """Functions of which each calls the next, and a list of as many items."""
    rows = [f"@G.function\ndef f{n}(x: int32) -> int32: return f{n + 1}(x)" for n in range(length)]
    rows += [f"@G.function\ndef f{length}(x: int32) -> int32: return x + 1"]
    rows += ["@G.function\ndef main(x: int32): return f0(x)"]
    mod = parse("@G.module\nclass M:\n" + indent("\n".join(rows), "    "), limits=WIDE)
    for after in (mod, lambda_lift(mod), partial_eval(mod)):
        assert graph.evaluate(after, "main", np.int32(1)) == 2
    items = [f"l{n + 1} = Cons(x, l{n})" for n in range(length)]
    main = indent("\n".join(["l0 = Nil()", *items, f"return sum(l{length})"]), "        ")
    head = "@G.module\nclass M:\n    from prelude import sum\n    @G.function\n"
    mod = parse(f"{head}    def main(x: int32):\n{main}\n", limits=WIDE)
    for after in (mod, lambda_lift(mod), partial_eval(mod)):
        assert graph.evaluate(after, "main", np.int32(1)) == length


def test_a_chain_of_bindings_and_of_functions():
    run_chain(1_100)
    run_functions(1_100)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_chain_of_50000_bindings():
    run_chain(50_000)


@pytest.mark.long
def test_a_chain_of_10000_functions():
    run_functions(10_000)


NUMBERS = {
    "int8": (-128, 127, 3), "uint8": (0, 255, 7), "int32": (-(1 << 31), (1 << 31) - 1, 5),
    "int64": (-(1 << 63), (1 << 63) - 1, 5), "float32": (1.5, np.nan, -np.inf, -0.0, 3e38),
    "float64": (0.1, np.nan, 1e308), "float16": (1.5, 60000.0), "bool": (True, False),
}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_are_computed_as_arrays_are(dtype):
    """Counters are computed without a program; their results are those of the operators."""
    for name in fold.NUMBERS:
        for x, y in product(NUMBERS[dtype], repeat=2):
            a, b = np.array(x, dtype), np.array(y, dtype)
            try:
                (wanted,) = evaluate_operator(name, [a, b], {}, 1)
            except graph.Unsupported:
                with pytest.raises(graph.Unsupported):
                    fold.folded(Call(name, (const(a), const(b))), 1)
                continue
            (found,) = fold.folded(Call(name, (const(a), const(b))), 1)
            assert (found.value.dtype, found.value.shape) == (wanted.dtype, ())
            np.testing.assert_array_equal(found.value, wanted)


def test_a_counter_is_no_program_each_time(monkeypatch):
    """A call that does not end is unfolded as often as any: no program may be made for each."""
    made = []
    monkeypatch.setattr(fold, "inference", lambda *a: made.append(a) or infer.inference(*a))
    monkeypatch.setattr(sys.modules[specialise.__module__], "UNFOLDED", 500)
    mod = parse("""
@G.module
class M:
    @G.function
    def up(n: int32) -> int32:
        return up(n + 1)
    @G.function
    def main(n: int32) -> int32:
        return up(0) if n > 0 else n
""")
    assert "up(G.const(500" in partial_eval(mod)["main"].script()
    assert not made
