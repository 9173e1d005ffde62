"""Values of the evaluator beside arrays and tuples: tagged tuples and closures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosched.checks import shown
from autosched.errors import ArgumentError

if TYPE_CHECKING:
    from autosched.graph.machine import Code

SHOWN = 50
"""Constructors that the text of a value shows."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Tagged:
    """A value of a data type: the name of a constructor, and the fields."""

    constructor: str
    fields: tuple[Any, ...] = ()

    # Lists nest deeper than Python's stack: so there is no recursion along the last fields.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tagged):
            return NotImplemented
        a: Any = self
        b: Any = other
        while a is not b:
            if not isinstance(a, Tagged) or not isinstance(b, Tagged):
                return bool(a == b)
            if a.constructor != b.constructor or a.fields[:-1] != b.fields[:-1]:
                return False
            if not a.fields or not b.fields:
                return a.fields == b.fields
            a, b = a.fields[-1], b.fields[-1]
        return True

    def __hash__(self) -> int:
        chain: list[Any] = []
        last: Any = self
        while isinstance(last, Tagged) and last.fields:
            chain += [last.constructor, last.fields[:-1]]
            last = last.fields[-1]
        return hash((*chain, last.constructor if isinstance(last, Tagged) else last))

    def __reduce__(self) -> tuple[Any, ...]:
        chain: list[Tagged] = []
        last: Any = self
        while isinstance(last, Tagged) and last.fields:
            chain.append(last)
            last = last.fields[-1]
        end = last.constructor if isinstance(last, Tagged) else None
        rows = [(t.constructor, t.fields[:-1]) for t in chain]
        return _chained, (rows, end, None if isinstance(last, Tagged) else last)

    def __repr__(self) -> str:
        # Lists nest deeper than Python's stack: so the text is made without recursion.
        out: list[str] = []
        work: list[Any] = [self]
        left = SHOWN
        while work:
            item = work.pop()
            if isinstance(item, _Text):
                out.append(item.text)
            elif isinstance(item, Tagged):
                left -= 1
                if left < 0:
                    out.append("…")
                    continue
                work.append(_Text(")"))
                for n, field in enumerate(reversed(item.fields)):
                    work += [field, _Text(", ")] if n + 1 < len(item.fields) else [field]
                out.append(f"{item.constructor}(")
            else:
                out.append(shown(item) if callable(item) else str(item))
        return "".join(out)


def _chained(rows: Sequence[tuple[str, tuple[Any, ...]]], end: str | None, last: Any) -> Tagged:
    """Values of a data type, each the last field of the one before; `end` is the constructor of the
    last, or None where that is `last`."""
    made: Any = last if end is None else Tagged(end)
    for constructor, fields in reversed(rows):
        made = Tagged(constructor, (*fields, made))
    return made  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(slots=True, eq=False)
class Closure:
    """A function value: code, the values around it that it uses, and what runs it."""

    code: Code
    captured: list[Any]
    run: Callable[[Closure, tuple[Any, ...]], list[Any]]

    def __call__(self, *args: Any) -> list[Any]:
        """Its results on values."""
        return self.run(self, args)


@dataclass(frozen=True, slots=True)
class Maker:
    """A constructor as a function value."""

    name: str
    count: int

    def __call__(self, *args: Any) -> list[Any]:
        """The tagged tuple of these fields."""
        if len(args) != self.count:
            raise ArgumentError(f"{self.name} has {self.count} fields, found {len(args)} values")
        return [Tagged(self.name, args)]


def to_list(items: Iterable[Any]) -> Tagged:
    """A value of the prelude's List, with these items."""
    made = Tagged("Nil")
    for item in reversed(list(items)):
        made = Tagged("Cons", (item, made))
    return made


def from_list(value: Tagged) -> list[Any]:
    """The items of a value of the prelude's List. Raises ArgumentError for what is none."""
    return list(_items(value))


def _items(value: Any) -> Iterator[Any]:
    while isinstance(value, Tagged) and value.constructor == "Cons" and len(value.fields) == 2:
        yield value.fields[0]
        value = value.fields[1]
    if not isinstance(value, Tagged) or value.constructor != "Nil":
        raise ArgumentError(f"{shown(value)} is no list; expected Cons(item, rest) or Nil()")
