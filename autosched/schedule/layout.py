"""Layouts: the dimensions of a buffer as digits of the dimensions that it had.

A layout is a sequence, one item a new dimension: `d`, `[d]`, `[d, div]` or `[d, div, mod]`, which
says `(x // div) % mod` of the index x along old dimension d. A list of dimensions in the place of d
stands for their indices fused in row-major order. So `[[0, 4], 1, [0, 1, 4]]` makes panels of 4
rows: `(i // 4, j, i % 4)`. A fourth part makes a swizzle: another such item, over other dimensions,
which is added before the modulus, the extent of d: `[0, [1, 1, 16, 0]]` is `(i, (i + j) % 16)`.
Numbers may be `Decision`s or arrays. `index_map.py` turns a Python function of the indices into
this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Union

import numpy as np

from autosched.checks import shown
from autosched.errors import NotBatchable, ScheduleError, TensorExprError
from autosched.schedule.body import rewrite_block, to_expr
from autosched.schedule.check import refuse, require, show
from autosched.schedule.compute import written_axes
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import Guard, full, guards_of, nest
from autosched.schedule.recurrence import is_step
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Extents, Int, always, ceildiv, digit, same_int
from autosched.tir.expr import Expr, Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Index,
    Iter,
    PrimFunc,
    Site,
    map_func,
    replace_node,
    site_of,
    sites,
    writers_of,
)
from autosched.tir.size import Size

Layout = Sequence[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """One new dimension: `(x // div) % mod` of the indices along `dims`, fused in row-major order
    into x. With `turn`: `(x + turn) % mod`, where that is a digit of other dimensions."""

    dims: tuple[int, ...]
    div: Int
    mod: Int | None
    extent: Int
    turn: Piece | None = None

    @property
    def is_rest(self) -> bool:
        """Whether there are no digits above this one."""
        return self.mod is None or self.turn is not None


@dataclass(frozen=True, eq=False, slots=True)
class Packing:
    """A layout of buffers of one shape, checked: every index is determined by its pieces."""

    shape: tuple[Int, ...]
    pieces: tuple[Piece, ...]

    @property
    def extents(self) -> tuple[Int, ...]:
        """The new shape."""
        return tuple(p.extent for p in self.pieces)

    def groups(self) -> dict[tuple[int, ...], list[int]]:
        """Old dimensions (fused or alone) -> numbers of their pieces."""
        out: dict[tuple[int, ...], list[int]] = {}
        for n, p in enumerate(self.pieces):
            out.setdefault(p.dims, []).append(n)
        return out

    def through(self, access: Access, new: Buffer, extents: Extents, what: str) -> Access:
        """The access of an element, made one of `new`. `extents` are those of the block's axes."""
        indices: list[Index] = []
        for p in self.pieces:
            index = access.indices[p.dims[0]]
            if len(p.dims) == 1 and p.mod is None and always(p.div == 1):
                indices.append(index)
                continue
            base = self._fused(p, access.indices, access.buffer, what)
            if p.turn is not None:
                turn = self._fused(p.turn, access.indices, access.buffer, what)
                base = base + digit(turn, p.turn.div, p.turn.mod, extents)
            indices.append(digit(base, p.div, p.mod, extents))
        return Access(new, tuple(indices))

    def _fused(self, p: Piece, given: Sequence[Index], buffer: Buffer, what: str) -> Affine:
        """The indices along the dimensions of a piece as one."""
        base = Affine(0)
        for d, step in zip(p.dims, fused_strides(self.shape, p.dims), strict=True):
            index = given[d]
            if not isinstance(index, Affine):
                refuse(
                    f"{what}: index {d} of {buffer.name} is not affine; the layout may only keep "
                    "it whole"
                )
            base = base + index * step
        return base

    def back(self, axes: Sequence[Var]) -> tuple[list[Affine], list[Guard]]:
        """The old indices as forms over axes that run over the new shape, and what must hold for
        an element to be there: where the layout pads, not all are."""
        old = [Affine(0) for _ in self.shape]
        guards = []
        extents = dict(zip(axes, self.extents, strict=True))
        for dims, numbers in self.groups().items():
            base = Affine(0)
            reach: Int = 1
            for n in numbers:
                base = base + Affine.of(axes[n], self.pieces[n].div)
                reach = reach * self.pieces[n].extent
            total: Int = 1
            for d in dims:
                total = total * self.shape[d]
            if not always(reach == total):
                guards.append(Guard(base, total))
            for k, (d, step) in enumerate(zip(dims, fused_strides(self.shape, dims), strict=True)):
                # The guard bounds the first digit; the others are cut by their extents.
                old[d] = digit(base, step, self.shape[d] if k else None, extents)
        for n, p in enumerate(self.pieces):
            if p.turn is not None:
                turn = Affine(0)
                for d, step in zip(
                    p.turn.dims, fused_strides(self.shape, p.turn.dims), strict=True
                ):
                    turn = turn + old[d] * step
                turn = digit(turn, p.turn.div, p.turn.mod, extents)
                old[p.dims[0]] = digit(Affine.of(axes[n]) - turn, 1, p.mod, extents)
        return old, guards


