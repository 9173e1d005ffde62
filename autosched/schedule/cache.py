"""Primitives that add a copy: cache_read (also into a packed layout), cache_write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.schedule.across import before_opaque
from autosched.schedule.check import (
    loop_vars,
    names,
    ordered_vars,
    refuse,
    require,
    required,
)
from autosched.schedule.compute import check_available, needed_ranges, written_axes
from autosched.schedule.conflicts import check_written_first
from autosched.schedule.inverse import point_reading
from autosched.schedule.kinds import check_kinds
from autosched.schedule.layout import Layout, Packing, packing
from autosched.schedule.place import (
    Guard,
    block_names,
    child_with,
    children,
    domain_predicates,
    full,
    guards_of,
    insert,
    nest,
    unique_name,
)
from autosched.schedule.recurrence import is_step
from autosched.tir.affine import Affine, Extents, same_int
from autosched.tir.apart import settled
from autosched.tir.expr import Slot, Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Iter,
    Predicate,
    PrimFunc,
    Site,
    buffers_of,
    readers_of,
    replace_node,
    site_of,
    sites,
    writers_of,
)
from autosched.tir.region import Interval, common_loops
from autosched.tir.scope import SCOPES


def cache_read(
    func: PrimFunc,
    block: str,
    buffer: int | str,
    scope: str = "local",
    layout: Layout | None = None,
    consumers: Sequence[str] = (),
) -> tuple[PrimFunc, str]:
    """Let a block read through a copy of a buffer, made by a new block before it.
    (TVM cache_read, followed by transform_layout where there is a layout; Halide in().)

    Args:
        buffer: which read of the block, by number or by the buffer's name.
        scope: where the copy lives.
        layout: dimensions of the copy, each d, [d, div] or [d, div, mod]; see
            `autosched.schedule.layout`. None is the layout of the buffer.
        consumers: further blocks that read the same copy; it stands before the first of all.

    Returns the new program and the name of the copying block, to be placed by compute_at.

    Legality: the blocks do not write the buffer, and all writers of it come before; the layout's
    digits of each dimension determine the index, which is affine where it is cut.
    Where a layout pads, the copy has a predicate and the padding holds no defined value; a copy of
    that has the same predicate.

    rewrite: (layout [[1, 4], [0], [1, 1, 4]])
                                        for ax0, ax1, ax2 in T.grid(4, 16, 4):
        with T.block("C"):                  with T.block("B_packed"):
            C[vi, vj] +=          ->            B_packed[v0, v1, v2] = B[v1, v0 * 4 + v2]
              A[vi, vk] * B[vk, vj]     with T.block("C"):
                                            C[vi, vj] += A[vi, vk] * B_packed[vj // 4, vk, vj % 4]
    """
    what = f"cache_read({block})"
    check_scope(scope, what)
    site = site_of(func, block)
    old = read_buffer(site.block, buffer, what)
    readers = [site, *(site_of(func, name) for name in consumers)]
    for other in readers[1:]:
        read_buffer(other.block, old.name, what)
    every = list(sites(func))
    order = {id(s.block): n for n, s in enumerate(every)}
    readers = sorted({id(s.block): s for s in readers}.values(), key=lambda s: order[id(s.block)])
    first, last = (order[id(s.block)] for s in (readers[0], readers[-1]))
    end = last + 1 + len(before_opaque(every[last + 1 :]))
    for w in writers_of(func, old):
        if first <= order[id(w.block)] < end:
            refuse(
                f"{what}: {w.block.name} writes {old.name} after {readers[0].block.name} or in it"
            )
    dims = packing(old, layout, what)
    name = unused_name(func, _copy_name(old, scope if layout is None else "packed"))
    copy = Buffer(name, dims.extents, old.dtype, scope)
    copier, guards = _copier(name, [(old, copy)], dims)
    guards += _written_guards(func, old, copier)
    changed = func
    for s in readers:
        reader = _read_through(s.block, old, copy, dims, what)
        changed = replace_node(changed, s.block, (reader,))
    readers = [site_of(changed, s.block.name) for s in readers]
    shared = _deepest(readers, writers_of(changed, old))
    parent = shared[-1].var if shared else None
    ranges = full(copier)
    if shared:
        axes = written_axes(copier, what)
        ranges = needed_ranges(changed, copier, axes, readers, len(shared))
    outer = {n.var: n.extent for n in shared}
    position = child_with(children(changed, parent), [s.block for s in readers])[0]
    check_available(changed, Site(copier, shared), parent, position, what)
    result = insert(changed, parent, position, nest(copier, ranges, guards, outer))
    check_written_first(result, [old], what)
    check_kinds(result, func)
    return result, name


def _written_guards(func: PrimFunc, old: Buffer, copier: Block) -> list[Guard]:
    """Which elements that the copier reads are written, as far as the one block that writes the
    buffer tells: the gaps of a layout that pads hold nothing to copy."""
    writers = writers_of(func, old)
    if len(writers) != 1 or any(b is old for b in func.params):
        return []
    block = writers[0].block
    access = next(a for a in block.writes if a.buffer is old)
    domain = {it.var: it.extent for it in block.iters}
    extents = {it.var: it.extent for it in copier.iters}
    element = [i for i in copier.reads[0].indices if isinstance(i, Affine)]
    found = point_reading(access, element, domain, extents)
    try:
        guards = guards_of(writers[0])
    except ScheduleError:
        return []  # predicates of loops that no axis tells: the copy takes all elements
    if found.unused or any(v not in found.axes for g in guards for v in g.form.variables()):
        return []
    values = {v: i.start for v, i in found.axes.items()}
    inside = [p for v, form in values.items() for p in domain_predicates(form, domain[v], extents)]
    inside += [Predicate(g.form.substitute(values, extents), g.bound) for g in guards]
    return [Guard(p.form, p.bound) for p in (*found.hits, *inside)]


def _deepest(together: Sequence[Site], others: Sequence[Site]) -> tuple[For, ...]:
    """The longest run of loops that all of `together` share with one of `others`: inside them all,
    a copy stands between."""
    return max((common_loops([*together, other]) for other in others), key=len, default=())


def check_scope(scope: str, what: str) -> None:
    """Raise ScheduleError for what is no scope of a copy."""
    if scope not in SCOPES:
        refuse(f"{what}: no scope {scope!r}; expected one of {', '.join(SCOPES)}")


def read_buffer(block: Block, buffer: int | str, what: str) -> Buffer:
    """The buffer of a read, by its number or name."""
    reads = [a.buffer for a in block.reads]
    have = ", ".join(b.name for b in reads) or "none"
    if isinstance(buffer, int):
        if not 0 <= buffer < len(reads):
            refuse(f"{what}: no read number {buffer}; the block reads {have}")
        return reads[buffer]
    for b in reads:
        if b.name == buffer:
            return b
    raise ScheduleError(f"{what}: the block does not read {buffer}; it reads {have}")


def _copy_name(old: Buffer, kind: str) -> str:
    return f"{old.name}_{kind.replace('.', '_')}"


def unused_name(func: PrimFunc, base: str) -> str:
    """A name that no block and no buffer has: `base`, or `base_1`, …"""
    taken = block_names(func) | {b.name for b in (*func.params, *buffers_of(func))}
    return unique_name(taken, base)


def _read_through(block: Block, old: Buffer, copy: Buffer, dims: Packing, what: str) -> Block:
    """The block with its reads of `old` made reads of `copy`."""
    extents = {it.var: it.extent for it in block.iters}
    reads = tuple(
        dims.through(a, copy, extents, what) if a.buffer is old else a for a in block.reads
    )
    return replace(block, reads=reads)


def copying_block(name: str, source: Buffer, target: Buffer) -> Block:
    """A block that copies all elements, one axis a dimension."""
    return _copier(name, [(source, target)], packing(target, None, name))[0]


def _copier(
    name: str, pairs: Sequence[tuple[Buffer, Buffer]], dims: Packing
) -> tuple[Block, list[Guard]]:
    """The block that fills the second of each pair from the first, one axis a dimension, and its
    bounds where that is padded."""
    axes = [Var(f"v{n}") for n in range(len(dims.pieces))]
    logical, guards = dims.back(axes)
    block = Block(
        name,
        tuple(Iter(v, n) for v, n in zip(axes, dims.extents, strict=True)),
        (),
        (),
        tuple(Access(old, tuple(logical)) for old, _ in pairs),
        tuple(Access(copy, tuple(Affine.of(v) for v in axes)) for _, copy in pairs),
        tuple(Slot(n, old.dtype) for n, (old, _) in enumerate(pairs)),
    )
    return block, guards


def cache_write(
    func: PrimFunc, block: str, index: int | Sequence[int] = 0, scope: str = "local"
) -> tuple[PrimFunc, str]:
    """Let a block write to a buffer of its own, which a new block after it copies to where it
    wrote.
    (TVM cache_write.)

    Args:
        index: which write of the block; or several, which the new block copies together.
        scope: where the new buffers live.

    Returns the new program and the name of the copying block, to be placed by reverse_compute_at.

    Legality: the block is the only writer of the buffer, writes all of it, by its own spatial
    axes, one a dimension, and does not read it; inside loops that readers share with it, it writes
    regions without gaps and completes them. Buffers that are copied together have their dimensions
    along the same axes.

    rewrite:
                                        with T.block("C"):
        with T.block("C"):        ->        C_local[vi] = A[vi] + 1
            C[vi] = A[vi] + 1           with T.block("C_local"):
                                            C[v0] = C_local[v0]
    """
    what = f"cache_write({block})"
    check_scope(scope, what)
    site = site_of(func, block)
    chosen = _chosen(site.block, index, what)
    if is_step(site.block):
        refuse(
            f"{what}: {block} is a stage of a recurrence, which stays one block of the step; "
            "cache_write is for stages outside the recurrence"
        )
    axes = _copied_axes(func, site, chosen, what)
    extents = {it.var: it.extent for it in site.block.iters}
    caches = _caches(func, site.block, chosen, scope)
    cache, name = next(iter(caches.values())), next(iter(caches.values())).name
    writer = replace(
        site.block,
        writes=tuple(replace(a, buffer=caches.get(a.buffer, a.buffer)) for a in site.block.writes),
    )
    pairs = [(copy, old) for old, copy in caches.items()]
    copier, _ = _copier(name, pairs, packing(cache, None, what))
    changed = replace_node(func, site.block, (writer,))
    new_site = site_of(changed, block)
    readers = [r for old in caches for r in readers_of(changed, old)]
    shared = _deepest([new_site], readers)
    parent = shared[-1].var if shared else None
    ranges = full(copier)
    if shared:
        ranges = _written_ranges(copier, new_site, cache, len(shared), what)
    outer = {n.var: n.extent for n in shared}
    position = child_with(children(changed, parent), [writer])[0] + 1
    of_copy = {v: Affine.of(it.var) for v, it in zip(axes, copier.iters, strict=True)}
    guards = [Guard(g.form.substitute(of_copy), g.bound) for g in guards_of(site)]
    if any(not g.form.uses([it.var for it in copier.iters]) for g in guards) or any(
        v in extents for g in guards for v in g.form.variables()
    ):
        refuse(f"{what}: the block writes only where a predicate over its reductions holds")
    around = _iterations(site, outer, what)
    result = insert(changed, parent, position, nest(copier, ranges, guards, outer, around))
    check_kinds(result, func)
    return result, name


def _chosen(block: Block, index: int | Sequence[int], what: str) -> list[int]:
    """The numbers of the writes to copy."""
    chosen = [index] if isinstance(index, int) else list(index)
    count = len(block.writes)
    for n in chosen:
        if not 0 <= n < count:
            refuse(f"{what}: the block has {count} writes; found index {n}")
    if not chosen or len(set(chosen)) < len(chosen):
        refuse(f"{what}: expected different writes of the block, at least one; found {chosen}")
    return chosen


def _copied_axes(func: PrimFunc, site: Site, chosen: Sequence[int], what: str) -> list[Var]:
    """The axes of the block that index what it writes, one a dimension. Refuses what no copy can
    take over."""
    block = site.block
    every = written_axes(block, what)
    axes = every[chosen[0]]
    extents = {it.var: it.extent for it in block.iters}
    for n in chosen:
        old = block.writes[n].buffer
        if [id(v) for v in every[n]] != [id(v) for v in axes]:
            refuse(
                f"{what}: the dimensions of {old.name} lie along {names(every[n])}, those of "
                f"{block.writes[chosen[0]].buffer.name} along {names(axes)}; copy them one by one"
            )
        for var, size in zip(axes, old.shape, strict=True):
            if not same_int(extents[var], size):
                refuse(
                    f"{what}: the block writes {extents[var]} of {size} elements along {var.name}"
                )
        for other in writers_of(func, old):
            if other.block is not block:
                refuse(f"{what}: {old.name} is also written by {other.block.name}")
        if any(a.buffer is old for a in block.reads):
            refuse(f"{what}: the block reads {old.name}, which it writes")
    return axes


def _caches(
    func: PrimFunc, block: Block, chosen: Sequence[int], scope: str
) -> dict[Buffer, Buffer]:
    """For each buffer that is copied the one that the block writes in its place."""
    taken = block_names(func) | {b.name for b in (*func.params, *buffers_of(func))}
    out: dict[Buffer, Buffer] = {}
    for old in (block.writes[n].buffer for n in chosen):
        name = unique_name(taken, _copy_name(old, scope))
        taken.add(name)
        out[old] = replace(old, name=name, scope=scope, align=())
    return out


def _iterations(site: Site, outer: Extents, what: str) -> list[Predicate]:
    """The predicates of a block that say in which iterations of the loops `outer` it runs at all:
    they limit no axis, so that `guards_of` leaves them out."""
    bound = {v for b in site.block.bindings for v in b.variables()}
    out = []
    for p in site.block.predicates:
        variables = set(p.form.variables())
        if variables & bound or not variables & set(outer):
            continue
        if not variables <= set(outer):
            refuse(
                f"{what}: whether the block runs in an iteration of the loops "
                f"{names(list(outer))}, inside which its elements are read, depends on other loops"
            )
        out.append(p)
    return out


def _written_ranges(
    copier: Block, writer: Site, cache: Buffer, depth: int, what: str
) -> dict[Var, Interval]:
    """For each axis of the copy what `writer` writes while the loops deeper than `depth` run."""
    inner = loop_vars(writer.loops[depth:])
    outer = loop_vars(writer.loops[:depth])
    if ordered_vars(writer.block) & set(outer):
        refuse(
            f"{what}: a block inside a reduction loop of {writer.block.name} reads what it writes, "
            "which is not complete there"
        )
    access = next(a for a in writer.block.writes if a.buffer is cache)
    region = required(access, writer.block.values(), writer.extents(), inner)
    require(
        settled(writer, access, outer, inner),
        f"{what}: iterations of the loops {names(outer)}, inside which the elements are read, "
        "write elements with gaps between them; reorder or fuse the loops first",
    )
    return {it.var: interval for it, interval in zip(copier.iters, region, strict=True)}
