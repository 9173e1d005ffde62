"""Tiling for tensor cores: products of 16 by 8 results that the threads of a warp make together.

    S0 blockIdx.x | S1 threadIdx.y (warps) | lanes threadIdx.x | R0 | R1 | S2 unrolled | instruction

Which axes these are follows from the computation: a sum of products of two operands, of dtypes that
an intrinsic takes (`codegen/warp_intrinsics.py`), with an axis of the result that only the left one
has (rows), the last axis, that only the right one has (columns), and a reduction axis of both
(terms). They are padded to whole products; operands are fetched into shared memory, several steps
ahead; results stay in registers, 2 by 2 a thread, and are stored by the elementwise consumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autosched.codegen.warp_intrinsics import (
    COLUMNS,
    GROUP,
    KINDS,
    LANE_ROWS,
    ROW_BYTES,
    ROWS,
)
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, axis_dim, used_axes
from autosched.sketch.decisions import ChoiceSpec, DecisionSpec, Role, TileSpec
from autosched.sketch.rules.default import axis_loops
from autosched.sketch.rules.gpu.tiling import is_tiled, storing
from autosched.sketch.state import State, TiledNest, Verdict
from autosched.target import Target
from autosched.tir.affine import Affine, always, sometimes
from autosched.tir.dtypes import itemsize
from autosched.tir.intrin import TensorIntrin, operands
from autosched.tir.intrin_code import WarpCode
from autosched.tir.nodes import Access, Iter

WARPS, TILE_ROWS, TILE_COLUMNS, STEPS = 2, 4, 4, 2
"""Of the default schedule: warps along rows and columns, products of a warp, and of a fetch."""
PANEL_BYTES = 128
"""Of a row of an operand that warpgroups read."""
GROUP_COLUMNS, GROUP_STEPS = 16, 1
"""The same of warpgroups: columns by 8, and rows' worth of terms of a fetch."""
STAGES = (3, 2, 4)
"""Values for the steps between a fetch and its use, and one more."""


@dataclass(frozen=True)
class Product:
    """How a block is an intrinsic's: the numbers of its axes and of its reads. `turned`: rows of
    the right operand run along the columns."""

    intrin: TensorIntrin
    rows: int
    columns: int
    terms: int
    left: int
    right: int
    turned: bool

    @property
    def code(self) -> WarpCode:
        """The instruction."""
        code = self.intrin.implementation
        assert isinstance(code, WarpCode)  # `products_of`
        return code

    @property
    def grouped(self) -> bool:
        """Whether four warps do it together."""
        return self.code.warps > 1

    @property
    def cuts(self) -> dict[int, tuple[int, ...]]:
        """Into which parts the axes of a product are cut: the extents from each part inwards. What
        warpgroups read is whole rows of `PANEL_BYTES`."""
        terms = self.code.terms
        if not self.grouped:
            return {self.rows: (ROWS, LANE_ROWS), self.columns: (COLUMNS, 2), self.terms: (terms,)}
        panel = terms * PANEL_BYTES // (2 * ROW_BYTES)
        columns = (panel, COLUMNS, 2) if self.turned else (COLUMNS, 2)
        if KINDS[self.intrin.name.rsplit("_", 1)[1]].total == "int32":
            columns = (2 * COLUMNS, COLUMNS, 2)  # multiples that there are of any width
        return {
            self.rows: (ROWS * GROUP, ROWS, LANE_ROWS),
            self.columns: columns,
            self.terms: (panel, terms),
        }

    @property
    def whole(self) -> dict[int, int]:
        """What a product takes of its axes."""
        return {n: cut[0] for n, cut in self.cuts.items()}

    @property
    def near(self) -> int:
        """Columns by 8 in the least product."""
        return self.whole[self.columns] // COLUMNS


class TensorCores:
    """A sketch on tensor cores, beside those of multi-level tiling, and before them."""

    name = "tensor-cores"

    def condition(self, state: State, block: str) -> Verdict:
        """A tiled reduction that computes what an intrinsic of the target's warps does."""
        if block in state.handled or block in state.factored:
            return Verdict.PASS
        info = state.blocks()[block]
        found = is_tiled(info) and any(not p.grouped for p in products_of(info, state.target))
        return Verdict.APPLY if found else Verdict.PASS

    def apply(self, state: State, block: str) -> list[State]:
        """A sketch for warpgroups, where the target has them, and one for warps."""
        info = state.blocks()[block]
        found = list(products_of(info, state.target))
        kinds = [[p for p in found if p.grouped and is_panelled(info, p)]]
        kinds.append([p for p in found if not p.grouped])
        best = [max(ps, key=lambda p: _worth(info, p)) for ps in kinds if ps]
        return [_sketch(state, info, p) for p in best]


