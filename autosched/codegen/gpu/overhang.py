"""Sums of a tile that overhangs: every thread computes all of its tile, whether it exists or not.

What a thread sums up in an array of its own is stored only where the element exists. So a predicate
on the elements need not be asked at every multiply-add, where it would part each from its
neighbours and keep loads from being vectors: what is read in vain lies in shared memory.

One on the terms of the sums has to be asked, but only in the step in which these end: what holds in
a whole step is `whole_of`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from autosched.codegen.gpu.kernel import Kernel
from autosched.codegen.gpu.reduce import extents_in
from autosched.tir.affine import Affine, Extents, always
from autosched.tir.apart import injective
from autosched.tir.expr import walk
from autosched.tir.nodes import Access, Block, Predicate, Site, kind_vars, map_blocks


def unguarded(kernel: Kernel) -> Kernel:
    """`kernel` without the predicates of reductions in local arrays that only keep elements from
    being computed that nothing reads. For kernels whose reductions still set their first values."""
    extents = extents_in(kernel)
    writers = Counter(a.buffer for s in kernel.sites() for a in s.block.writes)
    left: dict[int, tuple[Predicate, ...]] = {}
    for site in kernel.sites():
        block = site.block
        if block.reducer is None or not block.init or not _harmless(block, extents):
            continue
        if any(writers[a.buffer] > 1 for a in block.writes):
            continue
        kept = tuple(p for p in block.predicates if not _only_elements(p, site, extents))
        left[id(block)] = kept
    if not left:
        return kernel

    def without(block: Block) -> Block:
        return replace(block, predicates=left.get(id(block), block.predicates))

    return replace(kernel, body=tuple(map_blocks(node, without) for node in kernel.body))


def _harmless(block: Block, extents: Extents) -> bool:
    """Whether a block may run anywhere: it writes local arrays, reads what a block of threads has
    for itself, and both inside of these."""
    if any(a.buffer.scope != "local" for a in block.writes):
        return False
    if any(a.buffer.scope not in ("local", "shared") for a in block.reads):
        return False
    if any(getattr(x, "op", None) == "if_then_else" for e in block.body for x in walk(e)):
        return False
    return all(_inside(a, block, extents) for a in (*block.reads, *block.writes))


def _inside(access: Access, block: Block, extents: Extents) -> bool:
    values = block.values()
    for index, extent in zip(access.indices, access.buffer.shape, strict=True):
        if not isinstance(index, Affine):
            return False
        low, high = index.substitute(values, extents).span(extents)
        if not (always(low >= 0) and always(high < extent)):
            return False
    return True


def _only_elements(p: Predicate, site: Site, extents: Extents) -> bool:
    """Whether `p` decides on elements alone, each of which the thread meets in one place: then
    nothing that exists is overwritten by what does not."""
    block = site.block
    if p.form.uses(kind_vars(block, "reduce")) or kind_vars(block, "sequential"):
        return False
    over = [x.var for x in site.loops if x.thread is None and p.form.uses([x.var])]
    if not over:
        return False
    values = block.values()
    for a in block.writes:
        forms = [i.substitute(values, extents) for i in a.indices if isinstance(i, Affine)]
        if not always(injective(forms, over, extents)):
            return False
    return True


def whole_of(p: Predicate, inner: Extents) -> Predicate | None:
    """What has to hold for `p` to hold throughout the loops `inner`; None if no other loop has a
    part in it, or if the two are not apart."""
    part, rest = Affine(0), Affine(p.form.const)
    for atom, c in p.form.terms:
        term = Affine.of(atom, c)
        if term.uses(inner):
            part = part + term
        else:
            rest = rest + term
    if rest.is_const() or not all(v in inner for v in part.variables()):
        return None
    return Predicate(rest + part.span(inner)[1], p.bound)
