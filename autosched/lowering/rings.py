"""States of which only the last steps are kept. (Halide fold_storage.)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autosched.tir.affine import Affine, Digit, sometimes
from autosched.tir.nodes import Access, Block, Buffer, Index, Site, kind_vars
from autosched.tir.precede import Pair
from autosched.tir.size_atoms import Undecided


def ring(buffer: Buffer, users: Sequence[Site]) -> tuple[int, int] | None:
    """(dimension, rows to keep) of an intermediate that a recurrence fills row by row.

    Row r may be kept at place r modulo the number of rows: each row is read for the last time
    before the one that takes its place is written. None where that is not proved or saves nothing:
    where a block outside the time loop reads the buffer, say.
    """
    try:
        return _ring(buffer, users)
    except Undecided:  # the rows to keep depend on symbolic sizes
        return None


def _ring(buffer: Buffer, users: Sequence[Site]) -> tuple[int, int] | None:
    writers = [s for s in users if _writes(s, buffer)]
    steps = [s for s in writers if kind_vars(s.block, "sequential")]
    if not steps or len(writers) == len(users) == 1:
        return None
    readers = [s for s in users if any(a.buffer is buffer for a in s.block.reads)]
    if any(not kind_vars(s.block, "sequential") for s in readers):
        return None
    for n in range(len(buffer.shape)):
        rows = _rows(buffer, n, writers, readers)
        if rows is not None and sometimes(rows < buffer.shape[n]):
            folded = replace(buffer, shape=(*buffer.shape[:n], rows, *buffer.shape[n + 1 :]))
            if _is_safe(buffer, folded, n, users, steps, readers):
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


def _rows(buffer: Buffer, n: int, writers: Sequence[Site], readers: Sequence[Site]) -> int | None:
    """One row more than the furthest read goes back; at least as many as are given at first."""
    heads: list[Affine] = []
    rows = 1
    for site in writers:
        steps = kind_vars(site.block, "sequential")
        for form in _forms(site, site.block.writes, buffer, n):
            if form is None:
                return None
            if not steps:
                low, high = form.span(site.extents())
                rows = max(rows, int(high) - int(low) + 1)
            elif form.terms and {id(v) for v in form.variables()} <= {id(v) for v in steps}:
                heads.append(form)
            else:
                return None
    for site in readers:
        for form in _forms(site, site.block.reads, buffer, n):
            if form is None:
                return None
            for head in heads:
                back = head - form
                if not back.is_const() or int(back.const) < 0:
                    return None
                rows = max(rows, int(back.const) + 1)
    return rows


def _forms(
    site: Site, accesses: Sequence[Access], buffer: Buffer, n: int
) -> Iterator[Affine | None]:
    """The indices of `buffer` in dimension n, of the site's loops; None where one is not affine."""
    for access in accesses:
        if access.buffer is buffer:
            index = access.indices[n]
            if isinstance(index, Affine):
                yield index.substitute(site.block.values(), site.extents())
            else:
                yield None


def _is_safe(
    buffer: Buffer,
    folded: Buffer,
    n: int,
    users: Sequence[Site],
    steps: Sequence[Site],
    readers: Sequence[Site],
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
        Pair(site(w), write, site(r), read, place[id(w)] < place[id(r)]).written_before()
        for w in steps
        for write in site(w).block.writes
        if write.buffer is folded
        for r in readers
        for read in site(r).block.reads
        if read.buffer is folded
    )