def products_of(info: BlockInfo, target: Target) -> Iterator[Product]:
    """The ways in which a block is an intrinsic of the target's warps."""
    block = info.block
    if not info.writes_identity or len(block.reads) != 2 or block.predicates:
        return
    if any(a.buffer.scope != "global" for a in block.reads):
        return  # another sketch has copied them already
    numbers = {id(it.var): n for n, it in enumerate(block.iters)}
    columns = info.vector_axis
    if columns is None:
        return
    for intrin in TensorIntrin.all():
        code = intrin.implementation
        if not isinstance(code, WarpCode) or not intrin.features <= target.features:
            continue
        for named in operands(intrin, block):
            left, right = (used_axes(block.reads[named[name]]) for name in "AB")
            if id(columns.var) not in right - left or 2 * int(columns.extent) <= COLUMNS:
                continue
            for rows in info.spatial:
                least = ROWS * code.warps // 2
                if id(rows.var) not in left - right or int(rows.extent) <= least:
                    continue
                for terms in info.reduce:
                    both = id(terms.var) in left & right and 2 * int(terms.extent) > code.terms
                    found = Product(
                        intrin,
                        numbers[id(rows.var)],
                        numbers[id(columns.var)],
                        numbers[id(terms.var)],
                        named["A"],
                        named["B"],
                        _is_last(block.reads[named["B"]], columns),
                    )
                    if both and _is_whole(info, found):
                        yield found


def _is_last(access: Access, axis: Iter) -> bool:
    return axis_dim(access, axis) == len(access.indices) - 1


def _is_whole(info: BlockInfo, p: Product) -> bool:
    """Whether the axes are whole products, or can be padded: terms are a dimension of what they
    index, rows and columns move along one (`Schedule.pad_axis`)."""
    for n, multiple in p.whole.items():
        axis = info.block.iters[n]
        for a in (a for a in info.block.reads if id(axis.var) in used_axes(a)):
            moved = [i for i in a.indices if not isinstance(i, Affine) or i.uses([axis.var])]
            alone = n == p.terms and axis_dim(a, axis) is None
            index = moved[0]
            slides = isinstance(index, Affine) and sometimes(index.coefficient(axis.var) > 0)
            if int(axis.extent) % multiple and (len(moved) > 1 or alone or not slides):
                return False
    return True


def is_panelled(info: BlockInfo, p: Product) -> bool:
    """Whether copies of the operands in rows of 128 bytes are what a warpgroup reads: rows run
    along the last dimension, which is the terms or, of halves, the columns; the other axis of the
    product runs along the one before."""
    iters = info.block.iters
    for number, own in ((p.left, p.rows), (p.right, p.columns)):
        access = info.block.reads[number]
        last = len(access.indices) - 1
        if last < 1 or int(access.buffer.shape[-1]) % (
            PANEL_BYTES // itemsize(access.buffer.dtype)
        ):
            return False
        by_columns = number == p.right and p.turned
        if by_columns and itemsize(access.buffer.dtype) != 2:
            return False
        if not by_columns and not _is_last(access, iters[p.terms]):
            return False
        other = iters[p.terms] if by_columns else iters[own]
        index = access.indices[last - 1]
        sliding = {it.var for it in iters if it is not other and it.extent != 1}
        if not isinstance(index, Affine) or not always(index.coefficient(other.var) == 1):
            return False
        if index.uses(sliding):
            return False  # of another row than the first of a matrix
    return True


