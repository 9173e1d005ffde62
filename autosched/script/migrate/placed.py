"""Intermediates of routines, which are allocated where they stand, and their memory."""

from __future__ import annotations

import ast
from math import prod

from autosched.script.migrate.buffers import Buffers
from autosched.script.migrate.spelling import called
from autosched.script.migrate.things import Array, Context, Reshaped, State, call, number, number_of

MOST_CONSTANTS = 4096
"""Numbers of one T.allocate_const."""


class Placed(Buffers):
    """Declares the intermediates of one routine."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.made: list[ast.stmt] = []
        """Allocations that stand before the next statement."""

    def allocate(self, array: Array, scope: str, context: Context) -> Array:
        """Declare an intermediate where it stands."""
        made = call("alloc_buffer", *self._shaped(array))
        self.made.append(ast.Assign([ast.Name(array.name, ast.Store())], made, lineno=0))
        self.scopes[array.name] = scope
        return array

    def constants(self, s: ast.stmt) -> bool:
        """`T.allocate_const([...], dtype, shape)`: a buffer, and a store of each number."""
        node = s.value if isinstance(s, ast.Assign) else None
        if not isinstance(node, ast.Call) or called(node.func) != "allocate_const":
            return False
        assert isinstance(s, ast.Assign)
        given = dict(zip(("data", "dtype", "extents"), node.args, strict=False))
        given |= {str(k.arg): k.value for k in node.keywords}
        data, target = given.get("data"), s.targets[0]
        sizes = [number_of(self.values.index(n)) for n in getattr(given.get("extents"), "elts", [])]
        if not isinstance(data, (ast.List, ast.Tuple)) or not isinstance(target, ast.Name):
            raise self.state.error(node, "the numbers of T.allocate_const stand in a list")
        if len(data.elts) > MOST_CONSTANTS or prod(n or 0 for n in sizes) != len(data.elts):
            raise self.state.error(
                node, f"expected the numbers of all elements, up to {MOST_CONSTANTS}"
            )
        title = self.state.fresh(target.id)
        shape = tuple(number(n) for n in sizes if n is not None)
        dtype = self.values.dtype(given["dtype"]) if "dtype" in given else "float32"
        array = Array(title, shape, dtype)
        self.state.names[target.id] = self.allocate(array, "global", Context())
        view = Reshaped(array, (len(data.elts),))
        for n, x in enumerate(data.elts):
            at = self.values.element(node, view, (number(n),))
            self.made.append(stored(at.node, self.values.of(x, array.dtype)))
        return True

    def flat_store(self, node: ast.Call) -> list[ast.stmt]:
        """`T.store(A.data, i, value)`: element i of the memory of A."""
        e = self.values.flat_element(node, node.args[0], node.args[1])
        made = stored(e.node, self.values.of(node.args[2], e.dtype))
        if len(node.args) < 4:
            return [made]
        test = self.values.condition(node.args[3])
        return [made] if isinstance(test, ast.Constant) else [ast.If(test, [made], [])]


def stored(target: ast.expr, value: ast.expr) -> ast.Assign:
    """`target = value`, of an element."""
    assert isinstance(target, ast.Subscript)
    place = ast.Subscript(target.value, target.slice, ast.Store())
    return ast.Assign([place], value, lineno=0)
