"""Primitives that merge a block into its neighbours: compute_inline, reverse_compute_inline."""

from __future__ import annotations

from dataclasses import replace

from autosched.schedule.body import MAX_NODES, merged_size, rewrite_block, value_of
from autosched.schedule.check import bare_axes, refuse, require
from autosched.schedule.compute import check_inputs, written_axes
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import guards_of
from autosched.schedule.reverse import check_outputs
from autosched.tir.affine import Affine, same_int
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Block,
    PrimFunc,
    Site,
    map_func,
    readers_of,
    replace_node,
    site_of,
    sites,
    writers_of,
)
from autosched.tir.region import common_loops


def compute_inline(func: PrimFunc, block: str) -> PrimFunc:
    """Put a producer's expression in place of every read of it, and drop it.
    (TVM compute_inline, Halide compute_inline.)

    Legality: the block is no reduction, writes its own spatial axes, one a dimension, writes no
    argument of the function and is the only writer of its buffers; nothing overwrites what it
    reads; no expression gets more than MAX_NODES nodes.

    rewrite:
        with T.block("B"):                      with T.block("C"):
            B[vi] = A[vi] + 1           ->          C[vi] = (A[vi] + 1) * 2
        with T.block("C"):
            C[vi] = B[vi] * 2
    """
    what = f"compute_inline({block})"
    site = site_of(func, block)
    producer = site.block
    _check_pointwise(site, what, steps=True)
    axes = written_axes(producer, what)
    inlined = {}
    for n, (access, dims) in enumerate(zip(producer.writes, axes, strict=True)):
        buffer = access.buffer
        if any(b is buffer for b in func.params):
            refuse(f"{what}: {buffer.name} is an argument of {func.name} and must be written")
        if len(writers_of(func, buffer)) > 1:
            refuse(f"{what}: {buffer.name} has several writers; expected {block} alone")
        inlined[buffer] = value_of(producer, n, dims)
    if not any(readers_of(func, b) for b in inlined):
        refuse(f"{what}: nothing reads what the block writes")
    check_inputs(func, site, what)

    def change(consumer: Block) -> Block:
        if all(a.buffer not in inlined for a in consumer.reads):
            return consumer
        _check_size(producer, consumer, what)
        extents = {it.var: it.extent for it in consumer.iters}
        reads, writes, body = rewrite_block(consumer, {}, extents, inlined)
        return replace(consumer, reads=reads, writes=writes, body=body)

    result = map_func(replace_node(func, producer, ()), change)
    check_kinds(result, func)
    return result


def reverse_compute_inline(func: PrimFunc, block: str) -> PrimFunc:
    """Put a consumer's expression into its producer, which then writes the consumer's result.
    (TVM reverse_compute_inline.)

    Legality: both are no reductions; the block reads one producer, by its own axes, one a
    dimension and the same for each read, over the producer's domain; nothing else reads that
    producer; the block's other producers come before; no expression gets more than MAX_NODES nodes.

    rewrite:
        with T.block("B"):                      with T.block("B"):
            B[vi] = A[vi] + 1           ->          C[vi] = (A[vi] + 1) * 2
        with T.block("C"):
            C[vi] = B[vi] * 2
    """
    what = f"reverse_compute_inline({block})"
    site = site_of(func, block)
    consumer = site.block
    _check_pointwise(site, what)
    check_outputs(func, site, what)
    source = _only_producer(func, site, what)
    producer = source.block
    _check_pointwise(source, what)
    (dims,) = written_axes(producer, what)
    axes: dict[Var, Affine] = {}
    for read in (a for a in consumer.reads if a.buffer is producer.writes[0].buffer):
        mine = bare_axes(consumer, read)
        if mine is None or len(mine) != len(consumer.iters):
            refuse(
                f"{what}: it must read {read.buffer.name} by each of its axes, one a dimension",
                consumer,
            )
        found = {m: Affine.of(d) for m, d in zip(mine, dims, strict=True)}
        if axes and any(not found[m].same(axes[m]) for m in mine):
            refuse(f"{what}: it reads {read.buffer.name} at several places", consumer)
        axes = found
    _check_size(producer, consumer, what)
    extents = {it.var: it.extent for it in producer.iters}
    for it in consumer.iters:
        (var,) = axes[it.var].variables()
        if not same_int(it.extent, extents[var]):
            refuse(
                f"{what}: axis {it.var.name} has extent {it.extent}, but {producer.name} computes "
                f"{extents[var]} along it"
            )
    _check_early(func, site, source, what)
    inlined = {producer.writes[0].buffer: value_of(producer, 0, dims)}
    reads, writes, body = rewrite_block(consumer, dict(axes), extents, inlined)
    annotations = tuple(
        sorted({**dict(consumer.annotations), **dict(producer.annotations)}.items())
    )
    merged = replace(producer, reads=reads, writes=writes, body=body, annotations=annotations)
    result = replace_node(replace_node(func, consumer, ()), producer, (merged,))
    check_kinds(result, func)
    return result


def _check_pointwise(site: Site, what: str, steps: bool = False) -> None:
    """Spatial axes only (`steps`: or sequential ones), no reducer and no predicate of its own."""
    block = site.block
    kinds = {"spatial", "sequential"} if steps else {"spatial"}
    if block.reducer is not None or any(it.kind not in kinds for it in block.iters):
        refuse(
            f"{what}: {block.name} is a reduction or a recurrence, which has no expression to "
            f"inline; use compute_at or reverse_compute_at",
            block,
        )
    extents = {it.var: it.extent for it in block.iters}
    for guard in guards_of(site):
        require(
            guard.form.span(extents)[1] < guard.bound,
            f"{what}: {block.name} writes only where its predicate holds",
        )


def _check_size(producer: Block, consumer: Block, what: str) -> None:
    nodes, _ = merged_size(producer, consumer)
    if nodes > MAX_NODES:
        refuse(
            f"{what}: the expression of {consumer.name} would have {nodes} nodes; at most "
            f"{MAX_NODES} are taken"
        )


def _only_producer(func: PrimFunc, site: Site, what: str) -> Site:
    """The one producer whose only reader is the block."""
    block = site.block
    found: list[Site] = []
    for access in block.reads:
        buffer = access.buffer
        writers = writers_of(func, buffer)
        lonely = all(r.block is block for r in readers_of(func, buffer))
        if len(writers) == 1 and lonely and all(b is not buffer for b in func.params):
            found += [w for w in writers if all(w.block is not f.block for f in found)]
    found = [f for f in found if len(f.block.writes) == 1]
    # Where several would do, the last one computed sees all the others' results.
    pointwise = [f for f in found if f.block.reducer is None]
    if not found:
        refuse(f"{what}: no producer is read by {block.name} alone")
    return pointwise[-1] if pointwise else found[-1]


def _check_early(func: PrimFunc, site: Site, source: Site, what: str) -> None:
    """The block's other inputs are complete where its producer stands."""
    order = {id(s.block): n for n, s in enumerate(sites(func))}
    here = order[id(source.block)]
    for access in site.block.reads:
        for writer in writers_of(func, access.buffer):
            if writer.block is source.block:
                continue
            if order[id(writer.block)] > here or common_loops([writer, source]):
                refuse(
                    f"{what}: {writer.block.name}, which it reads too, is not complete where "
                    f"{source.block.name} stands"
                )
