"""The primitive that makes a block's axes anew: transform_block_layout."""

from __future__ import annotations

from dataclasses import replace

from autosched.schedule.body import rewrite_block
from autosched.schedule.check import refuse
from autosched.schedule.kinds import check_kinds
from autosched.schedule.layout import Layout, packing
from autosched.schedule.place import full, guards_of, nest
from autosched.tir.affine import same_int
from autosched.tir.expr import Var
from autosched.tir.nodes import Buffer, For, Iter, IterKind, PrimFunc, replace_node, site_of, sites


def transform_block_layout(func: PrimFunc, block: str, layout: Layout) -> PrimFunc:
    """Replace the axes of a block, and its loops, by digits of them and by fusions.
    (TVM transform_block_layout.)

    Args:
        layout: the new axes, one item each, as `autosched.schedule.layout` states the dimensions
            of a buffer: `[[0, 4], 1, [0, 1, 4]]`, or a function of the axes.

    Legality: each axis has one plain serial loop of its own over all of it, in which no other block
    stands; the digits determine every axis and divide its extent; axes of one kind are fused; none
    is sequential.

    rewrite: (lambda i, j: (i * 6 + j))
        for i, j in T.grid(4, 6):           for ax0 in T.serial(24):
            with T.block("b"):          ->      with T.block("b"):
                B[vi, vj] = A[vi, vj]               B[v0 // 6, v0 % 6] = A[v0 // 6, v0 % 6]
    """
    what = f"transform_block_layout({block})"
    site = site_of(func, block)
    old = site.block
    loops = [b.single_var() for b in old.bindings]
    if (
        any(v is None for v in loops)
        or len(set(loops)) != len(site.loops)
        or len(loops) != len(site.loops)
    ):
        refuse(f"{what}: each axis has one loop of its own, not split", old)
    if not site.loops or guards_of(site) or old.predicates:
        refuse(f"{what}: the block has no loops, or predicates", old)
    for loop in site.loops:
        if loop.kind != "serial" or loop.annotations or loop.allocs:
            refuse(f"{what}: loop {loop.var.name} is not plain and serial", loop)
    of = site.extents()
    for it, v in zip(old.iters, loops, strict=True):
        if v is None or not same_int(of[v], it.extent):
            refuse(f"{what}: the loop of {it.var.name} runs over a part of it", old)
    if sum(site.loops[0] in s.loops for s in sites(func)) != 1:
        refuse(f"{what}: other blocks stand in its loops", site.loops[0])
    shape = tuple(it.extent for it in old.iters)
    dims = packing(Buffer("axes", shape, "int64"), layout, what)
    axes = [Var(f"v{n}") for n in range(len(dims.pieces))]
    kinds: list[IterKind] = []
    for p in dims.pieces:
        if p.turn is not None:
            refuse(f"{what}: a swizzle is a layout of buffers; axes have no order to hide", old)
        found = {old.iters[d].kind for d in p.dims}
        if len(found) != 1 or "sequential" in found:
            refuse(f"{what}: an axis is sequential, or axes of two kinds are fused", old)
        kinds.append(found.pop())
    forms, guards = dims.back(axes)
    if guards:
        refuse(f"{what}: the digits do not divide the extents {shape}", old)
    extents = dict(zip(axes, dims.extents, strict=True))
    values = {it.var: form for it, form in zip(old.iters, forms, strict=True)}
    reads, writes, body = rewrite_block(old, values, extents)
    changed = replace(
        old,
        iters=tuple(Iter(v, n, k) for (v, n), k in zip(extents.items(), kinds, strict=True)),
        bindings=(),
        reads=reads,
        writes=writes,
        body=body,
    )
    made = nest(changed, full(changed), (), {})
    assert isinstance(made, For)
    result = replace_node(func, site.loops[0], (made,))
    check_kinds(result, func)
    return result
