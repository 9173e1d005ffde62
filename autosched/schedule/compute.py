"""compute_at: a producer inside the loops of its consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.schedule.across import before_opaque
from autosched.schedule.check import bare_axes, loop_vars, names, refuse, require, required, show
from autosched.schedule.conflicts import check_complete_inputs
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import child_with, full, guards_of, insert, nest
from autosched.schedule.recurrence import earlier_step, is_step
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Block,
    For,
    PrimFunc,
    Site,
    kind_vars,
    path_to,
    readers_of,
    replace_node,
    site_of,
    sites,
    writers_of,
)
from autosched.tir.region import Interval, shared_by, union


def compute_at(func: PrimFunc, block: str, loop: Var) -> PrimFunc:
    """Compute a producer inside a loop of its consumers, only as much as one iteration of it reads.
    (TVM compute_at, Halide compute_at.)

    The block goes just before its first consumer in the body of `loop`. It gets new loops: one for
    each spatial axis over the region read, one for each reduce axis over its domain.

    Args:
        block: a producer that writes its own spatial axes, one a dimension.
        loop: a loop around all readers of what the block writes.

    Legality: the block writes no argument of the function and is the only writer of its buffers;
    all their readers are below `loop`; what the block reads is complete where it stands, and is
    written before the new place. A stage of a recurrence stays inside the loops over its steps.

    rewrite:
        for i in T.serial(16):                      for i_0 in T.serial(4):
            with T.block("B"):                          for ax0 in T.serial(4):
                B[vi] = A[vi] + 1                           with T.block("B"):
        for i_0, i_1 in T.grid(4, 4):           ->              vi = spatial(16, i_0 * 4 + ax0)
            with T.block("C"):                                  B[vi] = A[vi] + 1
                C[vi] = B[vi] * 2                       for i_1 in T.serial(4):
                                                            with T.block("C"): …
    """
    what = f"compute_at({block})"
    site = site_of(func, block)
    guards = guards_of(site)
    path_to(func, loop)
    for state in site.block.writes if is_step(site.block) else ():
        if len(writers_of(func, state.buffer)) > 1:
            refuse(
                f"{what}: the block writes the state {state.buffer.name}, which later steps read"
            )
    axes = written_axes(site.block, what)
    readers = _readers_below(func, site, loop, what)
    check_inputs(func, site, what)
    bare = replace_node(func, site.block, ())
    path = path_to(bare, loop)
    outer = {n.var: n.extent for n in path}
    position = child_with(path[-1].body, [s.block for s in readers])[0]
    check_available(bare, site, loop, position, what)
    ranges = needed_ranges(bare, site.block, axes, readers, len(path))
    _check_step(site.block, ranges, path, what)
    node = nest(site.block, ranges, guards, outer)
    result = insert(bare, loop, position, node)
    check_kinds(result, func)
    return result


def written_axes(block: Block, what: str) -> list[list[Var]]:
    """For each write the axes of its dimensions, which are all axes of the block that it does not
    reduce over."""
    spatial = [it.var for it in block.iters if it.kind != "reduce"]
    out = []
    for access in block.writes:
        axes = bare_axes(block, access)
        if axes is None or {id(v) for v in axes} != {id(v) for v in spatial}:
            refuse(
                f"{what}: the block must write its own spatial axes, one for each dimension of "
                f"{access.buffer.name}",
                block,
            )
        out.append(axes)
    return out


def _check_step(
    block: Block, ranges: Mapping[Var, Interval], path: Sequence[For], what: str
) -> None:
    """A stage is computed for one step at a time, that of its consumers."""
    for it in block.iters:
        if it.kind == "sequential":
            require(
                ranges[it.var].width == 1,
                f"{what}: loop {path[-1].var.name} is outside the body of the recurrence: one "
                f"iteration of it covers {show(ranges[it.var].width)} steps, and a step needs the "
                f"states of the one before; choose a loop inside those over its steps, "
                f"{names(sorted(kind_vars(block, 'sequential'), key=lambda v: v.name))}",
            )


def _readers_below(func: PrimFunc, site: Site, loop: Var, what: str) -> list[Site]:
    """All readers of what the block writes; refused unless they are below `loop`."""
    block = site.block
    out: list[Site] = []
    for access in block.writes:
        buffer = access.buffer
        if any(b is buffer for b in func.params):
            refuse(
                f"{what}: {buffer.name} is an argument of {func.name} and must be written in full"
            )
        if len(writers_of(func, buffer)) > 1:
            others = ", ".join(
                s.block.name for s in writers_of(func, buffer) if s.block is not block
            )
            refuse(
                f"{what}: {buffer.name} is also written by {others}; move both before decomposing"
            )
        for reader in readers_of(func, buffer):
            if reader.block is block:
                refuse(
                    f"{what}: {block.name} reads what it wrote of {buffer.name} in earlier steps, "
                    "so it stays before its consumers; reverse_compute_at moves a consumer into "
                    "those of its loops that are around its steps",
                    block,
                )
            if all(n.var is not loop for n in reader.loops):
                refuse(
                    f"{what}: its consumer {reader.block.name} is not below loop {loop.name}; "
                    f"choose a loop around all consumers, or compute_at that consumer first"
                )
            if all(s.block is not reader.block for s in out):
                out.append(reader)
    if not out:
        refuse(f"{what}: nothing reads what the block writes")
    return out


def check_inputs(func: PrimFunc, site: Site, what: str) -> None:
    """No block after this one overwrites what it reads, which is complete."""
    check_complete_inputs(func, site, what)
    order = list(sites(func))
    here = next(n for n, s in enumerate(order) if s.block is site.block)
    late = {id(s.block) for s in (site, *before_opaque(order[here + 1 :]))}
    for access in site.block.reads:
        for writer in writers_of(func, access.buffer):
            if earlier_step(site.block, access, writer.block):
                continue
            if id(writer.block) in late:
                refuse(
                    f"{what}: {writer.block.name} writes {access.buffer.name}, which the block "
                    f"reads, after it"
                )


def check_available(bare: PrimFunc, site: Site, loop: Var | None, position: int, what: str) -> None:
    """What the block reads is written before child `position` of `loop`."""
    place = bare.body if loop is None else path_to(bare, loop)[-1].body
    later = {id(s.block) for node in place[position:] for s in sites(node)}
    if not later:
        return
    order = list(sites(bare))
    first = next(n for n, s in enumerate(order) if id(s.block) in later)
    late = {id(s.block) for s in before_opaque(order[first:])}
    for access in site.block.reads:
        for writer in writers_of(bare, access.buffer):
            if earlier_step(site.block, access, writer.block):
                continue
            if id(writer.block) in late:
                refuse(
                    f"{what}: {writer.block.name} writes {access.buffer.name} only after the new "
                    f"place; move {writer.block.name} first"
                )


def needed_ranges(
    func: PrimFunc, block: Block, axes: Sequence[list[Var]], readers: Sequence[Site], depth: int
) -> dict[Var, Interval]:
    """For each axis of `block` what `readers` need while the loops deeper than `depth` run; of a
    shared buffer, what all threads of a block need."""
    ranges = full(block)
    needed: dict[int, Interval] = {}
    current = {id(s.block): s for s in sites(func)}
    for write, dims in zip(block.writes, axes, strict=True):
        for reader in (current[id(s.block)] for s in readers):
            inner = loop_vars(reader.loops[depth:])
            inner += shared_by(write.buffer.scope, reader.loops[:depth])
            values, extents = reader.block.values(), reader.extents()
            for access in reader.block.reads:
                if access.buffer is not write.buffer:
                    continue
                region = required(access, values, extents, inner)
                for var, interval, size in zip(dims, region, write.buffer.shape, strict=True):
                    old = needed.get(id(var))
                    if old is not None:
                        (interval,) = union((old,), (interval,), (size,))
                    needed[id(var)] = interval
    for var in [v for v in ranges if id(v) in needed]:
        ranges[var] = needed[id(var)]
    return ranges
