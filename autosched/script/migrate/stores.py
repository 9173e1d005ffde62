"""Stores: under conditions, and what they combine."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autosched.script.migrate.ranges import terms
from autosched.script.migrate.things import Value, call, loads, number, replaced
from autosched.tir import dtypes

_COMBINE = ("min", "max")


@dataclass(frozen=True)
class Store:
    """`target = value` of the new text: a store, or (`is_name`) a name given to a value. `place` is
    the statement of the old text."""

    target: ast.expr
    value: ast.expr
    place: ast.stmt
    is_name: bool = False

    def renamed(self, values: dict[str, ast.expr]) -> ast.stmt:
        """The statement, with loops replaced by axes."""
        target = replaced(self.target, values)
        if isinstance(target, (ast.Subscript, ast.Name)):
            target = ast.parse(ast.unparse(target), mode="eval").body
            target.ctx = ast.Store()  # type: ignore[attr-defined]
        return ast.Assign([target], replaced(self.value, values), lineno=0)


def same_text(a: ast.expr, b: ast.expr) -> bool:
    """Whether two nodes are written alike."""
    return ast.dump(a) == ast.dump(b)


def operands(target: ast.expr, value: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The two sides of an operation that combines an element with a value, if it is one."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult)):
        sides = value.left, value.right
    elif (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _COMBINE
        and len(value.args) == 2
    ):
        sides = value.args[0], value.args[1]
    else:
        return None
    return sides if any(same_text(x, target) for x in sides) else None


def accumulated(store: Store) -> bool:
    """Whether a store combines its element with a value that reads no element of that buffer."""
    found = operands(store.target, store.value)
    if found is None or not isinstance(store.target, ast.Subscript):
        return False
    new = found[1] if same_text(found[0], store.target) else found[0]
    mine = ast.unparse(store.target.value)
    return all(ast.unparse(x.value) != mine for x in loads(new))


def guarded(guard: ast.expr, element: Value, value: ast.expr) -> ast.expr:
    """`value` where a condition holds, and else what the element has. What combines the element
    with something combines it with the neutral value."""
    found = operands(element.node, value)
    neutral = None if found is None else _neutral(value, element.dtype)
    if found is None or neutral is None:
        return call("if_then_else", guard, value, element.node)
    new = [
        x if same_text(x, element.node) else call("if_then_else", guard, x, neutral) for x in found
    ]
    if all(same_text(x, element.node) for x in found):
        return call("if_then_else", guard, value, element.node)
    if isinstance(value, ast.BinOp):
        return ast.BinOp(new[0], value.op, new[1])
    assert isinstance(value, ast.Call)
    assert isinstance(value.func, ast.Attribute)
    return call(value.func.attr, *new)


def _neutral(value: ast.expr, dtype: str) -> ast.expr | None:
    """What changes nothing when it is combined; -0.0 for a sum, since 0.0 changes -0.0."""
    real = dtypes.is_float(dtype)
    if dtype in ("bool", "bfloat16"):
        return None
    if isinstance(value, ast.BinOp):
        if isinstance(value.op, ast.Add):
            zero = ast.UnaryOp(ast.USub(), ast.Constant(0.0)) if real else number(0)
            return call(dtype, zero)
        return call(dtype, ast.Constant(1.0) if real else number(1))
    assert isinstance(value, ast.Call)
    assert isinstance(value.func, ast.Attribute)
    is_max = value.func.attr == "max"
    if real:
        return call(dtype, ast.Constant("-inf" if is_max else "inf"))
    return call(dtype, number(int(dtypes.minimum(dtype) if is_max else dtypes.maximum(dtype))))


def told_by(target: ast.expr, sizes: Mapping[str, int]) -> set[str]:
    """The loops and axes that the element of a store tells: in one dimension after the other, a sum
    with factors in mixed radix of those that no dimension before has told."""
    inside = target.slice if isinstance(target, ast.Subscript) else None
    dims = inside.elts if isinstance(inside, ast.Tuple) else [] if inside is None else [inside]
    told: set[str] = set()
    left = [terms(d) for d in dims]
    while True:
        for found in left:
            if found is None:
                continue
            new = {k: v for k, v in found.items() if k not in told}
            if new and _is_mixed_radix(new, sizes):
                told |= new.keys()
                break
        else:
            return told


def _is_mixed_radix(factors: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    reach = 0
    for var, factor in sorted(factors.items(), key=lambda x: abs(x[1])):
        if abs(factor) <= reach:
            return False
        if var in sizes:
            reach += abs(factor) * (sizes[var] - 1)
        elif len(factors) > 1:
            return False
    return True


def reads_written(nodes: Sequence[ast.stmt], root: Callable[[str], str]) -> bool:
    """Whether a statement reads a buffer that one before it has stored to: then they are no stores
    that happen at once."""
    written: set[str] = set()
    stored: set[str] = set()
    for s in nodes:
        for x in ast.walk(s):
            if isinstance(x, ast.Subscript) and isinstance(x.value, ast.Name):
                name = root(x.value.id)
                if isinstance(x.ctx, ast.Store):
                    text = ast.unparse(x)
                    if text in stored and not isinstance(s, ast.If):
                        return True
                    stored.add(text)
                elif name in written:
                    return True
        written |= {
            root(x.value.id)
            for x in ast.walk(s)
            if isinstance(x, ast.Subscript)
            and isinstance(x.value, ast.Name)
            and isinstance(x.ctx, ast.Store)
        }
    return False
