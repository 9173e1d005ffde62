"""Names in scope while a function is read."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal, Union

from autosched.script.source import Place, Source
from autosched.tir.expr import Expr, Var
from autosched.tir.nodes import Buffer
from autosched.tir.size_atoms import SizeVar


@dataclass(frozen=True)
class Local:
    """A loop variable or an axis of a block."""

    kind: Literal["loop", "axis"]
    var: Var


@dataclass(frozen=True)
class Bound:
    """A name given to a value in a block: `value` where values are read, `combined` in the
    statements that combine tuples. `size` counts the nodes, each use of the name again."""

    value: Expr
    combined: Expr
    size: int


@dataclass(frozen=True)
class Handle:
    """A parameter that T.match_buffer has still to describe."""

    position: int


Thing = Union[Local, Bound, Handle, Buffer, SizeVar, int, float]


class Scope:
    """Names and what they mean. A name stays what it is until its scope ends."""

    def __init__(self, source: Source, constants: dict[str, int | float] | None = None) -> None:
        self.source = source
        self.names: dict[str, Thing] = dict(constants or {})
        self.fixed: set[str] = set()
        self.order: list[tuple[str, Thing | None]] = []

    def mark(self) -> int:
        """Where a scope begins, for `leave`."""
        return len(self.order)

    def leave(self, mark: int) -> None:
        """Forget the names defined since `mark`."""
        while len(self.order) > mark:
            name, before = self.order.pop()
            self.fixed.discard(name)
            if before is None:
                del self.names[name]
            else:
                self.names[name] = before

    def define(self, name: str, thing: Thing, place: Place) -> None:
        """Give `name` a meaning. Raises ScriptError if it has one."""
        if name == "T":
            raise self.source.error(place, "T is the namespace of the language")
        if name in self.fixed:
            raise self.source.error(place, f"{name!r} is defined already; choose another name")
        self.order.append((name, self.names.get(name)))
        self.fixed.add(name)
        self.names[name] = thing

    def replace(self, name: str, thing: Thing) -> None:
        """Give a name that has a meaning another one, for the same scope."""
        self.names[name] = thing

    def find(self, name: str, place: Place, expected: str) -> Thing:
        """What `name` means. Raises ScriptError, with names that look like it, if nothing."""
        thing = self.names.get(name)
        if thing is None:
            near = difflib.get_close_matches(name[:80], list(self.names)[-400:], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise self.source.error(place, f"{name!r} is not defined; expected {expected}{hint}")
        return thing
