"""Methods of `Schedule` for the primitives that few schedules use, and for random choices.

They are functions here and methods there, so that the class stays readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from autosched.checks import shown
from autosched.errors import ScheduleError
from autosched.integers import as_int, plain
from autosched.schedule import (
    block_layout,
    padding,
    partition,
    query,
    sample,
    units,
)
from autosched.schedule import (
    blockize as _blockize,
)
from autosched.schedule import cache_index as _cache_index
from autosched.schedule import inplace as _inplace
from autosched.schedule import (
    merge as _merge,
)
from autosched.schedule import pad_read as _pad_read
from autosched.schedule import reindex as _reindex
from autosched.schedule import rolling as _rolling
from autosched.schedule.cache import read_buffer
from autosched.schedule.compute import compute_at
from autosched.schedule.handles import BlockRV, LoopRV, index_of, mapped, text_of
from autosched.schedule.index_map import IndexMap, layout_of
from autosched.schedule.intrin_axes import ways
from autosched.schedule.layout import Layout
from autosched.schedule.tensorize import accumulates_in_init, intrin_name
from autosched.schedule.trace import Decision
from autosched.tir.intrin import TensorIntrin
from autosched.tir.nodes import kind_vars, site_of

if TYPE_CHECKING:
    from autosched.schedule.schedule import Schedule

MORE = frozenset(
    {
        "get_output_blocks",
        "blockize",
        "add_unit_loop",
        "reorder_block_iter_var",
        "merge",
        "loop_partition",
        "decompose_padding",
        "pad_einsum",
        "pad_read",
        "cache_index",
        "cache_inplace",
        "reindex",
        "reindex_cache_read",
        "reindex_cache_write",
        "rolling_buffer",
        "transform_block_layout",
    }
)
"""The methods of this module that a trace may call."""

MOST_FACTORS = 64
"""Of one loop: no extent of 64 bits has more that are not 1."""
MOST_TRIED = 64
"""Ways to take axes of a block for those of an intrinsic."""


def get_output_blocks(
    sch: Schedule, scope_block: BlockRV | str | None = None
) -> tuple[BlockRV, ...]:
    """The blocks that write arguments of the function, in program order. `scope_block`: the root,
    the only block with others inside; it may be left out. Raises ScheduleError for another."""
    is_name = isinstance(scope_block, str) and scope_block == "root"
    if scope_block is not None and not is_name and not sch._is_root(scope_block):
        raise ScheduleError(
            f"get_output_blocks: the scope is {shown(scope_block)}; expected the root, "
            'get_block("root"): no other block has blocks inside'
        )
    return sch._out("get_output_blocks", (), query.output_blocks(sch.func))


def add_unit_loop(sch: Schedule, place: BlockRV | LoopRV | str) -> LoopRV:
    """Put a loop of one iteration around a block or loop; see `units.add_unit_loop`."""
    sch.func, var = units.add_unit_loop(sch.func, sch._place(place))
    return sch._outs("add_unit_loop", (place,), [var])[0]


def blockize(sch: Schedule, loop: LoopRV) -> BlockRV:
    """Make a nest one unit with a name, which tensorize takes; see `blockize.blockize`."""
    sch.func, name = _blockize.blockize(sch.func, sch._loop(loop))
    sch.has_units = True
    return sch._out("blockize", (loop,), [name])[0]


def reorder_block_iter_var(sch: Schedule, block: BlockRV | str, new_order: Sequence[int]) -> None:
    """List the axes of a block in another order; see `units.reorder_block_iter_var`."""
    order = _numbers(new_order, "reorder_block_iter_var: new_order")
    sch.func = units.reorder_block_iter_var(sch.func, sch._block(block), order)
    sch._record("reorder_block_iter_var", (block, order))


def merge(sch: Schedule, *loops: LoopRV) -> LoopRV:
    """Make one nest of nests that follow each other; see `merge.merge`."""
    sch.func, var = _merge.merge(sch.func, *map(sch._loop, loops))
    return sch._outs("merge", loops, [var])[0]


def loop_partition(sch: Schedule, loop: LoopRV, factors: Sequence[int]) -> tuple[LoopRV, ...]:
    """Cut a loop into consecutive ones; see `partition.loop_partition`."""
    numbers = _numbers(factors, "loop_partition: factors")
    sch.func, made = partition.loop_partition(sch.func, sch._loop(loop), numbers)
    return sch._outs("loop_partition", (loop, numbers), made)


def decompose_padding(sch: Schedule, block: BlockRV | str, loop: LoopRV) -> BlockRV:
    """Write padding in a block of its own; see `padding.decompose_padding`."""
    sch.func, name = padding.decompose_padding(sch.func, sch._block(block), sch._loop(loop))
    (b,) = sch._out("decompose_padding", (block, loop), [name])
    return b


def pad_einsum(sch: Schedule, block: BlockRV | str, padding_: Sequence[int]) -> BlockRV:
    """Compute a sum of products over axes rounded up; see `padding.pad_einsum`."""
    numbers = _numbers(padding_, "pad_einsum: padding")
    sch.func, name = padding.pad_einsum(sch.func, sch._block(block), numbers)
    (b,) = sch._out("pad_einsum", (block, numbers), [name])
    return b


def pad_read(sch: Schedule, block: BlockRV | str, buffer: int | str) -> BlockRV:
    """Read from a padded copy, in the place of a choice; see `pad_read.pad_read`."""
    if not isinstance(buffer, str):
        buffer = index_of(buffer, "pad_read: the buffer")
    sch.func, name = _pad_read.pad_read(sch.func, sch._block(block), buffer)
    (b,) = sch._out("pad_read", (block, buffer), [name])
    return b


def cache_index(sch: Schedule, block: BlockRV | str, scope: str = "global") -> tuple[BlockRV, ...]:
    """Compute the indices of a block's reads beforehand; see `cache_index.cache_index`."""
    where = text_of(scope, "cache_index: scope")
    sch.func, names = _cache_index.cache_index(sch.func, sch._block(block), where)
    return sch._out("cache_index", (block,), names, scope=where)


