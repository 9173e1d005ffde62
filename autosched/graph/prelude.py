"""The prelude: data types and functions that any module may take by `from prelude import …`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import cache

from autosched.errors import WorkloadError
from autosched.graph.data import DataType
from autosched.graph.ir import Function, Global, Pattern, bodies, reads
from autosched.graph.types import DataRef, Type, parts
from autosched.tir.module import GraphFunction, IRModule

TEXT = """
@G.module
class Prelude:
    @G.data("A")
    class List:
        Cons: (A, List[A])
        Nil: ()

    @G.data("A")
    class Option:
        Some: (A,)
        Nothing: ()

    @G.data("A")
    class Tree:
        Rose: (A, List[Tree[A]])

    @G.function("A")
    def id(x: A) -> A:
        return x

    @G.function("A, B, C")
    def compose(f: G.Fn[[B], C], g: G.Fn[[A], B]) -> G.Fn[[A], C]:
        return lambda x: f(g(x))

    @G.function("A, B, C")
    def flip(f: G.Fn[[A, B], C]) -> G.Fn[[B, A], C]:
        return lambda b, a: f(a, b)

    @G.function("A")
    def iterate(f: G.Fn[[A], A], n: G.Tensor((), "int32")) -> G.Fn[[A], A]:
        def step(k, x):
            if k <= 0:
                return x
            return step(k - 1, f(x))
        return lambda x: step(n, x)

    @G.function("A")
    def hd(xs: List[A]) -> Option[A]:
        match xs:
            case Cons(x, _):
                return Some(x)
            case Nil():
                return Nothing()

    @G.function("A")
    def tl(xs: List[A]) -> Option[List[A]]:
        match xs:
            case Cons(_, rest):
                return Some(rest)
            case Nil():
                return Nothing()

    @G.function("A")
    def nth(xs: List[A], n: G.Tensor((), "int32")) -> Option[A]:
        match xs:
            case Cons(x, rest):
                if n == 0:
                    return Some(x)
                return nth(rest, n - 1)
            case Nil():
                return Nothing()

    @G.function("A")
    def length(xs: List[A]) -> G.Tensor((), "int32"):
        return foldl(lambda n, x: n + 1, 0, xs)

    @G.function("A")
    def update(xs: List[A], n: G.Tensor((), "int32"), value: A) -> List[A]:
        match xs:
            case Cons(x, rest):
                if n == 0:
                    return Cons(value, rest)
                return Cons(x, update(rest, n - 1, value))
            case Nil():
                return Nil()

    @G.function("A, B")
    def map(f: G.Fn[[A], B], xs: List[A]) -> List[B]:
        match xs:
            case Cons(x, rest):
                return Cons(f(x), map(f, rest))
            case Nil():
                return Nil()

    @G.function("A, B")
    def foldl(f: G.Fn[[A, B], A], acc: A, xs: List[B]) -> A:
        match xs:
            case Cons(x, rest):
                return foldl(f, f(acc, x), rest)
            case Nil():
                return acc

    @G.function("A, B")
    def foldr(f: G.Fn[[A, B], B], end: B, xs: List[A]) -> B:
        match xs:
            case Cons(x, rest):
                return f(x, foldr(f, end, rest))
            case Nil():
                return end

    @G.function("A")
    def foldr1(f: G.Fn[[A, A], A], xs: List[A]) -> Option[A]:
        def add(x: A, found: Option[A]) -> Option[A]:
            match found:
                case Some(y):
                    return Some(f(x, y))
                case Nothing():
                    return Some(x)
        return foldr(add, Nothing(), xs)

    @G.function
    def sum(xs: List[G.Tensor((), "int32")]) -> G.Tensor((), "int32"):
        return foldl(lambda a, x: a + x, 0, xs)

    @G.function("A")
    def concat(xs: List[A], ys: List[A]) -> List[A]:
        return foldr(lambda x, rest: Cons(x, rest), ys, xs)

    @G.function("A")
    def filter(f: G.Fn[[A], G.Tensor((), "bool")], xs: List[A]) -> List[A]:
        match xs:
            case Cons(x, rest):
                if f(x):
                    return Cons(x, filter(f, rest))
                return filter(f, rest)
            case Nil():
                return Nil()

    @G.function("A, B")
    def zip(xs: List[A], ys: List[B]) -> List[G.Tuple[A, B]]:
        match (xs, ys):
            case (Cons(x, xs1), Cons(y, ys1)):
                return Cons((x, y), zip(xs1, ys1))
            case _:
                return Nil()

    @G.function("A")
    def rev(xs: List[A]) -> List[A]:
        def add(done: List[A], x: A) -> List[A]:
            return Cons(x, done)
        return foldl(add, Nil(), xs)

    @G.function("A, B, C")
    def map_accumr(
        f: G.Fn[[A, B], G.Tuple[A, C]], init: A, xs: List[B]
    ) -> G.Tuple[A, List[C]]:
        def step(x: B, found: G.Tuple[A, List[C]]) -> G.Tuple[A, List[C]]:
            state, out = f(found[0], x)
            return (state, Cons(out, found[1]))
        return foldr(step, (init, Nil()), xs)

    @G.function("A, B, C")
    def map_accuml(
        f: G.Fn[[A, B], G.Tuple[A, C]], init: A, xs: List[B]
    ) -> G.Tuple[A, List[C]]:
        def step(found: G.Tuple[A, List[C]], x: B) -> G.Tuple[A, List[C]]:
            state, out = f(found[0], x)
            return (state, Cons(out, found[1]))
        end, backwards = foldl(step, (init, Nil()), xs)
        return (end, rev(backwards))

    @G.function("A, B")
    def unfoldr(f: G.Fn[[A], Option[G.Tuple[A, B]]], seed: A) -> List[B]:
        match f(seed):
            case Some((next, x)):
                return Cons(x, unfoldr(f, next))
            case Nothing():
                return Nil()

    @G.function("A, B")
    def unfoldl(f: G.Fn[[A], Option[G.Tuple[A, B]]], seed: A) -> List[B]:
        def go(state: A, done: List[B]) -> List[B]:
            match f(state):
                case Some((next, x)):
                    return go(next, Cons(x, done))
                case Nothing():
                    return done
        return go(seed, Nil())

    @G.function("A, B")
    def tmap(f: G.Fn[[A], B], t: Tree[A]) -> Tree[B]:
        match t:
            case Rose(x, children):
                return Rose(f(x), map(lambda child: tmap(f, child), children))

    @G.function("A")
    def size(t: Tree[A]) -> G.Tensor((), "int32"):
        match t:
            case Rose(_, children):
                return foldl(lambda n, child: n + size(child), 1, children)
