"""The rule for everything that is not tiled: row fusion, parallel rows, one vectorised axis a
block.

Blocks that share leading spatial axes with the last block of their group are computed in its rows
(softmax: row maximum, exponentials, their sum and the quotient, one row at a time). The rows run in
parallel; each block's contiguous axis runs in vectors, a reduction over it with several
accumulators. Long rows are computed in pieces, each reduced while the first cache has it. Nothing
here knows an operator by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, axis_dim, used_axes
from autosched.sketch.decisions import ChoiceSpec, DecisionSpec
from autosched.sketch.state import State, Verdict
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Var, walk
from autosched.tir.nodes import Access, Iter

PARALLEL_COST = 16384.0
"""Cost (in additions) under which a group is not worth starting threads for."""
APART_COST = 4 * PARALLEL_COST
"""Cost from which the blocks of fewer rows than cores run in parallel, one after the other: each
starts the threads."""
PIECES = (4096, 8192, 16384, 2048)
"""Bytes of a long row that are computed, then reduced, while they are in the first cache."""
WINDOW = 4
"""Taps of a window, such as a pool's, up to which vectors run over the results."""
TAPS = 16
"""Taps of a window that are copied out, so that what masks them is known: those of an edge."""
ROW = 8
"""Vectors of a row of results that is reduced as a whole, its tail too."""
SQUARE = 64
"""Elements of a row that a thread turns into a column at once: a cache line of bytes, four of
floats."""
INTERLEAVING = 32
"""Bytes of the vectors from which on rows of a few elements are put together in registers."""
SHORT = 4
"""Elements of such rows, which vectors along the columns fill elsewhere."""
LANE_REDUCERS = frozenset({"sum", "max", "min", "prod"})
"""The known reducers: one operation each, on one value."""


