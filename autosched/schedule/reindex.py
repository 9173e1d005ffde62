"""The primitive that gives an access a buffer indexed by the block's own axes: reindex."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Union

from autosched.checks import shown
from autosched.schedule.cache import check_scope
from autosched.schedule.check import accesses, refuse
from autosched.schedule.compute import check_available
from autosched.schedule.kinds import check_kinds
from autosched.schedule.layout import Layout, Packing, accessed_buffer, check_list, packing
from autosched.schedule.place import (
    Guard,
    block_names,
    child_with,
    full,
    guards_of,
    insert,
    nest,
    unique_name,
)
from autosched.tir.affine import Affine, always, same_int
from autosched.tir.apart import injective
from autosched.tir.expr import Expr, Slot, Var, walk
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Iter,
    PrimFunc,
    Site,
    replace_node,
    site_of,
    sites,
    writers_of,
)


def reindex(
    func: PrimFunc,
    block: str,
    buffer: Sequence[Union[str, int]] | str,
    layout: Layout | None = None,
    scope: str = "global",
) -> tuple[PrimFunc, str]:
    """Let a block access a buffer through a copy whose indices are the axes that it uses, or a map
    of them.
    (TVM reindex; with a layout, reindex_cache_read and reindex_cache_write.)

    What a convolution reads through `i * 2 + p` it then reads as `[vi, vp]`, the form that an
    intrinsic needs.

    Args:
        buffer: ("read", n) or ("write", n), an access of the block, or the buffer's name.
        layout: dimensions of the copy, as `autosched.schedule.layout` says, over the block's axes;
            of those that the access does not use it may have such of one point, which are left out.
        scope: where the copy lives.

    Returns the new program and the name of the block that copies: before the block for a read,
    after it for a write.

    Legality: the access is in bounds wherever the axes are in their domains, without conditions;
    the block has no predicate that says more than its axes' extents. For a write: its axes are
    spatial, each element has one point, and no other block in its loops accesses the buffer. For a
    read: all that writes the buffer stands in nests before. The layout determines each axis used.

    rewrite: (("read", 0))
        with T.block("C"):                      with T.block("A_reindex"):
            C[vi] += A[vi * 2 + vp]     ->          A_reindex[v0, v1] = A[v0 * 2 + v1]
                                                with T.block("C"):
                                                    C[vi] += A_reindex[vi, vp]
    """
    what = f"{'reindex' if layout is None else f'reindex_cache_{buffer[0]}'}({block})"
    check_scope(scope, what)
    site = site_of(func, block)
    old = accessed_buffer(site.block, buffer, what)
    is_read = buffer[0] == "read" if not isinstance(buffer, str) else False
    if isinstance(buffer, str):
        is_read = all(a.buffer is not old for a in site.block.writes)
    found = [a for a in (site.block.reads if is_read else site.block.writes) if a.buffer is old]
    if isinstance(buffer, (tuple, list)):
        found = [(site.block.reads if is_read else site.block.writes)[int(buffer[1])]]
    if guards_of(site):
        refuse(f"{what}: the block has predicates; reindex before splitting", site.block)
    access = found[0]
    axes = _axes(site.block, access, what)
    extents = {it.var: it.extent for it in site.block.iters}
    for index, size in zip(access.indices, old.shape, strict=True):
        assert isinstance(index, Affine)
        low, high = index.span(extents)
        if not always((low >= 0) & (high < size)):
            refuse(f"{what}: the access of {old.name} stays inside only under a condition")
    name = unique_name(block_names(func), f"{old.name}_reindex")
    plain = Buffer(name, tuple(it.extent for it in axes), old.dtype, scope)
    dims = packing(plain, _of_used(layout, site.block, axes, what), what)
    copy = replace(plain, shape=dims.extents)
    mine = dims.through(Access(plain, tuple(map(Affine.of, _vars(axes)))), copy, extents, what)
    copier, guards = _copier(name, axes, access, copy, dims, is_read)
    made = nest(copier, full(copier), guards, {})
    top = site.loops[0] if site.loops else site.block
    here = next(n for n, node in enumerate(func.body) if node is top)
    if is_read:
        reads = tuple(mine if a is access else a for a in site.block.reads)
        changed = replace_node(func, site.block, (replace(site.block, reads=reads),))
        check_available(changed, Site(copier, ()), None, here, what)
        result = insert(changed, None, here, made)
    else:
        _check_write(func, site, access, axes, what)
        writes = tuple(mine if a is access else a for a in site.block.writes)
        changed = replace_node(func, site.block, (replace(site.block, writes=writes),))
        place = child_with(changed.body, [site_of(changed, block).block])[0]
        result = insert(changed, None, place + 1, made)
    check_kinds(result, func)
    return result, name


def reindex_cache_read(
    func: PrimFunc, block: str, index: int, scope: str, layout: Layout
) -> tuple[PrimFunc, str]:
    """Let a block read through a copy in a scope, indexed by a map of the block's axes.
    (TVM reindex_cache_read.)

    Args:
        index: which read of the block.
        scope: where the copy lives.
        layout: dimensions of the copy over the block's axes, as for `reindex`.

    Legality: that of `reindex`, of a read with a layout.

    rewrite: (0, "shared", lambda i, j, k: (k, i))
                                                with T.block("A_reindex"):
        with T.block("C"):                          A_reindex[v0, v1] = A[v1, v0]
            C[vi, vj] +=                ->      with T.block("C"):
              A[vi, vk] * B[vk, vj]                 C[vi, vj] +=
                                                      A_reindex[vk, vi] * B[vk, vj]
    """
    return reindex(func, block, ("read", index), layout, scope)


def reindex_cache_write(
    func: PrimFunc, block: str, index: int, scope: str, layout: Layout
) -> tuple[PrimFunc, str]:
    """Let a block write to a copy in a scope, indexed by a map of the block's axes.
    (TVM reindex_cache_write.)

    Args:
        index: which write of the block.
        scope: where the copy lives.
        layout: dimensions of the copy over the block's axes, as for `reindex`.

    Legality: that of `reindex`, of a write with a layout.

    rewrite: (0, "local", lambda i, j: (j, i))
        with T.block("C"):                      with T.block("C"):
            C[vi, vj] = A[vi, vj] + 1   ->          C_reindex[vj, vi] = A[vi, vj] + 1
                                                with T.block("C_reindex"):
                                                    C[v1, v0] = C_reindex[v0, v1]
    """
    return reindex(func, block, ("write", index), layout, scope)


def _vars(axes: Sequence[Iter]) -> list[Var]:
    return [it.var for it in axes]


def _of_used(layout: Layout | None, block: Block, axes: Sequence[Iter], what: str) -> Layout | None:
    """A layout of a block's axes as one of those that an access uses."""
    if layout is None:
        return None
    check_list(layout, what)
    places = {n: axes.index(it) for n, it in enumerate(block.iters) if it in axes}
    return [_over(x, places, block, what) for x in layout if not _is_point(x, places, block)]


