"""The programs of the language reference, each with the value that is stated for it."""

from __future__ import annotations

import numpy as np
import pytest
from language import SCALAR, module, program, value

from autosched import graph
from autosched.errors import ArgumentError, ScriptError, WorkloadError
from autosched.graph.machine import DEEPEST
from autosched.graph.prelude import TEXT
from autosched.graph.values import Tagged
from autosched.script import parse

# What is computed by `main`, and the definitions; "S" stands for a scalar of int32.
PROGRAMS = [
    ("let and shadowing", 4, "def main():\n a = 1\n b = 2 * a\n a = a + a\n return a + b"),
    (
        "closures keep what was around them",
        [0.0, 0.0],
        """
def main():
    def g():
        x = G.const([0.0, 0.0])
        return lambda y: y * x
    f = g()
    x = G.const([1.0, 1.0])
    return f(x)""",
    ),
    ("a function with types", 5, "def main():\n f = add\n return f(2, 3)\n"
        "def add(x: S, y: S) -> S: return x + y"),
    ("a function without types", (3, [2.5, 3.5]), "def add(x, y): return x + y\n"
        "def main(): return (add(1, 2), add(G.const([1.0, 2.0]), 1.5))"),
    (
        "a local function that calls itself",
        120,
        """
def main():
    def fact(n: S) -> S:
        return 1 if n == 0 else n * fact(n - 1)
    return fact(5)""",
    ),
    ("identity", (7, [1.0]), "t::def identity(x: t) -> t: return x\n"
        "def main(): return (identity(7), identity(G.const([1.0])))"),
    ("type arguments", 7, "t::def identity(x: t) -> t: return x\n"
        "def main(): return identity[S](7)"),
    ("a captured constant", 22, "def main():\n c = 1\n f = lambda x, y: x + y + c\n"
        " return f(10, 11)"),
    ("a lambda that calls itself", 120,
        "def main():\n f = lambda n: 1 if n == 0 else n * f(n - 1)\n return f(5)"),
    ("a lambda over the one before it", 3,
        "def main():\n f = lambda n: n + 1\n f = lambda n: f(n) + 1\n return f(1)"),
    ("elif, and comparisons in a row", (10, 20, 30), "def pick(n: S):\n if n == 0:\n  return 10\n"
        " elif 0 < n < 5:\n  return 20\n else:\n  return 30\n"
        "def main(): return (pick(0), pick(3), pick(5))"),
    ("all that branches give and is read later", (5, 4, 8), "def main():\n x = 1\n y = 1\n"
        " if x == 1:\n  x = 2\n  y = 3\n else:\n  y = 4\n z = 4\n if x == 7:\n  z = 5\n"
        " x += 6\n return (2 + y, z, x)"),
    ("branches inside branches", (2, 1), "def pick(x: S):\n if x < 2:\n  if x < 1:\n   y = 1\n"
        "  else:\n   y = 2\n else:\n  y = 3\n return y\ndef main(): return (pick(1), pick(0))"),
    ("a case that gives two", 3, "def main():\n match (1, 2):\n  case (a, b):\n   c = a\n   d = b\n"
        " return c + d"),
    ("names for parts of parts", 6, "def main():\n (a, b), c = (1, 2), 3\n return a + b + c"),
    ("numbers of two kinds", (0.5, True), "def main(): return (2 - 1.5, 1 < 2.5)"),
    ("stated numbers", (5.0, 6), "def main():\n x: float32 = 5\n y: int64 = 5\n return (x, y + 1)"),
    ("truth values", True, "def main(): return True and False or True"),
    ("a parameter for a shape", ([[2.0, 2.0]], [0.0], 6.0),
        's: Shape::def dbl(x: G.Tensor(s, "float32")) -> G.Tensor(s, "float32"): return x * 2.0\n'
        "def main(): return (dbl(G.const([[1.0, 1.0]])), dbl(G.const([0.0])), dbl(3.0))"),
    ("parameters for shapes and dtypes", (3, [3.0], [4.0], 4), "s: Shape, d: BaseType::"
        "def both(x: G.Tensor(s, d), y: G.Tensor(s, d)) -> G.Tensor(s, d): return x + y\n"
        "def twice(x): return both(x, x)\n"
        'def main(): return (both(1, 2), both[(1,), "float32"](G.const([1.0]), G.const([2.0])),'
        " twice(G.const([2.0])), twice(2))"),
    ("a parameter for a size", [2.0, 2.0, 2.0], 'n: ShapeVar, d: BaseType::'
        "def rows(x: G.Tensor((n, 2), d)) -> G.Tensor((n,), d):\n"
        " return op.reduce_sum(x, axes=(1,), keepdims=0)\n"
        'def main(): return rows[3, "float32"](G.const([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]))'),
    ("a list of tensors of one shape", ([1.0, 2.0], 3),
        "from prelude import foldl\ns: Shape, d: BaseType::"
        "def total(xs: List[G.Tensor(s, d)], start: G.Tensor(s, d)) -> G.Tensor(s, d):\n"
        " return foldl(lambda a, x: a + x, start, xs)\n"
        "def main(): return (total(Cons(G.const([1.0, 2.0]), Nil), G.const([0.0, 0.0])),"
        " total(Cons(1, Cons(2, Nil)), 0))"),
    (
        "ackermann",
        9,
        """
def ackermann(m: S, n: S) -> S:
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))
def main():
    return ackermann(2, 3)""",
    ),
    ("tuples", (2, (1, 2)), "def main():\n t = (1, 2)\n a, b = t\n return (t[1], t)"),
    ("lets in another order", 3, "def main():\n b = 2\n a = 1\n return a + b"),
    ("a value used twice", 8, "def main():\n x = 2 + 2\n return x + x"),
    ("if on a scalar", (1, 2), "def pick(c): return 1 if c else 2\n"
        "def main(): return (pick(2 > 1), pick(2 < 1))"),
    ("and, or, not", (False, True, True), "def main():\n t = 1 == 1\n"
        " return (t and 1 == 2, t or 1 == 2, not (1 == 2))"),
    (
        "even and odd call each other",
        (True, False),
        """
def even(n: S): return n == 0 or odd(n - 1)
def odd(n: S): return n != 0 and even(n - 1)
def main(): return (even(10), odd(10))""",
    ),
    (
        "Nat: minus one, minus two, the first clause that fits",
        (1, 0, 0, 0),
        """
@G.data
class Nat:
    Z: ()
    S: (Nat,)
def minus_one(n: Nat) -> Nat:
    match n:
        case S(m):
            return m
        case Z():
            return n
def minus_two(n: Nat) -> Nat:
    match n:
        case S(S(m)):
            return m
        case _:
            return Z()
def count(n: Nat) -> G.Tensor((), "int32"):
    match n:
        case Z():
            return 0
        case S(m):
            return 1 + count(m)
def order(n: Nat) -> G.Tensor((), "int32"):
    match n:
        case _:
            return 0
        case Z():
            return 1
def main():
    two = S(S(Z))
    return (count(minus_one(two)), count(minus_two(two)), count(minus_one(Z())), order(Z()))""",
    ),
    (
        "Optional: inc_scalar",
        (("Some", 3), ("Nothing",)),
        """
from prelude import Option
def inc_scalar(x: Option[S]) -> Option[S]:
    match x:
        case Some(v):
            return Some(v + 1)
        case Nothing():
            return Nothing()
def main(): return (inc_scalar(Some(2)), inc_scalar(Nothing()))""",
    ),
    (
        "List: sum, first, second_opt with its four results",
        (6, ("Some", 1), ("Nothing",), ("Nothing",), ("Some", 2), ("Some", 2)),
        """
from prelude import List, Option, sum, hd
A::def second_opt(xs: List[A]) -> Option[A]:
    match xs:
        case Cons(_, Cons(second, _)):
            return Some(second)
        case Cons(_, Nil()):
            return Nothing()
        case Nil():
            return Nothing()
def main():
    xs = Cons(1, Cons(2, Cons(3, Nil)))
    return (sum(xs), hd(xs), second_opt(tail(Cons(1, Nil))), second_opt(Cons(1, Nil)),
            second_opt(xs), second_opt(Cons(1, Cons(2, Nil))))
def tail(xs: List[S]) -> List[S]:
    match xs:
        case Cons(_, rest):
            return rest
        case Nil():
            return xs""",
    ),
    (
        "map, foldl, foldr, double, concat, flatten",
        ([2, 4, 6], 6, 2, [1, 2, 3, 1, 2, 3], [1, 2, 3, 1]),
        """
from prelude import map, foldl, foldr, concat
def double(xs: List[S]) -> List[S]: return map(lambda x: x * 2, xs)
A::def flatten(xs: List[List[A]]) -> List[A]: return foldr(concat, Nil(), xs)
def main():
    xs = Cons(1, Cons(2, Cons(3, Nil)))
    return (double(xs), foldl(lambda a, x: a + x, 0, xs), foldr(lambda x, a: x - a, 0, xs),
            concat(xs, xs), flatten(Cons(xs, Cons(Cons(1, Nil), Nil))))""",
    ),
    (
        "a cell with its weights is a closure",
        [[3.0, 0.0]],
        """
def linear(x, w, b): return op.matmul(x, w) + b
def relu_cell(w, b): return lambda x: op.relu(linear(x, w, b))
def trained_cell(): return relu_cell(G.const([[1.0, 0.0], [0.0, -1.0]]), G.const([1.0, 1.0]))
def main():
    cell = trained_cell()
    return cell(G.const([[2.0, 3.0]]))""",
    ),
    (
        "unfoldr generates, the seed is consumed",
        ([5, 4, 3, 2, 1], [1, 2, 3, 4, 5]),
        """
from prelude import unfoldr, unfoldl
def down(n: S) -> Option[G.Tuple[S, S]]:
    if n > 0:
        return Some((n - 1, n))
    return Nothing()
def main(): return (unfoldr(down, 5), unfoldl(down, 5))""",
    ),
    (
        "the rest of the prelude",
        (3, ("Some", 3), [3, 2, 1], [1, 9, 3], [2, 3], 11, 1, 1024, ("Some", 2), ("Some", [2, 3])),
        """
from prelude import *
def main():
    xs = Cons(1, Cons(2, Cons(3, Nil)))
    return (length(xs), nth(xs, 2), rev(xs), update(xs, 1, 9), filter(lambda x: x > 1, xs),
            compose(lambda x: x + 1, lambda x: x * 2)(5), flip(lambda a, b: a - b)(1, 2),
            iterate(lambda x: x * 2, 10)(1), foldr1(lambda a, b: a - b, xs), tl(xs))""",
    ),
    (
        "trees",
        (("Rose", 2, [("Rose", 3, [])]), 2, 8),
        """
from prelude import tmap, size, id
def main():
    t = Rose(1, Cons(Rose(2, Nil), Nil))
    return (tmap(lambda x: x + 1, t), size(t), id(8))""",
    ),
    (
        "a match without a case for every value",
        (5, 6, 7),
        """
from prelude import List
def head(xs: List[S]) -> S:
    match xs:
        case Cons(x, _):
            return x
        case _:
            raise
def second(xs: List[S]) -> S:
    match xs:
        case Cons(_, Cons(x, _)):
            y = x
        case _:
            raise
    return y
def main():
    xs = Cons(5, Cons(6, Nil))
    return (head(xs), second(xs), 7)""",
    ),
    (
        "map_accumr, map_accuml",
        ((6, [5, 6, 0]), (6, [0, 2, 9])),
        """
from prelude import map_accumr, map_accuml
def main():
    xs = Cons(1, Cons(2, Cons(3, Nil)))
    f = lambda s, x: (s + x, s * x)
    return (map_accumr(f, 0, xs), map_accuml(f, 0, xs))""",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "expected", "text"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_programs_of_the_language_reference(name, expected, text):
    assert value(graph.evaluate(program(text))) == expected


def test_a_value_without_a_case_is_an_error_of_the_evaluation():
    mod = program({p[0]: p[2] for p in PROGRAMS}["a match without a case for every value"])
    for one in (mod, parse(mod.script()), graph.gradient(slope_of_head())):
        name = "head" if "head" in one.graphs else "main"
        with pytest.raises(WorkloadError, match="no case of a match fits Nil"):
            graph.evaluate(one, name, graph.to_list([]))
    (found, slope) = graph.evaluate(graph.gradient(slope_of_head()), "main", graph.to_list([3.0]))
    assert (float(found), value(slope)) == (9.0, [6.0])
    residue = graph.specialise(mod, "head", {"xs": graph.to_list([])})
    with pytest.raises(WorkloadError, match="no case of a match fits Nil"):
        graph.evaluate(residue, "head")


def slope_of_head():
    """The square of the first item of a list, which has one."""
    return parse("""
@G.module
class M:
    from prelude import List

    @G.function
    def main(xs: List[G.Tensor((), "float64")]) -> G.Tensor((), "float64"):
        match xs:
            case Cons(x, _):
                return x * x
            case _:
                raise
""")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise", "`raise` stands alone in a last case"),
        ("if x > 0:\n            raise\n        return x", "`raise` stands alone"),
        ("match x:\n            case _:\n                raise", "`raise` stands alone"),
        (
            "match x:\n            case y:\n                return y\n"
            "            case _:\n                raise ValueError",
            "`raise` stands alone",
        ),
    ],
)
def test_raise_elsewhere_is_an_error(body, message):
    text = f"@G.module\nclass M:\n    @G.function\n    def main(x: int32):\n        {body}\n"
    with pytest.raises(ScriptError, match=message):
        parse(text)


