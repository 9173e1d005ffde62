"""Random well-typed programs: text is read back, and passes keep what they compute."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_language import value

from autosched import graph
from autosched.graph.passes import common_subexpressions, dead_code, fold, partial_eval
from autosched.script import parse

HEAD = """
@G.module
class M:
    from prelude import *
    @G.function
    def twice(f, x):
        return f(f(x))
    @G.function
    def count(n: G.Tensor((), "int32"), total: G.Tensor((), "int32")):
        if n <= 0:
            return total
        return count(n - 1, total + n)
    @G.function
    def main(p: G.Tensor((), "int32"), q: G.Tensor((3,), "float32"),
             s: List[G.Tensor((), "int32")]):
"""
INT, ARRAY, BOOL = "int", "array", "bool"
PASSES = (fold, common_subexpressions, dead_code, partial_eval)


def pair(a, b):
    return ("pair", a, b)


def lists(a):
    return ("list", a)


def fn(a, b):
    return ("fn", a, b)


TYPES = st.recursive(
    st.sampled_from([INT, INT, ARRAY, BOOL]),
    lambda t: st.builds(lists, t) | st.builds(pair, t, t),
    max_leaves=3,
)
"""Types of values; function types are made where functions are."""


class Program:
    """Draws a program: statements that bind, and an expression of a type at the end."""

    def __init__(self, draw):
        self.draw, self.names = draw, itertools.count()
        self.scope = [("p", INT), ("q", ARRAY), ("s", lists(INT))]

    def text(self):
        lines = []
        for _ in range(self.draw(st.integers(0, 4))):
            name = f"v{next(self.names)}" if self.draw(st.booleans()) else "v"
            t = self.draw(TYPES | st.just(fn(INT, INT)))
            stated = (
                ': G.Fn[[G.Tensor((), "int32")], G.Tensor((), "int32")]' if t[0] == "fn" else ""
            )
            lines.append(f"{name}{stated} = {self.expr(t, 3)}")
            self.scope = [(n, u) for n, u in self.scope if n != name] + [(name, t)]
        lines.append(f"return {self.expr(self.draw(TYPES), 3)}")
        return HEAD + "\n".join(f"        {line}" for line in lines) + "\n"

    def expr(self, t, depth):
        """The text of an expression of type `t`."""
        known = [n for n, u in self.scope if u == t]
        if known and self.draw(st.integers(0, 2)) == 0:
            return self.draw(st.sampled_from(known))
        if depth == 0:
            return known[-1] if known else self.leaf(t)
        ways = [self.choice, self.project, *self.makers(t)]
        if t not in (BOOL,):
            ways.append(self.fold)
        return self.draw(st.sampled_from(ways))(t, depth - 1)

    def makers(self, t):
        if t in (INT, ARRAY):
            return [self.arithmetic, self.head]
        if t == BOOL:
            return [self.comparison]
        if t[0] == "fn":
            return [self.function]
        return [self.mapped, self.made] if t[0] == "list" else [self.made]

    def leaf(self, t):
        if t == INT:
            return str(self.draw(st.integers(-5, 5)))
        if t == ARRAY:
            return "G.const([1.0, -2.0, 0.5])"
        if t == BOOL:
            return "(p < 2)"
        if t[0] == "fn":
            return f"(lambda u: {self.leaf(t[2])})"
        if t[0] == "list":
            return f"Cons({self.leaf(t[1])}, Nil())"
        return f"({self.leaf(t[1])}, {self.leaf(t[2])})"

    def choice(self, t, depth):
        if t[0] == "fn":  # branches that are functions would be called through a variable
            return self.leaf(t)
        then, other = self.expr(t, depth), self.expr(t, depth)
        return f"({then} if {self.expr(BOOL, depth)} else {other})"

    def project(self, t, depth):
        n = self.draw(st.integers(0, 1))
        other = self.draw(st.sampled_from([INT, ARRAY]))
        parts = (t, other) if n == 0 else (other, t)
        return f"{self.expr(pair(*parts), depth)}[{n}]"

    def arithmetic(self, t, depth):
        sign = self.draw(st.sampled_from("+-*"))
        if t == INT and self.draw(st.integers(0, 4)) == 0:
            return f"twice({self.expr(fn(INT, INT), depth)}, {self.expr(INT, depth)})"
        if t == INT and self.draw(st.integers(0, 4)) == 0:
            return f"count({self.draw(st.sampled_from(['p', '3', '-1']))}, {self.expr(t, depth)})"
        right = self.expr(t, depth) if sign != "*" else self.leaf(t)
        return f"({self.expr(t, depth)} {sign} {right})"

    def comparison(self, t, depth):
        if self.draw(st.booleans()):
            word = self.draw(st.sampled_from(["and", "or"]))
            return f"({self.expr(BOOL, depth)} {word} {self.expr(BOOL, depth)})"
        sign = self.draw(st.sampled_from(["<", "==", "!="]))
        return f"({self.expr(INT, depth)} {sign} {self.expr(INT, depth)})"

    def function(self, t, depth):
        name = f"u{next(self.names)}"
        self.scope.append((name, t[1]))
        body = self.expr(t[2], depth)
        self.scope.remove((name, t[1]))
        return f"(lambda {name}: {body})"

    def head(self, t, depth):
        default = self.expr(t, depth)
        return f"foldr(lambda h, ignored: h, {default}, {self.expr(lists(t), depth)})"

    def fold(self, t, depth):
        item = self.draw(st.sampled_from([INT, ARRAY]))
        a, x = f"a{next(self.names)}", f"x{next(self.names)}"
        xs, start = self.expr(lists(item), depth), self.expr(t, depth)
        if t[0] == "fn":
            return start
        self.scope += [(a, t), (x, item)]
        body = self.expr(t, min(depth, 1))
        self.scope = self.scope[:-2]
        return f"foldl(lambda {a}, {x}: {body}, {start}, {xs})"

    def mapped(self, t, depth):
        item = self.draw(st.sampled_from([INT, ARRAY]))
        return f"map({self.expr(fn(item, t[1]), depth)}, {self.expr(lists(item), depth)})"

    def made(self, t, depth):
        if t[0] == "pair":
            return f"({self.expr(t[1], depth)}, {self.expr(t[2], depth)})"
        return f"Cons({self.expr(t[1], depth)}, {self.expr(t, depth)})"


@st.composite
def programs(draw):
    return Program(draw).text()


def check(text):
    mod = parse(text)
    printed = mod.script()
    assert parse(printed).same(mod), printed
    assert parse(printed).script() == printed
    args = np.int32(2), np.array([0.5, 1.0, -1.5], "f4"), graph.to_list([np.int32(1), np.int32(2)])
    expected = value(graph.evaluate(mod, "main", *args))
    for one in PASSES:
        after = one(mod)
        assert parse(after.script()).same(after), one.name
        np.testing.assert_equal(value(graph.evaluate(after, "main", *args)), expected, one.name)


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=5, suppress_health_check=QUIET, deadline=None)
@given(programs())
def test_random_programs(text):
    check(text)


@pytest.mark.long
@settings(max_examples=80, suppress_health_check=QUIET, deadline=None)
@given(programs())
def test_many_random_programs(text):
    check(text)