def fused_strides(shape: Sequence[Int], dims: Sequence[int]) -> list[Int]:
    """What one step along each of `dims` adds to their fused index."""
    out: list[Int] = []
    step: Int = 1
    for d in reversed(dims):
        out.append(step)
        step = step * shape[d]
    return out[::-1]


def packing(buffer: Buffer, layout: Layout | None, what: str) -> Packing:
    """The layout of a buffer (None: its own). Refuses one that loses part of an index."""
    rank = len(buffer.shape)
    if layout is not None:
        check_list(layout, what)
    items = range(rank) if layout is None else layout
    out = Packing(buffer.shape, tuple(_piece(item, buffer, what) for item in items))
    groups = out.groups()
    for d in range(rank):
        mine = [dims for dims in groups if d in dims]
        if len(mine) != 1 or not _complete([out.pieces[n] for n in groups[mine[0]]]):
            refuse(
                f"{what}: the layout does not determine the index of dimension {d} of "
                f"{buffer.name}; expected digits such as [{d}, t] and [{d}, 1, t], each once"
            )
    _check_turns(out, what)
    return out


def _piece(item: Any, buffer: Buffer, what: str, may_turn: bool = True) -> Piece:
    """One new dimension, as a layout states it."""
    rank = len(buffer.shape)
    parts = list(item) if isinstance(item, (tuple, list)) else [item]
    turned = parts.pop() if len(parts) == 4 and may_turn else None
    head = parts[0] if parts else -1
    dims = tuple(head) if isinstance(head, (tuple, list)) else (head,)
    numbers = all(_is_number(n) for n in parts[1:])
    if not (1 <= len(parts) <= 3 and dims and numbers) or any(not _is_dim(d, rank) for d in dims):
        refuse(
            f"{what}: a layout dimension is d, [d, div] or [d, div, mod] with d below {rank}, "
            f"or a list of such in the place of d; found {shown(parts)}"
        )
    div: Int = parts[1] if len(parts) > 1 else 1
    mod: Int | None = parts[2] if len(parts) > 2 else None
    require(div >= 1, f"{what}: div must be positive; found {show(div)}")
    total: Int = 1
    for d in dims:
        total = total * buffer.shape[d]
    if mod is not None:
        require(mod >= 1, f"{what}: mod must be positive; found {show(mod)}")
    turn = None if turned is None else _piece(turned, buffer, what, may_turn=False)
    return Piece(dims, div, mod, ceildiv(total, div) if mod is None else mod, turn)


def _check_turns(packed: Packing, what: str) -> None:
    """A swizzle turns a whole dimension by what other pieces tell."""
    swizzled = {d for p in packed.pieces if p.turn is not None for d in p.dims}
    for p in packed.pieces:
        if p.turn is None:
            continue
        whole = len(p.dims) == 1 and same_int(p.div, 1)
        if not whole or p.mod is None or not same_int(p.mod, packed.shape[p.dims[0]]):
            refuse(
                f"{what}: a swizzle [d, 1, mod, by] turns one whole dimension, so that mod is its "
                f"extent, {show(packed.shape[p.dims[0]])}; found {shown([p.dims, p.div, p.mod])}"
            )
        if swizzled & set(p.turn.dims):
            refuse(
                f"{what}: dimension {p.dims[0]} is turned by {list(p.turn.dims)}; expected "
                "dimensions that are not swizzled themselves"
            )


def check_list(layout: object, what: str) -> None:
    """Raise ScheduleError for what is no list of dimensions."""
    if not isinstance(layout, (tuple, list)):
        refuse(
            f"{what}: a layout is a list of dimensions, such as [0, [1, 4]], or a function of the "
            f"indices; found {shown(layout)}"
        )


def _is_dim(d: object, rank: int) -> bool:
    return isinstance(d, int) and not isinstance(d, bool) and 0 <= d < rank


def _is_number(n: object) -> bool:
    return isinstance(n, (int, np.ndarray, Size)) and not isinstance(n, bool)


