"""The primitive on a block's own axes: split_axis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule.body import rewrite_block
from autosched.schedule.check import refuse, show
from autosched.tir.affine import Affine, Extents, Int, same_int
from autosched.tir.expr import Var
from autosched.tir.fold import fold
from autosched.tir.nodes import (
    Block,
    For,
    Index,
    Iter,
    PrimFunc,
    Site,
    replace_node,
    site_of,
    sites,
)
from autosched.tir.prove import Facts


def split_axis(func: PrimFunc, block: str, axis: int, factor: int) -> tuple[PrimFunc, Var, Var]:
    """Make two axes of one, with a loop each. (TVM transform_block_layout, for one axis.)

    What a block reads through `axis // factor` or `axis % factor` is affine in the new axes: the
    group of a grouped convolution, the phase of a strided one.

    Args:
        axis: position among the block's axes.
        factor: extent of the new inner axis; a divisor of the extent, and not 1.

    Returns the new program and the two loop variables, the outer one first. Conditions on the axis
    are folded: of `i % 4 < 3` the inner axis alone is left.

    Legality: one serial loop of its own visits all of the axis; the block is the whole body of that
    loop or the end of one nest, and no predicate mentions the loop.

    rewrite:
        for i in T.serial(12):              for i_0, i_1 in T.grid(3, 4):
            with T.block("b"):        ->        with T.block("b"):
                vi = spatial(12, i)                 v0, v1 = spatial(3, i_0), spatial(4, i_1)
                B[vi] = A[vi // 4]                  B[v0 * 4 + v1] = A[v0]
    """
    what = f"split_axis({block}, {axis}, {factor})"
    site = site_of(func, block)
    old = _axis(site.block, axis, factor, what)
    loop = _own_loop(site, axis, what)
    outer, inner = Var(f"{old.var.name}_0"), Var(f"{old.var.name}_1")
    loops = Var(f"{loop.var.name}_0"), Var(f"{loop.var.name}_1")
    count = int(old.extent) // factor
    iters, bindings = list(site.block.iters), list(site.block.bindings)
    iters[axis : axis + 1] = [Iter(outer, count, old.kind), Iter(inner, factor, old.kind)]
    bindings[axis : axis + 1] = [Affine.of(v) for v in loops]
    extents: Extents = {it.var: it.extent for it in iters}
    form: dict[Var, Index] = {old.var: Affine.of(outer, factor) + Affine.of(inner)}
    reads, writes, body = rewrite_block(site.block, form, extents)
    if all(isinstance(n, int) for n in extents.values()):
        facts = Facts(extents, reads=reads)
        body = tuple(fold(e, facts) for e in body)
    changed = replace(
        site.block,
        iters=tuple(iters),
        bindings=tuple(bindings),
        reads=reads,
        writes=writes,
        body=body,
    )
    below = replace_node(replace(func, body=(loop,)), site.block, (changed,)).body[0]
    assert isinstance(below, For)
    nest = For(loops[0], count, (For(loops[1], factor, below.body),))
    return replace_node(func, loop, (nest,)), *loops


def _axis(block: Block, axis: int, factor: int, what: str) -> Iter:
    if not 0 <= axis < len(block.iters):
        refuse(f"{what}: the block's axes are 0 to {len(block.iters) - 1}", block)
    found = block.iters[axis]
    if found.kind == "sequential":
        refuse(f"{what}: axis {found.var.name} is visited in order, step by step", block)
    extent: Int = found.extent
    if not isinstance(extent, int):
        kind = NotBatchable if isinstance(extent, np.ndarray) else ScheduleError
        raise kind(f"{what}: axis {found.var.name} has extent {show(extent)}; expected a constant")
    if not 1 < factor <= extent or extent % factor:
        refuse(
            f"{what}: expected a divisor of the extent {extent} of axis {found.var.name}, "
            f"not 1; found {factor}"
        )
    return found


def _own_loop(site: Site, axis: int, what: str) -> For:
    """The loop that visits the axis and nothing else."""
    block = site.block
    var = block.bindings[axis].single_var()
    name = block.iters[axis].var.name
    if var is None:
        refuse(f"{what}: axis {name} is not visited by a loop of its own", block)
    loop = next(x for x in site.loops if x.var is var)
    elsewhere = [b for n, b in enumerate(block.bindings) if n != axis and b.uses([var])]
    if elsewhere or any(p.form.uses([var]) for p in block.predicates):
        refuse(f"{what}: loop {var.name} does more than visit axis {name}", block)
    if loop.kind != "serial" or loop.annotations or loop.allocs:
        refuse(f"{what}: expected loop {var.name} plain and serial; found it {loop.kind}", loop)
    if not same_int(loop.extent, block.iters[axis].extent):
        refuse(
            f"{what}: loop {var.name} runs over {show(loop.extent)} of the "
            f"{block.iters[axis].extent} points of axis {name}; expected all of them",
            loop,
        )
    others = [s.block.name for s in sites(loop) if s.block is not block]
    if others:
        refuse(f"{what}: loop {var.name} also runs block {', '.join(others)}", loop)
    return loop
