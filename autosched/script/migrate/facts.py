"""Facts of a text: attributes and annotations as literals, where they are some; names in shapes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autosched.script.migrate.spelling import called
from autosched.script.migrate.things import State, Value, names_in
from autosched.tir import dtypes
from autosched.tir.annotations import annotation_fault

LAYOUT_FREE = "layout_free_buffers"
"""TVM's attribute with the numbers of parameters whose layout is free; here it has their names."""


def kept_annotations(state: State, node: ast.expr, place: str) -> ast.Dict:
    """Annotations of a "block" or "loop" that may stand there; others are noted."""
    kept = ast.Dict([], [])
    for key, value in _items(state, node):
        fault = annotation_fault(key, ast.literal_eval(value), place)
        if fault is not None:
            state.note(node, f"the annotation {key!r} is left out: {fault}")
            continue
        kept.keys.append(ast.Constant(key))
        kept.values.append(value)
    return kept


def kept_attributes(state: State, node: ast.expr, params: Sequence[ast.arg]) -> ast.Dict:
    """Attributes of a function that are literals; others are noted."""
    kept = ast.Dict([], [])
    for key, value in _items(state, node):
        if key == LAYOUT_FREE and isinstance(value, (ast.List, ast.Tuple)):
            numbers = [x.value for x in value.elts if isinstance(x, ast.Constant)]
            if any(type(n) is not int or not 0 <= n < len(params) for n in numbers):
                raise state.error(node, f"{LAYOUT_FREE} are numbers of parameters")
            names = [_matched(state, params, n) for n in numbers if isinstance(n, int)]
            key = "layout_free"
            value = ast.Tuple([ast.Constant(x) for x in names], ast.Load())
        kept.keys.append(ast.Constant(key))
        kept.values.append(value)
    return kept


def returned(state: State, node: ast.Call) -> ast.expr:
    """What T.evaluate evaluates. Raises ScriptError for T.ret of anything but 0: no function here
    returns a value."""
    (inner,) = node.args[:1] or [ast.Constant(0)]
    found = node if called(node.func) == "ret" else inner
    if isinstance(found, ast.Call) and called(found.func) == "ret":
        (inner,) = found.args[:1] or [ast.Constant(0)]
        if not isinstance(inner, ast.Constant) or inner.value not in (0, None):
            raise state.error(node, "a function returns no value here; store it into a buffer")
    return inner


def _matched(state: State, params: Sequence[ast.arg], n: int) -> str:
    """The name of parameter `n`, of which the text describes a buffer by itself."""
    if called(params[n].annotation or ast.Constant(None)) == "handle":
        raise state.error(params[n], f"{LAYOUT_FREE} of parameters that are handles")
    return params[n].arg


def _items(state: State, node: ast.expr) -> list[tuple[str, ast.expr]]:
    if not isinstance(node, ast.Dict):
        raise state.error(node, "attributes and annotations are a dict")
    out = []
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise state.error(node, "a key of attributes is a text")
        plain = _literal(state, value)
        if plain is None:
            state.note(value, f"{key.value!r} is left out: {ast.unparse(value)[:60]} is no literal")
            continue
        out.append((key.value, plain))
    return out


def _literal(state: State, node: ast.expr) -> ast.expr | None:
    """A value without the types around its numbers; None for what is no literal."""
    if isinstance(node, ast.Constant):
        return node
    if isinstance(node, ast.Name):
        thing = state.names.get(node.id)
        if isinstance(thing, Value) and isinstance(thing.node, ast.Constant):
            return thing.node
        return ast.Constant(thing) if isinstance(thing, str) else None
    if isinstance(node, ast.Call):
        is_number = called(node.func) in dtypes.DTYPES and len(node.args) == 1
        inner = _literal(state, node.args[0]) if is_number else None
        if inner is not None and called(node.func) == "bool" and isinstance(inner, ast.Constant):
            return ast.Constant(bool(inner.value))
        return inner
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(state, node.operand)
        return None if inner is None else ast.UnaryOp(node.op, inner)
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_literal(state, x) for x in node.elts]
        if any(x is None for x in items):
            return None
        return type(node)([x for x in items if x is not None], ast.Load())
    if isinstance(node, ast.Dict):
        values = [_literal(state, x) for x in node.values]
        keys = [None if x is None else _literal(state, x) for x in node.keys]
        if any(x is None for x in (*keys, *values)):
            return None
        return ast.Dict(keys, [x for x in values if x is not None])
    return None


def shape_names(node: ast.FunctionDef) -> set[str]:
    """Names that stand in the shapes of parameters."""
    hints = [a.annotation for a in node.args.args if isinstance(a.annotation, ast.Call)]
    found = set().union(*(names_in(x) for h in hints for x in h.args[:1]))
    for x in ast.walk(node):
        function = called(x.func) if isinstance(x, ast.Call) else None
        if not isinstance(x, ast.Call) or function != "match_buffer" or not x.args:
            continue
        if isinstance(x.args[0], ast.Name):
            shapes = [*x.args[1:2], *(k.value for k in x.keywords if k.arg == "shape")]
            found |= set().union(*map(names_in, shapes))
    return found
