"""pad_axis: an axis rounded up to a multiple, so that tiles of it are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autosched.errors import NotBatchable
from autosched.schedule.cache import unused_name
from autosched.schedule.check import refuse, require, show
from autosched.schedule.compute import check_available
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import full, insert, nest
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Int, always, ceildiv, same_int
from autosched.tir.expr import Call, Expr, Slot, Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Iter,
    PrimFunc,
    Site,
    map_func,
    path_to,
    replace_node,
    sites,
    writers_of,
)
from autosched.tir.reducers import known_name


def pad_axis(func: PrimFunc, loop: Var, multiple: int) -> tuple[PrimFunc, list[str]]:
    """Let the axis of a loop run on to the next multiple of a number, over zeros.
    (TVM pad_einsum, one axis.)

    What the block reads along the axis it reads through copies that hold zeros beyond the axis; an
    axis of the result makes its buffer larger, and nobody reads the new elements.

    Args:
        loop: the loop of one axis, in the nest of one block at the root.
        multiple: what the extent becomes a multiple of.

    Returns the new program and the names of the copying blocks, in the order of the reads; none
    where the extent is a multiple already.

    Legality: the axis is a bare index, in one dimension, of each access that it occurs in, and runs
    over all of that dimension. A reduction axis: the block sums up a product of two elements, both
    along the axis. A spatial axis: the block alone writes the buffer, which is an intermediate; of
    what it reads the axis may also be a part of an index (`vi * 2 + vk`), forwards.
    What is copied is written in nests before.

    rewrite: (k, 4)
                                                for ax0, ax1 in T.grid(6, 8):
                                                    with T.block("A_padded"):
        for i, k in T.grid(6, 7):                       A_padded[v0, v1] = T.if_then_else(
            with T.block("C"):                              v1 < 7, A[v0, v1], 0)
                C[vi] += A[vi, vk] * B[vk]    ->  …
                                                for i, k in T.grid(6, 8):
                                                    with T.block("C"):
                                                        C[vi] += A_padded[vi, vk] * B_padded[vk]
    """
    site = _alone(func, loop)
    block = site.block
    what = f"pad_axis({block.name})"
    require(multiple >= 1, f"{what}: the multiple must be positive; found {multiple}")
    numbers = [n for n, b in enumerate(block.bindings) if b.uses([loop])]
    whole = len(numbers) == 1 and block.bindings[numbers[0]].single_var() is loop
    if not whole or block.predicates:
        refuse(f"{what}: loop {loop.name} is not that of one whole axis; pad before splitting")
    axis = block.iters[numbers[0]]
    extent = ceildiv(axis.extent, multiple) * multiple
    is_whole = axis.extent == extent
    if always(is_whole):
        return func, []
    if isinstance(is_whole, np.ndarray) and is_whole.any():
        raise NotBatchable(f"{what}: whether {axis.var.name} is padded differs by candidate")
    along = [a for a in block.reads if _uses(a, axis.var)]
    slides = axis.kind == "spatial"
    places = [_dimension(a, axis, what, slides) for a in along]
    if len({id(a.buffer) for a in along}) != len(along):
        refuse(f"{what}: the block reads a buffer in two places along {axis.var.name}", block)
    if axis.kind == "reduce":
        _check_sum(block, along, what)
    elif axis.kind != "spatial":
        refuse(f"{what}: {axis.var.name} is visited in order; it cannot run on")
    wide = None if axis.kind == "reduce" else _check_written(func, block, axis, what)
    changed = func
    copies: dict[int, Buffer] = {}
    top = func.body.index(site.loops[0])
    names: list[str] = []
    for access, place in zip(along, places, strict=True):
        old = access.buffer
        name = unused_name(changed, f"{old.name}_padded")
        index = access.indices[place]
        assert isinstance(index, Affine)  # `_dimension`
        longer = old.shape[place] + (extent - axis.extent) * index.coefficient(axis.var)
        shape = (*old.shape[:place], longer, *old.shape[place + 1 :])
        copies[id(old)] = Buffer(name, shape, old.dtype)
        copier = _copier(name, old, copies[id(old)], place, old.shape[place])
        check_available(changed, Site(copier, ()), None, top + len(names), what)
        changed = insert(changed, None, top + len(names), nest(copier, full(copier), (), {}))
        names.append(name)
    iters = tuple(replace(it, extent=extent) if it is axis else it for it in block.iters)
    reads = tuple(
        replace(a, buffer=copies[id(a.buffer)]) if _uses(a, axis.var) else a for a in block.reads
    )
    changed = replace_node(changed, block, (replace(block, iters=iters, reads=reads),))
    node = path_to(changed, loop)[-1]
    changed = replace_node(changed, node, (replace(node, extent=extent),))
    if wide is not None:
        changed = _widened(changed, *wide, extent)
    check_kinds(changed, func)
    return changed, names


def _alone(func: PrimFunc, loop: Var) -> Site:
    """The only block around which the root nest of a loop stands."""
    root = path_to(func, loop)[0]
    found = list(sites(root))
    if len(found) != 1:
        refuse(f"pad_axis: expected the nest of one block around loop {loop.name}", root)
    if any(x.kind != "serial" or x.annotations for x in found[0].loops):
        refuse(f"pad_axis({found[0].block.name}): pad before loops get kinds", root)
    return found[0]


def _uses(access: Access, axis: Var) -> bool:
    return any(
        i.uses([axis]) if isinstance(i, Affine) else any(e is axis for e in ex.walk(i))
        for i in access.indices
    )


def _dimension(access: Access, axis: Iter, what: str, slides: bool = False) -> int:
    """The dimension that the axis is the index of; with `slides` one that it moves along, beside
    other axes."""
    found = [
        n for n, i in enumerate(access.indices) if isinstance(i, Affine) and i.uses([axis.var])
    ]
    rest = [i for i in access.indices if not isinstance(i, Affine)]
    index = access.indices[found[0]] if len(found) == 1 else None
    inside = any(e is axis.var for i in rest for e in ex.walk(i))
    if slides and not inside and isinstance(index, Affine) and index.single_var() is None:
        step = index.coefficient(axis.var)
        rest_of = index - Affine.of(axis.var, step)
        if isinstance(step, int) and step > 0 and not rest_of.uses([axis.var]):
            return found[0]
    if inside or not isinstance(index, Affine) or index.single_var() is not axis.var:
        refuse(f"{what}: {axis.var.name} is no bare index of one dimension of {access.buffer.name}")
    size = access.buffer.shape[found[0]]
    require(
        same_int(size, axis.extent),
        f"{what}: {axis.var.name} runs over {show(axis.extent)} of {show(size)} elements of "
        f"{access.buffer.name}; expected all of them",
    )
    return found[0]


def _check_sum(block: Block, along: Sequence[Access], what: str) -> None:
    """Zeros add nothing: to a sum of products of two elements that are both zero there, since
    zero times an infinity is none."""
    factors: list[int] = []
    value = block.body[0] if len(block.body) == 1 else None
    if isinstance(value, Call) and value.op == "mul":
        for side in value.args:
            inner = side
            while isinstance(inner, Call) and inner.op == "cast":
                inner = inner.args[0]
            if isinstance(inner, Slot):
                factors.append(inner.index)
    both = len(factors) == 2 and all(block.reads[n] in along for n in factors)
    if block.reducer is None or known_name(block.reducer) != "sum" or not both:
        refuse(
            f"{what}: padding a reduction is for a sum of products of two elements, both along it",
            block,
        )


def _check_written(func: PrimFunc, block: Block, axis: Iter, what: str) -> tuple[Buffer, int]:
    """The buffer that the block writes and the dimension of the axis."""
    if len(block.writes) != 1:
        refuse(f"{what}: the block writes {len(block.writes)} elements a point; expected one")
    access = block.writes[0]
    old = access.buffer
    if any(b is old for b in func.params):
        refuse(f"{what}: {old.name} is an argument, whose shape is the caller's; cache_write first")
    if old.align or len(writers_of(func, old)) != 1:
        refuse(f"{what}: expected {block.name} to be the only writer of {old.name}, without align")
    return old, _dimension(access, axis, what)


def _widened(func: PrimFunc, old: Buffer, place: int, extent: Int) -> PrimFunc:
    """The program with a buffer that is longer in one dimension."""
    new = replace(old, shape=(*old.shape[:place], extent, *old.shape[place + 1 :]))

    def change(a: Access) -> Access:
        return replace(a, buffer=new) if a.buffer is old else a

    def visit(b: Block) -> Block:
        if all(a.buffer is not old for a in (*b.reads, *b.writes)):
            return b
        return replace(b, reads=tuple(map(change, b.reads)), writes=tuple(map(change, b.writes)))

    return map_func(func, visit)


def _copier(name: str, old: Buffer, copy: Buffer, place: int, extent: Int) -> Block:
    """The block that copies `old`, with zeros beyond `extent` in one dimension."""
    axes = [Var(f"v{n}") for n in range(len(copy.shape))]
    forms = tuple(Affine.of(v) for v in axes)
    zero = ex.const(0.0 if dtypes.is_float(old.dtype) else 0, old.dtype)
    inside: Expr = axes[place] < Affine(extent).to_expr()
    return Block(
        name,
        tuple(Iter(v, n) for v, n in zip(axes, copy.shape, strict=True)),
        (),
        (),
        (Access(old, forms),),
        (Access(copy, forms),),
        (ex.call("if_then_else", inside, Slot(0, old.dtype), zero),),
    )
