"""Vectors of the old text as loops over their lanes.

`A[T.ramp(i, 1, 4)] = B[j : j + 4] + T.broadcast(x, 4)` is a loop of four stores. All lanes are read
before the first is stored, so a store whose value reads the same memory at other indices stays as
it is, and is refused where it is read.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable

from autosched.script.migrate.access import Accesses
from autosched.script.migrate.ranges import difference
from autosched.script.migrate.spelling import called
from autosched.script.migrate.things import number_of

_RAMPS, _BROADCASTS = ("ramp", "Ramp"), ("broadcast", "Broadcast")
_LANES = re.compile(r"^(\w+?\d*)x(\d+)$")


def scalar_loops(function: ast.FunctionDef) -> ast.FunctionDef:
    """The function with vectors written as loops over lanes."""
    names = {x.id for x in ast.walk(function) if isinstance(x, ast.Name)}
    lane = "lane"
    while lane in names:
        lane += "_"
    new = _Stores(lane, Accesses(function).root).visit(copy.deepcopy(function))
    assert isinstance(new, ast.FunctionDef)
    return ast.fix_missing_locations(new)


class _Stores(ast.NodeTransformer):
    """Rewrites stores of vectors. `root` gives the buffer that a name is a view of."""

    def __init__(self, lane: str, root: Callable[[str], str]) -> None:
        self.lane, self.root = lane, root

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        (target,) = node.targets[:1]
        if len(node.targets) == 1 and isinstance(target, ast.Subscript):
            return self.store(node, target, node.value)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """`A.vstore([i], value)`."""
        e = node.value
        if (
            isinstance(e, ast.Call)
            and isinstance(e.func, ast.Attribute)
            and e.func.attr == "vstore"
            and len(e.args) == 2
        ):
            lanes = _lanes(e.args[1])
            at = e.args[0].elts if isinstance(e.args[0], (ast.List, ast.Tuple)) else [e.args[0]]
            if lanes is not None and at:
                target = _element(e.func.value, [*at[:-1], _ramp(at[-1], lanes)], ast.Store())
                return self.store(node, ast.copy_location(target, e), e.args[1])
        return node

    def store(self, node: ast.stmt, target: ast.Subscript, value: ast.expr) -> ast.stmt:
        """A loop over the lanes of a store, if it has any."""
        lanes = _lanes(target)
        if lanes is None or not isinstance(target.value, (ast.Name, ast.Attribute)):
            return node
        change = _Lane(self.lane)
        new_target, new_value = change.visit(copy.deepcopy(target)), change.visit(value)
        mine = self.root(ast.unparse(target.value).removesuffix(".data"))
        for x in ast.walk(new_value):
            if isinstance(x, ast.Subscript) and isinstance(x.value, ast.Name):
                same = ast.unparse(x.slice) == ast.unparse(new_target.slice)
                if self.root(x.value.id) == mine and not same:
                    return node
        made = ast.Assign([new_target], new_value)
        space = ast.Attribute(ast.Name("T", ast.Load()), "vectorized", ast.Load())
        extent = ast.Call(space, [ast.Constant(lanes)], [])
        loop = ast.For(ast.Name(self.lane, ast.Store()), extent, [made], [])
        for x in ast.walk(loop):
            ast.copy_location(x, node)
        return loop


class _Lane(ast.NodeTransformer):
    """An expression of vectors as what it is in one lane."""

    def __init__(self, lane: str) -> None:
        self.lane = lane

    def at(self, base: ast.expr, stride: ast.expr | None = None) -> ast.expr:
        """`base + lane * stride`."""
        step: ast.expr = ast.Name(self.lane, ast.Load())
        if stride is not None and not (isinstance(stride, ast.Constant) and stride.value == 1):
            step = ast.BinOp(step, ast.Mult(), stride)
        return ast.BinOp(base, ast.Add(), step)

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        return self.at(node.lower or ast.Constant(0), node.step)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        found = _LANES.match(node.value) if isinstance(node.value, str) else None
        return ast.Constant(found[1]) if found else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = called(node.func)
        if function in _RAMPS and len(node.args) == 3:
            return self.at(self.visit(node.args[0]), self.visit(node.args[1]))
        if function in _BROADCASTS and len(node.args) == 2:
            inner: ast.expr = self.visit(node.args[0])
            return inner
        if isinstance(node.func, ast.Attribute) and node.func.attr == "vload" and node.args:
            at = node.args[0].elts if isinstance(node.args[0], (ast.List, ast.Tuple)) else []
            if at and _lanes(node) is not None:
                return _element(node.func.value, [*at[:-1], self.at(at[-1])], ast.Load())
        self.generic_visit(node)
        return node


def _element(buffer: ast.expr, at: list[ast.expr], context: ast.expr_context) -> ast.Subscript:
    inside = at[0] if len(at) == 1 else ast.Tuple(at, ast.Load())
    return ast.Subscript(buffer, inside, context)


def _ramp(base: ast.expr, lanes: int) -> ast.expr:
    space = ast.Attribute(ast.Name("T", ast.Load()), "ramp", ast.Load())
    return ast.Call(space, [base, ast.Constant(1), ast.Constant(lanes)], [])


def _lanes(node: ast.expr) -> int | None:
    """The lanes of a vector, by the first part that tells them."""
    for x in ast.walk(node):
        n: object = None
        if isinstance(x, ast.Slice) and x.upper is not None:
            whole = difference(x.upper, x.lower or ast.Constant(0))
            step = 1 if x.step is None else number_of(x.step)
            n = -(-whole // step) if whole is not None and step is not None and step > 0 else None
        elif isinstance(x, ast.Call) and called(x.func) in (*_RAMPS, *_BROADCASTS):
            last = x.args[-1] if x.args else None
            n = last.value if isinstance(last, ast.Constant) else None
        elif isinstance(x, ast.Constant) and isinstance(x.value, str) and _LANES.match(x.value):
            found = _LANES.match(x.value)
            n = int(found[2]) if found else None
        if type(n) is int and n >= 1:
            return n
    return None