def _worth(info: BlockInfo, p: Product) -> tuple[bool, float]:
    """Terms that lie next to each other in the left operand first, then the least padding."""
    iters = info.block.iters
    left = info.block.reads[p.left]
    near = axis_dim(left, iters[p.terms]) == len(left.indices) - 1
    waste = 1.0
    for n, multiple in p.whole.items():
        extent = int(iters[n].extent)
        waste *= -(-extent // multiple) * multiple / extent
    return near, -waste


def mma_specs(info: BlockInfo, p: Product) -> tuple[DecisionSpec, ...]:
    """Warps along rows and columns, products of a warp, steps of a fetch; vectors and rows of the
    copies, and how far ahead they are."""
    label = _label(info, p)
    found: list[DecisionSpec] = []
    for n, axis in enumerate(info.block.iters):
        name, extent = f"{label}.{axis.var.name}", int(axis.extent)
        tiles = -(-extent // p.whole.get(n, 1))
        if n in (p.rows, p.columns):
            warps, most = (WARPS, TILE_ROWS) if n == p.rows else (WARPS, TILE_COLUMNS)
            if p.grouped:
                warps, most = (2, 1) if n == p.rows else (1, GROUP_COLUMNS // p.near)
            inner = min(most, tiles)
            default: tuple[int, ...] = min(warps, -(-tiles // inner)), inner
            pair = (f"{name}.1", f"{name}.2")
            role: Role = "groups" if p.grouped else "warps"
            unit = p.near if n == p.columns else 1
            spec = TileSpec(label, axis.var.name, pair, tiles, role, unit, default)
            (settled,) = spec.repair(np.array([default], dtype=np.int64)).tolist()
            found.append(replace(spec, default=tuple(settled)))
        elif axis.kind == "reduce":
            most = GROUP_STEPS if p.grouped else STEPS
            steps = min(most, tiles) if n == p.terms else 1
            found.append(
                TileSpec(label, axis.var.name, (f"{name}.1",), tiles, "terms", 1, (steps,))
            )
        elif _is_row(info, p, axis):
            found.append(TileSpec(label, axis.var.name, (f"{name}.1",), tiles, "outer", 1, (1,)))
    # One buffer, if a matrix is multiplied by itself.
    for buffer in dict.fromkeys(info.block.reads[n].buffer for n in (p.left, p.right)):
        vector = ROW_BYTES // itemsize(buffer.dtype)
        if not p.grouped:
            found.append(ChoiceSpec(label, f"{label}.{buffer.name}.fetch", (vector, vector // 2)))
            found.append(ChoiceSpec(label, f"{label}.{buffer.name}.align", (2 * vector, 1)))
    found.append(ChoiceSpec(label, f"{label}.stages", STAGES))
    return tuple(found)


def _label(info: BlockInfo, p: Product) -> str:
    return f"{info.name}.{'wgmma' if p.grouped else 'mma'}"


def _is_row(info: BlockInfo, p: Product, axis: Iter) -> bool:
    """Whether an axis numbers results that have the right operand together."""
    left, right = (used_axes(info.block.reads[n]) for n in (p.left, p.right))
    return id(axis.var) in left - right


def _sketch(state: State, info: BlockInfo, p: Product) -> State:
    schedule = state.fork()
    specs = mma_specs(info, p)
    state.declare(schedule, specs)
    rv = schedule.get_block(info.name)
    consumer = storing(state, info)
    if consumer is None:
        store = schedule.cache_write(rv, 0, "local")
    else:
        store = schedule.get_block(consumer.name)
        schedule.set_scope(rv, 0, "local")
    copies = _operands(schedule, rv, info, p)
    outer = _tile_store(schedule, store, info, p, specs)
    _tile_axes(schedule, rv, info, p)
    schedule.compute_at(rv, outer)
    fetched_at = _tile_product(schedule, rv, info, p, specs)
    label = _label(info, p)
    for copy, number in zip(copies, (p.left, p.right), strict=True):
        buffer = info.block.reads[number].buffer
        schedule.compute_at(copy, fetched_at)
        vector = ROW_BYTES // itemsize(buffer.dtype)
        fetched = vector if p.grouped else Decision(f"{label}.{buffer.name}.fetch")
        schedule.annotate(copy, "cooperative", fetched)
        if not p.grouped and len(buffer.shape) > 1:
            align = Decision(f"{label}.{buffer.name}.align")
            schedule.storage_align(copy, 0, -2, align, vector)
        schedule.double_buffer(copy, Decision(f"{label}.stages"))
    handled = [schedule.get(b).name for b in (rv, store, *copies)]
    nest = TiledNest(info.name, outer, fixed=True)
    return state.advance(schedule, tuple(handled), specs, f"{info.name}.{p.intrin.name}", (nest,))


def _operands(schedule: Schedule, rv: BlockRV, info: BlockInfo, p: Product) -> list[BlockRV]:
    """Pad the axes to whole products; copy both operands, zeros included, to shared memory: for
    warpgroups in panels of the last dimension."""
    padding: list[BlockRV] = []
    left, right = (schedule.get(rv).reads[n].buffer for n in (p.left, p.right))
    if left is right:  # the product of a matrix with itself: one copy would hold the tiles of both
        padding.append(schedule.reindex(rv, ("read", p.left)))
    for n, multiple in p.whole.items():
        loop = axis_loops(schedule, rv)[id(schedule.get(rv).iters[n])]
        padding += schedule.pad_axis(loop, multiple)
    copies: list[BlockRV] = []
    for n in (p.left, p.right):
        buffer, layout = info.block.reads[n].buffer, None
        if p.grouped:
            last, row = len(buffer.shape) - 1, PANEL_BYTES // itemsize(buffer.dtype)
            layout = [[last, row], *([d] for d in range(last)), [last, 1, row]]
        copies.append(schedule.cache_read(rv, n, "shared", layout))
    for copier in padding:
        schedule.compute_inline(copier)
    return copies


def _tile_axes(schedule: Schedule, rv: BlockRV, info: BlockInfo, p: Product) -> None:
    """Give the block an axis for each part of a product that threads number, and the result, in
    registers, a dimension."""
    for n in sorted(p.cuts, reverse=True):
        for place, factor in enumerate(p.cuts[n]):
            schedule.split_axis(rv, n + place, factor)
    spatial = [n for n, it in enumerate(info.block.iters) if it.kind == "spatial"]
    layout: list[list[int]] = []
    for dim, n in enumerate(spatial):
        if n in (p.rows, p.columns):
            cut = (*p.cuts[n], 1)
            layout.append([dim, cut[0]])
            layout += [[dim, b, a // b] for a, b in pairwise(cut)]
        else:
            layout.append([dim])
    schedule.transform_layout(rv, ("write", 0), layout)


def _tile_store(
    schedule: Schedule,
    store: BlockRV,
    info: BlockInfo,
    p: Product,
    specs: tuple[DecisionSpec, ...],
) -> LoopRV:
    """Split, order and bind the loops of what stores the results; returns the last loop of the
    threads."""
    chosen = {s.axis: s for s in specs if isinstance(s, TileSpec)}
    loops = schedule.get_loops(store)
    blocks: list[LoopRV] = []
    warps: list[LoopRV] = []
    group: list[LoopRV] = []
    lanes: list[LoopRV] = []
    own: list[LoopRV] = []
    for loop, (n, axis) in zip(loops, _spatial(info), strict=True):
        spec = chosen.get(axis.var.name)
        if n in (p.rows, p.columns):
            assert spec is not None  # `mma_specs`
            cut = (*p.cuts[n], 1)
            sizes = [a // b for a, b in pairwise(cut)]
            tile, *parts = schedule.split(loop, [None, *sizes])
            first, warp, inner = schedule.split(tile, [None, *(Decision(x) for x in spec.names)])
            blocks.append(first)
            warps.append(warp)
            lanes.append(parts.pop(-1 if n == p.rows else -2))
            own += [inner, parts.pop()]
            if n == p.rows:
                group += parts
            else:
                own[-1:-1] = parts
        elif spec is not None:
            first, inner = schedule.split(loop, [None, Decision(spec.names[0])])
            blocks.append(first)
            own.append(inner)
        else:
            blocks.append(loop)
    warps += group  # neighbours, so innermost
    schedule.reorder(*blocks, *warps, *lanes, *own)
    for level, thread in ((blocks, "blockIdx.x"), (warps, "threadIdx.y"), (lanes, "threadIdx.x")):
        for loop in level:
            schedule.bind(loop, thread)
    for loop in own[:-1]:
        schedule.unroll(loop)
    schedule.vectorize(own[-1])
    return lanes[-1]


def _spatial(info: BlockInfo) -> list[tuple[int, Iter]]:
    return [(n, it) for n, it in enumerate(info.block.iters) if it.kind == "spatial"]


def _tile_product(
    schedule: Schedule,
    rv: BlockRV,
    info: BlockInfo,
    p: Product,
    specs: tuple[DecisionSpec, ...],
) -> LoopRV:
    """Split and order the loops of the product, which stand in those of the threads; returns the
    loop of steps."""
    chosen = {s.axis: s for s in specs if isinstance(s, TileSpec)}
    count = len(schedule.get(rv).iters)
    loops = iter(schedule.get_loops(rv)[-count:])
    steps: list[LoopRV] = []
    inner: list[LoopRV] = []
    around: list[LoopRV] = []
    nest: dict[str, LoopRV] = {}
    columns: list[LoopRV] = []
    for n, axis in enumerate(info.block.iters):
        if n == p.rows:
            around += [next(loops) for _ in p.cuts[n][1:]]
            nest["rows"], lane = next(loops), next(loops)
            around.append(lane)
        elif n == p.columns:
            columns = [next(loops) for _ in p.cuts[n][1:]]
            lane, nest["columns"] = next(loops), next(loops)
            around.append(lane)
        elif axis.kind == "spatial":
            around.append(next(loops))
        else:
            spec = chosen[axis.var.name]
            step, more = schedule.split(next(loops), [None, Decision(spec.names[0])])
            steps.append(step)
            inner.append(more)
            if n == p.terms:
                inner += [next(loops) for _ in p.cuts[n][1:]]
                nest["terms"] = next(loops)
    last = nest["rows"], nest["columns"], nest["terms"]
    schedule.reorder(*steps, *inner, *around, *columns, *last)
    for loop in (*inner, *around, *columns):
        schedule.unroll(loop)
    schedule.tensorize(nest["rows"], p.intrin.name)
    return steps[-1]
