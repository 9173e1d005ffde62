"""Building loops around a block at a new place: what compute_at, caching and rfactor share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.errors import NotBatchable
from autosched.schedule.check import require
from autosched.schedule.population import has_digits_in
from autosched.tir.affine import Affine, Extents, Int, always, imax, same_int, sometimes
from autosched.tir.apart import Condition
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Block,
    For,
    Node,
    Predicate,
    PrimFunc,
    Site,
    path_to,
    replace_node,
    sites,
)
from autosched.tir.region import Interval
from autosched.tir.size_atoms import Undecided


@dataclass(frozen=True, eq=False, slots=True)
class Guard:
    """A predicate as a form over a block's axes."""

    form: Affine
    bound: Int


def guards_of(site: Site) -> tuple[Guard, ...]:
    """The predicates of a block that do not follow from the extents of its axes, over its axes.

    Those are the bounds of a read (padding of a packed copy) and whatever loops bound to a bare
    axis can be traced back from. Raises ScheduleError for a predicate that neither explains.
    """
    block, extents = site.block, site.extents()
    used = {id(v) for b in block.bindings for v in b.variables()}
    out = []
    for p in block.predicates:
        if all(id(v) not in used for v in p.form.variables()):
            continue  # It only limits how often the same points are visited.
        follows = implied(p, block, extents)
        if always(follows):
            continue
        form = _over_axes(p.form, block, extents)
        if form is None:
            require(
                follows | (p.form.span(extents)[1] < p.bound),
                f"block {block.name} has a predicate that cannot be kept when its loops are made "
                f"anew; move the block before splitting its loops",
            )
            continue
        out.append(Guard(form, p.bound))
    return tuple(out)


