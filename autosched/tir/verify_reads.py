"""The rule on reads in a nest of several blocks, found out by going through its first iterations.
See `verify`.

Blocks run in the order of the text in each iteration of the loops around them. What an iteration
reads must have been written by then: in the same iteration of the loops in which an intermediate
lives, and no later in the order of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from math import prod

import numpy as np
import numpy.typing as npt

from autosched.tir.affine import Digit, always
from autosched.tir.expr import Var
from autosched.tir.faults import READS, Fault
from autosched.tir.inequalities import check_time
from autosched.tir.nodes import Buffer, For, PrimFunc, kind_vars, sites
from autosched.tir.printer import Names, format_access
from autosched.tir.region import common_loops, shared_by
from autosched.tir.touch import Touch, numbered
from autosched.tir.verify_order import at_instance, unguarded
from autosched.tir.verify_races import homes_of

MOST_POINTS = 1 << 16
"""Of a block, gone through."""
_Ints = npt.NDArray[np.int64]


def by_then(func: PrimFunc, only: Collection[str] | None = None) -> Iterator[Fault]:
    """What a block reads was written before, in the order of the loops that it shares with its
    writers.

    A fault is certain: the read is one that happens, and no write comes before it. Of nests of many
    points the first iterations are looked at. `only`: names of the buffers whose reads are
    looked at; None: of all.
    """
    if _has_shared_nest(func):
        yield from at_instance(func, partial(_by_then, only=only))


def _has_shared_nest(func: PrimFunc) -> bool:
    outermost = [s.loops[0] for s in sites(func) if s.loops]
    return len({id(x) for x in outermost}) < len(outermost)


def _by_then(func: PrimFunc, only: Collection[str] | None) -> Iterator[Fault]:
    every = list(sites(func))
    writers: dict[Buffer, list[tuple[int, Touch]]] = {}
    for place, site in enumerate(every):
        for access in site.block.writes:
            writers.setdefault(access.buffer, []).append((place, Touch(access, site, True)))
    homes: dict[Buffer, tuple[For, ...]] = {}
    for place, site in enumerate(every):
        block = site.block
        if kind_vars(block, "sequential"):
            continue  # see `verify_order.order`
        for k in sorted({k for e in block.body for k in unguarded(e)}):
            access = block.reads[k]
            if only is not None and access.buffer.name not in only:
                continue
            found = writers.get(access.buffer, [])
            if not any(common_loops([w.site, site]) for _, w in found):
                continue
            homes = homes or homes_of(func)
            wrong = _early(Touch(access, site, False), place, found, homes[access.buffer])
            if wrong:
                yield Fault(block, f"block {block.name!r} reads {wrong}", READS)
                break


def _early(
    read: Touch, place: int, writers: Sequence[tuple[int, Touch]], home: Sequence[For]
) -> str | None:
    """What is read too early, and where; None if nothing is, as far as is looked."""
    touches = [read, *(w for _, w in writers)]
    if any(t.forms is None or kind_vars(t.site.block, "sequential") for t in touches):
        return None
    if any(w.site.block is read.site.block for _, w in writers):
        return None
    if any(w < place and _settled(write, read, home) for w, write in writers):
        return None
    shared = [common_loops([write.site, read.site]) for _, write in writers]
    if any(shared_by(read.buffer.scope, loops) for loops in shared):
        return None  # threads read what others wrote, behind a barrier
    extents = _first(max(shared, key=len), touches)
    if extents is None:
        return None
    check_time()
    points = _Points(read, extents)
    late = np.ones(points.count, bool)
    for (w, write), loops in zip(writers, shared, strict=True):
        fixed = [x.var for x in loops if x in home]
        order = [x.var for x in loops if x not in home]
        late &= ~_written(_Points(write, extents), points, fixed, order, w < place)
    if not late.any():
        return None
    at = int(np.flatnonzero(late)[0])
    around = [x.var for x in read.site.loops if x.var in points.values]
    iteration = ", ".join(f"{v.name} = {int(points.values[v][at])}" for v in around)
    element = ", ".join(str(int(x)) for x in points.element[at][1:])
    index = format_access(read.access, Names(), read.site.block.reads)
    within = " of the loops they share" if home else ""
    return (
        f"{index} before it is written: in the iteration {iteration} it is "
        f"{read.buffer.name}[{element}], which no block has written by then in that iteration"
        f"{within}; write all that is read in a nest before, or in the same iteration"
    )


def _settled(write: Touch, read: Touch, home: Sequence[For]) -> bool:
    """Whether both share no loop but those in which the buffer lives, and one iteration of these
    writes the box that it reads."""
    loops = common_loops([write.site, read.site])
    fixed = [x.var for x in home]
    if any(x not in home for x in loops) or write.site.block.predicates:
        return False
    for x, y in zip(write.forms or (), read.forms or (), strict=True):
        (start, mine), (other, theirs) = x.split(fixed), y.split(fixed)
        # split() puts the loops asked for into its second part.
        if not mine.same(theirs) or any(isinstance(a, Digit) for a, _ in other.terms):
            return False
        low, high = start.span(write.site.extents())
        least, most = other.span(read.site.extents())
        if not always(low <= least) or not always(most <= high):
            return False
    return True


def _about(touch: Touch, extents: dict[Var, int]) -> list[For]:
    return [x for x in touch.site.loops if x.var in extents]


class _Points:
    """The points of an access, as far as the extents of loops say."""

    def __init__(self, touch: Touch, extents: dict[Var, int]) -> None:
        loops = _about(touch, extents)
        shape = [extents[x.var] for x in loops]
        grid = np.indices(shape, dtype=np.int64).reshape(len(shape), prod(shape))
        values = {x.var: g for x, g in zip(loops, grid, strict=True)}
        keep = np.ones(prod(shape), bool)
        for p in touch.site.block.predicates:
            keep &= p.form.evaluate(values) < p.bound
        self.extents = extents
        self.values: dict[Var, _Ints] = {v: g[keep] for v, g in values.items()}
        self.count = int(keep.sum())
        zero = np.zeros(self.count, np.int64)
        forms = touch.forms or ()
        # The leading zero is the whole index of an element of a buffer without dimensions.
        self.element = np.stack([zero, *(f.evaluate(self.values) + zero for f in forms)], axis=-1)

    def keys(self, fixed: Sequence[Var]) -> _Ints:
        """Of each point the iteration of the loops `fixed`, and the element."""
        return np.concatenate([*(self.values[v][:, None] for v in fixed), self.element], axis=1)

    def times(self, order: Sequence[Var]) -> _Ints:
        """The number of each point's iteration of these loops, outermost first."""
        out = np.zeros(self.count, np.int64)
        for v in order:
            out = out * self.extents[v] + self.values[v]
        return out


