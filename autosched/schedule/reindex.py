"""The primitive that gives an access a buffer indexed by the block's own axes: reindex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Union

from autosched.schedule.body import rewrite_block
from autosched.schedule.check import accesses, refuse
from autosched.schedule.compute import check_available
from autosched.schedule.kinds import check_kinds
from autosched.schedule.layout import accessed_buffer
from autosched.schedule.place import (
    block_names,
    child_with,
    full,
    guards_of,
    insert,
    nest,
    unique_name,
)
from autosched.tir.affine import Affine, always
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
    func: PrimFunc, block: str, buffer: Sequence[Union[str, int]] | str
) -> tuple[PrimFunc, str]:
    """Let a block access a buffer through a copy whose indices are the axes that it uses.
    (TVM reindex.)

    What a convolution reads through `i * 2 + p` it then reads as `[vi, vp]`, the form that an
    intrinsic needs.

    Args:
        buffer: ("read", n) or ("write", n), an access of the block, or the buffer's name.

    Returns the new program and the name of the block that copies: before the block for a read,
    after it for a write.

    Legality: the access is in bounds wherever the axes are in their domains, without conditions;
    the block has no predicate that says more than its axes' extents. For a write: its axes are
    spatial, each element has one point, and no other block in its loops accesses the buffer. For a
    read: all that writes the buffer stands in nests before.

    rewrite: (("read", 0))
        with T.block("C"):                      with T.block("A_reindex"):
            C[vi] += A[vi * 2 + vp]     ->          A_reindex[v0, v1] = A[v0 * 2 + v1]
                                                with T.block("C"):
                                                    C[vi] += A_reindex[vi, vp]
    """
    what = f"reindex({block})"
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
    copy = Buffer(name, tuple(it.extent for it in axes), old.dtype)
    top = site.loops[0] if site.loops else site.block
    here = next(n for n, node in enumerate(func.body) if node is top)
    own = tuple(Affine.of(it.var) for it in axes)
    if is_read:
        reads = tuple(Access(copy, own) if a is access else a for a in site.block.reads)
        changed = replace_node(func, site.block, (replace(site.block, reads=reads),))
        copier = _copier(name, axes, access, Access(copy, own))
        check_available(changed, Site(copier, ()), None, here, what)
        result = insert(changed, None, here, nest(copier, full(copier), (), {}))
    else:
        _check_write(func, site, access, axes, what)
        writes = tuple(Access(copy, own) if a is access else a for a in site.block.writes)
        changed = replace_node(func, site.block, (replace(site.block, writes=writes),))
        copier = _copier(name, axes, Access(copy, own), access)
        place = child_with(changed.body, [site_of(changed, block).block])[0]
        result = insert(changed, None, place + 1, nest(copier, full(copier), (), {}))
    check_kinds(result, func)
    return result, name


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


def _copier(name: str, axes: Sequence[Iter], source: Access, target: Access) -> Block:
    """Copies one access to another, over axes of its own."""
    block = Block(
        name,
        tuple(axes),
        (),
        (),
        (source,),
        (target,),
        (Slot(0, source.buffer.dtype),),
    )
    fresh = {it.var: Var(f"v{n}") for n, it in enumerate(axes)}
    reads, writes, body = rewrite_block(block, {k: Affine.of(v) for k, v in fresh.items()}, {})
    iters = tuple(Iter(fresh[it.var], it.extent) for it in axes)
    return replace(block, iters=iters, reads=reads, writes=writes, body=body)


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
