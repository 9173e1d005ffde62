"""Intermediates that stand in the memory of a result, where the last block that reads them writes
it element by element: the exponentials of a long row in the softmax that is made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.codegen.llvm.phases import has_parallel
from autosched.tir import dtypes
from autosched.tir.affine import Affine, always, same_int
from autosched.tir.apart import injective
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, Buffer, For, Node, PrimFunc, Site, sites, strides

LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True)
class _Home:
    """Where a buffer is allocated: the loops around, and the nodes that share it."""

    loops: tuple[For, ...]
    body: tuple[Node, ...]


def hosts(func: PrimFunc) -> dict[int, Access]:
    """For each intermediate (by id) of a lowered program that can stand in a result, the element of
    the result at which its first one is.

    One iteration of the loops around the intermediate has that part of the result to itself, and
    nothing else reads or writes the result there.
    """
    params = {id(b) for b in func.params}
    users: dict[int, list[Site]] = {}
    for site in sites(func):
        for key in {id(a.buffer) for a in (*site.block.reads, *site.block.writes)}:
            users.setdefault(key, []).append(site)
    found: dict[int, Access] = {}
    for buffer, home in _allocations(_Home((), func.body), func.allocs):
        if any(not isinstance(n, int) for n in buffer.shape) or _is_shared(home):
            continue
        last = _last_user(buffer, home)
        # What goes past the caches must lie at whole vectors, which a row of a result need not, and
        # would be read again from memory.
        if last is None or any(s.block.annotation("streaming", False) for s in users[id(buffer)]):
            continue
        target = last.writes[0].buffer
        alone = id(target) in params and len(users[id(target)]) == 1
        site = users[id(target)][0]
        if alone and target.dtype == buffer.dtype and target.shape and not _is_masked(site):
            place = _place(buffer, site, home)
            if place is not None and all(place.buffer is not x.buffer for x in found.values()):
                found[id(buffer)] = place
    return found


def _allocations(home: _Home, allocs: Sequence[Buffer]) -> Iterator[tuple[Buffer, _Home]]:
    for buffer in allocs:
        yield buffer, home
    for node in home.body:
        if isinstance(node, For):
            yield from _allocations(_Home((*home.loops, node), node.body), node.allocs)


def _is_shared(home: _Home) -> bool:
    """Whether functions of their own get the buffer and the result as two arguments, which they
    take to be apart."""
    return any(isinstance(n, For) and (n.kind == "parallel" or has_parallel(n)) for n in home.body)


def _is_masked(site: Site) -> bool:
    """Whether all vectors may have lanes that are left out: neither a power of two of elements nor
    whole cache lines, the widest vectors that there are. Where the next vector's elements are read
    as the last one's are written beside them, each read waits for the store in the cache."""
    loop = site.loops[-1] if site.loops else None
    if loop is None or loop.kind != "vectorized" or not isinstance(loop.extent, int):
        return False
    size = loop.extent * dtypes.itemsize(site.block.writes[0].buffer.dtype)
    return loop.extent & (loop.extent - 1) != 0 and size % LINE != 0


def _last_user(buffer: Buffer, home: _Home) -> Block | None:
    """The block that alone uses the buffer in the last of the nodes that do, if it makes of each
    element one of its result."""
    for node in reversed(home.body):
        mine = [
            s.block
            for s in sites(node)
            if any(a.buffer is buffer for a in (*s.block.reads, *s.block.writes))
        ]
        if mine:
            block = mine[0]
            plain = block.reducer is None and all(it.kind == "spatial" for it in block.iters)
            if len(mine) > 1 or len(block.writes) != 1 or not plain:
                return None
            reads = [a for a in block.reads if a.buffer is buffer]
            return block if len(reads) == 1 and block.writes[0].buffer is not buffer else None
    return None


def _place(buffer: Buffer, site: Site, home: _Home) -> Access | None:
    """The element of the result that is where element 0 of the buffer is, if equal distances apart
    lead to the same memory in both, no two iterations of the loops around meet, and each element of
    the result is written once: a second time it would be made of itself."""
    block, extents, values = site.block, site.extents(), site.block.values()
    write = block.writes[0]
    read = next(a for a in block.reads if a.buffer is buffer)
    target = write.buffer
    own = [i.single_var() if isinstance(i, Affine) else None for i in write.indices]
    axes = [it.var for it in block.iters]
    if len(buffer.shape) != len(own) or len(axes) != len(own):
        return None
    if any(mine is not axis for mine, axis in zip(own, axes, strict=True)):
        return None  # an element of the result that is not written must stay as it is
    if not all(same_int(it.extent, n) for it, n in zip(block.iters, target.shape, strict=True)):
        return None
    if not always(injective(list(block.bindings), list(extents), extents)):
        return None
    steps = zip(
        strides(buffer.shape, buffer.align), strides(target.shape, target.align), strict=True
    )
    outer = {loop.var: loop.extent for loop in home.loops}
    starts: list[Affine] = []
    forms: list[Affine] = []
    inside = dict(outer)
    for (mine, theirs), n, size, a, b in zip(
        steps, buffer.shape, target.shape, read.indices, write.indices, strict=True
    ):
        if (
            not isinstance(a, Affine)
            or not isinstance(b, Affine)
            or not (n == 1 or same_int(mine, theirs))
        ):
            return None
        start = b.substitute(values, extents) - a.substitute(values, extents)
        low, high = start.span(extents)
        if any(v not in outer for v in start.variables()):
            return None
        if not (always(low >= 0) and always(high + n <= size)):
            return None
        element = Var("x")
        inside[element] = n
        starts.append(start)
        forms.append(start + Affine.of(element))
    return Access(target, tuple(starts)) if always(injective(forms, inside, inside)) else None
