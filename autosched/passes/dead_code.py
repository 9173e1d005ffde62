"""dead_code: what no output of a function depends on."""

from __future__ import annotations

from dataclasses import replace

from autosched.passes.base import func_pass
from autosched.tir.nodes import Access, Block, Buffer, Node, PrimFunc, sites
from autosched.tir.opaque import opaque_of
from autosched.tir.routine import externs
from autosched.tir.simplify import prune_reads


@func_pass("dead_code")
def dead_code(func: PrimFunc) -> PrimFunc:
    """Blocks, results and buffers that no output depends on go; the parameters stay.

    rewrite:
        with T.block("B"):                          with T.block("C"):
            B[vi] = A[vi] + 1               ->          C[vi] = A[vi] * 2
        with T.block("C"):
            C[vi] = A[vi] * 2
    """
    live = _live_buffers(func)
    body = tuple(x for node in func.body for x in _alive(node, live))
    return replace(func, body=body, allocs=_used(func.allocs, live))


def _live_buffers(func: PrimFunc) -> set[int]:
    """Ids of the parameters and of all buffers from which some output is computed."""
    live = {id(b) for b in func.params}
    every = [s.block for s in sites(func)]
    while True:
        before = len(live)
        for block in every:
            kept = _kept(block, live)
            if kept is not None:
                live |= {id(a.buffer) for a in (*kept.reads, *kept.writes)}
        if len(live) == before:
            return live


def _kept(block: Block, live: set[int]) -> Block | None:
    """The block with the results that are live; None if there is none."""
    keep = [n for n, a in enumerate(block.writes) if id(a.buffer) in live]
    found = opaque_of(block)
    if found is not None and (keep or externs(found.routine)):
        return block  # it runs whole, and a C function may do more than write
    if not keep:
        return None
    if len(keep) == len(block.writes) or block.is_reduction:
        return prune_reads(block)  # the parts of a combined tuple depend on one another
    writes: tuple[Access, ...] = tuple(block.writes[n] for n in keep)
    return prune_reads(replace(block, writes=writes, body=tuple(block.body[n] for n in keep)))


def _alive(node: Node, live: set[int]) -> tuple[Node, ...]:
    if isinstance(node, Block):
        kept = _kept(node, live)
        return () if kept is None else (kept,)
    body = tuple(x for child in node.body for x in _alive(child, live))
    return (replace(node, body=body, allocs=_used(node.allocs, live)),) if body else ()


def _used(allocs: tuple[Buffer, ...], live: set[int]) -> tuple[Buffer, ...]:
    return tuple(b for b in allocs if id(b) in live)
