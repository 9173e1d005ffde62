"""Primitives on reductions: rfactor, decompose_reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autosched.errors import NotBatchable
from autosched.schedule.body import rewrite_block
from autosched.schedule.check import (
    names,
    ordered_vars,
    refuse,
    require,
    show,
)
from autosched.schedule.compute import written_axes
from autosched.schedule.conflicts import blocks_between, check_alone
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import block_names, child_with, children, insert, mirror, unique_name
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Int, always
from autosched.tir.apart import injective
from autosched.tir.expr import Expr, Slot, Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Index,
    Iter,
    Predicate,
    PrimFunc,
    Site,
    buffers_of,
    kind_vars,
    path_to,
    replace_node,
    site_of,
    sites,
)
from autosched.tir.scatter import moving_axes


def rfactor(func: PrimFunc, loop: Var, factor_axis: int = 0) -> tuple[PrimFunc, str]:
    """Make a reduction loop a spatial axis of partial results, which a second block reduces.
    (TVM rfactor, Halide rfactor.)

    Args:
        loop: a serial loop over a reduction axis of the one block below it.
        factor_axis: which dimension of the partial results the loop becomes, 0 to the rank.

    Returns the new program and the name of the block of partial results. The block that reduces
    them keeps the old name and stands after the outermost reduction loop.

    Legality: the block initialises, writes its own spatial axes, one a dimension; no other block
    inside the reduction loops accesses what it writes. A partial result that may have no term, as
    where the loop's extent is above the axis', is the identity: its terms are guarded.

    rewrite:
        for i, k_0, k_1 in T.grid(8, 4, 4):             for i in T.serial(8):
            with T.block("S"):                              for k_0, k_1 in T.grid(4, 4):
                vk = reduce(16, k_0 * 4 + k_1)    ->            with T.block("S_rf"):
                S[vi] += A[vi, vk]                                  S_rf[vk_1, vi] += A[vi, …]
                                                            for ax0 in T.serial(4):
                                                                with T.block("S"):
                                                                    S[vi] += S_rf[v, vi]
    """
    node = path_to(func, loop)[-1]
    what = f"rfactor({loop.name})"
    site = _one_block(func, node, what)
    block = site.block
    _check_reduction(block, what)
    if node.kind != "serial":
        refuse(f"{what}: the loop is {node.kind}; expected a serial one", node)
    reduced = kind_vars(block, "reduce")
    if loop not in reduced:
        refuse(f"{what}: the loop runs over no reduction axis of {block.name}", block)
    both = reduced & kind_vars(block, "spatial")
    if both:
        refuse(f"{what}: {names(both)} runs over spatial and reduction axes at once", block)
    dims = written_axes(block, what)
    rank = len(block.writes[0].indices)
    if not 0 <= factor_axis <= rank:
        refuse(f"{what}: factor_axis is between 0 and {rank}; found {factor_axis}")
    guards = _guards(site, loop, reduced, what)
    first = next(n for n, x in enumerate(site.loops) if x.var in reduced)
    check_alone(site, blocks_between(func, site, first), what, readers=True)
    partial_block = _partial(func, site, node, reduced, factor_axis, guards)
    final, follow = _final(block, partial_block, node, dims, factor_axis)
    parent = site.loops[first - 1].var if first else None
    changed = replace_node(func, block, (partial_block,))
    position = child_with(children(changed, parent), [partial_block])[0] + 1
    result = insert(changed, parent, position, mirror(site, first, final, follow))
    check_kinds(result, func)
    return result, partial_block.name


def _one_block(func: PrimFunc, node: For, what: str) -> Site:
    below = list(sites(node))
    if len(below) != 1:
        found = ", ".join(s.block.name for s in below)
        refuse(f"{what}: expected one block below the loop; found {found}")
    return site_of(func, below[0].block.name)


def _check_reduction(block: Block, what: str) -> None:
    if block.reducer is None:
        refuse(f"{what}: block {block.name} is no reduction", block)
    moving = moving_axes(block)
    if moving:
        refuse(
            f"{what}: the element that {block.name} combines into moves with its reduction axis "
            f"{names(moving)}, so a block before it sets all elements, and partial results are "
            "buffers of that size: write them as one more dimension of the buffer",
            block,
        )
    if not block.init:
        refuse(f"{what}: block {block.name} is decomposed already", block)
    if any(it.kind == "sequential" for it in block.iters):
        refuse(
            f"{what}: {block.name} is a stage of a recurrence, which stays one block of the step: "
            "its sequential axis is no spatial one; split and unroll its reduction loop, or "
            "vectorize it",
            block,
        )


def _guards(site: Site, loop: Var, reduced: set[Var], what: str) -> list[Predicate]:
    """The predicates that may skip all terms of some value of `loop`, the first of the other loops
    among them."""
    extents = site.extents()
    first = {v: Affine(0) for v in reduced if v is not loop}
    found = []
    for p in site.block.predicates:
        if not p.form.uses(reduced):
            continue
        fits = p.form.substitute(first, extents).span(extents)[1] < p.bound
        if always(fits):
            continue
        if isinstance(fits, np.ndarray):  # a condition in a body has one number
            raise NotBatchable(f"{what}: which partial results have no term differs by candidate")
        if not reduced.issuperset(p.form.variables()):
            require(
                fits,
                f"{what}: with extent {show(extents[loop])} some partial results have no term; "
                f"choose a smaller factor",
            )
        found.append(p)
    return found


def _partial(
    func: PrimFunc,
    site: Site,
    node: For,
    reduced: set[Var],
    factor_axis: int,
    guards: Sequence[Predicate],
) -> Block:
    """The block of partial results, at the place of the old one. Where `guards` do not hold a term
    is the identity."""
    block = site.block
    lane = Var(f"v{node.var.name}")
    inside: dict[Var, Affine] = {node.var: Affine.of(lane)}
    iters = [it for it in block.iters if it.kind == "spatial"]
    bindings = [
        b for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "spatial"
    ]
    # In the order of the partial results' dimensions, where the block wrote its axes in order.
    iters.insert(factor_axis, Iter(lane, node.extent))
    bindings.insert(factor_axis, Affine.of(node.var))
    for other in site.loops:
        if other.var in reduced and other.var is not node.var:
            var = Var(f"v{other.var.name}")
            inside[other.var] = Affine.of(var)
            iters.append(Iter(var, other.extent, "reduce"))
            bindings.append(Affine.of(other.var))
    extents: dict[Var, Int] = {it.var: it.extent for it in iters}
    axes: dict[Var, Index] = {
        it.var: b.substitute(inside, extents)
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind == "reduce"
    }
    reads, writes, body = rewrite_block(block, axes, extents)
    assert block.reducer is not None
    for p in guards:
        holds = p.form.substitute(inside, extents).to_expr() < Affine(p.bound).to_expr()
        body = tuple(
            ex.call("if_then_else", holds, e, neutral)
            for e, neutral in zip(body, block.reducer.identity, strict=True)
        )
    taken = block_names(func) | {b.name for b in (*func.params, *buffers_of(func))}
    partial_writes = []
    for w in writes:
        shape = (*w.buffer.shape[:factor_axis], node.extent, *w.buffer.shape[factor_axis:])
        name = unique_name(taken, f"{w.buffer.name}_rf")
        taken.add(name)
        indices = (*w.indices[:factor_axis], Affine.of(lane), *w.indices[factor_axis:])
        partial_writes.append(Access(Buffer(name, shape, w.buffer.dtype), indices))
    alone = all(it.kind == "spatial" for it in iters)
    return replace(
        block,
        name=unique_name(block_names(func), f"{block.name}_rf"),
        iters=tuple(iters),
        bindings=tuple(bindings),
        predicates=tuple(p for p in block.predicates if p not in guards),
        reads=reads,
        writes=tuple(partial_writes),
        body=body,
        # A single term needs no combining: combine(identity, x) is x.
        reducer=None if alone else block.reducer,
    )


def _final(
    block: Block,
    partial_block: Block,
    node: For,
    dims: list[list[Var]],
    factor_axis: int,
) -> tuple[Block, dict[Var, Var]]:
    """The block that reduces the partial results, unbound, and which axis follows which."""
    lane = Var(f"v{node.var.name}")
    fresh = {it.var: Var(it.var.name) for it in block.iters if it.kind == "spatial"}
    iters = [replace(it, var=fresh[it.var]) for it in block.iters if it.kind == "spatial"]
    iters.append(Iter(lane, node.extent, "reduce"))
    reads, writes = [], []
    for old, new, axes in zip(block.writes, partial_block.writes, dims, strict=True):
        own = tuple(Affine.of(fresh[v]) for v in axes)
        writes.append(Access(old.buffer, own))
        reads.append(Access(new.buffer, (*own[:factor_axis], Affine.of(lane), *own[factor_axis:])))
    body: tuple[Expr, ...] = tuple(Slot(n, a.buffer.dtype) for n, a in enumerate(reads))
    final = replace(
        block,
        iters=tuple(iters),
        bindings=(),
        predicates=(),
        reads=tuple(reads),
        writes=tuple(writes),
        body=body,
        annotations=(),
    )
    return final, {new: old for old, new in fresh.items()}


def decompose_reduction(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, str]:
    """Initialise a reduction in a block of its own, just before a loop. (TVM decompose_reduction.)

    Args:
        loop: a loop around the block, at or outside its outermost reduction loop.

    Returns the new program and the name of the block that initialises.

    Legality: no loop outside `loop` runs over a reduction axis of the block, and none inside
    computes the same elements again; no other block inside it writes them.

    rewrite:
        for i, k in T.grid(8, 16):              for i in T.serial(8):
            with T.block("S"):                      with T.block("S_init"):
                with T.init():            ->            S[vi] = 0
                    S[vi] = 0                       for k in T.serial(16):
                S[vi] += A[vi, vk]                      with T.block("S"):
                                                            S[vi] += A[vi, vk]
    """
    what = f"decompose_reduction({block})"
    site = site_of(func, block)
    _check_reduction(site.block, what)
    depth = next((n for n, x in enumerate(site.loops) if x.var is loop), None)
    if depth is None:
        have = names(x.var for x in site.loops)
        refuse(f"{what}: loop {loop.name} is not around the block; the loops there: {have}")
    ordered = ordered_vars(site.block)
    outside = [x.var for x in site.loops[:depth] if x.var in ordered]
    if outside:
        refuse(
            f"{what}: loop {names(outside)} outside {loop.name} runs over a reduction axis, so "
            f"that elements would be initialised in the middle; choose {outside[0].name} or a loop "
            "outside it"
        )
    both = ordered & kind_vars(site.block, "spatial")
    if both:
        refuse(f"{what}: {names(both)} runs over spatial and reduction axes at once", site.block)
    check_alone(site, blocks_between(func, site, depth), what, readers=False)
    inside = [x.var for x in site.loops[depth:] if x.var not in ordered]
    spatial = [
        b
        for it, b in zip(site.block.iters, site.block.bindings, strict=True)
        if it.kind == "spatial"
    ]
    require(
        injective(spatial, inside, site.extents()),
        f"{what}: loops among {names(inside)} compute the same elements again, which would then be "
        f"initialised once only; choose a loop inside those",
    )
    dims = written_axes(site.block, what)
    reducer = site.block.reducer
    assert reducer is not None
    fresh = {it.var: Var(it.var.name) for it in site.block.iters if it.kind == "spatial"}
    name = unique_name(block_names(func), f"{block}_init")
    init = Block(
        name,
        tuple(replace(it, var=fresh[it.var]) for it in site.block.iters if it.kind == "spatial"),
        (),
        (),
        (),
        tuple(
            Access(w.buffer, tuple(Affine.of(fresh[v]) for v in axes))
            for w, axes in zip(site.block.writes, dims, strict=True)
        ),
        reducer.identity,
    )
    update = replace(site.block, init=False)
    changed = replace_node(func, site.block, (update,))
    parent = site.loops[depth - 1].var if depth else None
    position = child_with(children(changed, parent), [update])[0]
    node = mirror(site, depth, init, {new: old for old, new in fresh.items()})
    result = insert(changed, parent, position, node)
    check_kinds(result, func)
    return result, name
