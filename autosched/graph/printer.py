"""Graph functions as script text, in Python's syntax; `autosched.script.parse` reads it back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from keyword import kwlist
from textwrap import indent
from typing import Any

from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    If,
    Item,
    Match,
    Pattern,
    TupleExpr,
    Value,
    Var,
    bodies,
    reads,
)
from autosched.graph.ops.registry import python_name
from autosched.graph.types import TensorType, TypeVar, tuple_text
from autosched.tir.dtypes import to_float32
from autosched.tir.printer import identifier

INLINE = 16
"""Elements of a constant that are written out; of a larger one the text has its digest."""


def function_text(function: Function) -> str:
    """The function as a `def` with its decorator."""
    return _Printer(function).function(function)


class _Printer:
    def __init__(self, function: Function) -> None:
        self.names: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        calls = [b.value for b in _all(function.body) if isinstance(b.value, Call)]
        self.passed = {id(a) for v in calls if isinstance(v.callee, Global) for a in v.args}
        """Arguments of functions of the module."""
        self.taken = {a.name for b in _all(function.body) for a in reads(b.value)
                      if isinstance(a, Global)} | {"op", "G", "T", *kwlist}  # fmt: skip

    def bind(self, v: Var) -> str:
        """The name of a variable: its own as Python may have it, numbered where that is taken."""
        if id(v) not in self.names:
            own = identifier(v.name)
            # Names are only ever taken: those of smaller numbers need not be asked for again.
            n = self.numbers.get(own, 0)
            name = f"{own}_{n}" if n else own
            while name in self.taken:
                n += 1
                name = f"{own}_{n}"
            self.numbers[own] = n
            self.taken.add(name)
            self.names[id(v)] = name
        return self.names[id(v)]

    def function(self, f: Function) -> str:
        """A function of the module, or one inside another."""
        params = ", ".join(f"{self.bind(p)}: {p.type}" for p in f.params)
        results = [str(a.type) for a in f.body.results if a.type is not None]
        types = [f'"{", ".join(f.attr("types"))}"'] if f.attr("types") else []
        given = ", ".join([*types, *(f"{k}={literal(v)}" for k, v in f.attrs if k != "types")])
        returns = results[0] if len(results) == 1 else tuple_text(tuple(results))
        head = f"@G.function{f'({given})' if given else ''}\ndef {f.name}({params}) -> {returns}:\n"
        lines = [*self.bindings(f.body)]
        lines.append(f"return {self.several(f.body.results)}")
        return head + indent("\n".join(lines), "    ") + "\n"

    def bindings(self, body: Body) -> Iterator[str]:
        """Statements, one a binding."""
        for b in body.bindings:
            yield self.statement(b)

    def statement(self, b: Binding) -> str:
        """A binding as a statement."""
        v = b.value
        if isinstance(v, Function):
            named = Function(self.bind(b.vars[0]), v.params, v.body, v.attrs)
            return self.function(named).rstrip("\n")
        if isinstance(v, If):
            head = f"if {self.atom(v.condition)}:"
            then, other = (self.block(inner, b.vars) for inner in bodies(v))
            return f"{head}\n{then}\nelse:\n{other}"
        if isinstance(v, Match):
            cases = [
                f"    case {self.pattern(p)}:\n{indent(self.block(inner, b.vars), '    ')}"
                for p, inner in v.clauses
            ]
            rest = [] if v.complete else ["    case _:\n        raise"]
            return "\n".join([f"match {self.atom(v.value)}:", *cases, *rest])
        value = self.value(v)
        names = ", ".join(map(self.bind, b.vars))
        # How a result is stored does not follow from the call of an operator, nor does a type
        # parameter that an argument has because the function is called again.
        t = b.vars[0].type if isinstance(v, Call) and isinstance(v.callee, str) else None
        layout = isinstance(t, TensorType) and t.layout
        passed = isinstance(t, TypeVar) and id(b.vars[0]) in self.passed
        stated = f": {t}" if layout or passed else ""
        return f"{names}{stated} = {value}"

    def block(self, body: Body, targets: Sequence[Var]) -> str:
        """A branch: its bindings, and its results given to `targets`."""
        lines = [*self.bindings(body)]
        ends = f"{', '.join(map(self.bind, targets))} = {self.several(body.results)}"
        return indent("\n".join([*lines, ends if targets else "pass"]), "    ")

    def pattern(self, p: Pattern | Var | None) -> str:
        """A pattern of a clause."""
        if p is None:
            return "_"
        if isinstance(p, Var):
            return self.bind(p)
        parts = tuple(map(self.pattern, p.parts))
        return f"{p.constructor}({', '.join(parts)})" if p.constructor else tuple_text(parts)

    def value(self, v: Value) -> str:
        """What is on the right-hand side."""
        if isinstance(v, TupleExpr):
            return tuple_text(tuple(map(self.atom, v.items)))
        if isinstance(v, Item):
            return f"{self.atom(v.value)}[{v.index}]"
        assert isinstance(v, Call)
        callee = f"op.{python_name(v.callee)}" if isinstance(v.callee, str) else self.atom(v.callee)
        if v.attr("types"):
            callee += f"[{', '.join(map(str, v.attr('types')))}]"
        args = ["None" if a is None else self.atom(a) for a in v.args]
        args += [f"{k}={literal(x)}" for k, x in v.attrs if k != "types"]
        return f"{callee}({', '.join(args)})"

    def several(self, results: Sequence[Atom]) -> str:
        """Results, as they are returned."""
        return ", ".join(map(self.atom, results)) or "None"

    def atom(self, a: Atom) -> str:
        """A variable, a function's name, or a constant."""
        if isinstance(a, Var):
            return self.bind(a)
        return a.name if isinstance(a, Global) else constant_text(a)


def constant_text(c: Const) -> str:
    """A small constant in full, a large one by its digest; so is one without elements whose shape
    brackets do not show, which needs no array to be read."""
    numbers = c.array is not None and c.array.dtype.kind in "biuf"
    shown = c.array is not None and (c.array.size > 0 or 0 not in c.array.shape[:-1])
    if c.array is not None and numbers and shown and c.array.size <= INLINE:
        values = to_float32(c.array) if c.type.dtype == "bfloat16" else c.array
        return f'G.const({literal(values.tolist())}, "{c.type.dtype}")'
    return f'G.data("{c.digest}", {tuple_text(c.type.known)}, "{c.type.dtype}")'


def literal(value: Any) -> str:
    """A value of an attribute, or of a constant."""
    if isinstance(value, tuple):
        return tuple_text(tuple(map(literal, value)))
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _all(body: Body) -> Iterator[Binding]:
    stack = [body]
    while stack:
        one = stack.pop()
        yield from one.bindings
        for b in one.bindings:
            stack += bodies(b.value)
