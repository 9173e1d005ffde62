"""Primitives that merge a block into its neighbours: compute_inline, reverse_compute_inline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.schedule.body import MAX_NODES, merged_size, rewrite_block, same_index, value_of
from autosched.schedule.check import bare_axes, refuse, require, show
from autosched.schedule.compute import check_inputs, written_axes
from autosched.schedule.conflicts import check_distinct
from autosched.schedule.inverse import point_reading
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import domain_predicates, guards_of
from autosched.schedule.reverse import check_outputs
from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Block,
    Predicate,
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

    Legality: the block is no reduction and no recurrence, writes its own spatial axes, one a
    dimension, writes no argument of the function and is the only writer of its buffers; nothing
    overwrites what it reads; no expression gets more than MAX_NODES nodes.

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

    Legality: both are no reductions; the block reads one producer, at one element a point which
    tells all its axes: axes by themselves, slices, tiles packed or reshaped; nothing else reads
    that producer, which computes no more where the block does not read it; the block's other
    producers come before; no expression gets more than MAX_NODES nodes.

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
    extents = {it.var: it.extent for it in producer.iters}
    axes, hits = _points(consumer, producer, dims, what)
    _check_size(producer, consumer, what)
    _check_early(func, site, source, what)
    inlined = {producer.writes[0].buffer: value_of(producer, 0, dims)}
    reads, writes, body = rewrite_block(consumer, axes, extents, inlined)
    annotations = tuple(
        sorted({**dict(consumer.annotations), **dict(producer.annotations)}.items())
    )
    values, loops = producer.values(), source.extents()
    predicates = [
        *producer.predicates,
        *(Predicate(p.form.substitute(values, loops), p.bound) for p in hits),
    ]
    merged = replace(
        producer,
        reads=reads,
        writes=writes,
        body=body,
        predicates=tuple(predicates),
        annotations=annotations,
    )
    result = replace_node(replace_node(func, consumer, ()), producer, (merged,))
    if any(bare_axes(merged, a) is None for a in merged.writes):
        check_distinct(result, merged, what)
    check_kinds(result, func)
    return result


def _points(
    consumer: Block, producer: Block, dims: Sequence[Var], what: str
) -> tuple[dict[Var, Affine], list[Predicate]]:
    """The consumer's axes as forms over the producer's, `dims`, which index the element that both
    name, and over these what tells the elements that the consumer reads."""
    buffer = producer.writes[0].buffer
    reads = [a for a in consumer.reads if a.buffer is buffer]
    if any(not all(map(same_index, a.indices, reads[0].indices)) for a in reads):
        refuse(f"{what}: it reads {buffer.name} at several places", consumer)
    extents = {it.var: it.extent for it in producer.iters}
    domain = {it.var: it.extent for it in consumer.iters}
    found = point_reading(reads[0], [Affine.of(d) for d in dims], domain, extents)
    missing = [it.var.name for it in consumer.iters if it.var not in found.axes]
    if missing or found.unused:
        refuse(
            f"{what}: the element of {buffer.name} that it reads does not tell "
            f"{'axis ' + missing[0] if missing else 'by each index which point reads it'}; "
            "expected indices that are axes, slices, packed or reshaped by digits",
            consumer,
        )
    for index, d in zip(reads[0].indices, dims, strict=True):
        if isinstance(index, Affine):
            low, high = index.span(domain)
            require(
                (low >= 0) & (high < extents[d]),
                f"{what}: it reads {buffer.name} from {show(low)} to {show(high)} where "
                f"{producer.name} computes {show(extents[d])} along {d.name}",
            )
    hits = list(found.hits)
    for it in consumer.iters:
        hits += domain_predicates(found.axes[it.var].start, it.extent, extents)
    return {v: i.start for v, i in found.axes.items()}, hits


def _check_pointwise(site: Site, what: str, steps: bool = False) -> None:
    """Spatial axes only, no reducer and no predicate of its own. `steps`: or sequential axes, of a
    block that reads nothing it writes; what it wrote in earlier steps has no expression."""
    block = site.block
    own = any(r.buffer is w.buffer for r in block.reads for w in block.writes)
    kinds = {"spatial", "sequential"} if steps and not own else {"spatial"}
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
