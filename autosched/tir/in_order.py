"""Whether a recurrence reads what earlier steps have written: by proof, or, where loops are fused
and split until no rule puts their digits together, by going through the iterations, being few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from autosched.tir.affine import Affine
from autosched.tir.inequalities import check_time
from autosched.tir.nodes import Access, For, Site, kind_vars
from autosched.tir.precede import Pair, ring_base, shared_steps
from autosched.tir.region import common_loops
from autosched.tir.unsplit import unsplit

MAX_POINTS = 1 << 16
"""Iterations of a block that are gone through at most: some hundredths of a second."""
Ints = np.ndarray


def in_order(
    writer: Site,
    write: Access,
    reader: Site,
    read: Access,
    writer_first: bool,
    private: Sequence[For] = (),
) -> bool:
    """`Pair.written_before`, in any of the ways in which it can be shown."""
    sides = writer, write, reader, read, writer_first, private
    if Pair(*sides).written_before():
        return True
    ring = any(ring_base(a, n) is not None for a in (write, read) for n in range(len(a.indices)))
    if ring and Pair(*sides, folded=False).written_before():
        return True
    return _unsplit_in_order(*sides) or _by_points(*sides)


def _unsplit_in_order(
    writer: Site,
    write: Access,
    reader: Site,
    read: Access,
    writer_first: bool,
    private: Sequence[For],
) -> bool:
    """`Pair.written_before` of loops that were split, fused again."""
    for one, *other in unsplit([writer] if writer is reader else [writer, reader]):
        theirs = other[0] if other else one
        if all(loop in one.loops and loop in theirs.loops for loop in private):
            pair = Pair(one, write, theirs, read, writer_first, private, folded=False)
            if pair.written_before():
                return True
    return False


def _by_points(
    writer: Site,
    write: Access,
    reader: Site,
    read: Access,
    writer_first: bool,
    private: Sequence[For],
) -> bool:
    """Whether of every two iterations that access one element the write comes first: in the
    outermost loop in which they differ, which is over a sequential axis of both blocks, or, being
    the same iteration of the loops that are, by the place of the blocks."""
    shared = [loop.var for loop in common_loops([writer, reader])]
    apart = [loop.var for loop in private]
    carrying = kind_vars(writer.block, "sequential") & kind_vars(reader.block, "sequential")
    last = max((n for n, v in enumerate(shared) if v in carrying), default=-1)
    if not set(apart) <= set(shared):
        return False
    elements = [
        (x.substitute(writer.block.values()), y.substitute(reader.block.values()))
        for x, y in zip(write.indices, read.indices, strict=True)
        if isinstance(x, Affine) and isinstance(y, Affine)
    ]
    elements += [(Affine.of(v), Affine.of(v)) for v in apart]
    levels: list[_Level] = []
    for v in shared if not writer_first else shared[: last + 1]:
        loop = Affine.of(v)
        steps = shared_steps(writer.block, reader.block, v) if v in carrying else None
        if steps is None:
            levels.append(_Level(loop, loop, v in carrying))
        elif steps:  # no later step comes before, and within one step the loop stands still
            levels.append(_Level(loop, loop, True, alone=True))
            levels += [_Level(*steps[0], True), _Level(loop, loop, False)]
        else:
            return False
    forms = [*elements, *((x.write, x.read) for x in levels)]
    writes = _values(writer, [x for x, _ in forms])
    reads = _values(reader, [y for _, y in forms])
    if writes is None or reads is None:
        return False
    split = len(writes[0])
    columns = [np.concatenate(x) for x in zip(writes, reads, strict=True)]
    groups = _numbered(columns[: len(elements) + 1])
    for level, values in zip(levels, columns[len(elements) + 1 :], strict=True):
        early, late = _ends(groups[:split], values[:split]), _ends(groups[split:], values[split:])
        for key in early.keys() & late.keys():
            (first, latest), (earliest, end) = early[key], late[key]
            if latest > earliest or not (level.in_steps or first == end):
                return False
        if not level.alone:
            groups = _numbered([groups, values])
    return writer_first or not np.intersect1d(groups[:split], groups[split:]).size


@dataclass(frozen=True)
class _Level:
    """What tells the iterations of a write and a read that are alike outside of it, as forms of the
    loops of each. `alone`: what is inside of it is asked of all of them."""

    write: Affine
    read: Affine
    in_steps: bool
    alone: bool = False


def _values(site: Site, forms: Sequence[Affine]) -> list[Ints] | None:
    """0, and the values of the forms, at the iterations of a block."""
    sizes = [n for n in site.extents().values() if isinstance(n, int)]
    if len(sizes) < len(site.loops) or prod(sizes) > MAX_POINTS:
        return None
    check_time()
    points = np.indices([*sizes, 1]).reshape(len(sizes) + 1, -1)
    values = dict(zip((loop.var for loop in site.loops), points, strict=False))
    passed = np.ones(points.shape[1], bool)
    for p in site.block.predicates:
        passed &= np.asarray(p.form.evaluate(values) < p.bound)
    return [(form.evaluate(values) + 0 * points[-1])[passed] for form in (Affine(0), *forms)]


def _numbered(columns: Sequence[Ints]) -> Ints:
    """A number for each row of the columns, equal for equal rows."""
    numbers = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        place = np.unique(column, return_inverse=True)[1]
        numbers = np.unique(numbers * len(numbers) + place, return_inverse=True)[1]
    return numbers


def _ends(groups: Ints, values: Ints) -> dict[int, tuple[int, int]]:
    """The least and the greatest value of each group."""
    if not len(groups):  # conditions skip every iteration
        return {}
    order = np.lexsort((values, groups))
    ordered, sorted_values = groups[order], values[order]
    keys, first = np.unique(ordered, return_index=True)
    last = np.append(first[1:], len(ordered)) - 1
    ends = zip(sorted_values[first].tolist(), sorted_values[last].tolist(), strict=True)
    return dict(zip(keys.tolist(), ends, strict=True))