class DefaultRule:
    """Schedules a block together with the producers that share its rows."""

    name = "default"

    def condition(self, state: State, block: str) -> Verdict:
        """Every block that no rule has placed and that no tiled producer will take along."""
        return Verdict.PASS if block in state.handled else Verdict.APPLY_AND_SKIP_REST

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch; two where the result is large enough to be stored past the caches, or where
        there are fewer rows than cores, and long ones, so that blocks may rather run apart."""
        blocks = state.blocks()
        group, rows = row_group(block, blocks, state.handled)
        plain = schedule_group(state, blocks, group, rows, False)
        root = blocks[block]
        count = prod(int(a.extent) for a in root.spatial[:rows])
        row = sum(bytes_of(a) for a in root.block.writes) // max(count, 1)
        if len(group) > 1 and count < state.target.num_cores and row > state.target.l1_bytes:
            apart = schedule_group(state, blocks, [block], own_rows(root), False)
            apart = replace(apart, choices=(*apart.choices, f"{block}.apart"))
            worth = _cost(blocks, group) >= APART_COST
            return [apart, plain] if worth else [plain, apart]
        stored = sum(bytes_of(a) for a in root.block.writes)
        if root.is_output and root.is_injective and stored > 2 * state.target.l2_bytes:
            streamed = schedule_group(state, blocks, group, rows, True)
            return [streamed, plain] if stored > state.target.l3_bytes else [plain, streamed]
        return [plain]


def schedule_group(
    state: State, blocks: dict[str, BlockInfo], group: list[str], rows: int, stream: bool
) -> State:
    """Schedule a block (the first of `group`) and the producers computed in its rows."""
    schedule = state.fork()
    specs: list[DecisionSpec] = []
    root = schedule.get_block(group[0])
    info = blocks[group[0]]
    if info.sequential:
        return state.advance(schedule, tuple(group))
    order = [*info.spatial, *info.reduce]
    by_axis = axis_loops(schedule, root)
    schedule.reorder(*(by_axis[id(a)] for a in order))
    outer = [by_axis[id(a)] for a in info.spatial[:rows]]
    parallel = _cost(blocks, group) >= PARALLEL_COST and state.target.num_cores > 1
    column = None if len(group) > 1 or stream else _column(info, rows, state.target)
    if column is not None:
        row = by_axis[id(info.spatial[-1])]
        for loop in _along_columns(schedule, outer, row, column, state.target):
            if parallel:
                schedule.parallel(loop)
        return state.advance(schedule, tuple(group))
    for name in group[1:]:
        schedule.compute_at(schedule.get_block(name), outer[-1])
    own = {name: own_loops(schedule, blocks[name]) for name in group}
    for name in group[1:]:
        piece = piece_spec(blocks[name], blocks, rows, state.target)
        if piece is None:
            continue
        spec, reductions = piece
        state.declare(schedule, (spec,))
        specs.append(spec)
        around, inside = schedule.split(own[name][-1], [None, Decision(spec.name)])
        own[name] = (*own[name][:-1], inside)
        for reduction in reductions:
            schedule.reverse_compute_at(schedule.get_block(reduction), around)
            own[reduction] = own_loops(schedule, blocks[reduction])
    count = prod(int(a.extent) for a in info.spatial[:rows])
    root_tasks: Sequence[LoopRV] = ()
    for name in group:
        member = blocks[name]
        mine = row_specs(member, rows, state.target)
        state.declare(schedule, mine)
        lanes = vector_lanes(member, state.target)
        tasks = schedule_member(schedule, member, own[name], rows, lanes, mine)
        if name == group[0]:
            root_tasks = tasks
        if name == group[0] and len(group) == 1 and parallel and count < 4 * state.target.num_cores:
            outer, root_tasks = [*outer, *tasks], ()
        specs += mine
    if parallel:
        turned = turned_row(info, rows) if len(group) == 1 else None
        if turned is not None:
            extents = [int(a.extent) for a in (*info.spatial[:rows], info.spatial[-1])]
            cores = state.target.num_cores
            outer = _kept_whole(schedule, outer, root_tasks, turned, extents, cores)
        for loop in outer:
            schedule.parallel(loop)
    choice = None
    if stream:
        schedule.annotate(root, "streaming", True)
        choice = f"{group[0]}.streaming"
    return state.advance(schedule, tuple(group), tuple(specs), choice)


def turned_row(info: BlockInfo, rows: int) -> int | None:
    """The number, below `rows`, of the axis along which a copy that turns rows into columns reads
    neighbours; None for any other block."""
    if not info.is_injective:
        return None
    reads = [a for a in info.block.reads if a.indices]
    last = [a.indices[-1] for a in reads]
    variables = [(i - i.const).single_var() if isinstance(i, Affine) else None for i in last]
    for n, axis in enumerate(info.spatial[:rows]):
        if any(v is axis.var for v in variables) and all(
            v is axis.var or not _uses(a, axis.var) for v, a in zip(variables, reads, strict=True)
        ):
            return n
    return None


def _column(info: BlockInfo, rows: int, target: Target) -> int | None:
    """The number, below `rows`, of an axis that fills vectors and along which all is read, of a
    block with short rows, such as the channels of an image, that reads under a condition; None for
    any other block. Without a condition, whole squares change places in registers; and in long
    vectors rows of a few elements do."""
    axis, *reads = info.vector_axis, *(a for a in info.block.reads if a.indices)
    if axis is None or not info.is_injective or axis is not info.spatial[-1]:
        return None
    if int(axis.extent) > (1 if target.vector_bytes >= INTERLEAVING else SHORT):
        return None
    nodes = (e for body in info.block.body for e in walk(body))
    if not any(isinstance(e, Call) and e.op == "if_then_else" for e in nodes):
        return None
    for n, column in enumerate(info.spatial[:rows]):
        along = [is_contiguous(a, column) or not _uses(a, column.var) for a in reads]
        used = any(_uses(a, column.var) for a in reads)
        if used and all(along) and int(column.extent) >= target.vector_bytes // 4:
            return n
    return None


def _along_columns(
    schedule: Schedule, outer: list[LoopRV], row: LoopRV, column: int, target: Target
) -> list[LoopRV]:
    """Vectors run along what is read, and store element by element; returns the outer loops."""
    loops = list(outer)
    loops[column], vector = schedule.split(outer[column], [None, target.vector_bytes // 4])
    schedule.reorder(*loops, row, vector)
    schedule.unroll(row)
    schedule.vectorize(vector)
    return loops


def _uses(access: Access, var: Var) -> bool:
    return any(not isinstance(i, Affine) or i.uses([var]) for i in access.indices)


def _kept_whole(
    schedule: Schedule,
    outer: list[LoopRV],
    tasks: Sequence[LoopRV],
    turned: int,
    extents: Sequence[int],
    cores: int,
) -> list[LoopRV]:
    """The loops to run in parallel, such that squares are copied by one thread: of the turned axis
    a piece of `SQUARE` elements at most, or all, goes inside; all where rows are short, of which
    whole vectors are put together. Where that leaves few iterations, pieces are smaller and the
    vectors' loops, `tasks`, are shared out too."""
    *outside, row = extents
    extent = outside[turned]
    around = prod(outside) // extent
    sides = range(SQUARE, SQUARE // 4 - 1, -1) if row > SHORT or around < 4 * cores else ()
    pieces = [n for n in sides if extent % n == 0] or [extent]
    enough = (n for n in pieces if around * (extent // n) >= 4 * cores)
    piece, loops = next(enough, pieces[-1]), list(outer)
    if around * (extent // piece) < 4 * cores:
        loops += tasks
    loops[turned], inside = schedule.split(outer[turned], [None, piece])
    schedule.reorder(*loops, inside)
    return loops


def _cost(blocks: dict[str, BlockInfo], group: list[str]) -> float:
    """What a group costs, in additions."""
    return sum(int(blocks[n].points) * max(blocks[n].cost, 1.0) for n in group)


def own_loops(schedule: Schedule, info: BlockInfo) -> tuple[LoopRV, ...]:
    """The innermost loops of a block, one an axis: none of a scalar."""
    loops = schedule.get_loops(schedule.get_block(info.name))
    return loops[len(loops) - len(info.block.iters) :]


def piece_spec(
    info: BlockInfo, blocks: dict[str, BlockInfo], rows: int, target: Target
) -> tuple[ChoiceSpec, list[str]] | None:
    """How much of a long row to compute before it is reduced, and the reductions that follow piece
    by piece; None where there is none, or rows stay in the first cache anyway.

    An example is the sum of exponentials: with pieces the row is read once less from beyond the
    first cache.
    """
    item = dtypes.itemsize(info.block.writes[0].buffer.dtype)
    if not info.is_injective or len(info.spatial) != rows + 1:
        return None
    extent = int(info.spatial[-1].extent)
    if extent * item <= target.l1_bytes // 2:
        return None
    found = [r for r in info.consumers if _follows(blocks[r], info, rows)]
    if not found or found == list(info.consumers):
        return None
    pieces = [n // item for n in PIECES if n // item < extent]
    axis = info.spatial[-1].var.name
    return ChoiceSpec(info.name, f"{info.name}.{axis}.piece", (*pieces, extent)), found


def _follows(reduction: BlockInfo, info: BlockInfo, rows: int) -> bool:
    """Whether a reduction along the rows of `info` can be done piece by piece: along its last axis,
    from nothing else that comes after it."""
    lane = lane_axis(reduction)
    if lane is None or not set(reduction.producers) <= {info.name, *info.producers}:
        return False
    written = info.block.writes[0].buffer
    reads = [a for a in reduction.block.reads if a.buffer is written]
    return lane.extent == info.spatial[-1].extent and all(axis_dim(a, lane) == rows for a in reads)


def axis_loops(schedule: Schedule, block: BlockRV) -> dict[int, LoopRV]:
    """Id of an axis -> its loop, of a block whose loops are one an axis, in any order."""
    found = schedule.get(block)
    by_var = {id(schedule.get(loop).var): loop for loop in schedule.get_loops(block)}
    out: dict[int, LoopRV] = {}
    for axis, binding in zip(found.iters, found.bindings, strict=True):
        var = binding.single_var()
        if var is None:
            raise ScheduleError(f"axis {axis.var.name} of {found.name} has no loop of its own")
        out[id(axis)] = by_var[id(var)]
    return out


def bytes_of(access: Access) -> int:
    """Bytes of the buffer that is accessed."""
    return prod(int(n) for n in access.buffer.shape) * dtypes.itemsize(access.buffer.dtype)


def row_group(
    block: str, blocks: dict[str, BlockInfo], handled: frozenset[str]
) -> tuple[list[str], int]:
    """The block and the producers to compute in its rows, nearest first, and the number of row
    axes.

    A producer joins if all its consumers are in the group and the leading axes of its result are
    the group's rows in every read. The vector axis of the last block is never a row axis, unless
    the group is that block alone.
    """
    root = blocks[block]
    group, shared = [block], {block: len(root.spatial)}
    rows = len(root.spatial)
    names = list(blocks)
    for name in reversed(names[: names.index(block)]):
        info = blocks[name]
        if name in handled or info.is_output or info.needs_tiling or info.sequential:
            continue
        if not info.consumers or not set(info.consumers) <= set(group) or not info.writes_identity:
            continue
        leading = min(leading_axes(info, blocks[c], shared[c]) for c in info.consumers)
        if root.is_injective or vectors_spatial(root):
            leading = min(leading, len(root.spatial) - 1)
        if leading < 1:
            continue
        group.append(name)
        shared[name] = leading
        rows = min(rows, leading)
    return group, own_rows(root) if len(group) == 1 else rows


def own_rows(root: BlockInfo) -> int:
    """Row axes of a block by itself: all that do not run in vectors, if they come first."""
    alone = root.spatial
    if vectors_spatial(root):
        alone = tuple(a for a in root.spatial if a is not root.vector_axis)
    return len(alone) if root.spatial[: len(alone)] == alone else 0


def leading_axes(info: BlockInfo, consumer: BlockInfo, limit: int) -> int:
    """Leading axes of `info` that index the same leading axes of `consumer` in all its reads."""
    written = {id(a.buffer) for a in info.block.writes}
    best = min(limit, len(info.spatial))
    for access in consumer.block.reads:
        if id(access.buffer) not in written:
            continue
        n = 0
        while n < best and axis_dim(access, consumer.spatial[n]) == n:
            if consumer.spatial[n].extent != info.spatial[n].extent:
                break
            n += 1
        best = min(best, n)
    return best


def vectors_spatial(info: BlockInfo) -> bool:
    """Whether the vector axis is spatial: always, unless a reduction runs over contiguous data."""
    return info.vector_axis is not None and lane_axis(info) is None


def lane_axis(info: BlockInfo) -> Iter | None:
    """The reduction axis to vectorise: contiguous in every read that uses it, and no short window
    where there are more results to fill a vector with."""
    block = info.block
    if block.reducer is None:
        return None
    results = info.vector_axis
    for axis in reversed(info.reduce):
        reads = [a for a in block.reads if id(axis.var) in used_axes(a)]
        if not reads or int(axis.extent) == 1:
            continue
        if results is not None and int(results.extent) > max(int(axis.extent), WINDOW):
            longest = TAPS if all(_slides(a, results, axis) for a in reads) else WINDOW
            if int(axis.extent) <= longest:
                continue
        if all(is_contiguous(a, axis) for a in reads):
            return axis
    return None


def _slides(access: Access, results: Iter, axis: Iter) -> bool:
    """Whether neighbouring results read along `axis` what overlaps or lies near, so that vectors
    over the results read it without gathering."""
    last = access.indices[-1]
    if not isinstance(last, Affine) or not last.uses([axis.var]):
        return False
    step = last.coefficient(results.var)
    return isinstance(step, int) and 0 < step <= WINDOW


def is_contiguous(access: Access, axis: Iter) -> bool:
    """Whether neighbouring points of the axis read neighbouring elements."""
    if not access.indices:
        return False
    last = access.indices[-1]
    elsewhere = any(isinstance(i, Affine) and i.uses([axis.var]) for i in access.indices[:-1])
    return isinstance(last, Affine) and last.coefficient(axis.var) == 1 and not elsewhere


def vector_lanes(info: BlockInfo, target: Target) -> int:
    return max(target.vector_bytes // dtypes.itemsize(info.block.writes[0].buffer.dtype), 1)


def row_specs(info: BlockInfo, rows: int, target: Target) -> tuple[DecisionSpec, ...]:
    """Decisions of one block of a group: the width of its vectors, or the accumulators of its
    reduction."""
    lanes = vector_lanes(info, target)
    lane = lane_axis(info)
    if lane is not None:
        extent = int(lane.extent)
        counts = [u for u in (4, 8, 2, 1) if u == 1 or (u - 1) * lanes < extent]
        return (ChoiceSpec(info.name, f"{info.name}.{lane.var.name}.accumulators", tuple(counts)),)
    axis = info.vector_axis
    if axis is None or axis in info.spatial[:rows] or int(axis.extent) <= lanes:
        return ()
    extent = int(axis.extent)
    widths = [m * lanes for m in (2, 4, 1, 8) if m == 1 or (m - 1) * lanes < extent]
    if info.reduce and extent % widths[0] and extent <= ROW * lanes:
        widths = [extent, *widths]
    return (ChoiceSpec(info.name, f"{info.name}.{axis.var.name}.width", tuple(widths)),)


def schedule_member(
    schedule: Schedule,
    info: BlockInfo,
    own: tuple[LoopRV, ...],
    rows: int,
    lanes: int,
    specs: tuple[DecisionSpec, ...],
) -> list[LoopRV]:
    """Vectorise one block inside its rows; returns its outer loops over tiles, which may run in
    parallel.

    `own` are its loops, one an axis, spatial axes first.
    """
    by_axis = dict(zip(map(id, [*info.spatial, *info.reduce]), own, strict=True))
    lane = lane_axis(info)
    if lane is not None:
        serial = [by_axis[id(a)] for a in info.reduce if a is not lane]
        factors = [None, Decision(specs[0].names[0]), lanes]
        outer, copies, vector = schedule.split(by_axis[id(lane)], factors)
        schedule.reorder(*serial, outer, copies, vector)
        schedule.unroll(copies)
        schedule.vectorize(vector)
        return []
    axis = info.vector_axis
    if axis is None or axis in info.spatial[:rows]:
        return []
    loop = by_axis[id(axis)]
    tasks = [by_axis[id(a)] for a in info.spatial[rows:] if a is not axis]
    if specs:
        outer, loop = schedule.split(loop, [None, Decision(specs[0].names[0])])
        tasks.append(outer)
    schedule.reorder(*tasks, *(by_axis[id(a)] for a in info.reduce), loop)
    schedule.vectorize(loop)
    taps = 1
    for a in reversed(info.reduce):
        taps *= int(a.extent)
        if taps > TAPS:
            break
        schedule.unroll(by_axis[id(a)])
    return tasks
