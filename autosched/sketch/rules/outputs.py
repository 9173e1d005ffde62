"""The rule for rows of which more than one block is a result: all of them are computed row by row.

A block whose elements are a result is computed in full where it stands, so that no consumer can
take it into its rows. Here the first block has the rows, and those that read it follow it there: a
row's range, then the row in steps of that range.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autosched.sketch.analysis import BlockInfo
from autosched.sketch.decisions import DecisionSpec
from autosched.sketch.rules.default import (
    PARALLEL_COST,
    DefaultRule,
    axis_loops,
    leading_axes,
    own_loops,
    row_specs,
    schedule_member,
    vector_lanes,
    vectors_spatial,
)
from autosched.sketch.state import State, Verdict
from autosched.tir.nodes import Iter

FEW = 4
"""Results of a row up to which a reduction that reads its operands for several of them, as products
do, is one of rows."""


class RowOutputs:
    """Schedules blocks that follow from one of them, at least two of them results."""

    name = "row-outputs"

    def condition(self, state: State, block: str) -> Verdict:
        """A block with such a group."""
        found = following(block, state)
        return Verdict.PASS if found is None else Verdict.APPLY_AND_SKIP_REST

    def apply(self, state: State, block: str) -> list[State]:
        """The group in the rows of its first block; then as the default rule has it."""
        found = following(block, state)
        assert found is not None  # the condition has found it
        group, rows = found
        return [_followed(state, group, rows), *DefaultRule().apply(state, block)]


def following(block: str, state: State) -> tuple[list[str], int] | None:
    """All blocks connected with a block, in program order, and the number of axes that are rows of
    each; None where two of them follow from no other, or fewer than two are results."""
    blocks = state.blocks()
    if block in state.handled:
        return None
    found = _connected(block, blocks)
    group = [name for name in blocks if name in found]
    members = [blocks[name] for name in group]
    if sum(m.is_output for m in members) < 2 or found & state.handled:
        return None
    if any(m.sequential or not m.writes_identity for m in members):
        return None
    if any(not m.producers for m in members[1:]):
        return None
    rows = min(len(m.spatial) - (m.is_injective or vectors_spatial(m)) for m in members)
    for m in members:
        for consumer in m.consumers:
            rows = min(rows, leading_axes(m, blocks[consumer], rows))
    if rows < 1 or any(m.needs_tiling and _results(m.spatial[rows:]) > FEW for m in members):
        return None
    enough = _results(members[0].spatial[:rows]) >= state.target.num_cores
    return (group, rows) if enough else None


def _results(axes: Sequence[Iter]) -> int:
    return prod(int(a.extent) for a in axes)


def _connected(block: str, blocks: dict[str, BlockInfo]) -> set[str]:
    found, stack = {block}, [block]
    while stack:
        info = blocks[stack.pop()]
        more = {*info.producers, *info.consumers} - found
        found |= more
        stack += more
    return found


def _followed(state: State, group: list[str], rows: int) -> State:
    """The blocks in the rows of the first."""
    blocks, target = state.blocks(), state.target
    schedule = state.fork()
    first = blocks[group[0]]
    root = schedule.get_block(first.name)
    by_axis = axis_loops(schedule, root)
    schedule.reorder(*(by_axis[id(a)] for a in (*first.spatial, *first.reduce)))
    outer = [by_axis[id(a)] for a in first.spatial[:rows]]
    for name in group[1:]:
        schedule.reverse_compute_at(schedule.get_block(name), outer[-1])
    own = {name: own_loops(schedule, blocks[name]) for name in group}
    specs: list[DecisionSpec] = []
    for name in group:
        mine = row_specs(blocks[name], rows, target)
        state.declare(schedule, mine)
        schedule_member(
            schedule, blocks[name], own[name], rows, vector_lanes(blocks[name], target), mine
        )
        specs += mine
    cost = sum(int(blocks[n].points) * max(blocks[n].cost, 1.0) for n in group)
    if cost >= PARALLEL_COST and target.num_cores > 1:
        for loop in outer:
            schedule.parallel(loop)
    return state.advance(schedule, tuple(group), tuple(specs), f"{group[0]}.rows")