def _is_point(item: Any, places: Mapping[int, int], block: Block) -> bool:
    """Whether a dimension of a copy is an axis of one point that the access does not use."""
    d = item[0] if isinstance(item, (tuple, list)) and len(item) == 1 else item
    inside = isinstance(d, int) and 0 <= d < len(block.iters) and d not in places
    return inside and same_int(block.iters[d].extent, 1)


def _over(item: Any, places: Mapping[int, int], block: Block, what: str) -> Any:
    parts = list(item) if isinstance(item, (tuple, list)) else [item]
    dims = list(parts[0]) if parts and isinstance(parts[0], (tuple, list)) else parts[:1]
    for d in dims:
        if not isinstance(d, int) or d not in places:
            have = ", ".join(f"{n} ({block.iters[n].var.name})" for n in places)
            refuse(
                f"{what}: the access does not use axis {shown(d)} of the block; expected a map to "
                f"indices of axes {have}"
            )
    turn = [_over(t, places, block, what) for t in parts[3:]]
    head = [places[d] for d in dims]
    return [head if len(head) > 1 else head[0], *parts[1:3], *turn] if head else parts


def _axes(block: Block, access: Access, what: str) -> list[Iter]:
    """The axes that an access uses, in the block's order."""
    used: set[Var] = set()
    for index in access.indices:
        if not isinstance(index, Affine):
            assert isinstance(index, Expr)
            kind = "data" if any(isinstance(x, Slot) for x in walk(index)) else "no affine form"
            refuse(f"{what}: an index of {access.buffer.name} is {kind}", block)
        used |= set(index.variables())
    return [it for it in block.iters if it.var in used]


def _copier(
    name: str, axes: Sequence[Iter], access: Access, copy: Buffer, dims: Packing, is_read: bool
) -> tuple[Block, list[Guard]]:
    """The block between the elements of an access and the copy, one axis a dimension of that, and
    its bounds where the copy is padded."""
    fresh = [Var(f"v{n}") for n in range(len(dims.pieces))]
    extents = dict(zip(fresh, dims.extents, strict=True))
    logical, guards = dims.back(fresh)
    values = dict(zip(_vars(axes), logical, strict=True))
    forms = [i.substitute(values, extents) for i in access.indices if isinstance(i, Affine)]
    sides = Access(access.buffer, tuple(forms)), Access(copy, tuple(map(Affine.of, fresh)))
    source, target = sides if is_read else sides[::-1]
    iters = tuple(Iter(v, n) for v, n in extents.items())
    return Block(name, iters, (), (), (source,), (target,), (Slot(0, copy.dtype),)), guards


def _check_write(
    func: PrimFunc, site: Site, access: Access, axes: Sequence[Iter], what: str
) -> None:
    if any(it.kind != "spatial" for it in axes):
        refuse(f"{what}: the place that is written hangs on an axis that is not spatial")
    missing = [it for it in site.block.iters if it.kind == "spatial" and it not in axes]
    forms = [i for i in access.indices if isinstance(i, Affine)]
    extents = {it.var: it.extent for it in axes}
    if missing or not always(injective(forms, [it.var for it in axes], extents)):
        refuse(f"{what}: several points may write one element of {access.buffer.name}")
    if len(writers_of(func, access.buffer)) > 1:
        refuse(f"{what}: other blocks write {access.buffer.name}, too")
    around = site.loops[:1]
    for s in sites(func):
        is_near = s.block is site.block or (bool(around) and s.loops[:1] == around)
        if is_near and any(a.buffer is access.buffer for a in s.block.reads):
            refuse(f"{what}: {s.block.name} reads {access.buffer.name} in the same loops")
        if is_near and s.block is not site.block and accesses(s.block, access.buffer):
            refuse(f"{what}: {s.block.name} accesses {access.buffer.name} in the same loops")
