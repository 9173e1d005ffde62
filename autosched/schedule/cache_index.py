"""The primitive that computes indices beforehand: cache_index."""

from __future__ import annotations

from dataclasses import replace

from autosched.schedule.body import same_index, to_expr
from autosched.schedule.check import refuse
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import block_names, full, insert, nest, unique_name
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Int
from autosched.tir.clamped import clamp_index
from autosched.tir.expr import Const, Expr, Slot, Var, rewrite, walk
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Index,
    Iter,
    PrimFunc,
    buffers_of,
    replace_node,
    site_of,
    writers_of,
)
from autosched.tir.scope import SCOPES


def cache_index(
    func: PrimFunc, block: str, scope: str = "global"
) -> tuple[PrimFunc, tuple[str, ...]]:
    """Compute the indices at which a block reads once, in blocks before, and read them from there.
    (TVM cache_index.)

    It pays where an index takes longer to compute than to read: floats of a resized image,
    divisions that do not fold.

    Args:
        scope: where the buffers of indices live.

    Returns the new program and the names of the blocks that compute indices: one for each index
    that differs from the others as written, over the axes that it uses, before all loops around
    the block.

    Legality: an index is no number, no axis alone, and uses no element of a buffer; there is one;
    what writes the buffer read stands in other loops. A cached index is kept inside by clamp_index,
    since of what is read nothing is proven: later primitives take the access to reach the whole
    dimension.

    rewrite:
                                            with T.block("B_index"):
                                                B_index[v0] = v0 // 2
        with T.block("B"):              ->  with T.block("B"):
            B[vi] = A[vi // 2]                  B[vi] = A[T.clamp_index(B_index[vi], 4)]
    """
    what = f"cache_index({block})"
    if scope not in SCOPES:
        refuse(f"{what}: no scope {scope!r}; expected one of {', '.join(SCOPES)}")
    site = site_of(func, block)
    old = site.block
    found: list[Index] = []
    for access in old.reads:
        computed = [i for i in access.indices if _is_computed(i)]
        if computed and any(s.loops[:1] == site.loops[:1] for s in writers_of(func, access.buffer)):
            refuse(f"{what}: what writes {access.buffer.name} stands in the same loops", old)
        found += [i for i in computed if not any(same_index(i, f) for f in found)]
    if not found:
        refuse(f"{what}: each index of its reads is an axis, a number, or reads elements", old)
    taken = {*block_names(func), *(b.name for b in (*func.params, *buffers_of(func)))}
    stages: list[Block] = []
    lookups: list[Access] = []
    for index in found:
        name = unique_name(taken, f"{block}_index")
        taken.add(name)
        stage, lookup = _stage(old, index, name, scope)
        stages.append(stage)
        lookups.append(lookup)

    def shifted(e: Expr) -> Expr:
        return rewrite(
            e, lambda x: Slot(x.index + len(found), x.dtype) if isinstance(x, Slot) else None
        )

    def looked_up(index: Index, extent: Int) -> Index:
        for n, f in enumerate(found):
            if same_index(index, f):
                return clamp_index(Slot(n, dtypes.INDEX), Affine(extent).to_expr())
        return index if isinstance(index, Affine) else shifted(index)

    reads = tuple(
        replace(a, indices=tuple(map(looked_up, a.indices, a.buffer.shape))) for a in old.reads
    )
    writes = tuple(
        replace(a, indices=tuple(i if isinstance(i, Affine) else shifted(i) for i in a.indices))
        for a in old.writes
    )
    reader = replace(
        old, reads=(*lookups, *reads), writes=writes, body=tuple(map(shifted, old.body))
    )
    top = site.loops[0] if site.loops else old
    here = next(n for n, node in enumerate(func.body) if node is top)
    result = replace_node(func, old, (reader,))
    for n, made in enumerate(stages):
        result = insert(result, None, here + n, nest(made, full(made), (), {}))
    check_kinds(result, func)
    return result, tuple(s.name for s in stages)


def _is_computed(index: Index) -> bool:
    """Whether an index is computed from axes alone, by one operation or more."""
    if isinstance(index, Affine):
        return bool(index.terms) and index.single_var() is None
    if isinstance(index, (Const, Var)):
        return False
    return not any(isinstance(x, Slot) for x in walk(index))


def _stage(block: Block, index: Index, name: str, scope: str) -> tuple[Block, Access]:
    """The block that computes an index over the axes that it uses, and the access that reads it."""
    value = to_expr(index)
    used = {x for x in walk(value) if isinstance(x, Var)}
    axes = [it for it in block.iters if it.var in used]
    fresh = {it.var: Var(f"v{n}") for n, it in enumerate(axes)}
    made = rewrite(value, lambda x: fresh.get(x) if isinstance(x, Var) else None)
    buffer = Buffer(name, tuple(it.extent for it in axes), dtypes.INDEX, scope)
    stage = Block(
        name,
        tuple(Iter(fresh[it.var], it.extent) for it in axes),
        (),
        (),
        (),
        (Access(buffer, tuple(Affine.of(fresh[it.var]) for it in axes)),),
        (made,),
    )
    return stage, Access(buffer, tuple(Affine.of(it.var) for it in axes))