def cache_inplace(
    sch: Schedule,
    block: BlockRV | str,
    read_buffer_index: int | str,
    storage_scope: str = "global",
) -> tuple[BlockRV, BlockRV]:
    """Update a copy of a buffer in the place of it; see `inplace.cache_inplace`. Returns the blocks
    that copy before and after."""
    index = read_buffer_index
    if not isinstance(index, str):
        index = index_of(index, "cache_inplace: read_buffer_index")
    where = text_of(storage_scope, "cache_inplace: storage_scope")
    name = sch._block(block)
    func, *names = _inplace.cache_inplace(sch.func, name, index, where)
    sch._set_func(func, name)
    before, after = sch._out("cache_inplace", (block, index), names, storage_scope=where)
    return before, after


def reindex(sch: Schedule, block: BlockRV | str, buffer: Sequence[str | int] | str) -> BlockRV:
    """Access a buffer through a copy indexed by the block's axes; see `reindex.reindex`."""
    chosen = mapped(buffer, plain)
    sch.func, name = _reindex.reindex(sch.func, sch._block(block), chosen)
    (b,) = sch._out("reindex", (block, chosen), [name])
    return b


def reindex_cache_read(
    sch: Schedule,
    block: BlockRV | str,
    buffer_index: int | str,
    scope: str,
    index_map: Layout | IndexMap,
) -> BlockRV:
    """Read through a copy indexed by a map of the axes; see `reindex.reindex_cache_read`.
    `buffer_index`: of the read, or its buffer."""
    what = "reindex_cache_read"
    if isinstance(buffer_index, str):
        reads = sch.get(block).reads
        old = read_buffer(sch.get(block), buffer_index, what)
        buffer_index = next(n for n, a in enumerate(reads) if a.buffer is old)
    return _reindex_cache(sch, block, "read", index_of(buffer_index, what), scope, index_map)


def reindex_cache_write(
    sch: Schedule,
    block: BlockRV | str,
    buffer_index: int | str,
    scope: str,
    index_map: Layout | IndexMap,
) -> BlockRV:
    """Write through a copy indexed by a map of the axes; see `reindex.reindex_cache_write`.
    `buffer_index`: of the write, or its buffer."""
    index = sch._written(block, buffer_index, "reindex_cache_write")
    return _reindex_cache(sch, block, "write", index, scope, index_map)


