"""Closures that become functions of the module, and functions that a compiled model calls."""

from __future__ import annotations

import numpy as np
import pytest
from test_language import PROGRAMS, program, value

from autosched import graph
from autosched.errors import WorkloadError
from autosched.graph import recursion
from autosched.graph.ir import Function, bodies
from autosched.graph.passes import lambda_lift, lift
from autosched.script import parse


def function_values(body):
    """Names of the functions inside a body."""
    for b in body.bindings:
        if isinstance(b.value, Function):
            yield b.vars[0].name
        for inner in bodies(b.value):
            yield from function_values(inner)


@pytest.mark.parametrize(("name", "expected", "text"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_programs_give_the_same_value_afterwards(name, expected, text):
    mod = lambda_lift(program(text))
    assert value(graph.evaluate(mod)) == expected
    assert parse(mod.script()).same(mod)


TEXT = """
@G.module
class M:
    @G.function
    def power(x: G.Tensor((4,), "float32"), n: int32) -> G.Tensor((4,), "float32"):
        if n <= 0:
            return x
        return x * power(x, n - 1)
    @G.function
    def even(y: G.Tensor((4,), "float32"), k: int32) -> G.Tensor((4,), "float32"):
        if k == 0:
            return y
        return odd(y + 1.0, k - 1)
    @G.function
    def odd(y: G.Tensor((4,), "float32"), k: int32) -> G.Tensor((4,), "float32"):
        if k == 0:
            return -y
        return even(y * 0.5, k - 1)
    @G.function("A")
    def repeat(f: G.Fn[[A], A], x: A, n: int32) -> A:
        if n == 0:
            return x
        return repeat(f, f(x), n - 1)
    @G.function
    def main(x: G.Tensor((4,), "float32"), w: G.Tensor((4, 4), "float32"), n: int32):
        def add(total: G.Tensor((4,), "float32"), k: int32):
            if k <= 0:
                return total
            return add(op.tanh(op.matmul(total, w)) + x, k - 1)
        return (power(x, n), add(x, n), even(x, n), repeat(lambda y: op.tanh(y) * w[0], x, n))
""".replace("w[0]", "op.reduce_sum(w, axes=(0,), keepdims=0)")


@pytest.fixture(scope="module")
def mod():
    return parse(TEXT)


def test_closures_take_what_is_around_them_as_arguments(mod):
    after = lambda_lift(mod)
    assert not [n for f in after.graphs.values() for n in function_values(f.body)]
    assert [p.name for p in after["add"].params] == ["total", "k", "w", "x"]
    assert "repeat" not in after  # a copy for the closure, and for the type
    assert after["repeat_1"].attr("types") is None
    assert parse(after.script()).same(after)


def test_a_function_value_that_is_given_back_stays_one():
    made = lambda_lift(
        parse("""
@G.module
class M:
    @G.function
    def adder(x: G.Tensor((), "float32")):
        return lambda y: x + y
    @G.function
    def main(x: G.Tensor((), "float32")):
        f = adder(x)
        return f(f(x))
""")
    )
    assert graph.evaluate(made, "main", np.float32(2)) == 6
    assert len([n for f in made.graphs.values() for n in function_values(f.body)]) == 1


def test_functions_are_called_by_a_compiled_model(mod, rng, tmp_path):
    x, w = rng.standard_normal(4).astype("f4"), rng.standard_normal((4, 4)).astype("f4")
    model = graph.build(mod)
    model.save(tmp_path)
    saved = graph.load(tmp_path)
    for n in (0, 1, 6, 0, 25):
        expected = graph.evaluate(mod, "main", x, w, np.int32(n))
        for run in (model, saved):
            for a, b in zip(run(x, w, np.int32(n)), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    tasks, weights = graph.extract_tasks(mod)
    assert {k.workload_key for k in model.kernels} == {t.workload_key for t in tasks}
    assert all(weights)


def test_deep_recursion_ends_in_an_error_and_tail_calls_do_not(mod, monkeypatch):
    monkeypatch.setattr(recursion, "DEEPEST", 50)
    x, w = np.ones(4, "f4"), np.zeros((4, 4), "f4")
    model = graph.build(mod)
    with pytest.raises(WorkloadError, match="more than 50 calls of compiled functions wait"):
        model(x, w, np.int32(60))
    (y, *_) = model(x, w, np.int32(20))
    np.testing.assert_array_equal(y, x)
    tail = graph.build(parse(TEXT.replace("power(x, n), ", "")))
    for a, b in zip(tail(x, w, np.int32(300)), graph.evaluate(
        parse(TEXT), "main", x, w, np.int32(300))[1:], strict=True):  # fmt: skip
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["main", "other"])
def test_a_general_function_that_nothing_calls_stays(name):
    text = f"""
@G.module
class M:
    from prelude import List
    @G.function("A, B")
    def turned(a: A, b: B) -> G.Tuple[B, A]:
        return (b, a)
    @G.function
    def {name}():
        return turned(1, Nil())
"""
    before = parse(text)
    after = lambda_lift(before)
    assert value(graph.evaluate(after, name)) == value(graph.evaluate(before, name))
    assert parse(after.script()).same(after)


def test_sizes_that_double_from_call_to_call_are_refused():
    mod = parse("""
@G.module
class M:
    @G.function
    def f(x: G.Tensor((n,), "int32"), k: int32) -> int32:
        return op.reduce_sum(x, keepdims=0) if k == 0 else f(op.concat(x, x, axis=0), k - 1)
    @G.function
    def main(k: int32):
        return f(G.const([1, 2]), k)
""")
    assert graph.evaluate(mod, "main", 3) == 24
    with pytest.raises(
        WorkloadError, match=r"f is called with more than \d+ types; its types grow"
    ):
        lambda_lift(mod)


def test_a_continuation_that_grows_is_copied_a_few_times():
    mod = parse("""
@G.module
class M:
    @G.function
    def go(n: int32, k: G.Fn[[int32], int32]) -> int32:
        return k(1) if n == 0 else go(n - 1, lambda r: k(r * n))
    @G.function
    def main(n: int32):
        return go(n, lambda x: x)
""")
    after = lambda_lift(mod)
    assert len(after.graphs) < 5 * lift.DEEPEST_COPIES
    for n in (5, 100):
        assert graph.evaluate(after, "main", n) == graph.evaluate(mod, "main", n)
