"""Macros of TVMScript, `@T.macro` and `@T.inline`, written out where they are called.

A call stands for the statements of the macro, with its arguments in the place of the parameters.
Names that the macro makes get names of their own in the function, so that two calls do not share
them; names that it only reads are those of the place of the call.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy

from autosched.script.migrate.spelling import called

_DEPTH = 8
"""Macros that call macros."""
_MOST = 10_000
"""Statements that calls in one file become."""


def expanded(tree: ast.Module) -> ast.Module:
    """The file without calls of macros; its namespace is T already. A call that does not fit its
    macro stays, and is refused where it is read."""
    macros = {s.name: s for s in ast.walk(tree) if isinstance(s, ast.FunctionDef) and _is_macro(s)}
    if not macros:
        return tree
    left = _MOST
    for _ in range(_DEPTH):
        change = _Calls(macros, left)
        tree = ast.fix_missing_locations(change.visit(tree))
        left = change.left
        if not change.done or left <= 0:
            break
    return tree


def _is_macro(s: ast.FunctionDef) -> bool:
    makers = (d.func if isinstance(d, ast.Call) else d for d in s.decorator_list)
    return any(called(d) in ("macro", "inline") for d in makers)


class _Calls(ast.NodeTransformer):
    def __init__(self, macros: Mapping[str, ast.FunctionDef], left: int) -> None:
        self.macros, self.left = macros, left
        self.taken: set[str] = set()
        self.done = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if _is_macro(node):
            return node
        self.taken |= {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        call = node.value
        if not isinstance(call, ast.Call):
            return node
        macro = self.macros.get(ast.unparse(call.func).removeprefix("self."))
        given = None if macro is None else _arguments(macro, call)
        if macro is None or given is None or self.left <= 0:
            return node
        body = self._written_out(macro.body, given)
        self.left -= sum(isinstance(x, ast.stmt) for s in body for x in ast.walk(s))
        self.done += 1
        for s in body:
            for x in ast.walk(s):
                ast.copy_location(x, node)  # errors name the call
        return body

    def _written_out(
        self, body: Sequence[ast.stmt], given: Mapping[str, ast.expr]
    ) -> list[ast.stmt]:
        made = {
            x.id: x.id
            for s in body
            for x in ast.walk(s)
            if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store) and x.id not in given
        }
        for name in made:
            n = 0
            while made[name] in self.taken:
                n += 1
                made[name] = f"{name}_{n}"
            self.taken.add(made[name])
        change = _Names({**given, **{old: ast.Name(new) for old, new in made.items()}})
        return [change.visit(deepcopy(s)) for s in body]


class _Names(ast.NodeTransformer):
    def __init__(self, new: Mapping[str, ast.expr]) -> None:
        self.new = new

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.new.get(node.id)
        if found is None:
            return node
        new = deepcopy(found)
        if isinstance(new, ast.Name):
            new.ctx = node.ctx
        return new


def _arguments(macro: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """By parameter, what the call gives; None where that does not fit."""
    parameters = [a.arg for a in macro.args.args if a.arg != "self"]
    rest = macro.args.vararg or macro.args.kwarg or macro.args.kwonlyargs
    starred = any(isinstance(x, ast.Starred) for x in call.args)
    if rest or starred or len(call.args) > len(parameters):
        return None
    defaults = macro.args.defaults
    found = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
    found.update(zip(parameters, call.args, strict=False))
    for k in call.keywords:
        if k.arg not in parameters:
            return None
        found[k.arg] = k.value
    return found if len(found) == len(parameters) else None
