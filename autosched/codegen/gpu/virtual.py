"""Virtual threads: loops that a thread runs in step with itself.

A loop bound to a virtual axis is moved inside, down to the blocks that depend on it, and unrolled:
neighbouring statements then come from different virtual threads, which gives a thread independent
work, and what does not depend on the loop, such as a copy to shared memory, is done once for all.
Arrays that each virtual thread has for itself get a dimension for them.
"""

from __future__ import annotations

from dataclasses import replace

from autosched.codegen.gpu.kernel import AXES, allocated_in
from autosched.codegen.gpu.threads import variables
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, Buffer, For, Node, sites


def sink_virtual(node: Node) -> tuple[tuple[Node, ...], tuple[Buffer, ...]]:
    """`node` with its virtual threads as unrolled loops innermost, and the buffers that lived in
    the outermost of them."""
    if isinstance(node, Block):
        return (node,), ()
    parts = [sink_virtual(child) for child in node.body]
    body = tuple(x for nodes, _ in parts for x in nodes)
    allocs = (*node.allocs, *(b for _, own in parts for b in own))
    if node.thread is None or node.thread in AXES:
        return (replace(node, body=body, allocs=allocs),), ()
    inside = (*allocs, *(b for x in body for b in allocated_in(x)))
    own = _own_buffers(node.var, body, inside)
    wide = {b: replace(b, shape=(node.extent, *b.shape), align=_shifted(b)) for b in own}
    body = tuple(_push(node, _widened(x, wide, node.var)) for x in body)
    return body, tuple(wide.get(b, b) for b in allocs)


def _own_buffers(v: Var, body: tuple[Node, ...], inside: tuple[Buffer, ...]) -> set[Buffer]:
    """Those of the buffers `inside` the loop over `v` whose contents depend on it."""
    blocks = [s.block for x in body for s in sites(x)]
    own: set[Buffer] = set()
    while True:
        more = {
            w.buffer
            for b in blocks
            for w in b.writes
            if w.buffer in inside
            and (v in variables(b) or any(a.buffer in own for a in (*b.reads, *b.writes)))
        }
        if more <= own:
            return own
        own |= more


def _shifted(b: Buffer) -> tuple[tuple[int, Int, Int], ...]:
    return tuple((axis + 1, factor, offset) for axis, factor, offset in b.align)


def _widened(node: Node, wide: dict[Buffer, Buffer], v: Var) -> Node:
    """`node` with the buffers in `wide` replaced, `v` being the index of their first dimension."""
    if isinstance(node, For):
        body = tuple(_widened(x, wide, v) for x in node.body)
        return replace(node, body=body, allocs=tuple(wide.get(b, b) for b in node.allocs))

    def access(a: Access) -> Access:
        found = wide.get(a.buffer)
        return a if found is None else Access(found, (Affine.of(v), *a.indices))

    return replace(
        node,
        reads=tuple(access(a) for a in node.reads),
        writes=tuple(access(a) for a in node.writes),
    )


def _push(loop: For, node: Node) -> Node:
    """`node` with `loop` around those parts of it that depend on the loop."""
    if all(loop.var not in variables(s.block) for s in sites(node)):
        return node
    if isinstance(node, Block) or node.kind not in ("serial", "thread"):
        return For(loop.var, loop.extent, (node,), "unrolled")
    return replace(node, body=tuple(_push(loop, child) for child in node.body))
