"""Passes that write operators by name in the place of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.graph.builder import make_call
from autosched.graph.fold import constant, evaluated
from autosched.graph.infer import infer
from autosched.graph.ir import Array, Atom, Binding, Body, Call, Const, Var
from autosched.graph.passes.bodies import Renaming


class Emitter(Renaming):
    """Bindings written anew; operators are emitted by name. `maker` is the call behind a variable,
    by the variable's id."""

    def __init__(self) -> None:
        super().__init__()
        self.maker: dict[int, Any] = {}

    def keep(self, binding: Binding) -> None:
        """A binding as it is."""
        for v in binding.vars:
            self.maker[id(v)] = binding.value
        self.out.append(binding)

    def emit(self, name: str, *args: Any, **attrs: Any) -> Atom:
        """The result of an operator: a constant where all it takes is."""
        call = _call(name, args, attrs)
        if all_known(call.args):
            return evaluated(call, 1)[0]
        (v,) = self._bound(name, call, 1)
        return v

    def emit_several(self, count: int, name: str, *args: Any, **attrs: Any) -> tuple[Var, ...]:
        """The first `count` results of an operator on variables."""
        return self._bound(name, _call(name, args, attrs), count)

    def _bound(self, name: str, call: Call, count: int) -> tuple[Var, ...]:
        base = name.rsplit(".", 1)[-1].lower()
        made = tuple(Var(base, t) for t in infer(call, count))
        self.keep(Binding(made, call))
        return made

    def rewritten(self, body: Body, rule: Callable[[Var, Call], Atom | None]) -> Body:
        """The body with what a rule makes of each operator with one result, given that result and
        the call; None for one that stays."""
        for b in body.bindings:
            value, made = self.value(b.value), None
            if isinstance(value, Call) and isinstance(value.callee, str) and len(b.vars) == 1:
                made = rule(b.vars[0], value)
            if made is None:
                self.keep(Binding(b.vars, value))
            else:
                self.name(b.vars[0], made)
        return self.body(body.results)

    def name(self, var: Var, atom: Atom) -> None:
        """Let what has been emitted stand for a variable: under the variable, if it is the last."""
        if self.out and self.out[-1].vars[0] is atom and isinstance(self.out[-1].value, Call):
            last = self.out.pop()
            self.keep(Binding((var,), last.value))
        else:
            self.known[id(var)] = atom


def _call(name: str, args: Sequence[Any], attrs: dict[str, Any]) -> Call:
    given = [
        constant(np.asarray(a)) if isinstance(a, (np.ndarray, np.generic)) else a for a in args
    ]
    while given and given[-1] is None:
        given.pop()
    return make_call(name, given, attrs)[0]


def all_known(args: Sequence[Atom | None]) -> bool:
    """Whether all arguments of a call are constants with their arrays."""
    return all(a is None or (isinstance(a, Const) and a.array is not None) for a in args)


def array_of(a: Atom | None) -> Array | None:
    """The array of a constant; None for what is none."""
    return a.array if isinstance(a, Const) else None