def _reindex_cache(
    sch: Schedule,
    block: BlockRV | str,
    kind: str,
    index: int,
    scope: str,
    index_map: Layout | IndexMap,
) -> BlockRV:
    what = f"reindex_cache_{kind}"
    where = text_of(scope, f"{what}: scope")
    if callable(index_map):
        index_map = layout_of(index_map, tuple(it.extent for it in sch.get(block).iters), what)
    dims = sch._value(index_map)
    primitive = _reindex.reindex_cache_read if kind == "read" else _reindex.reindex_cache_write
    sch.func, name = primitive(sch.func, sch._block(block), index, where, dims)
    (b,) = sch._out(what, (block, index, where, index_map), [name])
    return b


def rolling_buffer(
    sch: Schedule,
    block: BlockRV | str,
    buffer_index: int | str = 0,
    loops: Sequence[LoopRV] = (),
) -> BlockRV:
    """Compute at each step of a loop only what is new; see `rolling.rolling_buffer`.
    `buffer_index`: of the write, or its buffer."""
    index = sch._written(block, buffer_index, "rolling_buffer")
    if not isinstance(loops, (list, tuple)):
        raise ScheduleError(f"rolling_buffer: loops is {shown(loops)}; expected a list of loops")
    along = [sch._loop(x) for x in loops]
    sch.func, name = _rolling.rolling_buffer(sch.func, sch._block(block), index, along)
    kept: dict[str, Any] = {"loops": tuple(loops)} if loops else {}
    (b,) = sch._out("rolling_buffer", (block, index), [name], **kept)
    return b


def transform_block_layout(
    sch: Schedule, block: BlockRV | str, index_map: Layout | IndexMap
) -> None:
    """Make a block's axes anew; see `block_layout.transform_block_layout`. A function of the axes
    is kept in the trace as the layout that it states."""
    if callable(index_map):
        shape = tuple(it.extent for it in sch.get(block).iters)
        index_map = layout_of(index_map, shape, "transform_block_layout")
    dims = sch._value(index_map)
    sch.func = block_layout.transform_block_layout(sch.func, sch._block(block), dims)
    sch._record("transform_block_layout", (block, index_map))


def auto_tensorize(
    sch: Schedule, block: BlockRV | str, intrin: TensorIntrin | str
) -> tuple[LoopRV, ...]:
    """Find which axes of a block are those of an intrinsic, tile them by its extents, and let it
    do the tiles: split, reorder, decompose_reduction for a function, tensorize, which are the steps
    of the trace. (TVM get_auto_tensorize_mapping_info, and what is done with it.)

    Args:
        intrin: a registered intrinsic, or its name.

    The block computes what the intrinsic's meaning does, up to the names and the order of its axes
    and operands. A loop of the meaning is taken for the last serial loop that is an axis of the
    same kind by itself, moves through the same operands, and whose extent is a multiple. Of
    several ways the first that `tensorize` takes.

    Returns the loops around the intrinsic, outermost first. Raises ScheduleError, and changes
    nothing, where there is no such way.
    """
    found = TensorIntrin.get(intrin_name(intrin, "auto_tensorize"))
    site = site_of(sch.func, sch._block(block))
    assert isinstance(block, BlockRV)  # `blocks_by_name`
    what = f"auto_tensorize({site.block.name}) as {found.name}"
    refusal: ScheduleError | None = None
    for chosen in islice(ways(site, found, what), MOST_TRIED):
        try:
            _tiled(sch.copy(), block, chosen, found)
        except ScheduleError as e:
            refusal = refusal or e
            continue
        return _tiled(sch, block, chosen, found)
    if refusal is None:
        raise ScheduleError(f"{what}: two loops of its meaning are one loop of the block")
    raise ScheduleError(f"auto_tensorize: {refusal}") from refusal


