"""The elements that a block reads, and its expressions over slots."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Sequence

from autosched.script.loads import Load, key_of
from autosched.script.source import Source
from autosched.tir.affine import Affine
from autosched.tir.expr import Expr, Slot, children, rewrite
from autosched.tir.nodes import Access, Index


class Reads:
    """Turns loads into slots: those of T.reads, or without it all that are met, in order."""

    def __init__(self, source: Source, listed: Sequence[Load] | None) -> None:
        self.source = source
        self.is_open = listed is None
        self.accesses: list[Access] = []
        self.slots: dict[Hashable, int] = {}
        for n, load in enumerate(listed or ()):
            self.slots.setdefault(key_of(load), n)
        for load in listed or ():
            self.accesses.append(self.access(load))

    def access(self, load: Load) -> Access:
        """The element as an access; loads in its indices become slots."""
        return Access(load.buffer, tuple(self._index(i) for i in load.at))

    def _index(self, index: Index) -> Index:
        return index if isinstance(index, Affine) else self.expr(index)

    def expr(self, e: Expr) -> Expr:
        """`e` over slots. Raises ScriptError on a load that T.reads does not list."""
        return rewrite(e, self._leaf)

    def _leaf(self, e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        key = key_of(e)
        slot = self.slots.get(key)
        if slot is None:
            if not self.is_open:
                raise self.source.error(
                    e.place, f"{text_of(e.place)} is read, but T.reads does not list it"
                )
            access = self.access(e)  # what its indices read comes first
            slot = self.slots[key] = len(self.accesses)
            self.accesses.append(access)
        return Slot(slot, e.dtype)


def loads_in(e: Index) -> Iterator[Load]:
    """Every load in `e`, those in the indices of others included."""
    if isinstance(e, Affine):
        return
    if isinstance(e, Load):
        yield e
        for index in e.at:
            yield from loads_in(index)
    for child in children(e):
        yield from loads_in(child)


def text_of(place: ast.expr) -> str:
    """Text of a node, for messages."""
    text = ast.unparse(place)
    return text if len(text) <= 60 else f"{text[:57]}..."
