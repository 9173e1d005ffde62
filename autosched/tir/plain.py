"""Programs as they are before they are scheduled: a nest for each block, which writes a buffer of
its own from the first element to the last. What the rules on order ask holds for them, and need not
be proved.
"""

from __future__ import annotations

from autosched.tir.affine import Affine, same_int
from autosched.tir.expr import Var
from autosched.tir.nodes import Block, Buffer, For, Node, PrimFunc


def is_plain(func: PrimFunc) -> bool:
    """Whether each nest is loops around one block, an axis a loop, without conditions; a block
    writes all elements of buffers that no other block writes, and reads such, of blocks before it,
    and parameters that none writes; some parameter is written."""
    if func.allocs:
        return False
    written: set[Buffer] = set()
    read: set[Buffer] = set()
    params = set(func.params)
    for node in func.body:
        block = _only_block(node)
        if block is None:
            return False
        for access in block.reads:
            b = access.buffer
            if b not in written:
                if b not in params:
                    return False
                read.add(b)
        for access in block.writes:
            b = access.buffer
            if b in written or b in read:
                return False
            written.add(b)
    return not params.isdisjoint(written)


def _only_block(node: Node) -> Block | None:
    """The block in a nest of serial loops, if each is an axis of it, which is visited in full, and
    its axes name what it writes."""
    loops: dict[Var, For] = {}
    while isinstance(node, For):
        serial = node.kind == "serial" and node.thread is None
        if not serial or node.allocs or len(node.body) != 1:
            return None
        loops[node.var] = node
        (node,) = node.body
    if node.predicates or len(node.iters) != len(loops):
        return None
    for it, binding in zip(node.iters, node.bindings, strict=True):
        v = binding.single_var()
        loop = None if v is None else loops.pop(v, None)
        if loop is None or not same_int(loop.extent, it.extent):
            return None
    return node if _writes_all(node) else None


def _writes_all(block: Block) -> bool:
    """Whether the spatial axes, in some order, are the indices of each element written, over all of
    its buffer; the others are reduced, beginning with the identity."""
    extents = {it.var: it.extent for it in block.iters if it.kind == "spatial"}
    reduced = len(extents) < len(block.iters)
    if block.reducer is None:
        if reduced:
            return False
    elif not block.init or any(it.kind == "sequential" for it in block.iters):
        return False
    for access in block.writes:
        left = dict(extents)
        for index, n in zip(access.indices, access.buffer.shape, strict=True):
            v = index.single_var() if isinstance(index, Affine) else None
            extent = None if v is None else left.pop(v, None)
            if extent is None or not same_int(extent, n):
                return False
        if left:
            return False
    return True