def _complete(pieces: list[Piece]) -> bool:
    """Whether the digits are a mixed-radix form, each used once."""
    div: Int = 1
    left = list(pieces)
    while left:
        found = next(
            (p for p in left if same_int(p.div, div) and (not p.is_rest or len(left) == 1)),
            None,
        )
        if found is None:
            return False
        left.remove(found)
        if found.mod is None or found.is_rest:
            return True
        div = found.div * found.mod
    return False


def transform_layout(
    func: PrimFunc,
    block: str,
    buffer: Sequence[Union[str, int]] | str,
    layout: Layout,
    pad_value: float | None = None,
    parameters: bool = False,
) -> PrimFunc:
    """Store an intermediate in another layout; all who read or write it follow.
    (TVM transform_layout; Halide reorder_storage and fold.)

    Args:
        buffer: ("read", n) or ("write", n), an access of the block, or the buffer's name.
        layout: the new dimensions, as this module says.
        pad_value: what the elements hold that a layout adds where it does not divide; None: nothing
            defined, and nobody reads them. With a value the writer is made anew: its axes are the
            new dimensions, in loops of its own.
        parameters: whether the buffer may be an argument, which callers then pass in this layout;
            one that is written only where the layout divides its extents.

    Legality: the buffer is an intermediate (or `parameters`) without alignment; the layout's digits
    determine every index; indices that it cuts are affine; a swizzle turns one whole dimension by a
    digit of dimensions that are not swizzled, of a buffer that no recurrence and no rolled block
    writes. With `pad_value` the one writer is no reduction and no recurrence, writes all of the
    buffer by its own axes, one a dimension, and shares no loop. An argument keeps its layout, which
    is the caller's: cache_read with a layout reads it through a stage that transforms it.

    rewrite: (lambda i, j: (i // 4, j, i % 4))
        B = T.alloc_buffer((10, 6), "float32")      B = T.alloc_buffer((3, 6, 4), "float32")
        with T.block("B"):                          with T.block("B"):
            B[vi, vj] = A[vi, vj] + 1       ->          B[vi // 4, vj, vi % 4] = A[vi, vj] + 1
        with T.block("C"):                          with T.block("C"):
            C[vi, vj] = B[vi, vj] * 2                   C[vi, vj] = B[vi // 4, vj, vi % 4] * 2
    """
    what = f"transform_layout({block})"
    old = accessed_buffer(site_of(func, block).block, buffer, what)
    is_param = any(b is old for b in func.params)
    if is_param and not parameters:
        refuse(
            f"{what}: {old.name} is an argument of {func.name}, whose layout is the caller's; "
            f"cache_read(block, {old.name!r}, layout=...) reads it through a stage that transforms "
            "it, cache_write makes an intermediate of an output; with parameters=True callers pass "
            "it in the new layout"
        )
    if old.align:
        refuse(f"{what}: {old.name} has strides of its own; do storage_align afterwards")
    check_list(layout, what)
    if any(_fuses_by_candidate(d) for d in layout):
        raise NotBatchable(f"{what}: digits of fused dimensions differ by candidate")
    dims = packing(old, layout, what)
    stepwise = [s.block.name for s in writers_of(func, old) if is_step(s.block)]
    if stepwise and any(p.turn is not None for p in dims.pieces):
        refuse(
            f"{what}: {stepwise[0]} writes {old.name} step by step, and of a swizzled row nothing "
            "proves that it is written before it is read; choose a layout without swizzle"
        )
    new = replace(old, shape=dims.extents)
    if is_param:
        _check_parameter(func, old, dims, pad_value, what)
        params = tuple(new if b is old else b for b in func.params)
        func = replace(func, params=params)
    if pad_value is not None:
        func = _padded_writer(func, old, new, dims, pad_value, what)

    def visit(b: Block) -> Block:
        if all(a.buffer is not old for a in (*b.reads, *b.writes)):
            return b
        extents = {it.var: it.extent for it in b.iters}

        def change(a: Access) -> Access:
            return dims.through(a, new, extents, what) if a.buffer is old else a

        return replace(b, reads=tuple(map(change, b.reads)), writes=tuple(map(change, b.writes)))

    result = map_func(func, visit)
    check_kinds(result, func)
    return result


def _check_parameter(
    func: PrimFunc, old: Buffer, dims: Packing, pad_value: float | None, what: str
) -> None:
    """Raise ScheduleError for a layout of an argument that leaves elements of an output unwritten,
    and for a padding that nothing here writes."""
    if pad_value is not None:
        refuse(f"{what}: pad_value is for intermediates; callers write the padding of {old.name}")
    if any(not isinstance(n, int) for n in (*old.shape, *dims.extents)):
        refuse(f"{what}: the layout of an argument has constant extents")
    sizes = prod(old.shape), prod(dims.extents)
    if writers_of(func, old) and sizes[0] != sizes[1]:
        refuse(f"{what}: the layout pads {old.name}, which is an output and written in full")


