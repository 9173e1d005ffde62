"""Double buffering: what a block shares is fetched a step ahead, into two buffers in turn.

The first step's elements are fetched before the loop; in the loop the threads fetch those of the
next step and compute this one, so that one barrier a step is enough (`barriers.py` finds out by
itself). With more than two buffers more steps are fetched before the loop, and those that are
fetched in a step are as many steps ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from autosched.errors import CodegenError
from autosched.schedule.annotate import STEPS
from autosched.tir.affine import Affine, Digit
from autosched.tir.annotations import copies_of
from autosched.tir.expr import Var
from autosched.tir.intrin import warp_code
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Node,
    Predicate,
    buffers_of,
    map_blocks,
    sites,
)
from autosched.tir.scope import SHARED
from autosched.tir.simplify import substitute_loops

SHORT = 6
"""Steps of a loop up to which it is made one with the loop around it: to wait for a fetch each time
it begins costs more than places that are computed anew in each step."""
AHEAD = "ahead"
"""Annotation of loops that fetch a step ahead: BEFORE the loop of steps or IN_STEP."""
BEFORE, IN_STEP = "before", "in step"


def double_buffers(root: Node) -> tuple[tuple[Node, ...], tuple[Buffer, ...]]:
    """The nodes in place of `root`, of a lowered program, and the buffers that lived in it and now
    live around them. A buffer that no loop of steps holds, since that had one step, stays as it is.

    Raises CodegenError where what a step needs cannot be fetched in the step before.
    """
    marked = {
        a.buffer: int(copies_of(s.block))
        for s in sites(root)
        if int(copies_of(s.block)) > 1
        for a in s.block.writes
        if a.buffer.scope in SHARED
    }
    return _Doubling(marked).node(_one_loop(root, marked), None) if marked else ((root,), ())


def _one_loop(node: Node, marked: Collection[Buffer]) -> Node:
    """`node` with serial loops that hold nothing but a short loop of steps made one with it: else
    what follows its last step, in their next iteration, could not be fetched ahead."""
    if isinstance(node, Block):
        return node
    node = replace(node, body=tuple(_one_loop(child, marked) for child in node.body))
    inner = node.body[0]
    if len(node.body) > 1 or not isinstance(inner, For) or not set(inner.allocs) & set(marked):
        return node
    if (node.kind, inner.kind) != ("serial", "serial") or inner.extent > SHORT:
        return node
    step = Var(inner.var.name)
    values = {
        node.var: Affine.of(Digit(Affine.of(step), inner.extent, None)),
        inner.var: Affine.of(Digit(Affine.of(step), 1, inner.extent)),
    }
    body = tuple(map_blocks(x, lambda b: substitute_loops(b, values)) for x in inner.body)
    allocs = (*node.allocs, *inner.allocs)
    return replace(inner, var=step, extent=node.extent * inner.extent, body=body, allocs=allocs)


class _Doubling:
    def __init__(self, marked: Mapping[Buffer, int]) -> None:
        self.marked = marked
        self.found: dict[Var, list[Buffer]] = {}
        """Buffers by the variable of the loop of steps that holds them."""

    def node(self, node: Node, step: Var | None) -> tuple[tuple[Node, ...], tuple[Buffer, ...]]:
        """See `double_buffers`; `step` is the loop of steps around."""
        if isinstance(node, Block):
            return (node,), ()
        inside = node.var if node.kind in STEPS else step
        own = [b for b in node.allocs if b in self.marked and inside is not None]
        if inside is not None:
            self.found.setdefault(inside, []).extend(own)
        parts = [self.node(child, inside) for child in node.body]
        body = tuple(x for nodes, _ in parts for x in nodes)
        allocs = tuple(b for b in node.allocs if b not in own)
        allocs += tuple(b for _, buffers in parts for b in buffers)
        loop = replace(node, body=body, allocs=allocs)
        mine = self.found.get(node.var, [])
        copies = {self.marked[b] for b in mine}
        if len(copies) > 1:
            names = ", ".join(f"{b.name} {self.marked[b]}" for b in mine)
            raise CodegenError(
                f"what is fetched for steps of loop {node.var.name} alternates between different "
                f"numbers of buffers ({names}); expected one number for all"
            )
        return _alternating(loop, mine, *copies) if mine else ((loop,), ())


def _alternating(
    loop: For, mine: Sequence[Buffer], copies: int
) -> tuple[tuple[Node, ...], tuple[Buffer, ...]]:
    """The fetching of the first steps, then `loop`, and the buffers of both."""
    ahead = _fetching(loop, mine)
    wide = {b: _wide(b, copies) for b in mine}
    following = Affine.of(loop.var) + (copies - 1)
    before = tuple(
        _at(x, loop.var, Affine(first), wide, BEFORE)
        for first in range(min(copies - 1, int(loop.extent)))
        for x in ahead
    )
    exists = Predicate(following, loop.extent)
    fetches = tuple(
        map_blocks(_at(x, loop.var, following, wide, IN_STEP), lambda b: _where(b, exists))
        for x in ahead
    )
    others = tuple(
        map_blocks(x, lambda b: _through(b, wide, Affine.of(loop.var)))
        for x in loop.body
        if x not in ahead
    )
    around = (*loop.allocs, *wide.values())
    # Warpgroups compute while the threads go on, and fetch; for the very next step that is late.
    late = copies > 2 and _runs_on(others)
    body = (*others, *fetches) if late else (*fetches, *others)
    return (*before, replace(loop, body=body, allocs=())), around


def _runs_on(nodes: Sequence[Node]) -> bool:
    """Whether the one node is products of warpgroups, which are waited for at the end of a step."""
    codes = [warp_code(x) for node in nodes for s in sites(node) for x in s.loops]
    return len(nodes) == 1 and any(code is not None and code.warps > 1 for code in codes)


def _fetching(loop: For, mine: Sequence[Buffer]) -> list[Node]:
    """The nodes of the loop's body that fill the buffers `mine`, and what is there for them alone.

    Raises CodegenError if they need what the rest of the body computes.
    """
    written = {id(x): {a.buffer for s in sites(x) for a in s.block.writes} for x in loop.body}
    used = {id(x): set(buffers_of(x)) for x in loop.body}
    chosen = [x for x in loop.body if written[id(x)] & set(mine)]
    while True:
        needed = {b for x in chosen for b in used[id(x)]}
        more = [x for x in loop.body if x not in chosen and written[id(x)] & needed - set(mine)]
        if not more:
            break
        chosen += more
    rest = [x for x in loop.body if x not in chosen]
    for x in chosen:
        for b in written[id(x)] - set(mine):
            if b not in loop.allocs and not _lives_in(x, b):
                raise CodegenError(_no_ahead(loop, mine, f"writes {b.name}, which lives outside"))
            if any(b in used[id(y)] for y in rest):
                raise CodegenError(_no_ahead(loop, mine, f"shares {b.name} with the rest of it"))
    if not rest:
        raise CodegenError(_no_ahead(loop, mine, "stands in one nest with all that reads it"))
    return [x for x in loop.body if x in chosen]


def _no_ahead(loop: For, mine: Sequence[Buffer], why: str) -> str:
    names = ", ".join(b.name for b in mine)
    return (
        f"{names}: no double buffer, since a step of loop {loop.var.name} cannot be fetched in the "
        f"one before: what fills it {why}; compute it by itself at loop {loop.var.name}, from what "
        "no step changes"
    )


def _lives_in(node: Node, b: Buffer) -> bool:
    return isinstance(node, For) and (b in node.allocs or any(_lives_in(x, b) for x in node.body))


def _wide(b: Buffer, copies: int) -> Buffer:
    align = tuple((axis + 1, factor, offset) for axis, factor, offset in b.align)
    return replace(b, shape=(copies, *b.shape), align=align)


def _at(node: Node, v: Var, step: Affine, wide: Mapping[Buffer, Buffer], where: str) -> Node:
    """A copy of `node`, with loops of its own, that does what is to be done in a step."""

    def copy(node: Node, values: Mapping[Var, Affine]) -> Node:
        if isinstance(node, Block):
            return _through(substitute_loops(node, values), wide, step)
        new = Var(node.var.name)
        inside = {**values, node.var: Affine.of(new)}
        body = tuple(copy(x, inside) for x in node.body)
        return replace(node, var=new, body=body, annotations=((AHEAD, where),))

    return copy(node, {v: step})


def _through(block: Block, wide: Mapping[Buffer, Buffer], step: Affine) -> Block:
    """The block with its accesses of the buffers that alternate in that of a step."""

    def access(a: Access) -> Access:
        found = wide.get(a.buffer)
        if found is None:
            return a
        copies = int(found.shape[0])
        turn = Affine.of(Digit(step, 1, copies)) if step.terms else Affine(step.const % copies)
        return Access(found, (turn, *a.indices))

    if not any(a.buffer in wide for a in (*block.reads, *block.writes)):
        return block
    return replace(
        block, reads=tuple(map(access, block.reads)), writes=tuple(map(access, block.writes))
    )


def _where(block: Block, p: Predicate) -> Block:
    return replace(block, predicates=(*block.predicates, p))
