"""Axes that hold two numbers at once: the group and the channel in it, a phase and a position.

An access through `axis // d` or `axis % d` is affine again once the axis is two axes. Only then do
tiles of the inner one stay inside a group, and does a population have one form for all candidates.
"""

from __future__ import annotations

from collections.abc import Iterator

from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Var
from autosched.tir.nodes import Block, sites


def separate_digits(schedule: Schedule) -> None:
    """Split every axis that some access takes apart, where a primitive allows it."""
    for name in [s.block.name for s in sites(schedule.func)]:
        refused: set[tuple[int, int]] = set()
        while True:
            block = schedule.get_block(name)
            found = _next_split(schedule.get(block), refused)
            if found is None:
                break
            try:
                schedule.split_axis(block, *found)
            except ScheduleError:
                refused.add(found)


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
