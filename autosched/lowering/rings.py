"""States and rolled buffers, of which only the last rows are kept. (Halide fold_storage.)

A rolled buffer is written by spatial axes, and rows of it then share a place: its lowered form is
for code generators and the interpreter, and breaks the verifier's rule `distinct`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from autosched.tir.affine import Affine, Digit, sometimes
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, Buffer, For, Index, Site, kind_vars
from autosched.tir.precede import Pair
from autosched.tir.region import common_loops
from autosched.tir.size_atoms import Undecided


@dataclass(frozen=True, slots=True)
class _Rows:
    """What one step accesses of a dimension: rows `base + low` to `base + high`, the base being a
    form of loops over steps and of those in which the buffer lives."""

    base: Affine
    low: int
    high: int


def ring(buffer: Buffer, users: Sequence[Site], home: Sequence[For] = ()) -> tuple[int, int] | None:
    """(dimension, rows to keep) of an intermediate that blocks fill step by step.

    Row r may be kept at place r modulo the number of rows: each row is read for the last time
    before the one that takes its place is written. None where that is not proved or saves nothing:
    where a block outside the time loop reads the buffer, say. `home`: the loops in which the buffer
    lives.
    """
    try:
        return _ring(buffer, users, home)
    except Undecided:  # the rows to keep depend on symbolic sizes
        return None


def _ring(buffer: Buffer, users: Sequence[Site], home: Sequence[For]) -> tuple[int, int] | None:
    writers = [s for s in users if _writes(s, buffer)]
    steps = [s for s in writers if kind_vars(s.block, "sequential")]
    if not steps or len(writers) == len(users) == 1:
        return None
    early = [s for s in users if _is_before(s, steps, users, home)]
    if any(not kind_vars(s.block, "sequential") and s not in early for s in users):
        return None
    # What is read before the first step is what is given, of which no row is replaced by then.
    readers = [
        s for s in users if s not in early and any(a.buffer is buffer for a in s.block.reads)
    ]
    fixed = {loop.var for loop in home}
    for n in range(len(buffer.shape)):
        rows = _rows(buffer, n, writers, readers, fixed)
        if rows is not None and sometimes(rows < buffer.shape[n]):
            folded = replace(buffer, shape=(*buffer.shape[:n], rows, *buffer.shape[n + 1 :]))
            if _is_safe(buffer, folded, n, users, steps, readers, home):
                return n, rows
    return None


def fold_index(
    access: Access, small: Buffer, indices: Sequence[Index], n: int, rows: int
) -> Access:
    """The access of `small` at `indices`, but with the row that `access` names in dimension n."""
    index = access.indices[n]
    assert isinstance(index, Affine)
    folded = Affine.of(Digit(index, 1, rows))
    return Access(small, (*indices[:n], folded, *indices[n + 1 :]))


def _writes(site: Site, buffer: Buffer) -> bool:
    return any(a.buffer is buffer for a in site.block.writes)


def _is_before(
    site: Site, steps: Sequence[Site], users: Sequence[Site], home: Sequence[For]
) -> bool:
    """Whether a block that is no step is done before the first step."""
    place = {id(s): k for k, s in enumerate(users)}
    return not kind_vars(site.block, "sequential") and all(
        place[id(site)] < place[id(step)]
        and all(loop in home for loop in common_loops([site, step]))
        for step in steps
    )


def _rows(
    buffer: Buffer,
    n: int,
    writers: Sequence[Site],
    readers: Sequence[Site],
    fixed: Collection[Var],
) -> int | None:
    """The rows from the furthest that a step reads back to the last that it writes; at least as
    many as are given at first. None where steps do not write further on, one after the other."""
    heads: list[_Rows] = []
    given: list[_Rows] = []
    read: list[_Rows] = []
    for sites, accesses, into in (
        ([s for s in writers if kind_vars(s.block, "sequential")], "writes", heads),
        ([s for s in writers if not kind_vars(s.block, "sequential")], "writes", given),
        (readers, "reads", read),
    ):
        for site in sites:
            for access in getattr(site.block, accesses):
                if access.buffer is not buffer:
                    continue
                found = _of_step(site, access.indices[n], fixed)
                if found is None or (into is heads and not _moves_on(found, site, fixed)):
                    return None
                into.append(found)
    base = heads[0].base
    if any((x.base - base).terms for x in (*heads, *read)):
        return None
    last, first = (max(_ends(heads, base)), min(_starts(heads, base)))
    if any(end > min(_ends(heads, base)) for end in _ends(read, base)):
        return None
    rows = max(last - min([first, *_starts(read, base)]) + 1, 1)
    start = base.split([v for v in base.variables() if v not in fixed])[0] + first
    gaps = [x.base - start for x in given]
    if any(gap.terms or int(gap.const) + x.low > 0 for gap, x in zip(gaps, given, strict=True)):
        return None
    lows = [int(gap.const) + x.low for gap, x in zip(gaps, given, strict=True)]
    highs = [int(gap.const) + x.high for gap, x in zip(gaps, given, strict=True)]
    return max(rows, max(highs, default=0) - min(lows, default=0) + 1)


def _ends(rows: Sequence[_Rows], base: Affine) -> list[int]:
    return [int((x.base - base).const) + x.high for x in rows]


def _starts(rows: Sequence[_Rows], base: Affine) -> list[int]:
    return [int((x.base - base).const) + x.low for x in rows]


def _of_step(site: Site, index: Index, fixed: Collection[Var]) -> _Rows | None:
    """The rows that an index names in one step; None where that is not plain."""
    if not isinstance(index, Affine):
        return None
    form = index.substitute(site.block.values(), site.extents())
    still = {*kind_vars(site.block, "sequential"), *fixed}
    base, rest = form.split([v for v in form.variables() if v not in still])
    if rest.uses(still):
        return None
    low, high = rest.span(site.extents())
    return _Rows(base, int(low), int(high))


def _moves_on(rows: _Rows, site: Site, fixed: Collection[Var]) -> bool:
    """Whether a later step writes no earlier row than a step before it."""
    steps = [v for v in kind_vars(site.block, "sequential") if v not in fixed]
    if not rows.base.uses(steps):
        return False
    if rows.low == rows.high and not rows.base.uses(fixed):
        return True  # the step itself, or what is proved to be
    inner = 0
    for loop in reversed(site.loops):
        if loop.var not in steps:
            continue
        step = rows.base.coefficient(loop.var)
        if not isinstance(step, int) or not isinstance(loop.extent, int) or step < max(inner, 1):
            return False
        inner += step * (loop.extent - 1)
    return all(isinstance(atom, Var) for atom, _ in rows.base.terms)


def _is_safe(
    buffer: Buffer,
    folded: Buffer,
    n: int,
    users: Sequence[Site],
    steps: Sequence[Site],
    readers: Sequence[Site],
    home: Sequence[For],
) -> bool:
    """Whether the folded accesses still read what was written."""
    rows = int(folded.shape[n])

    def change(access: Access) -> Access:
        if access.buffer is not buffer:
            return access
        return fold_index(access, folded, access.indices, n, rows)

    def site(s: Site) -> Site:
        block: Block = s.block
        block = replace(
            block,
            reads=tuple(map(change, block.reads)),
            writes=tuple(map(change, block.writes)),
        )
        return Site(block, s.loops)

    place = {id(s): k for k, s in enumerate(users)}
    return all(
        Pair(site(w), write, site(r), read, place[id(w)] < place[id(r)], home).written_before()
        for w in steps
        for write in site(w).block.writes
        if write.buffer is folded
        for r in readers
        for read in site(r).block.reads
        if read.buffer is folded
    )
