"""reverse_compute_at: a consumer inside the loops of its producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule.by_element import nest_by_elements
from autosched.schedule.check import (
    contained,
    is_array,
    is_population,
    loop_vars,
    ordered_vars,
    refuse,
    require,
    required,
    show,
)
from autosched.schedule.conflicts import check_complete_inputs, check_written_first
from autosched.schedule.inverse import points_reading
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import Guard, child_with, full, guards_of, insert, nest
from autosched.schedule.population import has_digits_at
from autosched.tir.affine import Affine, Digit, Extents, Int, always, imax, same_int
from autosched.tir.apart import Condition, as_many, injective, settled
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Block,
    Buffer,
    For,
    Iter,
    Node,
    PrimFunc,
    Site,
    kind_vars,
    loops_of,
    path_to,
    readers_of,
    replace_node,
    site_of,
    sites,
    writers_of,
)
from autosched.tir.region import Interval
from autosched.tir.size import Size


def reverse_compute_at(func: PrimFunc, block: str, loop: Var) -> PrimFunc:
    """Compute a consumer inside a loop of its producers, on what one iteration of it has written.
    (TVM reverse_compute_at; Halide computes the producer at the consumer instead.)

    The block goes after its last producer in the body of `loop`. Axes that index what a producer
    writes there, by themselves, in slices, or as digits of packed or reshaped tiles, visit what
    they read of the region written; other axes visit their whole domain. A reduction along
    what is written, such as the sum of a row's exponentials, goes on from one iteration to the
    next. Where no runs of points read what is written (a slice whose step goes into no tile, packed
    rows that begin inside one), each element is visited, and of it the point that reads it.

    Args:
        block: a consumer whose indices tell which of its points read what is written below `loop`,
            along a spatial axis at least.
        loop: a loop around a producer of the block, outside all its reduction loops.

    Legality: the block is the only writer of its buffers; the regions written by different
    iterations of the loops down to `loop` do not overlap, and each holds all that the block reads
    there, without gaps that another iteration fills; together they hold all points of the block;
    the other producers come before; what is reduced from iteration to iteration begins at its first
    element; what the block reads is complete where it stood.

    rewrite:
        for i_0, i_1 in T.grid(4, 4):           for i_0 in T.serial(4):
            with T.block("B"): …                    for i_1 in T.serial(4):
        for i in T.serial(16):                          with T.block("B"): …
            with T.block("C"):              ->      for ax0 in T.serial(4):
                C[vi] = B[vi] * 2                       with T.block("C"):
                                                            vi = spatial(16, i_0 * 4 + ax0)
                                                            C[vi] = B[vi] * 2
    """
    what = f"reverse_compute_at({block})"
    site = site_of(func, block)
    guards = guards_of(site)
    path_to(func, loop)
    check_outputs(func, site, what)
    bare = replace_node(func, site.block, ())
    if all(n.var is not loop for n in loops_of(bare)):
        refuse(
            f"{what}: loop {loop.name} holds no producer of {block}; choose a loop of a producer"
        )
    path = path_to(bare, loop)
    depth = len(path)
    producers = _producers(bare, site.block)
    if has_digits_at(site):
        raise NotBatchable(f"{what}: which points read what is written differs by candidate")
    below = [s for s in producers if len(s.loops) >= depth and s.loops[depth - 1] is path[-1]]
    if not below:
        have = ", ".join(s.block.name for s in producers) or "none"
        refuse(f"{what}: no producer of {block} is below loop {loop.name}; its producers: {have}")
    position = child_with(path[-1].body, [s.block for s in below])[-1] + 1
    _check_complete(bare, producers, path, position, what)
    _check_readers(bare, site.block, path, position, what)
    try:
        node = _nest(site.block, below, producers, path, guards, what)
    except NotBatchable:
        raise
    except ScheduleError as e:
        if is_population(func):  # those that are refused runs alone may be visited by elements
            raise NotBatchable(str(e)) from e
        others = [p for p in producers if p not in below and _shared(p, path)]
        found = nest_by_elements(site.block, below, others, path, guards)
        if found is None:
            raise
        node = found
    result = insert(bare, loop, position, node)
    inside = [a.buffer for a in site.block.reads if _is_read_inside(bare, a.buffer, loop)]
    check_written_first(result, [*(a.buffer for a in site.block.writes), *inside], what)
    check_kinds(result, func)
    return result


def _nest(
    block: Block,
    below: Sequence[Site],
    producers: Sequence[Site],
    path: Sequence[For],
    guards: Sequence[Guard],
    what: str,
) -> Node:
    """The block in new loops over the runs of its points that read what is written below."""
    outer = {n.var: n.extent for n in path}
    ranges = _visited(block, below, len(path), what)
    _check_once(block, ranges, path, what)
    _check_first(block, ranges, path, what)
    _check_reads(block, ranges, producers, path, outer, what)
    return nest(block, ranges, guards, outer)


def _is_read_inside(bare: PrimFunc, buffer: Buffer, loop: Var) -> bool:
    """Whether other blocks read a buffer, and all that access it are below a loop: with the moved
    block there too it holds what one iteration writes, and no more what earlier ones wrote."""
    readers = readers_of(bare, buffer)
    every = (*writers_of(bare, buffer), *readers)
    return bool(readers) and all(any(x.var is loop for x in s.loops) for s in every)


def check_outputs(func: PrimFunc, site: Site, what: str) -> None:
    """The block alone writes its buffers, and no one reads them before it."""
    block = site.block
    check_complete_inputs(func, site, what)
    if any(it.kind == "sequential" for it in block.iters):
        refuse(f"{what}: the block has a sequential axis, whose steps stay where they are", block)
    order = {id(s.block): n for n, s in enumerate(sites(func))}
    for access in block.writes:
        for other in writers_of(func, access.buffer):
            if other.block is not block:
                refuse(f"{what}: {access.buffer.name} is also written by {other.block.name}")
        for reader in readers_of(func, access.buffer):
            if order[id(reader.block)] <= order[id(block)]:
                refuse(
                    f"{what}: {reader.block.name} reads {access.buffer.name} before it is written"
                )


def _producers(func: PrimFunc, block: Block) -> list[Site]:
    """Blocks that write what `block` reads, in program order."""
    read = {id(a.buffer) for a in block.reads}
    return [s for s in sites(func) if any(id(a.buffer) in read for a in s.block.writes)]


def _shared(site: Site, path: Sequence[For]) -> int:
    """How many loops of `path`, from the outermost, are around `site`."""
    n = 0
    while n < min(len(site.loops), len(path)) and site.loops[n] is path[n]:
        n += 1
    return n


def _check_complete(
    func: PrimFunc, producers: Sequence[Site], path: Sequence[For], position: int, what: str
) -> None:
    """Every producer comes before the new place and has finished its elements there."""
    order = {id(s.block): n for n, s in enumerate(sites(func))}
    done = [s for node in path[-1].body[:position] for s in sites(node)]
    last = order[id(done[-1].block)]
    for p in producers:
        name = p.block.name
        if order[id(p.block)] > last:
            refuse(
                f"{what}: its producer {name} comes after loop {path[-1].var.name}; move {name} "
                "first"
            )
        ordered = ordered_vars(p.block)
        for node in path[: _shared(p, path)]:
            if node.var in ordered:
                steps = node.var in kind_vars(p.block, "sequential")
                axis = "the steps" if steps else "a reduction axis"
                refuse(
                    f"{what}: loop {node.var.name} runs over {axis} of {name}, whose "
                    f"elements are not complete inside it; choose a loop outside it, or reorder"
                )


def _check_readers(
    func: PrimFunc, block: Block, path: Sequence[For], position: int, what: str
) -> None:
    """What the block writes is read only after the new place."""
    order = {id(s.block): n for n, s in enumerate(sites(func))}
    done = [s for node in path[-1].body[:position] for s in sites(node)]
    last = order[id(done[-1].block)]
    for access in block.writes:
        for reader in readers_of(func, access.buffer):
            if order[id(reader.block)] <= last:
                refuse(
                    f"{what}: {reader.block.name} reads {access.buffer.name} before the end of "
                    f"loop {path[-1].var.name}'s body; move {reader.block.name} first"
                )


def _visited(block: Block, below: Sequence[Site], depth: int, what: str) -> dict[Var, Interval]:
    """For each axis the interval to visit: what a producer below writes, or all."""
    bare: dict[Var, list[Interval]] = {}
    solved: dict[Var, list[Interval]] = {}
    axes = {it.var: it.extent for it in block.iters}
    for producer in below:
        inner = loop_vars(producer.loops[depth:])
        values, extents = producer.block.values(), producer.extents()
        outer = {x.var: x.extent for x in producer.loops[:depth]}
        for write in producer.block.writes:
            region = required(write, values, extents, inner)
            for read in (a for a in block.reads if a.buffer is write.buffer):
                for index, interval in zip(read.indices, region, strict=True):
                    var = index.single_var() if isinstance(index, Affine) else None
                    if var is not None:
                        bare.setdefault(var, []).append(interval)
                for var, interval in points_reading(read, region, axes, outer).axes.items():
                    if not interval.start.is_const():
                        solved.setdefault(var, []).append(interval)
    ranges = full(block)
    found = {**solved, **bare}
    if not any(it.var in found for it in block.iters if it.kind == "spatial"):
        refuse(
            f"{what}: the indices by which the block reads what one iteration of the loop writes "
            "tell none of its spatial axes; expected axes, slices, and packed or reshaped tiles "
            "that are written whole"
        )
    for it in block.iters:
        if it.var in found:
            ranges[it.var] = _smallest(found[it.var], it, what)
    return ranges


def _smallest(intervals: Sequence[Interval], it: Iter, what: str) -> Interval:
    """The interval that lies in all others."""
    for a in intervals:
        if all(a is b or always(contained((a,), (b,), (it.extent,))) for b in intervals):
            return a
    raise ScheduleError(
        f"{what}: its producers write different regions along axis {it.var.name}; "
        f"move it to a loop of one producer that the others are computed before"
    )


def _check_once(block: Block, ranges: dict[Var, Interval], path: Sequence[For], what: str) -> None:
    """Iterations of the loops outside visit different points, and together all of them."""
    outer: Extents = {n.var: n.extent for n in path}
    forms, extents = [], dict(outer)
    inside = [Var(it.var.name) for it in block.iters]
    for var, it in zip(inside, block.iters, strict=True):
        extents[var] = ranges[it.var].width
        forms.append(ranges[it.var].start + Affine.of(var))
    require(
        injective(forms, list(extents), extents),
        f"{what}: different iterations of the loops outside write what the same points of the "
        f"block read, so that it would run more than once; {_advice(path)}",
    )
    for it, form in zip(block.iters, forms, strict=True):
        low, high = form.span(extents)
        require(
            (low <= 0) & (high >= it.extent - 1),
            f"{what}: axis {it.var.name} has {show(it.extent)} points, of which what is written "
            f"below the loop is read by {show(low)} to {show(high)} only; the others belong to no "
            "iteration of it",
        )
    wide = {
        var: _widened(ranges[it.var], it.extent, outer)
        for var, it in zip(inside, block.iters, strict=True)
    }
    known = all(same_int(n, extents[var]) for var, n in wide.items())
    extents.update(wide)
    full = as_many(forms, list(extents), extents)
    require(
        full if known else full & injective(forms, list(extents), extents),
        f"{what}: only some points of the block would be visited: a loop outside moves two axes of "
        "the block at once, or leaves gaps; choose a loop further out",
    )


def _advice(path: Sequence[For]) -> str:
    if len(path) > 1:
        return "choose a loop further out"
    return (
        f"split loop {path[0].var.name} so that one iteration writes all that a point of the block "
        "reads and whole runs of them"
    )


def _widened(interval: Interval, extent: Int, outer: Extents) -> Int:
    """The width, up to the next iteration's start where that is beyond the axis: what lies between
    is no point of the block."""
    if isinstance(extent, Size) or isinstance(interval.width, Size):
        return interval.width
    step: Any = 0
    for atom, c in interval.start.terms:
        if isinstance(atom, Digit) or isinstance(c, Size) or isinstance(outer[atom], Size):
            return interval.width
        first = (outer[atom] > 1) & ((step == 0) | (c < step))
        step = np.where(first, c, step) if is_array(c, step, outer[atom]) else c if first else step
    beyond = (interval.width >= extent) & (interval.start.span(outer)[0] >= 0)
    if not is_array(interval.width, extent, step):
        return imax(interval.width, step) if beyond else interval.width
    widths: tuple[Any, Any] = (imax(interval.width, step), interval.width)
    wide: Int = np.where(beyond, *widths)
    return wide


def _check_first(block: Block, ranges: dict[Var, Interval], path: Sequence[For], what: str) -> None:
    """A reduction visits the first point of its axes first: there it sets its results. Whoever
    reads them comes after all loops that write what is reduced, so they are complete by then."""
    for it in block.iters:
        start = ranges[it.var].start
        first: Condition = start.const == 0
        for atom, c in start.terms:
            first = first & (c >= 0)
            if isinstance(atom, Digit):  # of a base whose other digits may tell the element
                first = first & _ascends(atom.base, path)
        require(
            it.kind == "spatial" or first,
            f"{what}: along axis {it.var.name} its producer does not begin with the first element, "
            f"at which a reduction sets its results",
        )


def _ascends(form: Affine, path: Sequence[For]) -> Condition:
    """Whether the loops visit the values of a form from 0 upwards."""
    ok: Condition = form.const == 0
    below: Int = 0
    for node in reversed(path):
        if form.uses([node.var]):
            c = form.coefficient(node.var)
            ok = ok & (c > below)
            below = below + c * (node.extent - 1)
    return ok


def _check_reads(
    block: Block,
    ranges: dict[Var, Interval],
    producers: Sequence[Site],
    path: Sequence[For],
    outer: Extents,
    what: str,
) -> None:
    """All that the block reads has been written in the same iteration of the loops shared."""
    extents: dict[Var, Int] = dict(outer)
    values: dict[Var, Affine] = {}
    new: list[Var] = []
    for it in block.iters:
        var = Var(it.var.name)
        new.append(var)
        extents[var] = ranges[it.var].width
        values[it.var] = ranges[it.var].start + Affine.of(var)
    for read in block.reads:
        writers = [p for p in producers if any(a.buffer is read.buffer for a in p.block.writes)]
        ok: Condition = True
        for p in writers:  # several where a reduction is decomposed: all must have been there
            n = _shared(p, path)
            if not n:
                continue  # complete before the loops
            done: Condition = False
            inner = loop_vars(p.loops[n:])
            needed = required(read, values, extents, [*loop_vars(path[n:]), *new])
            for write in p.block.writes:
                if write.buffer is read.buffer:
                    region = required(write, p.block.values(), p.extents(), inner)
                    there = contained(needed, region, read.buffer.shape)
                    done = done | (there & settled(p, write, loop_vars(path[:n]), inner))
            ok = ok & done
        require(
            ok,
            f"{what}: the block reads elements of {read.buffer.name} that the same iteration of "
            f"loop {path[-1].var.name} has not written",
        )
