"""Axes that hold two numbers at once: the group and the channel in it, a phase and a position.

An access through `axis // d` or `axis % d` is affine again once the axis is two axes. Only then do
tiles of the inner one stay inside a group, and does a population have one form for all candidates.
"""

from __future__ import annotations

from collections.abc import Iterator

from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.sketch.analysis import BlockInfo, analyse_blocks
from autosched.sketch.rules.inline import worth_inlining
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Slot, Var
from autosched.tir.nodes import Block, sites


def separate_digits(schedule: Schedule, vector_bytes: int = 0) -> None:
    """Split every axis that some access takes apart, where a primitive allows it; but not one that
    fills vectors of `vector_bytes`, each element of which is read for several neighbours.

    What only moves elements first goes into what reads them, and that into its readers where it is
    cheap: a block whose axes are split is not inlined any more.
    """
    moved = False
    for name in [s.block.name for s in sites(schedule.func)]:
        block = schedule.get(schedule.get_block(name))
        apart = _next_split(block, set()) is not None
        moved = apart and (moved or _moves(block)) and _inline(schedule, name)
        if moved:
            continue
        refused: set[tuple[int, int]] = set()
        while True:
            handle = schedule.get_block(name)
            block = schedule.get(handle)
            found = _next_split(block, refused | _repeats(block, vector_bytes))
            if found is None:
                break
            try:
                schedule.split_axis(handle, *found)
            except ScheduleError:
                refused.add(found)


def _repeats(block: Block, vector_bytes: int) -> set[tuple[int, int]]:
    """What is not to be split, as of `_next_split`: the last axis of a result where neighbours read
    the same element, as those of a nearest resize do. A vector of them is a shorter one that is
    loaded and spread; as two axes, vectors would be as short as what neighbours share."""
    if block.reducer is not None or len(block.writes) != 1 or not block.writes[0].indices:
        return set()
    (write,), last = block.writes, block.writes[0].indices[-1]
    axis = last.single_var() if isinstance(last, Affine) else None
    lanes = vector_bytes // dtypes.itemsize(write.buffer.dtype)
    found = set(_divisors(block, axis)) if axis is not None else set()
    if not lanes or len(found) != 1 or lanes % (d := found.pop()):
        return set()
    position = next(n for n, a in enumerate(block.iters) if a.var is axis)
    return {(position, d)} if not _cyclic(block, axis) else set()


def _cyclic(block: Block, var: Var | None) -> bool:
    """Whether some access takes the rest of a division of the axis."""
    indices = (i for a in (*block.reads, *block.writes) for i in a.indices)
    atoms = (atom for i in indices if isinstance(i, Affine) for atom, _ in i.terms)
    return any(
        isinstance(x, Digit) and x.mod is not None and x.base.single_var() is var for x in atoms
    )


def _moves(block: Block) -> bool:
    return all(isinstance(body, Slot) for body in block.body)


def _inline(schedule: Schedule, name: str) -> bool:
    """Inline a block into those that read it, where they compute elements too."""
    blocks = analyse_blocks(schedule.func)
    info = blocks[name]
    vector = info.vector_axis
    if vector is None or any(_divisors(info.block, vector.var)):
        return False  # the readers' vectors would be as short
    if not all(_in_vectors(blocks[c], info) for c in info.consumers):
        return False
    if not worth_inlining(info.name, blocks):
        return False
    try:
        schedule.compute_inline(schedule.get_block(info.name))
    except ScheduleError:
        return False
    return True


def _in_vectors(reader: BlockInfo, info: BlockInfo) -> bool:
    """Whether an elementwise reader runs along what lies side by side in `info`: elements from
    elsewhere are rearranged by themselves."""
    vector = reader.vector_axis
    written = info.block.writes[0].buffer
    last = [a.indices[-1] for a in reader.block.reads if a.buffer is written]
    return (
        reader.is_injective
        and vector is not None
        and all(isinstance(i, Affine) and i.single_var() is vector.var for i in last)
    )


def _next_split(block: Block, refused: set[tuple[int, int]]) -> tuple[int, int] | None:
    """The axis to split next and its inner extent, the smallest first."""
    for position, axis in enumerate(block.iters):
        if axis.kind == "sequential" or not isinstance(axis.extent, int):
            continue
        for d in sorted(set(_divisors(block, axis.var))):
            if 1 < d < axis.extent and axis.extent % d == 0 and (position, d) not in refused:
                return position, d
    return None


def _divisors(block: Block, var: Var) -> Iterator[int]:
    """What the block's accesses divide the axis by."""
    for access in (*block.reads, *block.writes):
        for index in access.indices:
            for atom, _ in index.terms if isinstance(index, Affine) else ():
                if isinstance(atom, Digit) and atom.base.single_var() is var:
                    yield int(atom.div)
                    if atom.mod is not None:
                        yield int(atom.div * atom.mod)
