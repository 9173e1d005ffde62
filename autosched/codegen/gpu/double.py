"""Double buffering: what a block shares alternates between two buffers, step by step.

The threads then write the next step's elements while others still read this one's, so that one
barrier a step is enough (`barriers.py` finds out by itself).
"""

from __future__ import annotations

from dataclasses import replace

from autosched.schedule.annotate import STEPS
from autosched.tir.affine import Affine, Digit
from autosched.tir.annotations import DOUBLE_BUFFER
from autosched.tir.nodes import Access, Block, Buffer, For, Node, map_blocks, sites

COPIES = 2


def double_buffers(node: Node) -> Node:
    """`node`, of a lowered program, with the buffers that annotated blocks write twice as large;
    which half an iteration uses, the loop of steps around says. What lives in no such loop, since
    it had one step, stays as it is."""
    marked = {
        a.buffer
        for s in sites(node)
        if s.block.annotation(DOUBLE_BUFFER, False)
        for a in s.block.writes
        if a.buffer.scope == "shared"
    }
    return _visit(node, marked, None)[0] if marked else node


def _visit(node: Node, marked: set[Buffer], step: For | None) -> tuple[Node, tuple[Buffer, ...]]:
    """The node, a part of the loop of steps `step`, and the buffers of its loops that `step` is to
    alternate."""
    if isinstance(node, Block):
        return node, ()
    inside = node if node.kind in STEPS else step
    parts = [_visit(child, marked, inside) for child in node.body]
    moved = tuple(b for _, buffers in parts for b in buffers)
    mine = tuple(b for b in node.allocs if b in marked)
    kept = tuple(b for b in node.allocs if b not in marked)
    new = replace(node, body=tuple(x for x, _ in parts), allocs=kept)
    if inside is None:
        return replace(new, allocs=node.allocs), ()
    if inside is not node:
        return new, (*moved, *mine)
    wide = {
        b: replace(
            b,
            shape=(COPIES, *b.shape),
            align=tuple((axis + 1, factor, offset) for axis, factor, offset in b.align),
        )
        for b in (*moved, *mine)
    }
    half = Affine.of(Digit(Affine.of(node.var), 1, COPIES))

    def access(a: Access) -> Access:
        found = wide.get(a.buffer)
        return a if found is None else Access(found, (half, *a.indices))

    def block(b: Block) -> Block:
        if not any(a.buffer in wide for a in (*b.reads, *b.writes)):
            return b
        return replace(b, reads=tuple(map(access, b.reads)), writes=tuple(map(access, b.writes)))

    body = tuple(map_blocks(x, block) for x in new.body)
    return replace(new, body=body, allocs=(*kept, *wide.values())), ()
