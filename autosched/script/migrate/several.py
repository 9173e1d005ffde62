"""Tuples around a function of TVMScript, such as shapes, written out where it names them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from copy import deepcopy

from autosched.script.migrate.things import Several, Thing, Value, number_of


def with_tuples(node: ast.FunctionDef, names: Mapping[str, Thing]) -> ast.FunctionDef:
    """`shape`, `*shape`, `shape[0]` and `len(shape)` by what `names` says, unless the function
    gives the name another meaning."""
    stored = {
        x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
    }
    own = stored | {a.arg for a in node.args.args}
    tuples = {k: x for k, x in names.items() if isinstance(x, Several) and k not in own}
    if not tuples:
        return node
    new = _Tuples(tuples).visit(deepcopy(node))
    assert isinstance(new, ast.FunctionDef)
    return ast.fix_missing_locations(new)


def written(thing: Value | str) -> ast.expr:
    """A number or a dtype as an expression."""
    return deepcopy(thing.node) if isinstance(thing, Value) else ast.Constant(thing)


class _Tuples(ast.NodeTransformer):
    def __init__(self, tuples: Mapping[str, Several]) -> None:
        self.tuples = tuples

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.tuples.get(node.id)
        if found is None:
            return node
        return ast.copy_location(ast.Tuple([written(x) for x in found.things], ast.Load()), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        elements = node.value.elts if isinstance(node.value, ast.Tuple) else []
        n = number_of(node.slice)
        if n is None or not -len(elements) <= n < len(elements):
            return node
        return ast.copy_location(elements[n], node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
            (of,) = node.args
            if isinstance(of, ast.Tuple):
                return ast.copy_location(ast.Constant(len(of.elts)), node)
        node.args = _spread(node.args)
        return node

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        self.generic_visit(node)
        node.elts = _spread(node.elts)
        return node

    def visit_List(self, node: ast.List) -> ast.expr:
        self.generic_visit(node)
        node.elts = _spread(node.elts)
        return node


def _spread(nodes: list[ast.expr]) -> list[ast.expr]:
    """The nodes with `*(a, b)` as a, b."""
    out: list[ast.expr] = []
    for x in nodes:
        starred = isinstance(x, ast.Starred) and isinstance(x.value, ast.Tuple)
        out += x.value.elts if starred else [x]  # type: ignore[attr-defined]
    return out