def implied(p: Predicate, block: Block, extents: Extents) -> Condition:
    """Whether the predicate holds wherever all axes are in their domains.

    From `c * form <= axis` and `axis < extent` follows `form <= (extent - 1) // c`; from
    `form <= -axis` follows `form < 1`.
    """
    ok: Condition = False
    # What a fusion with unit loops leaves, `f // 1`, is a plain f in bindings put together again.
    plain = p.form.substitute({}, extents)
    forms = [p.form] if plain.same(p.form) else [p.form, plain]
    for it, binding in zip(block.iters, block.bindings, strict=True):
        for form in forms:
            ok = ok | (((form + binding).span(extents)[1] <= 0) & (p.bound >= 1))
            for c in _ratios(binding, form):
                low = (binding - form * c).span(extents)[0]
                ok = ok | ((low >= 0) & ((it.extent - 1) // c < p.bound))
    return ok


def _ratios(a: Affine, b: Affine) -> list[Int]:
    """Positive multiples of `b` that could make up part of `a`: from the terms that they share."""
    out: list[Int] = []
    for atom, c in b.terms:
        if isinstance(atom, Var):
            try:
                ratio = imax(a.coefficient(atom) // imax(c, 1), 1)
            except Undecided:
                continue
            if not any(same_int(ratio, x) for x in out):
                out.append(ratio)
    return out or [1]


def _over_axes(form: Affine, block: Block, extents: Extents) -> Affine | None:
    """A form over loops as one over the block's axes, if an index or bare bindings give it."""
    values = block.values()
    for access in (*block.reads, *block.writes):
        for index in access.indices:
            if isinstance(index, Affine) and index.substitute(values, extents).same(form):
                return index
    axis_of = {}
    for it, b in zip(block.iters, block.bindings, strict=True):
        var = b.single_var()
        if var is not None:
            axis_of[var] = Affine.of(it.var)
    if all(v in axis_of for v in form.variables()):
        return form.substitute(axis_of, {it.var: it.extent for it in block.iters})
    return None


def full(block: Block) -> dict[Var, Interval]:
    """Every axis over its whole domain."""
    return {it.var: Interval(Affine(0), it.extent) for it in block.iters}


def nest(
    block: Block,
    ranges: Mapping[Var, Interval],
    guards: Sequence[Guard],
    outer: Extents,
    around: Sequence[Predicate] = (),
) -> Node:
    """`block` inside new loops, one an axis, spatial axes outermost.

    Args:
        ranges: for each axis the interval to visit: start affine in outer loops, and width; of a
            sequential axis one step, which needs no loop.
        outer: extents of the loops around the new place.
        around: further predicates, over loops around the new place.

    Points outside an axis' domain get a predicate.
    """
    order = [it for it in block.iters if it.kind == "spatial"]
    order += [it for it in block.iters if it.kind == "reduce"]
    variables = {it.var: Var(f"ax{n}") for n, it in enumerate(order)}
    extents = dict(outer)
    for it in order:
        extents[variables[it.var]] = ranges[it.var].width
    bindings: dict[Var, Affine] = {it.var: ranges[it.var].start for it in block.iters}
    for it in order:
        bindings[it.var] = bindings[it.var] + Affine.of(variables[it.var])
    predicates = list(around)
    for it in block.iters:
        predicates += domain_predicates(bindings[it.var], it.extent, extents)
    for guard in guards:
        # Kept even where it always holds here: at another place the axes may reach further.
        predicates.append(Predicate(guard.form.substitute(bindings, extents), guard.bound))
    node: Node = replace(
        block,
        bindings=tuple(bindings[it.var] for it in block.iters),
        predicates=tuple(predicates),
    )
    for it in reversed(order):
        node = For(variables[it.var], ranges[it.var].width, (node,))
    return node


def domain_predicates(binding: Affine, extent: Int, extents: Extents) -> list[Predicate]:
    """What keeps `binding` in [0, extent): nothing where no candidate leaves it."""
    low, high = binding.span(extents)
    out = []
    if sometimes(high >= extent):
        out.append(Predicate(binding, extent))
    if sometimes(low < 0):
        out.append(Predicate(-binding, 1))
    return out


def insert(func: PrimFunc, loop: Var | None, position: int, node: Node) -> PrimFunc:
    """`func` with `node` as child number `position` of a loop, or of the function (None)."""
    if loop is None:
        return replace(func, body=(*func.body[:position], node, *func.body[position:]))
    old = path_to(func, loop)[-1]
    body = (*old.body[:position], node, *old.body[position:])
    return replace_node(func, old, (replace(old, body=body),))


def children(func: PrimFunc, loop: Var | None) -> tuple[Node, ...]:
    """Body of a loop, or of the function (None)."""
    return func.body if loop is None else path_to(func, loop)[-1].body


def child_with(nodes: Sequence[Node], blocks: Sequence[Block]) -> list[int]:
    """Positions of the children that hold any of `blocks`."""
    wanted = {id(b) for b in blocks}
    return [n for n, node in enumerate(nodes) if any(id(s.block) in wanted for s in sites(node))]


def unique_name(taken: set[str], base: str) -> str:
    """`base`, or `base_1`, `base_2`, …"""
    name, n = base, 0
    while name in taken:
        n += 1
        name = f"{base}_{n}"
    return name


def block_names(func: PrimFunc) -> set[str]:
    """Names of all blocks."""
    return {s.block.name for s in sites(func)}


def mirror(site: Site, depth: int, block: Block, axes: Mapping[Var, Var]) -> Node:
    """`block` inside copies of those loops of `site` deeper than `depth` that its spatial axes use.

    Args:
        block: a block whose bindings are to be made.
        axes: for each spatial axis of `block` the axis of `site.block` that it follows; any other
            axis gets a loop over its domain, innermost.

    Predicates of `site.block` are asked where the loops that are left out begin, the first point of
    a reduction; those that hold there for all the others are left out too.
    """
    if has_digits_in(site.block.bindings, site.extents()):
        raise NotBatchable(
            f"the bindings of {site.block.name} hold (x // d) % m with numbers that differ by "
            f"candidate; which loops they use may differ too"
        )
    old = site.block.values()
    spatial = [old[axes[it.var]] for it in block.iters if it.var in axes]
    copies: dict[Var, Affine] = {}
    around: list[tuple[Var, Int]] = []
    for loop in site.loops[depth:]:
        if any(form.uses([loop.var]) for form in spatial):
            var = Var(loop.var.name)
            copies[loop.var] = Affine.of(var)
            around.append((var, loop.extent))
    bindings = []
    for it in block.iters:
        if it.var in axes:
            bindings.append(old[axes[it.var]].substitute(copies))
        else:
            var = Var(f"ax{len(around)}")
            around.append((var, it.extent))
            bindings.append(Affine.of(var))
    gone = {loop.var: Affine(0) for loop in site.loops[depth:] if loop.var not in copies}
    extents = site.extents()
    predicates = []
    for p in site.block.predicates:
        form = p.form.substitute(gone, extents) if p.form.uses(gone) else p.form
        if form is p.form or not always(form.span(extents)[1] < p.bound):
            predicates.append(Predicate(form.substitute(copies), p.bound))
    node: Node = replace(block, bindings=tuple(bindings), predicates=tuple(predicates))
    for var, extent in reversed(around):
        node = For(var, extent, (node,))
    return node