def _tiled(
    sch: Schedule, block: BlockRV, chosen: Sequence[int], intrin: TensorIntrin
) -> tuple[LoopRV, ...]:
    """Tile the loops `chosen`, one for each of the meaning's, and tensorize the tiles."""
    outer: list[LoopRV] = []
    inner: dict[int, LoopRV] = {}
    for n, loop in enumerate(sch.get_loops(block)):
        size = int(intrin.loops[chosen.index(n)].extent) if n in chosen else 1
        if n not in chosen:
            outer.append(loop)
        elif sch.get(loop).extent == size:
            inner[n] = loop
        else:
            around, inner[n] = sch.split(loop, [None, size])
            outer.append(around)
    nest = [inner[n] for n in chosen]
    if len(outer) + len(nest) > 1:
        sch.reorder(*outer, *nest)
    if accumulates_in_init(sch.get(block), intrin):
        reduced = kind_vars(sch.get(block), "reduce")
        first = next((x for x in outer if sch._loop(x) in reduced), nest[0])
        sch.decompose_reduction(block, first)
    sch.tensorize(nest[0], intrin)
    return tuple(outer)


# -- random choices


def sample_perfect_tile(
    sch: Schedule,
    loop: LoopRV,
    n: int,
    max_innermost_factor: int = 16,
    decision: Sequence[int] | None = None,
) -> list[Decision]:
    """`n` random factors of a loop's extent, for `split`: decisions of the trace, whose values are
    in `Schedule.decisions` and may be changed there.

    `decision` gives the factors. Raises ScheduleError for what are no factors, and for a loop whose
    extent is no single number.
    """
    extent = sch.get(loop).extent
    if not isinstance(extent, int):
        raise ScheduleError(f"sample_perfect_tile: the extent is {shown(extent)}, no number")
    given = None if decision is None else _numbers(decision, "sample_perfect_tile: decision")
    count = index_of(n, "sample_perfect_tile: n")
    if count > MOST_FACTORS:
        raise ScheduleError(f"sample_perfect_tile: n is {count}; expected at most {MOST_FACTORS}")
    most = index_of(max_innermost_factor, "sample_perfect_tile: max_innermost_factor")
    return [_decided(sch, v) for v in sample.perfect_tile(extent, count, most, sch.random, given)]


def sample_categorical(
    sch: Schedule,
    candidates: Sequence[int],
    probs: Sequence[float] | None = None,
    decision: int | None = None,
) -> Decision:
    """One of the candidates, by chance (with `probs`, in these proportions) or number `decision`:
    a decision of the trace."""
    numbers = _numbers(candidates, "sample_categorical: candidates")
    given = None if decision is None else index_of(decision, "sample_categorical: decision")
    return _decided(sch, sample.categorical(numbers, probs, sch.random, given))


def sample_compute_location(
    sch: Schedule, block: BlockRV | str, decision: int | None = None
) -> LoopRV | None:
    """A loop at which `compute_at` takes the block, or None for its own place: by chance, or number
    `decision` of the loops that its first consumer has, -1 for None. Which loop it is stands in the
    trace as the loop that it is, since a place is no number."""
    consumers = query.consumers(sch.func, sch._block(block))
    if not consumers:
        return None
    loops = site_of(sch.func, consumers[0]).loops
    legal = []
    for n, loop in enumerate(loops):
        try:
            compute_at(sch.func, sch._block(block), loop.var)
        except ScheduleError:
            continue  # not a place for it
        legal.append(n)
    if decision is None:
        chosen: int | None = sch.random.choice([-1, *legal])
    else:
        chosen = as_int(decision)
    if chosen is None or chosen not in (-1, *legal):
        raise ScheduleError(
            f"sample_compute_location: decision {shown(decision)} is none of {[-1, *legal]}"
        )
    if chosen == -1:
        return None
    return sch.get_loops(sch.get_block(consumers[0]))[chosen]


def _decided(sch: Schedule, value: int) -> Decision:
    n = len(sch.decisions)
    while f"sample{n}" in sch.decisions:
        n += 1
    sch.decisions[f"sample{n}"] = value
    return Decision(f"sample{n}")


def _numbers(values: object, what: str) -> list[int]:
    """A list of ints."""
    numbers = [as_int(v) for v in values] if isinstance(values, (list, tuple)) else [None]
    out = [n for n in numbers if n is not None]
    if len(out) != len(numbers):
        raise ScheduleError(f"{what} is {shown(values)}; expected a list of ints")
    return out
