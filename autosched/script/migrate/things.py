"""What the names of a TVMScript function stand for while it is rewritten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Union

from autosched.errors import ScriptError
from autosched.script.source import Place, Source

INDEX = "index"
"""The type of loop variables and axes, which take the integer type of what they meet."""
INT, FLOAT = "int", "float"
"""The types of numbers that are written down, which take the type of what they meet."""
NODES = 200_000
"""Nodes that the rewritten functions of one text may have together: names are replaced by what they
stand for, which can grow by a power for each level."""


@dataclass(frozen=True)
class Value:
    """An expression of the new text, and its type: a dtype, INDEX, INT or FLOAT."""

    node: ast.expr
    dtype: str


@dataclass(frozen=True)
class Array:
    """A buffer of the new text. `prefix` are the loops that it was allocated in, of which each
    iteration has a buffer of its own: the leading dimensions."""

    name: str
    shape: tuple[ast.expr, ...]
    dtype: str
    prefix: tuple[str, ...] = ()


@dataclass(frozen=True)
class Window:
    """A part of a buffer: the last dimensions of `shape` begin at `begin` of the buffer's, those
    before stay at one index."""

    base: Union[Array, Window, Reshaped]
    begin: tuple[ast.expr, ...]
    shape: tuple[ast.expr, ...]


@dataclass(frozen=True)
class Reshaped:
    """A dense buffer seen under another shape: its elements in order, from `first` on."""

    base: Array
    shape: tuple[int, ...]
    first: int = 0


@dataclass(frozen=True)
class Handle:
    """A parameter that T.match_buffer has still to describe."""

    position: int


@dataclass(frozen=True)
class Memory:
    """What T.allocate gives: elements that T.decl_buffer or T.Buffer(data=) gives a shape."""

    name: str
    elements: ast.expr
    dtype: str
    scope: str
    loops: tuple[str, ...]


@dataclass(frozen=True)
class Several:
    """A tuple of numbers and dtypes around a function, such as a shape."""

    things: tuple[Union[Value, str], ...]


Thing = Union[Value, Array, Window, Reshaped, Handle, Memory, Several, str]
"""A `str` is a text that stands for itself, such as a dtype."""


@dataclass(frozen=True)
class Loop:
    """A loop of the new text: its name, its extent, and that as a number where it is one."""

    name: str
    extent: ast.expr
    size: int | None


@dataclass(frozen=True)
class Note:
    """Something that the rewriting changed or left out, where it stood."""

    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


@dataclass
class Context:
    """Where in the function something stands: the loops around it, what must hold of them, and
    what must hold of data (`guards`)."""

    loops: tuple[Loop, ...] = ()
    conditions: tuple[ast.expr, ...] = ()
    guards: tuple[ast.expr, ...] = ()

    def sizes(self) -> dict[str, int]:
        """Extents of the loops that are numbers."""
        return {x.name: x.size for x in self.loops if x.size is not None}


@dataclass
class State:
    """What is shared while one function is rewritten."""

    source: Source
    names: dict[str, Thing]
    notes: list[Note] = field(default_factory=list)
    active: set[str] = field(default_factory=set)
    """Names of the new text that are in scope."""
    blocks: set[str] = field(default_factory=set)
    extents: dict[str, int] = field(default_factory=dict)
    """Of loops and axes of the new text, by name, where they are numbers."""
    spent: int = 0

    def error(self, place: Place, message: str) -> ScriptError:
        return self.source.error(place, message)

    def note(self, place: Place, message: str) -> None:
        """Record what a reader of the new text must know."""
        self.notes.append(
            Note(place.lineno + self.source.first_line - 1, place.col_offset + 1, message)
        )

    def fresh(self, name: str) -> str:
        """`name`, or one like it that nothing in scope has; in scope from now on."""
        name = "v" if name in ("_", "T") else name
        found, n = name, 0
        while found in self.active:
            n += 1
            found = f"{name}_{n}"
        self.active.add(found)
        return found

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names that the body gives are gone after it."""
        active, names = set(self.active), dict(self.names)
        try:
            yield
        finally:
            self.active = active
            self.names.clear()
            self.names.update(names)

    def block(self, name: str) -> str:
        """A name for a block that no other has."""
        found, n = name, 0
        while found in self.blocks:
            n += 1
            found = f"{name}_{n}"
        self.blocks.add(found)
        return found

    def spend_statement(self) -> None:
        """Count a statement."""
        self.spent += 1

    def spend(self, place: Place, node: ast.AST) -> None:
        """Count what an expression of the new text has. Raises ScriptError beyond NODES."""
        self.spent += sum(1 for _ in ast.walk(node))
        if self.spent > NODES:
            raise self.error(place, f"the rewritten text has more than {NODES} nodes up to here")


def name(text: str) -> ast.Name:
    """A name as a node."""
    return ast.Name(text, ast.Load())


def number(n: int) -> ast.expr:
    """A number as a node."""
    return ast.Constant(n) if n >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-n))


def call(function: str, *args: ast.expr, **named: ast.expr) -> ast.Call:
    """`T.function(*args)`."""
    node: ast.expr = name("T")
    for part in function.split("."):
        node = ast.Attribute(node, part, ast.Load())
    return ast.Call(node, list(args), [ast.keyword(k, v) for k, v in named.items()])


def number_of(node: ast.expr) -> int | None:
    """The integer that a node of the new text is, if it is one."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number_of(node.operand)
        return None if inner is None else -inner
    return None


def plus(a: ast.expr, b: ast.expr) -> ast.expr:
    """`a + b`, without zeros."""
    m, n = number_of(a), number_of(b)
    if m is not None and n is not None:
        return number(m + n)
    if m == 0:
        return b
    if n is not None:
        return _moved(a, n)
    return ast.BinOp(a, ast.Add(), b)


def minus(a: ast.expr, b: ast.expr) -> ast.expr:
    """`a - b`, without zeros."""
    m, n = number_of(a), number_of(b)
    if m is not None and n is not None:
        return number(m - n)
    if n is not None:
        return _moved(a, -n)
    return ast.BinOp(a, ast.Sub(), b)


def _moved(a: ast.expr, n: int) -> ast.expr:
    """`a + n`, as a sum with one constant."""
    if isinstance(a, ast.BinOp) and isinstance(a.op, (ast.Add, ast.Sub)):
        m = number_of(a.right)
        if m is not None:
            n += m if isinstance(a.op, ast.Add) else -m
            a = a.left
    if n == 0:
        return a
    return ast.BinOp(a, ast.Add() if n > 0 else ast.Sub(), number(abs(n)))


def times(a: ast.expr, n: int) -> ast.expr:
    """`a * n`."""
    m = number_of(a)
    if m is not None:
        return number(m * n)
    return a if n == 1 else ast.BinOp(a, ast.Mult(), number(n))


def loads(node: ast.AST) -> Iterator[ast.Subscript]:
    """Every element of a buffer below a node of the new text."""
    return (x for x in ast.walk(node) if isinstance(x, ast.Subscript))


def names_in(node: ast.AST) -> set[str]:
    """Every name below a node."""
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}


def replaced(node: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    """`node` with names replaced by expressions."""
    if not values.keys() & names_in(node):
        return node
    return _Names(values).visit(node)  # type: ignore[no-any-return]


class _Names(ast.NodeTransformer):
    """Makes new nodes, since those of an expression are shared."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        new = type(node)(**dict(ast.iter_fields(node)))
        for key, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                setattr(new, key, self.visit(value))
            elif isinstance(value, list):
                setattr(new, key, [self.visit(x) if isinstance(x, ast.AST) else x for x in value])
        return new