def _fuses_by_candidate(dim: Any) -> bool:
    """Whether a new dimension is a digit of several old ones, cut where each candidate has it."""
    fused = isinstance(dim, (tuple, list)) and dim and isinstance(dim[0], (tuple, list))
    return bool(fused) and any(isinstance(v, np.ndarray) for v in dim[1:])


def accessed_buffer(block: Block, buffer: Sequence[Union[str, int]] | str, what: str) -> Buffer:
    """The buffer of ("read", n) or ("write", n) of a block, or the one of that name."""
    named = {"read": block.reads, "write": block.writes}
    if isinstance(buffer, str):
        for a in (*block.reads, *block.writes):
            if a.buffer.name == buffer:
                return a.buffer
        have = ", ".join(dict.fromkeys(a.buffer.name for a in (*block.reads, *block.writes)))
        refuse(f"{what}: the block does not access {buffer}; it accesses {have}")
    pair = tuple(buffer) if isinstance(buffer, (tuple, list)) else ()
    if (
        len(pair) != 2
        or not isinstance(pair[0], str)
        or pair[0] not in named
        or (not isinstance(pair[1], int))
    ):
        refuse(f'{what}: a buffer is ("read", n), ("write", n) or a name; found {shown(buffer)}')
    found = named[str(pair[0])]
    if not 0 <= pair[1] < len(found):
        refuse(f"{what}: the block has {len(found)} {pair[0]}s; found number {pair[1]}")
    return found[pair[1]].buffer


def _padded_writer(
    func: PrimFunc, old: Buffer, new: Buffer, dims: Packing, pad_value: float, what: str
) -> PrimFunc:
    """The writer of `old` made one of `new`, with `pad_value` where no element of `old` is."""
    writers = writers_of(func, old)
    if len(writers) != 1:
        refuse(f"{what}: pad_value needs one writer of {old.name}; it has {len(writers)}")
    site = writers[0]
    block = site.block
    if block.reducer is not None or len(block.writes) != 1 or guards_of(site):
        refuse(
            f"{what}: pad_value is for a block that writes one value for each element; cache_write "
            f"{block.name} and transform the copy",
            block,
        )
    if is_step(block):
        refuse(
            f"{what}: pad_value makes the axes of the writer anew, without an order, and "
            f"{block.name} goes step by step; leave pad_value out, or transform a copy, which "
            "cache_read makes in a block that reads it",
            block,
        )
    (order,) = written_axes(block, what)
    axis_extents = {it.var: it.extent for it in block.iters}
    for var, size in zip(order, old.shape, strict=True):
        if not same_int(axis_extents[var], size):
            refuse(
                f"{what}: pad_value needs a writer of all of {old.name}; {block.name} writes "
                f"{show(axis_extents[var])} of {show(size)} elements along {var.name}"
            )
    if _shares_loops(func, site):
        refuse(f"{what}: {block.name} stands inside loops of other blocks; transform it before")
    axes = [Var(f"v{n}") for n in range(len(dims.pieces))]
    extents = dict(zip(axes, dims.extents, strict=True))
    logical, guards = dims.back(axes)
    reads, _, (value,) = rewrite_block(block, dict(zip(order, logical, strict=True)), extents)
    try:
        padding = ex.const(pad_value, old.dtype)
    except TensorExprError as e:
        raise ScheduleError(f"{what}: pad_value: {e}") from e
    condition: Expr | None = None
    for guard in guards:
        holds = to_expr(guard.form) < to_expr(Affine(guard.bound))
        condition = holds if condition is None else ex.call("and", condition, holds)
    if condition is not None:
        value = ex.call("if_then_else", condition, value, padding)
    fresh = replace(
        block,
        iters=tuple(Iter(v, n) for v, n in extents.items()),
        bindings=(),
        predicates=(),
        reads=reads,
        writes=(Access(new, tuple(Affine.of(v) for v in axes)),),
        body=(value,),
    )
    top = site.loops[0] if site.loops else block
    return replace_node(func, top, (nest(fresh, full(fresh), (), {}),))


def _shares_loops(func: PrimFunc, site: Site) -> bool:
    return bool(site.loops) and any(
        other.block is not site.block and other.loops[:1] == site.loops[:1] for other in sites(func)
    )
