"""Lowering: from a scheduled program to the form that code generators read.

Unit loops, iterations of parallel loops that no block has, and predicates that always hold go (see
`tir/simplify.py`), and every intermediate gets a place and a size: it is allocated inside the loops
that all its accesses share, and holds just the region that one iteration of them touches; of a
recurrence's state that nothing reads afterwards, just the last steps (`rings.py`).
"""

from __future__ import annotations

from dataclasses import replace

from autosched.errors import CodegenError
from autosched.lowering.rings import fold_index, ring
from autosched.tir.affine import Affine, Extents, Int, ceildiv, imax, imin, recombine, sometimes
from autosched.tir.annotations import UNROLL
from autosched.tir.expr import Var
from autosched.tir.intrin import KEY as TENSORIZED
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Node,
    PrimFunc,
    Site,
    loops_of,
    sites,
)
from autosched.tir.opaque import has_opaque, joined, pieces
from autosched.tir.region import Region, home, shared_by, touched
from autosched.tir.simplify import drop_unit_loops, simplify_forms
from autosched.tir.size import Size
from autosched.tir.size_atoms import Undecided


def lower(func: PrimFunc) -> PrimFunc:
    """The lowered form of a scheduled program; see docs/design/loop_ir.md. Idempotent. What stands
    between two opaque blocks is lowered by itself.

    Raises CodegenError for a population.
    """
    for loop in loops_of(func):
        if not isinstance(loop.extent, (int, Size)):
            raise CodegenError(
                f"loop {loop.var.name} has no single extent: a population cannot be lowered"
            )
    if has_opaque(func):
        parts = pieces(func)
        return joined(func, [lower(p) if isinstance(p, PrimFunc) else p for p in parts])
    func = drop_unit_loops(end_early(unroll_steps(func), "parallel"))
    return _place_buffers(simplify_forms(func))


def unroll_steps(func: PrimFunc) -> PrimFunc:
    """Unroll serial loops as far as loops annotated with UNROLL say: from the inside, as long as
    the blocks of all copies are no more than that."""
    if all(key != UNROLL for loop in loops_of(func) for key, _ in loop.annotations):
        return func

    def visit(node: Node, most: int) -> tuple[Node, int]:
        """The node, and the executions of blocks in it that stand in a row; 0 for a loop."""
        if isinstance(node, Block):
            return node, 1
        most = max(most, int(node.annotation(UNROLL, 0)))
        below = [visit(child, most) for child in node.body]
        body = tuple(child for child, _ in below)
        whole = all(n for _, n in below) and isinstance(node.extent, int)
        steps = int(node.extent) * sum(n for _, n in below) if whole else 0
        kind = node.kind
        if kind == "serial" and 0 < steps <= most and node.annotation(TENSORIZED) is None:
            kind = "unrolled"
        return replace(node, kind=kind, body=body), steps if kind == "unrolled" else 0

    return replace(func, body=tuple(visit(node, 0)[0] for node in func.body))


def end_early(func: PrimFunc, kind: str, step: int = 1) -> PrimFunc:
    """End the loops of a kind where the predicates of all blocks below skip the rest: a split may
    overshoot by any amount. (Serial loops get a run-time trip count.) What is left is a multiple of
    `step`, or whole."""
    if all(loop.kind != kind for loop in loops_of(func)):
        return func
    extents = {loop.var: loop.extent for loop in loops_of(func)}

    def visit(node: Node) -> Node:
        if isinstance(node, Block):
            return node
        body = tuple(visit(child) for child in node.body)
        if node.kind != kind:
            return replace(node, body=body)
        return replace(node, extent=_ended(node, extents, step), body=body)

    return simplify_forms(replace(func, body=tuple(visit(node) for node in func.body)))


def _ended(loop: For, extents: Extents, step: int) -> Int:
    """The extent of `loop` without what all blocks below skip; where that depends on symbolic sizes
    in no simple way, its own."""
    reach: Int = 0
    try:
        for s in sites(loop):
            reach = imax(reach, _reach(s.block, loop, extents))
        return imin(loop.extent, ceildiv(reach, step) * step)
    except Undecided:
        return loop.extent


def _reach(block: Block, loop: For, extents: Extents) -> Int:
    """Iterations of `loop`, from the first, beyond which the block does nothing."""
    reach = loop.extent
    for p in block.predicates:
        form = recombine(p.form).substitute({}, extents)
        c = form.coefficient(loop.var)
        if isinstance(c, int) and c > 0 and sum(v is loop.var for v in form.variables()) == 1:
            low = (form - Affine.of(loop.var, c)).span(extents)[0]
            reach = imin(reach, imax(1, (p.bound - 1 - low) // c + 1))
    return reach


def _place_buffers(func: PrimFunc) -> PrimFunc:
    every = list(sites(func))
    params = {id(b) for b in func.params}
    placed = {id(b) for b in func.allocs}
    users: dict[int, list[Site]] = {}
    buffers: dict[int, Buffer] = {}
    for site in every:
        for loop in site.loops:
            placed |= {id(b) for b in loop.allocs}
        for access in (*site.block.writes, *site.block.reads):
            b = access.buffer
            if id(b) in params:
                continue
            buffers.setdefault(id(b), b)
            mine = users.setdefault(id(b), [])
            if not mine or mine[-1] is not site:
                mine.append(site)
    changed: dict[int, tuple[Buffer, Region]] = {}
    rings: dict[int, tuple[int, int]] = {}
    at_loop: dict[Var | None, list[Buffer]] = {}
    for key, buffer in buffers.items():
        if key in placed:
            continue
        around = home(buffer, users[key])
        outer = {loop.var for loop in around} - set(shared_by(buffer.scope, around))
        inner = [loop.var for s in users[key] for loop in s.loops if loop.var not in outer]
        region = touched(buffer, users[key], inner)
        assert region is not None
        shape = [i.width for i in region]
        found = ring(buffer, users[key], around)
        if found is not None and sometimes(found[1] < shape[found[0]]):
            rings[key] = found
            shape[found[0]] = found[1]
        small = replace(buffer, shape=tuple(shape))
        changed[key] = (small, region)
        at_loop.setdefault(around[-1].var if around else None, []).append(small)
    if not changed:
        return func

    def shift(a: Access) -> Access:
        found = changed.get(id(a.buffer))
        if found is None:
            return a
        small, region = found
        indices = tuple(
            i - part.start if isinstance(i, Affine) else i
            for i, part in zip(a.indices, region, strict=True)
        )
        if id(a.buffer) in rings:
            n, rows = rings[id(a.buffer)]
            return fold_index(a, small, indices, n, rows)
        return Access(small, indices)

    def block(b: Block) -> Block:
        return replace(
            b,
            reads=tuple(shift(a) for a in b.reads),
            writes=tuple(shift(a) for a in b.writes),
        )

    def visit(node: Node) -> Node:
        if isinstance(node, Block):
            return block(node)
        return replace(
            node,
            body=tuple(visit(child) for child in node.body),
            allocs=(*node.allocs, *at_loop.get(node.var, ())),
        )

    return replace(
        func,
        body=tuple(visit(node) for node in func.body),
        allocs=(*func.allocs, *at_loop.get(None, ())),
    )
