"""A consumer inside the loops of its producer, element by element of what that writes there.

Where what one iteration writes is no run of the points of the consumer (every third element of a
tile of eight, packed rows that begin inside a tile), its loops run over the elements of the tile,
and it computes, of each, the point that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.schedule.check import is_array, loop_vars, required
from autosched.schedule.inverse import point_reading
from autosched.schedule.place import Guard, domain_predicates
from autosched.tir.affine import Affine, Extents, Int, always
from autosched.tir.apart import as_many, injective, settled
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, For, Node, Predicate, Site


def nest_by_elements(
    block: Block,
    below: Sequence[Site],
    earlier: Sequence[Site],
    path: Sequence[For],
    guards: Sequence[Guard],
) -> Node | None:
    """The nest of the block in the innermost loop of `path`; None where one is not known to visit
    each point once, after all that it reads there.

    Args:
        below: the producers below that loop.
        earlier: other producers, below loops of `path`.
        guards: conditions on the points of the block.
    """
    if len(below) != 1 or earlier or any(it.kind != "spatial" for it in block.iters):
        return None
    (producer,) = below
    both = _accesses(block, producer.block)
    if both is None:
        return None
    read, write = both
    outer = {x.var: x.extent for x in path}
    inner = loop_vars(producer.loops[len(path) :])
    region = required(write, producer.block.values(), producer.extents(), inner)
    if is_array(*outer.values(), *(x.width for x in region), *(it.extent for it in block.iters)):
        return None  # one nest would have to do for all candidates
    new = [Var(f"ax{n}") for n in range(len(region))]
    extents: dict[Var, Int] = {**outer, **{v: x.width for v, x in zip(new, region, strict=True)}}
    elements = [x.start + Affine.of(v) for x, v in zip(region, new, strict=True)]
    if not always(
        injective(elements, list(extents), extents)
        & as_many(elements, list(extents), extents)
        & settled(producer, write, loop_vars(path), inner)
    ) or not _is_whole(elements, read, extents):
        return None
    axes = {it.var: it.extent for it in block.iters}
    if not _is_inside(read, axes):
        return None  # points that read no element, as in padding, would be left out
    found = point_reading(read, elements, axes, extents)
    if found.unused:
        return None
    bindings = {var: x.start for var, x in found.axes.items()}
    for it in block.iters:
        if it.var not in bindings:
            new.append(Var(f"ax{len(new)}"))
            extents[new[-1]] = it.extent
            bindings[it.var] = Affine.of(new[-1])
    predicates = [
        p for it in block.iters for p in domain_predicates(bindings[it.var], it.extent, extents)
    ]
    predicates += found.hits
    predicates += [Predicate(g.form.substitute(bindings, extents), g.bound) for g in guards]
    node: Node = replace(
        block,
        bindings=tuple(bindings[it.var] for it in block.iters),
        predicates=tuple(predicates),
    )
    for var in reversed(new):
        node = For(var, extents[var], (node,))
    return node


def _accesses(block: Block, producer: Block) -> tuple[Access, Access] | None:
    """How the block reads what the producer writes, if it reads that once."""
    pairs = [(r, w) for r in block.reads for w in producer.writes if r.buffer is w.buffer]
    return pairs[0] if len(pairs) == 1 else None


def _is_whole(elements: Sequence[Affine], read: Access, extents: Extents) -> bool:
    """Whether the loops visit all elements of the buffer."""
    for form, size in zip(elements, read.buffer.shape, strict=True):
        low, high = form.span(extents)
        if not always((low <= 0) & (high >= size - 1)):
            return False
    return True


def _is_inside(read: Access, axes: Extents) -> bool:
    """Whether every point reads an element of the buffer."""
    for index, size in zip(read.indices, read.buffer.shape, strict=True):
        if not isinstance(index, Affine):
            return False
        low, high = index.span(axes)
        if not always((low >= 0) & (high < size)):
            return False
    return True
