"""Gradients through lists and other data: by finite differences, and how much work they are."""

from __future__ import annotations

import numpy as np
import pytest
from differences import compare

from autosched import graph
from autosched.graph import machine
from autosched.graph.prepared import Site
from autosched.script import parse

F = 'G.Tensor((), "float64")'
HEAD = f"""
@G.module
class M:
    from prelude import *
    @G.function
    def pairs(xs: List[{F}]) -> {F}:
        match xs:
            case Cons(a, rest):
                match rest:
                    case Cons(b, _):
                        return a * b + pairs(rest)
                    case Nil():
                        return a
            case Nil():
                return 0.0
    @G.function
    def state(p: G.Tuple[{F}, List[{F}], int32]) -> {F}:
        match p[1]:
            case Cons(a, rest):
                return state((p[0] * 0.5 + a, rest, p[2] + 1))
            case Nil():
                return p[0]
    @G.function
    def first(xs: List[{F}]) -> {F}:
        match xs:
            case Cons(x, _):
                return x
            case Nil():
                return 2.0
    @G.function
    def peek(xs: List[{F}]) -> {F}:
        match xs:
            case Cons(x, rest):
                return x * first(rest) + peek(rest)
            case Nil():
                return 0.0
    @G.function
    def number(found: Option[{F}]) -> {F}:
        match found:
            case Some(x):
                return x
            case Nothing():
                return 0.0
    @G.function
    def main(xs: List[{F}], w: {F}):
"""
PROGRAMS = {
    "foldl": "return foldl(lambda s, x: s * w + x, w, xs)",
    "foldr": "return foldr(lambda x, s: s * w + x * x, w, xs)",
    "foldr1": "return number(foldr1(lambda x, s: s * w + x * x, xs))",
    "map and zip": "return foldl(lambda s, p: s + p[0] * p[1], w, "
    "zip(xs, map(lambda x: op.sin(x * w), xs)))",
    "concat": "return foldl(lambda s, x: s * w + x, w, concat(xs, rev(xs)))",
    "flatten": "return foldl(lambda s, x: s * w + x, w, foldr(concat, Nil(), "
    "map(lambda x: Cons(x, Cons(w * x, Nil())), xs)))",
    "map_accumr": "s, ys = map_accumr(lambda s, x: (s * w + x, s * x), w, xs)\n"
    "        return s + foldl(lambda s, y: s * 0.5 + y, w, ys)",
    "map_accuml": "s, ys = map_accuml(lambda s, x: (s * w + x, s * x), w, xs)\n"
    "        return s + foldl(lambda s, y: s * 0.5 + y, w, ys)",
    "the state of a map alone": "return map_accumr(lambda s, x: (s * w + x, s * x), w, xs)[0]",
    "a list in a tuple": "return state((w, xs, 0))",
    "a rest that is matched and passed on": "return pairs(xs) * w",
    "the first item of every rest": "return peek(xs) * w",
    "an item of a list": "return number(nth(xs, 2)) * number(hd(xs)) * w",
    "a list with another item": "return foldl(lambda s, x: s * w + x, w, update(xs, 1, w))",
    "none of a list": "return w * w",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_difference_quotients(name, rng):
    mod = parse(f"{HEAD}        {PROGRAMS[name]}\n")
    for n in (0, 1, 4):
        xs = graph.to_list(list(rng.standard_normal(n)))
        made = compare(mod, [xs, np.asarray(0.7)], rng)
        _, back, _ = graph.evaluate(made, "main", xs, np.asarray(0.7))
        assert len(graph.from_list(back)) == n
    assert parse(made.script()).same(made)


def work(module, n, monkeypatch):
    """Calls of functions and operators that one evaluation makes."""
    count = 0
    begun, operator = machine.started, Site.__call__

    def started(*args):
        nonlocal count
        count += 1
        return begun(*args)

    def called(self, args):
        nonlocal count
        count += 1
        return operator(self, args)

    with monkeypatch.context() as m:
        m.setattr(machine, "started", started)
        m.setattr(Site, "__call__", called)
        graph.evaluate(module, "main", graph.to_list([np.asarray(0.5)] * n), np.asarray(0.7))
    return count


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_work_of_a_gradient_grows_as_the_list(name, monkeypatch):
    made = graph.gradient(parse(f"{HEAD}        {PROGRAMS[name]}\n"))
    once, twice, four = (work(made, n, monkeypatch) for n in (10, 20, 40))
    assert four - twice == 2 * (twice - once)


TREES = f"""
@G.module
class M:
    from prelude import Tree, foldl, List
    @G.data
    class Shape:
        Ball: ({F})
        Box: ({F}, G.Tuple[int32, {F}])
        Point: ()
        Named: (int32,)
    @G.function
    def size(s: Shape) -> {F}:
        match s:
            case Ball(r):
                return r * r
            case Box(a, (n, b)):
                if n > 1:
                    return a * b
                return a + b
            case _:
                return 1.0
    @G.function
    def total(t: Tree[Shape], w: {F}) -> {F}:
        match t:
            case Rose(s, children):
                return size(s) * w + foldl(lambda x, child: x * total(child, w), w, children)
    @G.function
    def main(t: Tree[Shape], w: {F}):
        return total(t, w)
"""


def test_trees_of_shapes_of_several_kinds(rng):
    """What comes back has the constructors, integers and empty shapes of the value."""
    mod = parse(TREES.replace(f"Ball: ({F})", f"Ball: ({F},)"))

    def made(name, *fields):
        return graph.Tagged(name, fields)

    def rose(shape, *children):
        return made("Rose", shape, graph.to_list(children))

    def number():
        return np.asarray(rng.standard_normal())

    box = made("Box", number(), (np.int32(2), number()))
    other = made("Box", number(), (np.int32(1), number()))
    leaves = [rose(box), rose(made("Point"), rose(other)), rose(made("Named", np.int32(7)))]
    tree = rose(made("Ball", number()), *leaves)
    done = compare(mod, [tree, np.asarray(0.7)], rng)
    assert parse(done.script()).same(done)
    back = graph.evaluate(done, "main", tree, np.asarray(0.7))[1]
    first, second, third = graph.from_list(back.fields[1])
    assert (first.fields[0].constructor, first.fields[0].fields[1][0]) == ("Box", 2)
    assert second.fields[0] == graph.Tagged("Point")
    assert third.fields[0] == made("Named", np.int32(7))


def test_a_function_of_a_list_alone_is_refused():
    mod = parse(f"{HEAD}        return peek(xs)\n")
    with pytest.raises(graph.Unsupported, match=r"data type List.* pass the module"):
        graph.gradient(mod["main"])
