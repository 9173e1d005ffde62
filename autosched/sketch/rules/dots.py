"""Which intrinsics compute what a block does: those on vectors, and those on tile registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autosched.codegen.tile_intrinsics import ROWS, kind_of, name_of
from autosched.sketch.analysis import BlockInfo, axis_dim, used_axes
from autosched.sketch.rules.default import is_contiguous
from autosched.sketch.rules.tile_defaults import extent_of
from autosched.target import Target
from autosched.tir.affine import Affine, Int, is_zero, same_int
from autosched.tir.intrin import TensorIntrin, operands
from autosched.tir.nodes import Access, Iter

TILE_COST = 10
"""What a product of tiles costs besides its rows, in rows: loads of tiles."""
DOT_COST = 0.25
"""What an intrinsic on vectors costs, in rows of a tile."""
SLOW_DOT = 4
"""Times that for bfloat16: processors with tiles do a fourth as many of these as of bytes."""
TOO_SLOW = 2
"""Times as slow as on vectors at which tiles are no choice."""


@dataclass(frozen=True)
class Dot:
    """How a block is an intrinsic's: its loops are `rows` rows along `across`, `lanes` results
    along `column` and `group` terms along `term`, of which `near` are neighbours in a panel;
    `panel` and `row` are the numbers of the reads along the columns and along the terms alone."""

    intrin: TensorIntrin
    column: Iter
    term: Iter
    lanes: int
    group: int
    near: int
    panel: int
    row: int
    across: Iter | None = None
    rows: int = 1

    @property
    def whole(self) -> dict[str, int]:
        """What the intrinsic takes of each of its axes, by name."""
        found = {self.column.var.name: self.lanes, self.term.var.name: self.group}
        return found if self.across is None else {self.across.var.name: self.rows, **found}


def dots_of(info: BlockInfo, target: Target) -> tuple[Dot, ...]:
    """The intrinsics of the target that compute what a block does: of those on vectors the one with
    most products, and one on tile registers, the one that is expected to be faster first."""
    column = info.vector_axis
    if not info.needs_tiling or column is None:
        return ()
    vectors: list[Dot] = []
    tiles: list[Dot] = []
    for intrin in TensorIntrin.all():
        if intrin.features and intrin.features <= target.features:
            vectors += _fits(info, intrin, column)
            tiles += _tiles(info, intrin, column)
    best = max(vectors, key=lambda d: d.lanes * d.group, default=None)
    # Of equals the last axis: its rows are the nearest in memory.
    tile = min(reversed(tiles), key=_cost, default=None)
    if tile is None or best is None:
        return tuple(d for d in (tile, best) if d is not None)
    if _cost(tile) > TOO_SLOW * _cost(best):
        return (best,)
    return (tile, best) if _cost(tile) < _cost(best) else (best, tile)


def _fits(info: BlockInfo, intrin: TensorIntrin, column: Iter) -> list[Dot]:
    """The ways in which a block is an intrinsic of one loop over results and one over terms."""
    lane, *more = intrin.loops
    if len(more) != 1 or [i.kind for i in intrin.block.iters] != ["spatial", "reduce"]:
        return []
    sizes = int(lane.extent), int(more[0].extent)
    if not _ends_whole(info, column, sizes[0]):
        return []
    found = []
    for panel, row in _pairs(info, intrin, column, sizes, sizes[1:]):
        along, other = (info.block.reads[n] for n in (panel, row))
        term = _term(info, along, other, sizes[1])
        if term is not None:
            found.append(Dot(intrin, column, term, *sizes, sizes[1], panel, row))
    return found


def _ends_whole(info: BlockInfo, column: Iter, lanes: int) -> bool:
    """Whether columns may be taken so many at a time: where results of another axis follow in
    memory, they cannot run on."""
    return info.writes_identity or extent_of(column) % lanes == 0


def _tiles(info: BlockInfo, intrin: TensorIntrin, column: Iter) -> list[Dot]:
    """The ways in which a block is an intrinsic on tile registers, of one number of rows each."""
    kind = kind_of(intrin)
    if kind is None:
        return []
    *_, lane, group, near = (int(x.extent) for x in intrin.loops)
    if not _ends_whole(info, column, lane):
        return []
    found = []
    shapes = (group, lane, near), (int(intrin.loops[0].extent), group * near)
    for panel, row in _pairs(info, intrin, column, *shapes):
        along, other = (info.block.reads[n] for n in (panel, row))
        term = _term(info, along, other, near)
        if term is None:
            continue
        groups = _groups(extent_of(term), group, near)
        if not _indexes(other, term) and extent_of(term) % (groups * near):
            continue
        for across in info.spatial:
            moves = _moves(info, along, other, column, across)
            rows = _rows(info, other, across) if moves else 0
            if rows:
                made = TensorIntrin.get(name_of(kind, rows, groups))
                terms = groups * near
                found.append(Dot(made, column, term, lane, terms, near, panel, row, across, rows))
    return found


def _groups(extent: int, most: int, near: int) -> int:
    """Groups of terms of a product: as few products as of `most`, of equal parts of the terms if
    they can be, since then nothing is added to them."""
    products = -(-extent // (most * near))
    whole, rest = divmod(extent, products * near)
    return whole if rest == 0 and whole > 1 else most


def _moves(info: BlockInfo, along: Access, other: Access, column: Iter, axis: Iter) -> bool:
    """Whether an axis numbers rows: of the result and of one operand, at equal distances."""
    if axis is column or extent_of(axis) == 1 or id(axis.var) in used_axes(along):
        return False
    for access in (other, info.block.writes[0]):
        used = [i for i in access.indices if isinstance(i, Affine) and i.uses([axis.var])]
        if len(used) != 1 or any(not isinstance(i, Affine) for i in access.indices):
            return False
        step, moved = used[0].coefficient(axis.var), used[0].split([axis.var])[1]
        if not isinstance(step, int) or step < 1 or len(moved.terms) != 1:
            return False
    return True


def _rows(info: BlockInfo, other: Access, axis: Iter) -> int:
    """Rows of a tile: of numbers that divide, or of all where the axis can run on over zeros, the
    one that costs least; 0 if there is none."""
    extent = extent_of(axis)
    own = _indexes(other, axis) and axis_dim(info.block.writes[0], axis) is not None
    whole = [n for n in range(2, ROWS + 1) if own or extent % n == 0]
    return min(whole, key=lambda n: (-(-extent // n) * (n + TILE_COST), -n), default=0)


def _cost(dot: Dot) -> float:
    """What the products of all columns and terms cost, a row of results, where there are tiles."""
    calls = -(-extent_of(dot.column) // dot.lanes) * -(-extent_of(dot.term) // dot.group)
    if dot.across is None:
        slow = dot.intrin.block.reads[0].buffer.dtype == "bfloat16"
        return calls * DOT_COST * (SLOW_DOT if slow else 1)
    extent = extent_of(dot.across)
    return calls * -(-extent // dot.rows) * (dot.rows + TILE_COST) / extent


def _pairs(
    info: BlockInfo,
    intrin: TensorIntrin,
    column: Iter,
    panel_shape: tuple[int, ...],
    row_shape: tuple[int, ...],
) -> Iterator[tuple[int, int]]:
    """Numbers of the reads that can be the operand in panels, which alone runs along the columns,
    and the other one."""
    shapes = {a.buffer.name: tuple(int(n) for n in a.buffer.shape) for a in intrin.block.reads}
    for named in operands(intrin, info.block):
        panel = [n for name, n in named.items() if shapes[name] == panel_shape]
        row = [n for name, n in named.items() if shapes[name] == row_shape]
        if len(named) != 2 or len(panel) != 1 or len(row) != 1:
            continue
        along, other = (info.block.reads[n] for n in (panel[0], row[0]))
        if along.buffer is other.buffer:
            continue  # each is packed in its own way
        if axis_dim(along, column) is not None and id(column.var) not in used_axes(other):
            yield panel[0], row[0]


def _term(info: BlockInfo, along: Access, other: Access, group: int) -> Iter | None:
    """The reduction axis whose terms are added at once, `group` of them: one that runs over a whole
    dimension, or, in whole groups, over a part of the last one; else over windows in it."""
    named = [a for a in info.reduce if _indexes(along, a)]
    whole = [a for a in named if extent_of(a) % group == 0]
    terms = [a for a in named if _indexes(other, a) or (a in whole and _is_part(other, a))]
    if not terms:
        terms = [a for a in whole if _step(other, a) is not None]
    # Neighbours in memory need no copy; else the longest has least padding.
    return max(terms, key=lambda a: (is_last(other, a), int(a.extent)), default=None)


def _indexes(access: Access, axis: Iter) -> bool:
    """Whether an axis runs over the whole of one dimension."""
    dim = axis_dim(access, axis)
    return dim is not None and int(access.buffer.shape[dim]) == int(axis.extent)


def _is_part(access: Access, axis: Iter) -> bool:
    """Whether an axis numbers the elements of parts, such as groups of channels, that follow one
    another along the last dimension."""
    step = _step(access, axis)
    return step is not None and same_int(step, extent_of(axis))


def _step(access: Access, axis: Iter) -> Int | None:
    """The distance of parts of the last dimension whose elements an axis numbers: groups of
    channels, or windows, which may overlap; None where it numbers no such elements."""
    last = access.indices[-1]
    if not isinstance(last, Affine) or not is_contiguous(access, axis) or not is_zero(last.const):
        return None
    others = [v for v in last.variables() if v is not axis.var]
    return last.coefficient(others[0]) if len(others) == 1 else None


def is_last(access: Access, axis: Iter) -> bool:
    """Whether an axis runs along the last dimension, or numbers neighbours in it."""
    last = axis_dim(access, axis) == len(access.indices) - 1
    return last or _step(access, axis) is not None