def test_the_prelude_has_every_name():
    names = """id compose flip List hd tl nth length update map foldl foldr foldr1 sum concat filter
    zip rev map_accumr map_accuml Option unfoldr unfoldl Tree tmap size iterate"""
    mod = parse(TEXT)
    assert set(names.split()) == set(mod.graphs)
    assert parse(mod.script()).same(mod)
    with pytest.raises(ScriptError, match="the prelude has no fold; it has fold"):
        module("from prelude import fold")


RECURSION = f"""
@G.function
def loop(n: {SCALAR}, total: {SCALAR}) -> {SCALAR}:
    if n == 0:
        return total
    return loop(n - 1, total + 2)
@G.function
def deep(n: {SCALAR}) -> {SCALAR}:
    if n == 0:
        return 0
    return 1 + deep(n - 1)
"""


def test_tail_calls_take_no_memory_and_deep_recursion_is_an_error(monkeypatch):
    from autosched.graph import machine

    mod = module(RECURSION)
    assert graph.evaluate(mod, "deep", 10_000) == 10_000
    monkeypatch.setattr(machine, "DEEPEST", 100)
    assert graph.evaluate(mod, "loop", 5_000, 0) == 10_000
    with pytest.raises(WorkloadError, match="deep is called while more than 100 calls wait"):
        graph.evaluate(mod, "deep", 5_000)


