"""Accesses of one buffer by two blocks: which iterations of loops may meet at an element."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule.check import check_one_program, is_array, names, refuse
from autosched.schedule.recurrence import is_step, same_iteration
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    PrimFunc,
    Site,
    kind_vars,
    readers_of,
    sites,
    writers_of,
)
from autosched.tir.region import common_loops, users_of
from autosched.tir.touch import Touch
from autosched.tir.verify_races import never_meet
from autosched.tir.verify_reads import by_then
from autosched.tir.verify_writes import distinct

Named = tuple[Site, Access]
"""A block and one of its accesses."""


def together(a: Named, b: Named, loops: Collection[Var], fixed: Collection[Var]) -> bool:
    """Whether two accesses name one element only in the same iteration of one of `loops`, given
    that they are in the same one of the loops `fixed`. Raises NotBatchable where only candidates
    can tell."""
    (left, x), (right, y) = a, b
    if any(same_iteration(left, x, right, y, [v], fixed) for v in loops):
        return True
    if any(is_array(n) for s in (left, right) for n in s.extents().values()):
        raise NotBatchable(
            f"whether {left.block.name} and {right.block.name} access the same elements of "
            f"{x.buffer.name} in different iterations of {names(loops)} may differ by candidate"
        )
    sides = Touch(x, left, True), Touch(y, right, True)
    asked = [loop for loop in left.loops if loop.var in loops]
    return any(never_meet(*sides, fixed, [loop]) for loop in asked)


def conflicts(below: Sequence[Site], buffer: Buffer) -> Iterator[tuple[Named, Named]]:
    """Pairs of accesses of `buffer` by two of the blocks, of which one writes."""
    touches = [
        (s, a, written)
        for s in below
        for accesses, written in ((s.block.writes, True), (s.block.reads, False))
        for a in accesses
        if a.buffer is buffer
    ]
    for n, (s, a, first) in enumerate(touches):
        for t, b, second in touches[n + 1 :]:
            if s is not t and (first or second):
                yield (s, a), (t, b)


def check_order_kept(
    func: PrimFunc, below: Sequence[Site], swapped: Sequence[tuple[Var, Var]], fixed: list[Var]
) -> None:
    """Raise ScheduleError if accesses that meet at an element may change their order where pairs of
    loops around `below` change places: unless they meet only in the same iteration of one of the
    two."""
    if len(below) < 2 or not swapped:
        return
    moved = {v for pair in swapped for v in pair}
    for buffer in dict.fromkeys(a.buffer for s in below for a in s.block.writes):
        if _lives_inside(func, buffer, below, moved):
            continue
        for a, b in conflicts(below, buffer):
            if is_step(a[0].block) or is_step(b[0].block):
                continue  # see `recurrence.check_crossing`
            for x, y in swapped:
                if not together(a, b, (x, y), fixed):
                    refuse(
                        f"reorder of {x.name} and {y.name} may change the order in which "
                        f"{a[0].block.name} and {b[0].block.name} access elements of {buffer.name}"
                    )


def _lives_inside(
    func: PrimFunc, buffer: Buffer, below: Sequence[Site], moved: Collection[Var]
) -> bool:
    """Whether each iteration of the loops has the buffer for itself."""
    if any(b is buffer for b in func.params):
        return False
    inside = {id(s.block) for s in below}
    return all(
        id(s.block) in inside and {x.var for x in s.loops} >= set(moved)
        for s in users_of(func, buffer)
    )


def check_alone(site: Site, below: Sequence[Site], what: str, readers: bool) -> None:
    """Raise ScheduleError if another one of the blocks `below` writes what the block writes, or
    (`readers`) reads it."""
    for access in site.block.writes:
        for other in below:
            if other.block is not site.block and any(
                a.buffer is access.buffer
                for a in (*other.block.writes, *(other.block.reads if readers else ()))
            ):
                refuse(
                    f"{what}: {other.block.name} accesses {access.buffer.name} between the first "
                    f"and the last point of {site.block.name}; move one of them first"
                )


def check_complete_inputs(func: PrimFunc, site: Site, what: str) -> None:
    """Raise ScheduleError if the block reads results of a reduction that are not complete: inside
    a loop over a reduction axis of their writer."""
    for access in site.block.reads:
        for writer in writers_of(func, access.buffer):
            if writer.block is site.block:
                continue
            around = {x.var for x in site.loops} & kind_vars(writer.block, "reduce")
            if around:
                name = min(v.name for v in around)
                raise ScheduleError(
                    f"{what}: the block reads {access.buffer.name} inside loop {name}, over a "
                    f"reduction axis of {writer.block.name}: what it reads there is not complete, "
                    "and it has to stay"
                )


def check_written_first(func: PrimFunc, buffers: Sequence[Buffer], what: str) -> None:
    """Raise ScheduleError if an element of one of `buffers` is read in a nest before the nest
    writes it: what the rule `by_then` of the verifier refuses."""
    shared = [
        (writer, reader, buffer)
        for buffer in buffers
        for writer in writers_of(func, buffer)
        for reader in readers_of(func, buffer)
        if writer.block is not reader.block and common_loops([writer, reader])
    ]
    for _, reader, buffer in shared:
        # A writer of another nest, too, is asked for the elements that are read.
        for writer in writers_of(func, buffer):
            if any(is_array(n) for s in (writer, reader) for n in s.extents().values()):
                raise NotBatchable(
                    f"{what}: whether {writer.block.name} writes elements of {buffer.name} before "
                    f"{reader.block.name} reads them may differ by candidate"
                )
    if shared:
        for fault in by_then(func, {buffer.name for _, _, buffer in shared}):
            refuse(f"{what}: {fault.message}")


def check_distinct(func: PrimFunc, block: Block, what: str) -> None:
    """Raise ScheduleError if points of a block are not shown to write different elements: what the
    rule `distinct` of the verifier refuses."""
    check_one_program(func, what)
    for fault in distinct(func):
        if fault.node is block:
            refuse(f"{what}: {fault.message}")


def blocks_between(func: PrimFunc, site: Site, depth: int) -> list[Site]:
    """The blocks below the loop at `depth` of those around a block."""
    loop = site.loops[depth]
    return [s for s in sites(func) if loop in s.loops]
