"""Types of the functional language: dtypes of lists, sizes, general functions, depth."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from language import module, value

from autosched import graph
from autosched.errors import ScriptError
from autosched.graph import passes, unify
from autosched.graph.values import Tagged
from autosched.script import parse


def test_numbers_in_lists_have_the_dtype_of_the_list():
    mod = module(
        """
from prelude import sum
@G.function
def main(xs: List[int32], n: int32) -> int32:
    return sum(xs) + n
"""
    )
    assert graph.evaluate(mod, "main", graph.to_list([1, 2, 3]), 4) == 10
    flat = graph.specialise(mod, "main", {"xs": graph.to_list([1, 2, 3]), "n": 4})
    assert graph.build(flat)()[0] == 10


def test_general_functions_are_not_compiled():
    mod = module('@G.function("s: Shape")\ndef main(x: G.Tensor(s, "int32")): return x + x')
    assert graph.evaluate(mod, "main", np.ones((2, 1), "int32")).tolist() == [[2], [2]]
    with pytest.raises(graph.Unsupported, match="main is general in s: Shape"):
        graph.build(mod)


def test_sizes_hold_in_what_waits_for_types():
    """`n` stands in the type of x, the operator waits for the type of y."""
    mod = module(
        """
@G.function
def f(x: G.Tensor((n,), "float32"), y): return op.add(x, y)
@G.function
def main(): return (f(G.const([1.0, 2.0]), 1.0), f(G.const([1.0]), G.const([[1.0], [2.0]])))
"""
    )
    assert value(graph.evaluate(mod)) == ([2.0, 3.0], [[2.0], [3.0]])


def test_a_size_in_a_signature_fits_any_number():
    mod = module(
        """
@G.function
def pair(x: G.Tensor((n,), "float32")) -> G.Tensor((2 * n,), "float32"):
    return op.concat(x, x, axis=0)
@G.function
def main(x: G.Tensor((3,), "float32")):
    return pair(pair(x))
"""
    )
    assert mod["main"].type.results[0].shape == (12,)


def test_functions_without_types_that_call_each_other_read_back():
    mod = module(
        """
@G.function
def a(x, n):
    if n == 0:
        return x
    return b(x, n - 1)
@G.function
def b(x, n): return a(x + x, n)
@G.function
def main(): return (a(1, 3), a(1.5, 2))
"""
    )
    again = parse(mod.script())
    assert again.same(mod)
    assert again.script() == mod.script()
    assert value(graph.evaluate(again)) == (8, 6.0)


CYCLE = """
@G.function
def rest(n, k):
    if n == 0:
        return k
    return one(n - 1, k)
@G.function
def one(n, k):
    if n == 0:
        return k + k
    return two(n - 1, k)
@G.function
def two(n, k):
    if n == 0:
        return k * k
    return rest(n - 1, k)
@G.function
def main():
    return (rest(10, 3), one(9, 1.5), two(3, 3))
"""


def test_functions_that_compute_each_others_arguments_need_no_types():
    """The argument of each call is another type parameter, tied to the first by an operator."""
    mod = module(CYCLE)
    again = parse(mod.script())
    assert again.same(mod)
    for m in (mod, again, passes.lambda_lift(mod)):
        assert value(graph.evaluate(m)) == (6, 3.0, 9)
    assert [y.tolist() for y in graph.build(mod)()] == [6, 3.0, 9]


def test_what_another_function_of_a_cycle_asks_is_an_error_of_the_call():
    with pytest.raises(ScriptError, match="MatMul") as error:
        module(CYCLE.replace("k * k", "op.matmul(k, k)"))
    assert "rest(10, 3)" in str(error.value)


def nested(deep):
    lines = "".join(f"    t{n + 1} = (t{n}, t0)\n" for n in range(deep))
    return f"@G.function\ndef main(t0: int32):\n{lines}    return t{deep}\n"


def test_types_nest_as_deeply_as_text_of_them_is_read():
    mod = module(nested(unify.DEEPEST - 1))
    assert parse(mod.script()).same(mod)
    with pytest.raises(ScriptError, match="a type nests more than 90 deep; use a data type"):
        module(nested(unify.DEEPEST))


def test_long_lists_are_compared_hashed_and_pickled():
    a, b = graph.to_list(range(50_000)), graph.to_list(range(50_000))
    assert a == b
    assert hash(a) == hash(b)
    assert pickle.loads(pickle.dumps(a)) == a
    assert a != graph.to_list(range(49_999))
    assert Tagged("A", (1, 2)) != Tagged("A", (0, 2))
    assert Tagged("A", (1,)) not in (Tagged("A"), Tagged("B", (1,)), (1,))
    assert copy.deepcopy(Tagged("A", (Tagged("B"), [1]))) == Tagged("A", (Tagged("B"), [1]))
