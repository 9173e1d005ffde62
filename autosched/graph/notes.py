"""What a text says beside the IR that is read from it: where things stand, what was declared."""

from __future__ import annotations

from dataclasses import dataclass, field

from autosched.errors import AutoschedError, WorkloadError
from autosched.graph.ir import Atom, Const, Function
from autosched.graph.types import Type
from autosched.script.source import Place, Source


@dataclass
class Notes:
    """By the identity of variables, bindings, functions and constants, each kept beside its note so
    that no other object takes its identity."""

    source: Source | None = None
    places: dict[int, tuple[object, Place]] = field(default_factory=dict)
    results: dict[int, tuple[Function, tuple[Type, ...]]] = field(default_factory=dict)
    """Declared types of a function's results."""
    literals: dict[int, tuple[Const, str]] = field(default_factory=dict)
    """Numbers written without a dtype: "bool", "int" or "float"."""
    ascribed: list[tuple[Atom, Type, Place]] = field(default_factory=list)
    """`name: type = value` of a value that has a name already."""

    def put(self, thing: object, place: Place) -> None:
        """Note where a thing stands."""
        self.places[id(thing)] = (thing, place)

    def place(self, thing: object) -> Place | None:
        """Where a thing stands."""
        found = self.places.get(id(thing))
        return None if found is None else found[1]

    def line(self, thing: object) -> int | None:
        """The line of a thing, as errors number lines."""
        found = self.place(thing)
        if found is None or self.source is None:
            return None
        return int(found.lineno) + self.source.first_line - 1

    def at(self, thing: object) -> str:
        """` (line 7)`, or nothing where it is not known."""
        line = self.line(thing)
        return "" if line is None else f" (line {line})"

    def error(self, thing: object, message: str) -> AutoschedError:
        """An error that shows the text where there is one."""
        place = self.place(thing)
        if place is None or self.source is None:
            return WorkloadError(message)
        return self.source.error(place, message)