def _written(
    writes: _Points, reads: _Points, fixed: Sequence[Var], order: Sequence[Var], first: bool
) -> npt.NDArray[np.bool_]:
    """Which reads find their element written: in the same iteration of the loops `fixed`, and
    earlier in the order of the others; in one iteration of all, if the writer stands `first`."""
    ids = numbered(np.concatenate([writes.keys(fixed), reads.keys(fixed)]))
    earliest = np.full(int(ids.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(earliest, ids[: writes.count], writes.times(order))
    found = earliest[ids[writes.count :]]
    times = reads.times(order)
    return (found <= times) if first else (found < times)


def _first(shared: Sequence[For], touches: Sequence[Touch]) -> dict[Var, int] | None:
    """Extents of loops that leave few points of each block: all iterations of the shared loops up
    to one of them. None if a single one has too many."""
    about = {v for t in touches for v in t.used} | {x.var for x in shared}
    extents = {x.var: int(x.extent) for t in touches for x in t.site.loops if x.var in about}
    for loop in (*shared, None):
        most = max(prod(extents[x.var] for x in _about(t, extents)) for t in touches)
        if most <= MOST_POINTS:
            return extents
        if loop is not None:
            extents[loop.var] = max(1, extents[loop.var] * MOST_POINTS // most)
    return None
