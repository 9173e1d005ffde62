"""The primitive that updates a copy of a buffer in the place of it: cache_inplace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.checks import shown
from autosched.schedule.cache import check_scope, copying_block
from autosched.schedule.check import (
    accesses,
    check_one_program,
    loop_vars,
    names,
    ordered_vars,
    refuse,
    required,
)
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import block_names, child_with, children, full, insert, nest
from autosched.schedule.place import unique_name as unique
from autosched.schedule.recurrence import is_step
from autosched.tir.affine import always, same_int
from autosched.tir.apart import settled
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    PrimFunc,
    Site,
    buffers_of,
    replace_node,
    site_of,
    sites,
)
from autosched.tir.opaque import Opaque, opaque_of
from autosched.tir.region import Interval, Region, common_loops
from autosched.tir.verify import faults


def cache_inplace(
    func: PrimFunc, block: str, index: int | str, scope: str = "global"
) -> tuple[PrimFunc, str, str]:
    """Let a block that reads and writes a buffer do so in a copy, which a new block before it fills
    and a new block after it copies back. (TVM cache_inplace.)

    Args:
        index: which buffer, by its number or name. Of an opaque block the number is that of a
            read; of a reduction without initial value the buffers that it accumulates in count
            first, then what it reads.
        scope: where the copy lives; "global" for an opaque block.

    Returns the new program and the names of the two blocks that copy, in their order.

    No element is written again once it was read, so what blocks before accumulated in the buffer
    goes to a buffer of its own, unless an opaque block stands between.

    Legality: the block is opaque, or a reduction whose elements blocks before it have set; it reads
    and writes the buffer. No block before it reads the buffer. The blocks before it write the
    buffer in other nests, or one does in loops around both, where it writes the elements that the
    block updates.

    rewrite:
                                                with T.block("zero"):
                                                    C_before[vb] = 0
        with T.block("zero"):                   with T.block("C_local"):
            C[vb] = 0                               C_local[v0] = C_before[v0]
        with T.block("count"):          ->      with T.block("count"):
            C[x[vn]] += 1                           C_local[x[vn]] += 1
                                                with T.block("C_out"):
                                                    C[v0] = C_local[v0]
    """
    what = f"cache_inplace({block})"
    check_scope(scope, what)
    site = site_of(func, block)
    opaque = opaque_of(site.block)
    old = _updated(site.block, index, what)
    if opaque is not None and scope != "global":
        refuse(f"{what}: an opaque block runs on buffers in global memory; found scope {scope!r}")
    taken = block_names(func) | {b.name for b in (*func.params, *buffers_of(func))}
    copy = replace(old, name=_unused(taken, f"{old.name}_{scope}"), scope=scope, align=())
    leave = _unused(taken, f"{old.name}_out")
    shared: tuple[For, ...] = ()
    region: Region | None = None
    if opaque is not None:
        before, changed = old, func
        updating = _on_copy(site.block, opaque, old, copy)
    else:
        check_one_program(func, what)
        writers = _writers_before(func, site, old, what)
        before = replace(old, name=_unused(taken, f"{old.name}_before"))
        shared, region = _place(site, writers, old, what)
        changed = _renamed(func, [w.block for w in writers], old, before)
        updating = _writing(site.block, old, copy)
    changed = replace_node(changed, site.block, (updating,))
    made = copying_block(copy.name, before, copy), copying_block(leave, copy, old)
    result = _around(changed, updating, made, shared, region)
    check_kinds(result, func)
    if opaque is None:
        for _, fault in faults(result)[:1]:
            refuse(f"{what}: {fault.message}")
    return result, copy.name, leave


def _unused(taken: set[str], base: str) -> str:
    name = unique(taken, base)
    taken.add(name)
    return name


def _updated(block: Block, index: int | str, what: str) -> Buffer:
    """The buffer that the block reads and writes."""
    found = [a.buffer for a in block.reads]
    if block.reducer is not None and not block.init:
        found = [*(a.buffer for a in block.writes), *found]
    elif opaque_of(block) is None:
        why = "is a stage of a recurrence" if is_step(block) else "writes no buffer that it reads"
        if block.reducer is not None:
            why = "sets the elements itself; decompose_reduction takes the initial value out of it"
        refuse(
            f"{what}: the block {why}; expected an opaque block, or a reduction in elements that a "
            "block before has set"
        )
    wanted = [b for n, b in enumerate(found) if index in (n, b.name)]
    if not wanted or not any(a.buffer is wanted[0] for a in block.writes):
        both = [b.name for b in found if any(a.buffer is b for a in block.writes)]
        refuse(
            f"{what}: expected a buffer that the block reads and writes, "
            f"{', '.join(both) or 'of which it has none'}; found {shown(index)}"
        )
    return wanted[0]


def _on_copy(block: Block, opaque: Opaque, old: Buffer, copy: Buffer) -> Block:
    """The opaque block, run on the copy."""
    value = replace(opaque, buffers=tuple(copy if b is old else b for b in opaque.buffers))
    reads, writes = (
        tuple(replace(a, buffer=copy) if a.buffer is old else a for a in part)
        for part in (block.reads, block.writes)
    )
    body = tuple(replace(value, dtype=e.dtype) for e in block.body)
    return replace(block, reads=reads, writes=writes, body=body)


def _writing(block: Block, old: Buffer, new: Buffer) -> Block:
    """The block with its writes of `old` made writes of `new`."""
    writes = tuple(replace(a, buffer=new) if a.buffer is old else a for a in block.writes)
    return replace(block, writes=writes)


def _writers_before(func: PrimFunc, site: Site, old: Buffer, what: str) -> list[Site]:
    """The blocks before this one that write the buffer; refused if one reads it."""
    before = []
    for s in sites(func):
        if s.block is site.block:
            break
        if accesses(s.block, old):
            before.append(s)
    for s in before:
        if any(a.buffer is old for a in s.block.reads):
            refuse(f"{what}: {s.block.name} reads {old.name} before the block updates it")
    return before


def _renamed(func: PrimFunc, blocks: Sequence[Block], old: Buffer, new: Buffer) -> PrimFunc:
    for block in blocks:
        func = replace_node(func, block, (_writing(block, old, new),))
    return func


def _place(
    site: Site, writers: Sequence[Site], old: Buffer, what: str
) -> tuple[tuple[For, ...], Region | None]:
    """The loops in which both copies stand, and the region that they copy there; None for all."""
    together = [w for w in writers if common_loops([site, w])]
    if not together:
        return (), None
    if len(writers) > 1:
        found = ", ".join(w.block.name for w in writers)
        refuse(
            f"{what}: {found} write {old.name} before, some of them in loops around the block; "
            "give the block a nest of its own"
        )
    (writer,) = together
    shared = common_loops([site, writer])
    for s in (site, writer):
        over = ordered_vars(s.block) & set(loop_vars(shared))
        if over:
            refuse(f"{what}: {s.block.name} reduces over {names(over)}, around both blocks")
        if s.block.predicates:
            refuse(f"{what}: {s.block.name} has predicates; call cache_inplace before splitting")
    mine, theirs = (_region(s, old, len(shared), what) for s in (site, writer))
    for a, b in zip(mine, theirs, strict=True):
        if not a.start.same(b.start) or not same_int(a.width, b.width):
            refuse(
                f"{what}: in one iteration of the loops {names(loop_vars(shared))}, "
                f"{writer.block.name} sets other elements of {old.name} than the block updates; "
                "give the block a nest of its own"
            )
    return shared, theirs


def _region(site: Site, old: Buffer, depth: int, what: str) -> Region:
    """What the block writes of the buffer while the loops deeper than `depth` run."""
    access: Access = next(a for a in site.block.writes if a.buffer is old)
    outer, inner = loop_vars(site.loops[:depth]), loop_vars(site.loops[depth:])
    if not always(settled(site, access, outer, inner)):
        refuse(
            f"{what}: iterations of the loops {names(outer)} write elements of {old.name} "
            "with gaps between them; give the block a nest of its own"
        )
    return required(access, site.block.values(), site.extents(), inner)


def _around(
    func: PrimFunc,
    block: Block,
    copies: tuple[Block, Block],
    shared: Sequence[For],
    region: Region | None,
) -> PrimFunc:
    """The program with one of the copies before the block and the other one after it."""
    parent = shared[-1].var if shared else None
    outer = {x.var: x.extent for x in shared}
    (position,) = child_with(children(func, parent), [block])
    for copier, at in zip(copies, (position, position + 2), strict=True):
        ranges: dict[Var, Interval] = full(copier)
        if region is not None:
            ranges = {it.var: x for it, x in zip(copier.iters, region, strict=True)}
        func = insert(func, parent, at, nest(copier, ranges, (), outer))
    return func
