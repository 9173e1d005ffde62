"""Elements of buffers, of views of them and of their memory, as elements of the buffers."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from math import prod

from autosched.script.migrate.spelling import called
from autosched.script.migrate.things import (
    INDEX,
    INT,
    Array,
    Memory,
    Reshaped,
    State,
    Value,
    Window,
    name,
    number,
    number_of,
    plus,
    times,
)

EXPECTED = "an element of a buffer, an axis, a number, an operator or a function of values"


class Elements(ABC):
    """Rewrites elements; names mean what `state.names` says."""

    state: State

    @abstractmethod
    def index(self, node: ast.expr) -> ast.expr:
        """An expression in the place of an index."""

    def fact(self, node: ast.Attribute, at: int | None = None) -> Value:
        """`A.shape[0]`, `A.strides[0]`, `A.elem_offset` of a buffer, which is dense."""
        thing = self.state.names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(thing, Array) and node.attr == "elem_offset" and at is None:
            return Value(number(0), INT)
        if (
            isinstance(thing, Array)
            and at is not None
            and -len(thing.shape) <= at < len(thing.shape)
        ):
            if node.attr == "shape":
                return Value(thing.shape[at], INDEX)
            if node.attr == "strides":
                rest = thing.shape[at % len(thing.shape) + 1 :]
                step: ast.expr = number(1)
                for n in rest:
                    k, m = number_of(n), number_of(step)
                    if k is not None:
                        step = times(step, k)
                    else:
                        step = n if m == 1 else ast.BinOp(n, ast.Mult(), step)
                return Value(step, INDEX)
        raise self.state.error(node, f"{ast.unparse(node)[:60]} is no value; expected {EXPECTED}")

    def subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.value, ast.Attribute) and node.value.attr in ("shape", "strides"):
            at = number_of(node.slice)
            return self.fact(node.value, at if at is not None else 1 << 30)
        if isinstance(node.value, ast.Attribute) and node.value.attr == "data":
            return self.flat_element(node, node.value, node.slice)
        thing = self.state.names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(thing, Memory):
            thing = self.flat(thing)
        if not isinstance(thing, (Array, Window, Reshaped)):
            raise self.state.error(node, "expected the name of a buffer before [")
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for x in inside:
            if isinstance(x, (ast.Slice, ast.Starred)):
                raise self.state.error(
                    node, "a region of a buffer is no value; expected one index a dimension"
                )
            if isinstance(x, ast.Call) and called(x.func) in ("ramp", "Ramp", "broadcast"):
                raise self.state.error(x, "vectors of indices are written as loops, T.vectorized")
        return self.element(node, thing, tuple(self.index(x) for x in inside))

    def flat_element(self, place: ast.expr, node: ast.expr, index: ast.expr) -> Value:
        """Element `index` of the memory of a buffer, `A` or `A.data`."""
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        thing = self.state.names.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(thing, Memory):
            thing = self.flat(thing)
        if isinstance(thing, Reshaped):
            return self.element(
                place, Reshaped(thing.base, (prod(thing.shape),), thing.first), (self.index(index),)
            )
        if not isinstance(thing, Array):
            raise self.state.error(place, "expected the memory of a buffer")
        sizes = [number_of(n) for n in thing.shape]
        if any(n is None for n in sizes):
            raise self.state.error(place, "the memory of a buffer of symbolic sizes")
        total = prod(n for n in sizes if n is not None)
        return self.element(place, Reshaped(thing, (total,)), (self.index(index),))

    def memory(self, node: ast.expr) -> ast.expr:
        """`A.data`, or `A.access_ptr(...)`: the memory of a whole buffer, by its name."""
        inner = node.func if isinstance(node, ast.Call) else node
        if isinstance(inner, ast.Attribute) and inner.attr in ("data", "access_ptr"):
            inner = inner.value
        thing = self.state.names.get(inner.id) if isinstance(inner, ast.Name) else None
        if not isinstance(thing, (Array, Memory)):
            raise self.state.error(node, "expected the memory of a whole buffer, A.data")
        return name(thing.name)

    def flat(self, memory: Memory) -> Array:
        """Allocated memory that is used without a buffer of its own."""
        return Array(memory.name, (memory.elements,), memory.dtype, memory.loops)

    def element(
        self, place: ast.expr, thing: Array | Window | Reshaped, at: tuple[ast.expr, ...]
    ) -> Value:
        """The element of a buffer, or of a view of one, as one of the buffer."""
        if len(at) != len(thing.shape):
            raise self.state.error(
                place, f"{len(at)} indices for {len(thing.shape)} dimensions of the buffer"
            )
        if isinstance(thing, Window):
            skipped = len(thing.begin) - len(at)
            moved = [plus(b, i) for b, i in zip(thing.begin[skipped:], at, strict=True)]
            return self.element(place, thing.base, (*thing.begin[:skipped], *moved))
        if isinstance(thing, Reshaped):
            return self.element(place, thing.base, self._reshaped(place, thing, at))
        indices = [*(name(x) for x in thing.prefix), *at]
        inside = ast.Tuple(indices, ast.Load()) if len(indices) != 1 else indices[0]
        return Value(ast.Subscript(name(thing.name), inside, ast.Load()), thing.dtype)

    def _reshaped(
        self, place: ast.expr, thing: Reshaped, at: tuple[ast.expr, ...]
    ) -> tuple[ast.expr, ...]:
        shape = [number_of(n) for n in thing.base.shape]
        if any(n is None for n in shape):
            raise self.state.error(place, "a view of a buffer of symbolic sizes")
        linear: ast.expr = number(0)
        for i, n in zip(at, thing.shape, strict=True):
            linear = plus(times(linear, n), i)
        linear = plus(linear, number(thing.first))
        out: list[ast.expr] = []
        sizes = [n for n in shape if n is not None]
        below = prod(sizes)
        for size in sizes:
            below //= size
            digit = linear if below == 1 else ast.BinOp(linear, ast.FloorDiv(), number(below))
            out.append(digit if not out else ast.BinOp(digit, ast.Mod(), number(size)))
        return tuple(out)
