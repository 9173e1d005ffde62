"""Calls between functions of a text: the statements of the one that is called, in their place.

A buffer that is given for a handle, or for a buffer of another shape, is a view of the same memory.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autosched.script.migrate.buffers import Buffers
from autosched.script.migrate.spelling import called
from autosched.script.migrate.things import (
    Array,
    Context,
    Memory,
    Reshaped,
    Thing,
    Value,
    name,
)
from autosched.tir import dtypes
from autosched.tir.extern import found

DEPTH = 16
"""Calls one inside another."""


@dataclass(frozen=True)
class Sibling:
    """Another function of the text, which may be called, and the names around it."""

    node: ast.FunctionDef
    names: Mapping[str, Thing]


class Calls:
    """Writes the statements of functions that are called. `body` rewrites statements."""

    def __init__(
        self,
        buffers: Buffers,
        body: Callable[[Sequence[ast.stmt]], list[ast.stmt]],
        siblings: Mapping[str, Sibling],
    ) -> None:
        self.buffers, self.body, self.siblings = buffers, body, siblings
        self.state, self.values = buffers.state, buffers.values
        self.around: list[str] = []
        """Names of the functions that are being called."""

    def callee(self, node: ast.expr) -> tuple[str, list[ast.expr]] | None:
        """The function of the text that a call is of, and its arguments: `Module.f(A.data)`,
        `T.call_tir(Module.f, A.data)`, `T.call_extern("f", A.data)`."""
        if not isinstance(node, ast.Call):
            return None
        function, args = called(node.func), list(node.args)
        target: ast.expr | None = node.func if function is None else None
        if function == "call_tir" and args:
            target = args.pop(0)
        if function in ("call_extern", "call_cpacked", "call_packed"):
            texts = [x.value if isinstance(x, ast.Constant) else None for x in args[:2]]
            first = 1 if len(texts) > 1 and texts[0] in (*dtypes.DTYPES, "void", "") else 0
            title = texts[first] if first < len(texts) else None
            if isinstance(title, str) and title in self.siblings and found(title) is None:
                return title, args[first + 1 :]
        if isinstance(target, ast.Attribute) and target.attr in self.siblings:
            return target.attr, args
        return None

    def inlined(self, node: ast.expr) -> list[ast.stmt] | None:
        """The statements of the function that is called; None for what is no such call."""
        known = self.callee(node)
        if known is None:
            return None
        title, args = known
        sibling = self.siblings[title]
        params = sibling.node.args.args
        if title in (*self.around, self.buffers.title) or len(self.around) >= DEPTH:
            raise self.state.error(node, f"{title} calls itself, or calls nest too deeply")
        if len(params) != len(args):
            raise self.state.error(node, f"{title} has {len(params)} parameters, found {len(args)}")
        bound: dict[str, Thing] = {}
        views: list[tuple[str, ast.Call]] = []
        out: list[ast.stmt] = []
        for param, given in zip(params, args, strict=True):
            hint = param.annotation
            kind = called(hint.func if isinstance(hint, ast.Call) else hint) if hint else None
            if isinstance(hint, ast.Subscript) and called(hint.value) == "Buffer":
                inside = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
                hint, kind = ast.copy_location(ast.Call(hint.value, inside, []), hint), "Buffer"
            if kind in dtypes.DTYPES and kind is not None:
                fresh = self.state.fresh(param.arg)
                value = self.values.of(given, kind)
                out.append(ast.Assign([ast.Name(fresh, ast.Store())], value, lineno=0))
                bound[param.arg] = Value(name(fresh), kind)
                continue
            bound[param.arg] = self._memory(given)
            if kind == "Buffer" and isinstance(hint, ast.Call):
                data = ast.keyword("data", ast.Name(param.arg, ast.Load()))
                view = ast.Call(hint.func, hint.args, [*hint.keywords, data])
                views.append((param.arg, ast.copy_location(view, hint)))
        before = dict(self.state.names)
        self.around.append(title)
        self._rename({**sibling.names, **bound})
        for target, view in views:
            self.buffers.declared(target, ast.fix_missing_locations(view), Context())
        out += self.body(sibling.node.body)
        self.around.pop()
        self._rename(before)
        return out

    def _rename(self, names: Mapping[str, Thing]) -> None:
        self.state.names.clear()
        self.state.names.update(names)

    def _memory(self, node: ast.expr) -> Array | Memory | Reshaped:
        """What is given for a handle or a buffer: a whole buffer, or a view of one."""
        inner = node.func if isinstance(node, ast.Call) else node
        if isinstance(inner, ast.Attribute) and inner.attr in ("data", "access_ptr"):
            inner = inner.value
        thing = self.state.names.get(inner.id) if isinstance(inner, ast.Name) else None
        if not isinstance(thing, (Array, Memory, Reshaped)):
            raise self.state.error(node, "expected the memory of a whole buffer, A.data")
        return thing
