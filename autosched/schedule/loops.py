"""Primitives on loops: split, reorder, fuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autosched.errors import ScheduleError
from autosched.schedule.check import (
    extents_of,
    loop_vars,
    names,
    ordered_vars,
    refuse,
    require,
    show,
)
from autosched.schedule.conflicts import check_order_kept
from autosched.schedule.kinds import check_kinds
from autosched.schedule.recurrence import check_crossing, is_step
from autosched.tir.affine import Affine, Digit, Extents, Int, always, ceildiv
from autosched.tir.apart import injective
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Block,
    For,
    Node,
    Predicate,
    PrimFunc,
    Site,
    kind_vars,
    map_blocks,
    path_to,
    replace_node,
    sites,
)
from autosched.tir.size import Size


def split(
    func: PrimFunc, loop: Var, factors: Sequence[Int | None]
) -> tuple[PrimFunc, tuple[Var, ...]]:
    """Replace a loop by a nest of loops, outermost first. (TVM split; Halide split with a tail.)

    Args:
        loop: a serial loop without annotations.
        factors: extents of the new loops; at most one is None and becomes whatever covers the rest.

    Legality: always, where the factors cover the extent, for all sizes if that is symbolic. If they
    overshoot (for any candidate or size), every block below gets a predicate.

    rewrite:
        for i in T.serial(10):          for i_0, i_1 in T.grid(3, 4):
            with T.block("b"):      ->      with T.block("b"):
                vi = spatial(10, i)             vi = spatial(10, i_0 * 4 + i_1)
                                                T.where(i_0 * 4 + i_1 < 10)
    """
    node = path_to(func, loop)[-1]
    _plain(node, "split")
    sizes = _sizes(node, factors)
    variables = tuple(Var(f"{loop.name}_{n}") for n in range(len(sizes)))
    form = Affine(0)
    stride: Int = 1
    for var, size in zip(reversed(variables), reversed(sizes), strict=True):
        form = Affine(0, ((var, stride), *form.terms))
        stride = stride * size
    exact = always(stride == node.extent)
    extents = extents_of(func)
    extents.update(zip(variables, sizes, strict=True))
    extra = () if exact else (Predicate(form, node.extent),)
    body = substitute_loops(node.body, {loop: form}, extents, extra)
    for var, size in zip(reversed(variables), reversed(sizes), strict=True):
        body = (For(var, size, body),)
    return replace_node(func, node, body), variables


def _sizes(node: For, factors: Sequence[Int | None]) -> list[Int]:
    what = f"split of loop {node.var.name} (extent {show(node.extent)})"
    if not factors:
        refuse(f"{what} needs at least one factor")
    product: Int = 1
    for f in factors:
        if f is None:
            continue
        if isinstance(f, bool) or not isinstance(f, (int, np.ndarray)):
            refuse(f"{what}: a factor is an int, an int64 array or None; found {f!r}")
        require(f >= 1, f"{what}: factors must be at least 1; found {show(f)}")
        product = product * f
    missing = sum(f is None for f in factors)
    if missing > 1:
        refuse(f"{what}: at most one factor may be None; found {missing}")
    if not missing:
        listed = ", ".join(show(f) for f in factors if f is not None)
        require(
            product >= node.extent,
            f"{what}: the factors [{listed}] cover {show(product)} iterations; make one of them "
            "None",
        )
    rest = ceildiv(node.extent, product)
    return [rest if f is None else f for f in factors]


def substitute_loops(
    nodes: tuple[Node, ...],
    values: dict[Var, Affine],
    extents: Extents,
    extra: tuple[Predicate, ...] = (),
) -> tuple[Node, ...]:
    """`nodes` with loop variables replaced in their blocks, which get `extra` predicates."""

    def change(block: Block) -> Block:
        bindings = tuple(
            b.substitute(values, extents) if b.uses(values) else b for b in block.bindings
        )
        predicates = tuple(
            Predicate(p.form.substitute(values, extents), p.bound) if p.form.uses(values) else p
            for p in block.predicates
        )
        return replace(block, bindings=bindings, predicates=(*predicates, *extra))

    return tuple(map_blocks(node, change) for node in nodes)


def fuse(func: PrimFunc, *loops: Var) -> tuple[PrimFunc, Var]:
    """Replace directly nested loops by one over all their iterations. (TVM fuse, Halide fuse.)

    Args:
        loops: two or more serial loops, outermost first, each the only child of the one before.

    Legality: at most one extent is a symbolic size; the order of the iterations stays.

    rewrite:
        for i, j in T.grid(4, 5):       for i_j_fused in T.serial(20):
            vi = spatial(4, i)      ->      vi = spatial(4, i_j_fused // 5)
            vj = spatial(5, j)              vj = spatial(5, i_j_fused % 5)
    """
    if not loops:
        refuse("fuse needs at least one loop")
    chain = _chain(func, loops, "fuse")
    if len(chain) != len(loops) or any(n.var is not v for n, v in zip(chain, loops, strict=True)):
        refuse(
            f"fuse takes directly nested loops, outermost first; found {names(loops)} "
            f"in the nest {names(loop_vars(chain))}",
            chain[0],
        )
    for node in chain:
        _plain(node, "fuse")
    fused = Var(f"{'_'.join(v.name for v in loops)}_fused")
    extents = extents_of(func)
    total: Int = 1
    for node in chain:
        total = total * node.extent
    extents[fused] = total
    symbolic = [node.extent for node in chain if isinstance(node.extent, Size)]
    if len(symbolic) > 1:
        refuse(
            f"fuse of {names(loops)}: the extents {', '.join(map(str, symbolic))} are all "
            "symbolic, and at most one may be; to divide them over threads, make each of the "
            "nested loops parallel"
        )
    values: dict[Var, Affine] = {}
    below: Int = 1
    for node in reversed(chain):
        # Not simplified: a single candidate would lose the f // 1 and f % 1 of its unit loops.
        mod = None if node is chain[0] else node.extent
        values[node.var] = Affine.of(Digit(Affine.of(fused), below, mod))
        below = below * node.extent
    body = substitute_loops(chain[-1].body, values, extents)
    return replace_node(func, chain[0], (For(fused, total, body),)), fused


def reorder(func: PrimFunc, *loops: Var) -> PrimFunc:
    """Permute loops of one nest; loops not named keep their places. (TVM reorder, Halide reorder.)

    Args:
        loops: loops of one chain (each the only child of the next one out), in the wanted order.

    Legality: nothing stands between the loops; sequential axes are still visited in order; a
    reduction whose elements are computed several times keeps its reduction loops together; loops
    over spatial and reduction axes at once stay in order; blocks that access one element keep the
    order in which they do.

    rewrite:
        for i, j in T.grid(4, 5):       for j, i in T.grid(5, 4):
            body                    ->      body
    """
    if len({id(v) for v in loops}) != len(loops):
        refuse(f"reorder names a loop twice: {names(loops)}")
    if len(loops) < 2:
        for v in loops:
            path_to(func, v)
        return func
    chain = _chain(func, loops, "reorder")
    wanted = iter(loops)
    chosen = {id(v) for v in loops}
    by_var = {node.var: node for node in chain}
    new = [by_var[next(wanted)] if id(node.var) in chosen else node for node in chain]
    if all(x is y for x, y in zip(chain, new, strict=True)):
        return func
    before, after = loop_vars(chain), loop_vars(new)
    below = list(sites(chain[0]))
    extents = extents_of(func)
    for site in below:
        _check_order(site, before, after, extents)
    inside = [s for s in sites(func) if chain[0] in s.loops]
    _check_recurrence(inside, before, after)
    around = loop_vars(path_to(func, chain[0].var))[:-1]
    check_order_kept(func, inside, _swapped(before, after), around)
    body = chain[-1].body
    for node in reversed(new):
        body = (replace(node, body=body),)
    result = replace_node(func, chain[0], body)
    check_kinds(result, func)
    return result


def _plain(node: For, what: str) -> None:
    if node.kind != "serial" or node.annotations:
        found = node.kind if node.kind != "serial" else f"annotated {dict(node.annotations)}"
        refuse(
            f"{what} takes serial loops without annotations; {node.var.name} is {found}: do it "
            "before",
            node,
        )


def _chain(func: PrimFunc, loops: Sequence[Var], what: str) -> list[For]:
    """The loops from the outermost to the innermost of `loops`, each the only child of the last."""
    paths = {v: path_to(func, v) for v in loops}
    path = max(paths.values(), key=len)
    for p in paths.values():
        if len(p) > len(path) or path[len(p) - 1] is not p[-1]:
            one, other = (
                f"loop {x.var.name} (around {', '.join(s.block.name for s in sites(x))})"
                for x in (p[-1], path[-1])
            )
            refuse(
                f"{what} takes loops of one nest; {one} is not around {other}",
                path[0],
            )
    top = min(len(p) for p in paths.values()) - 1
    chain = list(path[top:])
    for node in chain[:-1]:
        if len(node.body) != 1:
            refuse(
                f"{what} of {names(loops)}: loop {node.var.name} has {len(node.body)} children; "
                f"nothing may stand between the loops",
                node,
            )
    return chain


def _swapped(before: list[Var], after: list[Var]) -> list[tuple[Var, Var]]:
    """Pairs (a, b) with a outside b before and inside it after."""
    place = {id(v): n for n, v in enumerate(after)}
    return [
        (a, b) for n, a in enumerate(before) for b in before[n + 1 :] if place[id(a)] > place[id(b)]
    ]


def _check_order(site: Site, before: list[Var], after: list[Var], extents: Extents) -> None:
    """Order of the loops of ordered axes of one block."""
    block = site.block
    sequential = kind_vars(block, "sequential")
    ordered = ordered_vars(block)
    if not ordered:
        return
    crossing = False
    mixed = ordered & kind_vars(block, "spatial") if block.is_reduction and block.init else set()
    for a, b in _swapped(before, after):
        if a in sequential and b in sequential:
            raise ScheduleError(
                f"reorder would visit a sequential axis of {block.name} out of order: "
                f"loop {a.name} must stay outside {b.name}"
            )
        if a in mixed and b in mixed:
            refuse(
                f"reorder would visit elements of {block.name} first at a point that does not "
                f"initialise them: {a.name} and {b.name} run over spatial and reduction axes at "
                "once; reorder before fusing them"
            )
        crossing = crossing or (a in ordered) != (b in ordered)
    if crossing and block.is_reduction:
        inside = [loop.var for loop in site.loops if loop.var not in ordered]
        spatial = [
            b for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "spatial"
        ]
        require(
            injective(spatial, inside, extents),
            f"reorder would accumulate elements of {block.name} more than once: it is recomputed "
            f"by loops among {names(inside)}, which must stay outside its reduction loops "
            f"{names(v for v in before if v in ordered)}",
        )


def _check_recurrence(below: Sequence[Site], before: list[Var], after: list[Var]) -> None:
    """A loop changes places with one over steps only if no step reads across its iterations."""
    moved: dict[Var, None] = {}
    for site in below:
        steps = kind_vars(site.block, "sequential")
        for pair in _swapped(before, after):
            if (pair[0] in steps) != (pair[1] in steps):
                moved.update((v, None) for v in pair if v not in steps)
    if not moved:
        return
    inside = set(before)
    outside = [loop.var for loop in below[0].loops if loop.var not in inside]
    for reader in below:
        for writer in below:
            if is_step(writer.block):
                check_crossing(reader, writer, moved, outside)