"""


@cache
def definitions() -> dict[str, GraphFunction]:
    """All of the prelude, by name."""
    from autosched.script import parse

    found = parse(TEXT)
    assert isinstance(found, IRModule)
    return dict(found.graphs)


def taken(names: Sequence[str]) -> dict[str, GraphFunction]:
    """These definitions with all that they need, in the prelude's order; "*" is every one. A
    constructor brings its data type. Raises WorkloadError for a name that there is not."""
    every = definitions()
    homes = {
        c: d.name for d in every.values() if isinstance(d, DataType) for c, _ in d.constructors
    }
    work = list(every) if "*" in names else list(names)
    found: set[str] = set()
    while work:
        name = homes.get(work[-1], work[-1])
        work.pop()
        if name not in every:
            near = ", ".join(difflib.get_close_matches(name, [*every, *homes])) or ", ".join(every)
            raise WorkloadError(f"the prelude has no {name}; it has {near}")
        if name not in found:
            found.add(name)
            work += [homes.get(n, n) for n in _needs(every[name])]
    return {n: d for n, d in every.items() if n in found}


def _needs(d: GraphFunction) -> set[str]:
    """Names of functions, constructors and data types that a definition mentions."""
    names: set[str] = set()
    types: list[Type] = []
    if isinstance(d, DataType):
        types += [f for _, fields in d.constructors for f in fields]
    work = [d] if isinstance(d, Function) else []
    while work:
        f = work.pop()
        types += [f.type]
        inside = [f.body]
        while inside:
            body = inside.pop()
            for b in body.bindings:
                types += [v.type for v in b.vars]
                names |= {a.name for a in reads(b.value) if isinstance(a, Global)}
                inside += bodies(b.value)
                for p, _ in getattr(b.value, "clauses", ()):
                    names |= _constructors(p)
    while types:
        t = types.pop()
        types += parts(t)
        if isinstance(t, DataRef):
            names.add(t.name)
    return names


def _constructors(p: object) -> set[str]:
    if not isinstance(p, Pattern):
        return set()
    inside = set().union(*map(_constructors, p.parts)) if p.parts else set()
    return inside | ({p.constructor} if p.constructor else set())
