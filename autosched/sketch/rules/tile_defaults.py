"""What decides how a tile is shaped by default: who shares operands, rows, copies, tasks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import gcd, prod

from autosched.sketch.analysis import CHEAP, BlockInfo, used_axes
from autosched.sketch.decisions import DecisionSpec, TileSpec
from autosched.sketch.rules.default import is_contiguous
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Affine, always, ceildiv, is_zero, same_int
from autosched.tir.nodes import Access, Iter

DEFAULT_COPIES = 9
"""Copies of the reduction in the default schedule."""


SHORT_WINDOW = 5
"""Taps of an axis of a window up to which all of them are copied out."""

LONG_COPIES = (8, 7, 6, 5, 4)
"""Taps of a long window that stand beside each other."""

LONG_SPARE = 4
"""Vector registers for what is neither a sum nor data of a row of a long window."""

SHARED_COST = 2
"""Rows of a register tile that cost as much as the loads of the vectors which its rows share."""

FEW_ROWS = 256
"""Results an element of the weights up to which it matters that they come from memory."""

FEW = 8
"""Results an element up to which an operand is read as if for one."""

FEW_FAR, MOST_FAR = 32, 48
"""The same of an operand as large as the third cache, in proportion to its size, and at most:
packing reads and writes memory."""


def is_streamed(info: BlockInfo, target: Target, packed: Collection[str] = ()) -> bool:
    """Whether what is read along the vectors comes from beyond the second cache for few results an
    element: a vector or a few times a matrix. Then whole rows are read one after the other, as they
    lie in memory, and results stay in the cache rather than in registers. `packed`: buffers whose
    panels lie one after the other beforehand."""
    vector = info.vector_axis
    assert vector is not None  # the condition asks for one
    if not info.reduce:
        return False
    for access in info.block.reads:
        used = used_axes(access)
        dense = is_contiguous(access, vector) and id(info.reduce[-1].var) in used
        results = prod(extent_of(a) for a in info.spatial if id(a.var) not in used)
        size = prod(int(n) for n in access.buffer.shape) * dtypes.itemsize(access.buffer.dtype)
        far = size > target.l2_bytes and access.buffer.name not in packed
        few = max(FEW, min(FEW_FAR * size // target.l3_bytes, MOST_FAR))
        if 2 * size < target.l3_bytes:
            few = FEW
        if dense and results <= few and far and not _slides(access, info):
            return True
    return False


def lanes_of(info: BlockInfo, target: Target) -> int:
    """Results in one vector."""
    return max(target.vector_bytes // dtypes.itemsize(info.block.writes[0].buffer.dtype), 1)


def shared_groups(info: BlockInfo, target: Target) -> Iter | None:
    """The axis of the groups, where one group has too few results for a vector, and two vectors
    hold what the groups in one read: a convolution of few channels a group.

    The vectors then run over both axes, and lanes of a group take the element that is theirs.
    """
    short = info.vector_axis
    assert short is not None  # the condition asks for one
    last = info.block.writes[0].indices[-1]
    assert isinstance(last, Affine)  # or it would have no vector axis
    size, lanes = extent_of(short), lanes_of(info, target)
    found = (a for a in info.spatial if same_int(last.coefficient(a.var), size))
    groups = next(found, None) if 1 < size < lanes else None
    if groups is None or not all(_neighbours(a, groups, short, lanes) for a in info.block.reads):
        return None
    # A consumer writes whole vectors: those of the last groups of a tile must not hang over it.
    return groups if whole(extent_of(groups), size, lanes) else None


def across(info: BlockInfo, target: Target) -> BlockInfo | None:
    """The block with its vectors over its longest axis, where the contiguous one has less than half
    a vector of results and each costs much: forces of bodies by their three components.

    Results and data are then read and stored element by element; a product would lose by that.
    """
    short, longest = info.vector_axis, max(info.spatial, key=extent_of)
    assert short is not None  # the condition asks for one
    lanes = lanes_of(info, target)
    few = 2 * extent_of(short) < lanes <= extent_of(longest)
    if not few or info.cost <= CHEAP or shared_groups(info, target) is not None:
        return None
    return replace(info, across=longest)


def whole(groups: int, size: int, lanes: int) -> list[int]:
    """The numbers of groups of one to four vectors of which all the groups are a multiple."""
    return [n for n in range(1, 4 * lanes // size + 1) if groups % n == 0 and n * size >= lanes]


def _neighbours(access: Access, groups: Iter, short: Iter, lanes: int) -> bool:
    """Whether a read by all lanes of a vector is of elements that two vectors hold."""
    both = (groups.var, short.var)
    last = access.indices[-1]
    if not isinstance(last, Affine):
        return False
    if any(not isinstance(i, Affine) or i.uses(both) for i in access.indices[:-1]):
        return False
    group, one = last.coefficient(groups.var), last.coefficient(short.var)
    size = extent_of(short)
    if same_int(one, 1):
        return same_int(group, size) or is_zero(group)
    reach = 1 + ceildiv(lanes - 1, size) * group  # from the first lane's element to the last one's
    return is_zero(one) and always(reach <= 2 * lanes)


def _slides(access: Access, info: BlockInfo) -> bool:
    """Whether windows are read, which overlap: an element is for as many results as it has taps."""
    reduce = [a.var for a in info.reduce if extent_of(a) != 1]
    spatial = [a.var for a in info.spatial if extent_of(a) != 1]
    affine = [i for i in access.indices if isinstance(i, Affine)]
    return any(i.uses(reduce) and i.uses(spatial) for i in affine)


def enough_tasks(specs: list[TileSpec], wanted: int) -> tuple[DecisionSpec, ...]:
    """The specs with smaller default cache tiles, until the parallel level has `wanted`
    iterations."""
    specs = list(specs)
    while True:
        spatial = [n for n, s in enumerate(specs) if s.role != "reduce"]
        tasks = prod(-(-specs[n].extent // prod(specs[n].default)) for n in spatial)
        largest = max(spatial, key=lambda n: specs[n].default[1])
        outer, middle, *inner = specs[largest].default
        if tasks >= wanted or middle == 1:
            return tuple(specs)
        around = tiles_around(specs[largest].extent, prod(inner), middle // 2)
        specs[largest] = replace(specs[largest], default=(outer, around[1], *inner))


def within_cache(specs: list[TileSpec], info: BlockInfo, target: Target) -> list[TileSpec]:
    """The specs with smaller default cache tiles along the outermost axes of rows, so that the
    first cache has a tile's results when its consumer reads them.

    Not where it has no room for what all rows share, which more of them are then to read, nor where
    windows slide, which read anew what lies at the edges of a tile.
    """
    room = target.l1_bytes // 2 // dtypes.itemsize(info.block.writes[0].buffer.dtype)
    terms = prod(s.extent for s in specs if s.role == "reduce")
    shared = terms * prod(prod(s.default) for s in specs if s.role == "vector")
    specs = list(specs)
    if shared > room or any(_slides(a, info) for a in info.block.reads):
        return specs
    for n, spec in enumerate(specs):
        while spec.role == "rows" and spec.default[1] > 1:
            if prod(prod(s.default) for s in specs if s.role != "reduce") <= room:
                return specs
            _, middle, inner = spec.default
            spec = specs[n] = replace(spec, default=tiles_around(spec.extent, inner, middle // 2))
    return specs


def extent_of(axis: Iter) -> int:
    return int(axis.extent)


def tiles_around(extent: int, inner: int, tiles: int) -> tuple[int, int, int]:
    """Default factors: half of `tiles` to `tiles` register tiles in one cache tile, of these the
    number with the least overhang."""
    count = -(-extent // inner)
    most = min(tiles, count)
    return 1, min(range(most, most // 2, -1), key=lambda n: -count % n), inner


def shares_dimension(info: BlockInfo, vector: Iter) -> bool:
    """Whether another axis numbers results in the dimension of the vector axis, as the groups of a
    convolution do: what hangs over the end of one group lies in the next."""
    if info.across is not None:
        return False
    last = info.block.writes[0].indices[-1]
    assert isinstance(last, Affine)  # or it would have no vector axis
    return any(a is not vector and extent_of(a) > 1 and last.uses((a.var,)) for a in info.spatial)


def has_one_axis_of_rows(info: BlockInfo) -> bool:
    """Whether the rows are one axis, as those of a product are."""
    return sum(extent_of(a) > 1 for a in _rows(info)) == 1


def reads_panels(info: BlockInfo) -> bool:
    """Whether the rows pass over one panel of weights after the other, while the next one is
    prefetched: in a product, and where the weights are read for few results."""
    return has_one_axis_of_rows(info) or prod(extent_of(a) for a in _rows(info)) <= FEW_ROWS


def _rows(info: BlockInfo) -> list[Iter]:
    return [a for a in info.spatial if a is not info.vector_axis and is_reused(info, a)]


def register_tiles(info: BlockInfo, target: Target) -> int:
    """Register tiles of a cache tile along an axis of rows: more where the rows are one axis and
    the second cache holds what so many read. Weights that no cache holds are then read once for
    twice as many rows."""
    return 16 if has_one_axis_of_rows(info) and target.l2_bytes >= 1 << 20 else 8


def without_tail(extent: int, lanes: int) -> tuple[int, int, int]:
    """Default factors whose cache tiles end where the axis does: register tiles of up to four
    vectors with the fewest lanes left empty, near two vectors."""
    inner = min(
        (n for n in range(1, extent + 1) if extent % n == 0 and (n <= 4 * lanes or n == extent)),
        key=lambda n: (-(-n // lanes) / n, abs(n - 2 * lanes)),
    )
    return 1, dividing(extent // inner), inner


def dividing(count: int) -> int:
    """Register tiles of a cache tile, so that no cache tile hangs over the end."""
    return next(n for n in (4, 3, 2, 1) if count % n == 0)


def is_reused(info: BlockInfo, axis: Iter) -> bool:
    """Whether something is read that is the same for all of an axis."""
    return not all(id(axis.var) in used_axes(a) for a in info.block.reads)


def default_rows(info: BlockInfo, target: Target, lanes: int) -> dict[int, int]:
    """Rows of the default register tile, of two vectors or, where the axis has no more, one: half
    of the registers, innermost axis first, but before all others the axes of rows that share their
    vectors (the filters of a convolution whose pixels are neighbours): those that no read along
    the vectors uses."""
    vector = info.vector_axis
    assert vector is not None  # the condition asks for one
    along = [u for u in map(used_axes, info.block.reads) if id(vector.var) in u]
    left = target.vector_registers // (2 if lanes // 2 < extent_of(vector) <= lanes else 4)
    if long_window(info) is not None:
        left = _long_rows(target) // default_vectors(info, target, lanes)
    rows: dict[int, int] = {}
    shared = [a for a in info.spatial if all(id(a.var) not in u for u in along)]
    others = [a for a in info.spatial if a not in shared and is_reused(info, a)]
    for axis in (*reversed(shared), *reversed(others)):
        if axis is vector or left <= 1:
            continue
        extent = extent_of(axis)
        # A tile costs its rows, overhanging ones too, and what they share: the loads of vectors.
        best = min(
            range(1, min(left, extent) + 1), key=lambda f: (-(-extent // f) * (f + SHARED_COST), -f)
        )
        rows[id(axis.var)] = best
        left //= best
    return rows


def long_window(info: BlockInfo) -> tuple[Iter, Iter] | None:
    """The innermost axis of the window of a convolution of each channel by itself, and that of the
    neighbouring results that read the same data at it; None where it is short, or another block.

    Vectors run over the channels, so what a row loads is for itself alone: a load a multiply-add.
    Copies of some taps find what they share in registers, of which a row takes two for a vector,
    for its sum and its data.
    """
    vector, last = info.vector_axis, info.reduce[-1] if info.reduce else None
    if vector is None or last is None or extent_of(last) <= SHORT_WINDOW:
        return None
    if any(id(vector.var) not in used_axes(a) for a in info.block.reads):
        return None
    indices = [i for a in info.block.reads for i in a.indices if isinstance(i, Affine)]
    slid = [i for i in indices if i.uses([last.var])]
    for axis in info.spatial:
        if extent_of(axis) > 1 and any(_shares_taps(i, last, axis) for i in slid):
            return last, axis
    return None


def _shares_taps(index: Affine, last: Iter, axis: Iter) -> bool:
    """Whether a result reads at one tap what its neighbour reads at the next but one at most."""
    dilation, stride = index.coefficient(last.var), index.coefficient(axis.var)
    if not isinstance(dilation, int) or not isinstance(stride, int) or stride <= 0:
        return False
    return stride // gcd(dilation, stride) <= 2


def default_vectors(info: BlockInfo, target: Target, lanes: int) -> int:
    """Vectors of the default register tile: two; three where they leave none over; one of long
    windows, unless one has too few rows."""
    vector, long = info.vector_axis, long_window(info)
    assert vector is not None  # the condition asks for one
    if long is not None:
        return 1 if 2 * extent_of(long[1]) > _long_rows(target) else 2
    return 3 if -(-extent_of(vector) // lanes) % 6 == 3 else 2


def _long_rows(target: Target) -> int:
    """Vectors of sums of a long window."""
    return (target.vector_registers - LONG_SPARE) // 2


def default_copies(info: BlockInfo) -> dict[int, int]:
    """Copies of short reductions, such as a 3 x 3 window, innermost axis first."""
    left = DEFAULT_COPIES
    copies: dict[int, int] = {}
    long = long_window(info)
    if long is not None:
        last = long[0]
        extent = extent_of(last)
        return {id(last.var): min(LONG_COPIES, key=lambda c: (-extent % c, -c))}
    for axis in reversed(info.reduce):
        extent = extent_of(axis)
        if 1 < extent <= min(left, SHORT_WINDOW):
            copies[id(axis.var)] = extent
            left //= extent
    return copies
