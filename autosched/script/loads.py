"""Reads of buffers as a parser first has them, and keys by which expressions are compared."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import dataclass

from autosched.tir.affine import Affine, Atom, Int
from autosched.tir.expr import Call, Const, Expr, Var
from autosched.tir.nodes import Buffer, Index
from autosched.tir.size import Size


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Load(Expr):
    """A read of a buffer that has not yet become a slot of a block. `nested` counts the loads one
    inside the index of another, itself included."""

    buffer: Buffer
    at: tuple[Index, ...]
    dtype: str
    place: ast.expr
    nested: int

    def __repr__(self) -> str:
        return f"{self.buffer.name}[...]"


def key_of(e: Index) -> Hashable:
    """Equal for equal expressions and forms over the same variables and buffers."""
    if isinstance(e, Affine):
        return (_number(e.const), frozenset((_key_of_atom(a), _number(c)) for a, c in e.terms))
    if isinstance(e, Load):
        return ("load", id(e.buffer), *map(key_of, e.at))
    if isinstance(e, Var):
        return id(e)
    if isinstance(e, Const):
        return (e.dtype, repr(e.value))
    assert isinstance(e, Call)
    return (e.op, e.dtype, *map(key_of, e.args))


def _key_of_atom(atom: Atom) -> Hashable:
    if isinstance(atom, Var):
        return id(atom)
    return (key_of(atom.base), _number(atom.div), None if atom.mod is None else _number(atom.mod))


def _number(n: Int) -> Hashable:
    return n.key if isinstance(n, Size) else int(n)
