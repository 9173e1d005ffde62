"""What primitives ask about recurrences: is an element of an earlier step, of the same iteration?

Sufficient conditions on forms, so that they hold for populations as well; the verifier proves more
(`autosched.tir.precede`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from autosched.schedule.check import names, refuse
from autosched.tir.affine import Affine, Extents, always, imax, same_int
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, Site, kind_vars


def is_step(block: Block) -> bool:
    """Whether the block is computed step by step: it has a sequential axis."""
    return any(it.kind == "sequential" for it in block.iters)


def _forms(
    reader: Block, read: Access, writer: Block, write: Access
) -> Iterator[tuple[Affine, Affine]]:
    """(index written, index read) over loops, of each dimension where both are affine."""
    for x, y in zip(write.indices, read.indices, strict=True):
        if isinstance(x, Affine) and isinstance(y, Affine):
            yield x.substitute(writer.values()), y.substitute(reader.values())


def earlier_step(reader: Block, read: Access, writer: Block) -> bool:
    """Whether `writer` writes what is read, if ever, in an earlier step of loops around both."""
    if not is_step(reader) or not is_step(writer):
        return False
    steps = {id(v) for v in kind_vars(reader, "sequential") & kind_vars(writer, "sequential")}
    for write in writer.writes:
        if write.buffer is not read.buffer:
            continue
        back = [
            x - y
            for x, y in _forms(reader, read, writer, write)
            if x.terms and all(id(v) in steps for v in x.variables())
        ]
        if not any(gap.is_const() and always(gap.const > 0) for gap in back):
            return False
    return True


def steps_outside(block: Block, inner: Collection[Var]) -> bool:
    """Whether the loops over the block's steps are none of `inner`."""
    return is_step(block) and not kind_vars(block, "sequential") & set(inner)


def same_iteration(
    reader: Site,
    read: Access,
    writer: Site,
    write: Access,
    loops: Collection[Var],
    fixed: Collection[Var],
) -> bool:
    """Whether both name one element only in the same iteration of all `loops`, given that they are
    in the same one of the loops `fixed`.

    Of indices `c * loop + rest` that are equal, the loop's part is, if the rests differ by less
    than c.
    """
    known = {id(v) for v in fixed}
    left = list(loops)
    pairs = list(_forms(reader.block, read, writer.block, write))
    while left:
        found = next(
            (
                v
                for v in left
                for x, y in pairs
                if _same_digit(x, y, v, known, writer.extents(), reader.extents())
            ),
            None,
        )
        if found is None:
            return False
        known.add(id(found))
        left = [v for v in left if v is not found]
    return True


def same_axes(block: Block, read: Access, write: Access) -> set[Var]:
    """The axes of a block that are the same in two points of which one reads what the other one
    writes."""
    extents = {it.var: it.extent for it in block.iters}
    known: set[int] = set()
    found: set[Var] = set()
    left = [it.var for it in block.iters]
    while True:
        new = [
            v
            for v in left
            for x, y in zip(write.indices, read.indices, strict=True)
            if isinstance(x, Affine) and isinstance(y, Affine)
            if _same_digit(x, y, v, known, extents, extents)
        ]
        if not new:
            return found
        found.add(new[0])
        known.add(id(new[0]))
        left = [v for v in left if v is not new[0]]


def _same_digit(
    x: Affine, y: Affine, v: Var, known: Collection[int], of_x: Extents, of_y: Extents
) -> bool:
    """Whether x on one side equals y on the other only if both have one `v`."""
    c = x.coefficient(v)
    if not always(c != 0) or not same_int(c, y.coefficient(v)):
        return False
    gone = [
        a
        for a, p in x.terms
        if isinstance(a, Var) and (a is v or id(a) in known) and same_int(p, y.coefficient(a))
    ]
    low_x, high_x = _without(x, gone).span(of_x)
    low_y, high_y = _without(y, gone).span(of_y)
    return always(imax(high_x - low_y, high_y - low_x) < imax(c, -c))


def _without(form: Affine, variables: Collection[Var]) -> Affine:
    return Affine(form.const, tuple(t for t in form.terms if all(t[0] is not v for v in variables)))


def check_crossing(
    reader: Site, writer: Site, moved: Collection[Var], outside: Collection[Var]
) -> None:
    """Raise ScheduleError unless what `reader` takes from `writer` lies in the same iteration of
    the loops `moved`, which change places with loops over steps; `outside`: those around all."""
    for write in writer.block.writes:
        for read in reader.block.reads:
            if read.buffer is not write.buffer:
                continue
            if not same_iteration(reader, read, writer, write, moved, outside):
                refuse(
                    f"reorder would move {names(moved)} across the loop over the steps of "
                    f"{writer.block.name}, but {reader.block.name} reads other elements of "
                    f"{write.buffer.name} than its own iteration of {names(moved)} wrote in "
                    "earlier steps"
                )
