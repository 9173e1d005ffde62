"""Where a team of threads has to wait for each other.

A serial loop around parallel ones is run by a team: every thread runs the loop itself, a fixed
share of each parallel loop inside, and waits where another thread may still be reading or writing
what comes next. Between parallel loops stands work for one thread. Both are phases here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autosched.tir.affine import Affine, Int, always, same_int
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, Buffer, For, Node, Site, sites


def has_parallel(node: Node) -> bool:
    """Whether a parallel loop stands in `node`, under no loops but serial and unrolled ones."""
    if isinstance(node, Block):
        return False
    if node.kind == "parallel":
        return True
    return node.kind in ("serial", "unrolled") and any(map(has_parallel, node.body))


def chain_of(loop: For) -> tuple[For, ...]:
    """Directly nested parallel loops: one iteration space."""
    chain = [loop]
    while not chain[-1].allocs and len(chain[-1].body) == 1:
        below = chain[-1].body[0]
        if not (isinstance(below, For) and below.kind == "parallel"):
            break
        chain.append(below)
    return tuple(chain)


def units(nodes: Sequence[Node]) -> Iterator[tuple[Node, ...]]:
    """`nodes` in order: each one with parallel loops by itself, the work between put together."""
    alone: list[Node] = []
    for node in nodes:
        if not has_parallel(node):
            alone.append(node)
            continue
        if alone:
            yield tuple(alone)
            alone = []
        yield (node,)
    if alone:
        yield tuple(alone)


class _Slab(NamedTuple):
    """What a loop variable alone decides of an access: index `dimension` lies in the slab of `size`
    elements with the number `variable + shift`. Where two accesses have equal slabs, touching one
    element means equal values of their two variables."""

    dimension: int
    size: int
    shift: Int


@dataclass(frozen=True, eq=False)
class _Touch:
    """An access of memory that threads share."""

    buffer: Buffer
    written: bool
    forms: tuple[Affine | None, ...]
    """Its indices over the loops."""
    extents: dict[Var, Int]
    outside: frozenset[Var]
    """Variables of the serial loops around the phase."""
    slabs: tuple[_Slab, ...] | None
    """What the parallel loops of the phase have to themselves, an iteration each; None: any
    iteration may touch any element."""

    def is_apart(self, other: _Touch) -> bool:
        """Whether the two name different elements while the loops around both stand still."""
        extents = {**self.extents, **other.extents}
        around = self.outside & other.outside
        for x, y in zip(self.forms, other.forms, strict=True):
            if x is None or y is None:
                continue
            gap = x - y
            if gap.uses(around) or (set(x.variables()) & set(y.variables())) - around:
                continue
            low, high = gap.span(extents)
            if always(low > 0) or always(high < 0):
                return True
        return False


@dataclass(frozen=True, eq=False)
class _Phase:
    shape: tuple[Int, ...]
    """Extents of the parallel loops; empty for the work of one thread."""
    touches: tuple[_Touch, ...]

    def conflicts(self, other: _Phase, same_step: bool) -> bool:
        """Whether one thread in `self` and another in `other` may touch an element, one of them
        writing; `same_step`: in one iteration of all loops around both."""
        if not self.shape and not other.shape:
            return False  # the same thread
        return any(
            a.buffer is b.buffer
            and (a.written or b.written)
            and not (self.shape == other.shape and a.slabs is not None and a.slabs == b.slabs)
            and not (same_step and a.is_apart(b))
            for a in self.touches
            for b in other.touches
        )


_Pending = frozenset[tuple[_Phase, bool]]
"""Phases since the last wait, and whether they are of the same iteration of all loops."""


class Waits:
    """Before which units of a team's loop all threads wait: `unit in waits`.

    A wait stands as late as it can: before the first unit that conflicts with one since the last
    wait. What is still pending at the end of a loop's body is pending at its start as well.
    """

    def __init__(self, root: For, blocks: dict[int, Site]) -> None:
        self._blocks = blocks
        self._phases: dict[int, _Phase] = {}
        self._before: set[int] = set()
        self._loop(root, frozenset(), frozenset())

    def __contains__(self, unit: tuple[Node, ...]) -> bool:
        return id(unit[0]) in self._before

    def _body(self, loop: For, pending: _Pending, outside: frozenset[Var]) -> _Pending:
        for unit in units(loop.body):
            first = unit[0]
            if isinstance(first, For) and first.kind != "parallel" and has_parallel(first):
                pending = self._loop(first, pending, outside)
                continue
            phase = self._phase(unit, outside)
            self._before.discard(id(first))
            if any(phase.conflicts(p, same_step) for p, same_step in pending):
                self._before.add(id(first))
                pending = frozenset()
            pending |= {(phase, True)}
        return pending

    def _loop(self, loop: For, pending: _Pending, outside: frozenset[Var]) -> _Pending:
        """What may be pending after the loop, which may also run no iteration at all."""
        while True:
            after = self._body(loop, pending, outside | {loop.var})
            again = frozenset((p, False) for p, _ in after)
            if again <= pending:
                return pending | after
            pending |= again

    def _phase(self, unit: tuple[Node, ...], outside: frozenset[Var]) -> _Phase:
        found = self._phases.get(id(unit[0]))
        if found is None:
            found = self._phases[id(unit[0])] = self._read(unit, outside)
        return found

    def _read(self, unit: tuple[Node, ...], outside: frozenset[Var]) -> _Phase:
        first = unit[0]
        is_loop = isinstance(first, For) and first.kind == "parallel"
        chain = chain_of(first) if isinstance(first, For) and is_loop else ()
        own = {id(b) for node in unit for b in _allocated(node)}
        touches = []
        for node in unit:
            for inside in sites(node):
                site = self._blocks[id(inside.block)]
                for written, accesses in ((True, site.block.writes), (False, site.block.reads)):
                    touches += [
                        _touch(a, site, written, chain, outside)
                        for a in accesses
                        if id(a.buffer) not in own
                    ]
        return _Phase(tuple(loop.extent for loop in chain), tuple(touches))


def _touch(
    access: Access, site: Site, written: bool, chain: Sequence[For], outside: frozenset[Var]
) -> _Touch:
    values = site.block.values()
    extents = site.extents()
    forms = tuple(
        i.substitute(values, extents) if isinstance(i, Affine) else None for i in access.indices
    )
    found = [_slab(forms, site, extents, loop) for loop in chain]
    slabs = tuple(s for s in found if s is not None)
    known = slabs if len(slabs) == len(chain) else None
    return _Touch(access.buffer, written, forms, extents, outside, known)


def _slab(
    forms: Sequence[Affine | None], site: Site, extents: dict[Var, Int], loop: For
) -> _Slab | None:
    """The slab that `loop` chooses, whatever the loops inside it do; None if there is none."""
    inner = [x.var for x in site.loops[site.loops.index(loop) + 1 :]]
    for n, form in enumerate(forms):
        if form is None:
            continue
        around, inside = form.split(inner)
        if len(around.terms) == 1 and around.terms[0][0] is loop.var:
            size = around.terms[0][1]
            if not isinstance(size, int) or size < 1:
                continue
            low, high = (inside + around.const).span(extents)
            if same_int(low // size, high // size):
                return _Slab(n, size, low // size)
    return None


def _allocated(node: Node) -> Iterator[Buffer]:
    if isinstance(node, For):
        yield from node.allocs
        for child in node.body:
            yield from _allocated(child)