@pytest.mark.long
def test_a_million_iterations_and_recursion_to_the_bound():
    mod = module(RECURSION)
    assert graph.evaluate(mod, "loop", 1_000_000, 0) == 2_000_000
    assert graph.evaluate(mod, "deep", DEEPEST - 1) == DEEPEST - 1
    with pytest.raises(WorkloadError, match="calls wait for their results"):
        graph.evaluate(mod, "deep", DEEPEST + 1)


def test_arguments_of_other_kinds_are_refused():
    mod = module(
        f"""
from prelude import List
@G.function
def first(xs: List[{SCALAR}], t: G.Tuple[{SCALAR}, {SCALAR}], f: G.Fn[[{SCALAR}], {SCALAR}]):
    return f(t[0])
"""
    )
    xs, t = graph.to_list([1]), (np.int32(1), np.int32(2))
    assert graph.evaluate(mod, "first", xs, t, lambda x: x + 1) == 2
    for args, message in [
        ((xs, t), "takes 3 arguments, found 2"),
        ((graph.to_list([1, 2.5]), t, abs), "xs is 2.5; expected a value of dtype int32"),
        ((xs, (np.int64(1), 2), abs), "expected G.Tensor"),
        (([1], t, abs), "expected a value of List: graph.Tagged of Cons, Nil"),
        ((xs, (1,), abs), "expected a tuple of 2 values"),
        ((xs, t, 3), "expected a function"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            graph.evaluate(mod, "first", *args)
    assert repr(graph.to_list(range(100_000))).endswith(")")
    with pytest.raises(ArgumentError, match="is no list"):
        graph.from_list(Tagged("Leaf"))
