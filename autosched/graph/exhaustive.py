"""Which values no clause of a match takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Union

from autosched.errors import WorkloadError
from autosched.graph.data import Constructor
from autosched.graph.ir import Pattern, Var
from autosched.graph.types import DataRef, TupleType, Type, TypeVar, substituted

Pat = Union[Pattern, Var, None]
SHOWN = 4
"""Missing cases that an error names."""
STEPS = 20_000
"""Rows of patterns that are looked at for one match."""


def missing_cases(
    patterns: Sequence[Pat], t: Type, known: Mapping[str, Constructor]
) -> tuple[str, ...]:
    """Patterns of the first few values of type `t` that none of `patterns` takes.

    By specialising the rows of patterns for each constructor (Maranget, "Warnings for pattern
    matching", 2007). Raises WorkloadError where that takes too many steps.
    """
    rows = [[p] for p in patterns]
    return tuple(row[0] for row in islice(_Search(known).missing(rows, [t]), SHOWN))


class _Search:
    def __init__(self, known: Mapping[str, Constructor]) -> None:
        self.known, self.left = known, STEPS

    def missing(self, rows: list[list[Pat]], types: list[Type]) -> Iterator[list[str]]:
        """Rows of texts of values that no row takes."""
        self.left -= 1 + len(rows)
        if self.left < 0:
            raise WorkloadError("the patterns of a match are too many to be checked; split it")
        if not types:
            if not rows:
                yield []
            return
        used = {row[0].constructor for row in rows if isinstance(row[0], Pattern)}
        if not used:
            for rest in self.missing([row[1:] for row in rows], types[1:]):
                yield ["_", *rest]
            return
        for name, fields in self.shapes(types[0]):
            n = len(fields)
            inside = [special for row in rows for special in _specialised(row, name, n)]
            for found in self.missing(inside, [*fields, *types[1:]]):
                text = f"{name}({', '.join(found[:n])})"
                yield [text, *found[n:]]

    def shapes(self, t: Type) -> Iterator[tuple[str, list[Type]]]:
        """Constructors of a type with the types of their fields; a tuple has the constructor ""."""
        if isinstance(t, TupleType):
            yield "", list(t.fields)
        if isinstance(t, DataRef):
            for c in self.known.values():
                if c.data.name == t.name:
                    given: dict[Type, Type] = {
                        TypeVar(p): a for p, a in zip(c.data.params, t.args, strict=True)
                    }
                    yield c.name, [substituted(f, given, {}) for f in c.fields]


def _specialised(row: list[Pat], name: str, fields: int) -> Iterator[list[Pat]]:
    """The row for values of one constructor: their fields in the place of the value."""
    first = row[0]
    if not isinstance(first, Pattern):
        yield [*([None] * fields), *row[1:]]
    elif first.constructor == name:
        yield [*first.parts, *row[1:]]
