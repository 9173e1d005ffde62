"""Broken rules and how they are shown: the faulty lines of the script with those around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Union

from autosched.tir.nodes import Block, Node, PrimFunc
from autosched.tir.printer import _Script

SURROUNDINGS = 3
"""Lines shown before and after a faulty part."""
FAULTS_SHOWN = 20
READS, WRITES, WHERE = "T.reads(", "T.writes(", "T.where("
"""How the lines of a block begin that a fault marks."""

Places = Mapping[Union[Node, tuple[str, str]], str]
"""Where a node, or (function, attribute), stands in a text: `line 4, column 9: `."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How to keep inside an index that no proof keeps there, as text to paste: of a read, `access`
    is the element and `other` a number to take in its place."""

    index: str
    extent: str
    access: str = ""
    other: str = ""

    def text(self, dialect: str = "T") -> str:
        """The ways, in script or (`dialect` "te") in tensor expressions."""
        i, n = self.index, self.extent
        ways = [
            f"{dialect}.clamp_index({i}, {n}) takes the nearest that is inside",
            f"{dialect}.wrap_index({i}, {n}) counts from the end where it is negative",
        ]
        if self.access:
            both = f"{i} >= 0 and {i} < {n}" if dialect == "T" else f"te.all({i} >= 0, {i} < {n})"
            choice = f"{dialect}.if_then_else({both}, {self.access}, {self.other})"
            ways.append(f"{choice} reads nothing outside")
        return "; keep it inside: " + "; or ".join(ways)


@dataclass(frozen=True, eq=False, slots=True)
class Fault:
    """A broken rule. `node` is where; `mark` begins the faulty lines inside it ("" the first). Of
    an attribute of the function, which is no node, `mark` is its name."""

    node: Node | None
    message: str
    mark: str = ""
    ways: Ways | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the IR: its name, what it says, and its check."""

    name: str
    says: str
    check: Callable[[PrimFunc], Iterator[Fault]]


def report(func: PrimFunc, found: list[tuple[Rule, Fault]], places: Places) -> str:
    """The message: each fault under its rule's name, with its place in the text that the program
    was read from, where there is one, and its lines as they print."""
    count = "a rule" if len(found) == 1 else f"{len(found)} rules"
    parts = [f"{func.name} breaks {count} of the loop IR"]
    for rule, fault in found[:FAULTS_SHOWN]:
        place = places.get((func.name, fault.mark) if fault.node is None else fault.node, "")
        ways = "" if fault.ways is None else fault.ways.text()
        parts.append(f"{place}{rule.name}: {fault.message}{ways}")
        if fault.node is not None:
            parts.append(_surroundings(func, fault))
    if len(found) > FAULTS_SHOWN:
        parts.append(f"and {len(found) - FAULTS_SHOWN} more")
    return "\n".join(parts)


def _surroundings(func: PrimFunc, fault: Fault) -> str:
    """The faulty lines, marked with `>`, and some around them."""
    assert fault.node is not None
    lines, first, last = locate(func, fault.node)
    marked = [first]
    if fault.mark:
        inside = range(first, last)
        marked = [n for n in inside if lines[n].lstrip().startswith(fault.mark)] or marked
    start, stop = max(marked[0] - SURROUNDINGS, 0), marked[-1] + SURROUNDINGS + 1
    return "\n".join(
        f"  {'>' if n in marked else ' '} {lines[n]}" for n in range(start, min(stop, len(lines)))
    )


def locate(func: PrimFunc, node: Node) -> tuple[list[str], int, int]:
    """(lines of the script, first line of `node`, the line after its last)."""
    printer = _Located()
    printer.function(func)
    return printer.lines, *printer.places[id(node)]


class _Located(_Script):
    """A printer that remembers where each node came to stand."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, tuple[int, int]] = {}

    def node(self, node: Node, depth: int) -> None:
        first = len(self.lines)
        super().node(node, depth)
        # The loops of a grid stand on one line; only the outermost comes by here.
        while True:
            self.places.setdefault(id(node), (first, len(self.lines)))
            if isinstance(node, Block) or len(node.body) != 1 or isinstance(node.body[0], Block):
                break
            node = node.body[0]

    def block(self, block: Block, depth: int) -> None:
        first = len(self.lines)
        super().block(block, depth)
        self.places[id(block)] = (first, len(self.lines))
