"""Passes as changes of one body at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Const,
    Function,
    If,
    Match,
    Value,
    mapped,
    with_bodies,
)
from autosched.passes.base import Pass
from autosched.tir.module import IRModule

Change = Callable[[Body], Body]


def body_pass(name: str) -> Callable[[Change], Pass]:
    """A decorator: the pass that changes every body of the graph functions, inner ones first; those
    of primitive and external functions stay as they are."""

    def decorate(change: Change) -> Pass:
        def apply(module: IRModule) -> IRModule:
            graphs = {
                n: f
                if not isinstance(f, Function) or f.is_primitive or f.is_external
                else Function(n, f.params, _inside(f.body, change), f.attrs)
                for n, f in module.graphs.items()
            }
            return IRModule(module.functions, graphs)

        return Pass(name, apply)

    return decorate


def _inside(body: Body, change: Change) -> Body:
    """`body` changed, after the bodies in it."""

    nested = any(isinstance(b.value, (If, Match, Function)) for b in body.bindings)
    if nested:
        bindings = tuple(
            Binding(b.vars, with_bodies(b.value, lambda x: _inside(x, change)))
            for b in body.bindings
        )
        body = Body(bindings, body.results)
    return change(body)


class Renaming:
    """Bindings written anew while atoms are replaced by others."""

    def __init__(self) -> None:
        self.known: dict[int, Atom] = {}
        self.out: list[Binding] = []

    def of(self, a: Atom | None) -> Atom | None:
        """What stands for an atom now."""
        return None if a is None else self.known.get(id(a), a)

    def value(self, v: Value) -> Value:
        """A value over the atoms that stand now."""
        return mapped(v, self.known) if self.known else v

    def body(self, results: tuple[Atom, ...]) -> Body:
        """The bindings with these results."""
        return Body(tuple(self.out), tuple(self.known.get(id(a), a) for a in results))


def key_of(a: Atom | None, known: Mapping[int, object]) -> object:
    """What an atom is known by: constants of few elements by their values."""
    if isinstance(a, Const) and a.array is not None and a.array.size <= 64:
        return ("const", a.type, a.digest)
    return None if a is None else known.get(id(a), id(a))
