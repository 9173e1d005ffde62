"""The default schedule for GPUs. It knows no operator by name.

Cheap intermediates are inlined. Every nest that is left is a kernel: its spatial loops, fused, are
bound to blocks and threads, a reduction runs in its thread; where there are few elements and long
reductions, a block of threads reduces one element. Long recurrences of few elements that only
combine, such as cumulative sums, go in chunks. In any other the loops that are independent
of the steps move outside and are bound alike; stages that need all of the step before run in one
block, whose threads share out each stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import analyse_blocks
from autosched.target import Target
from autosched.target.gpu import limits_of
from autosched.tir.annotations import SINGLE_PASS
from autosched.tir.nodes import PrimFunc, kind_vars, sites
from autosched.tir.scatter import scatters

THREADS = 128
"""Of a block, where there are as many iterations."""
MIN_REDUCED = 256
"""Points of a reduction from which on a block of threads may share it."""
MAX_SHARED = 2048
"""Elements up to which it does: with more of them there are threads enough."""
MIN_STEPS = 256
"""Of a recurrence, from which on its chunks may run in parallel."""
SCANNED = 1 << 15
"""Threads that are wanted then; with half as many elements each keeps its own steps."""
CHUNK = 16
"""Steps of a chunk, at least: less is not worth the steps from chunk to chunk."""
SCAN_THREADS, SCAN_ROWS, SCAN_COLUMNS = 256, 16, 32
"""Of a single pass: threads of a block, steps of each, and how many of them lie along the last
other axis, if it is so long: rows of 128 bytes."""
MIN_TILES = 4
"""Tiles of steps below which a single pass is no gain."""


def default_gpu_schedule(func: PrimFunc, target: Target) -> Schedule:
    """A reasonable schedule of `func`, every loop nest on blocks and threads. Deterministic.

    Raises ScheduleError for symbolic sizes.
    """
    if func.sizes:
        names = ", ".join(v.name for v in func.sizes)
        raise ScheduleError(f"{func.name} has the symbolic sizes {names}: specialize it first")
    schedule = _scanned(_inlined(Schedule(func)), target)
    threads = min(THREADS, limits_of(target).max_threads)
    for root in schedule.func.body:
        blocks = [s.block for s in sites(root)]
        if not blocks[0].annotation(SINGLE_PASS):
            schedule_nest(schedule, [b.name for b in blocks], threads)
    return schedule


def schedule_nest(schedule: Schedule, names: Sequence[str], threads: int | Decision) -> None:
    """Bind the nest of the blocks `names`, with so many threads of a block."""
    if len(names) == 1:
        _spread(schedule, names[0], threads)
        return
    for name in names:
        _share(schedule, name, threads)


def _inlined(schedule: Schedule) -> Schedule:
    """`schedule` with intermediates put into their consumers, where that is cheap and allowed."""
    for rv in reversed(schedule.get_blocks()):
        blocks = analyse_blocks(schedule.func)
        info = blocks[schedule.get(rv).name]
        fits = info.is_injective and info.dag.info(info.name).is_inlineable
        if not fits or not info.consumers or not info.writes_identity:
            continue
        if not info.is_cheap and len(info.consumers) > 1:
            continue
        trial = schedule.copy()
        try:
            trial.compute_inline(rv)
        except ScheduleError:
            continue
        schedule = trial
    return schedule


def _scanned(schedule: Schedule, target: Target) -> Schedule:
    """`schedule` with long recurrences of few elements in a single pass, or in chunks, and so is
    what carries from chunk to chunk, where that is long."""
    waiting = list(schedule.get_blocks())
    while waiting:
        rv = waiting.pop()
        if not kind_vars(schedule.get(rv), "sequential"):
            continue
        spatial, _, steps = _loops(schedule, rv)
        count, length = _extent(schedule, spatial), _extent(schedule, steps)
        if length < MIN_STEPS or 2 * count > SCANNED:
            continue
        trial = schedule.copy()
        try:
            if target.kind == "cuda":
                trial.single_pass_scan(rv, *_tile(schedule, spatial, length, target))
            else:
                _, carry = trial.parallel_scan(rv, max(CHUNK, -(-length * count // SCANNED)))
                waiting.append(carry)
        except ScheduleError:  # it does more than combine
            continue
        schedule = trial
    return schedule


def _tile(
    schedule: Schedule, spatial: list[LoopRV], length: int, target: Target
) -> tuple[int, int, int]:
    """(steps of a thread, threads along the steps, along the last other axis) of a single pass."""
    threads = min(SCAN_THREADS, limits_of(target).max_threads)
    width = _extent(schedule, spatial[-1:])
    columns = min(SCAN_COLUMNS, width, threads)
    groups = min(threads // columns, max(length // (SCAN_ROWS * MIN_TILES), 1))
    return SCAN_ROWS, 1 << (groups.bit_length() - 1), columns


def _loops(schedule: Schedule, rv: BlockRV) -> tuple[list[LoopRV], list[LoopRV], list[LoopRV]]:
    """The loops around a block: those over spatial, reduction and sequential axes."""
    block, around = schedule.get(rv), schedule.get_loops(rv)
    reduced, steps = kind_vars(block, "reduce"), kind_vars(block, "sequential")
    kinds: tuple[list[LoopRV], list[LoopRV], list[LoopRV]] = ([], [], [])
    for x in around:
        var = schedule.get(x).var
        kinds[1 if var in reduced else 2 if var in steps else 0].append(x)
    return kinds


def _extent(schedule: Schedule, loops: list[LoopRV]) -> int:
    return prod(int(schedule.get(x).extent) for x in loops)


def _spread(schedule: Schedule, name: str, threads: int | Decision) -> None:
    """Bind a nest that holds one block."""
    rv = schedule.get_block(name)
    spatial, reduced, steps = _loops(schedule, rv)
    if steps and spatial:
        trial = schedule.copy()
        try:
            trial.reorder(*spatial, *steps, *reduced)
        except ScheduleError:
            _share(schedule, name, threads)
            return
    if len(spatial) + len(reduced) + len(steps) > 1:
        schedule.reorder(*spatial, *steps, *reduced)
    count, points = _extent(schedule, spatial), _extent(schedule, reduced)
    block = schedule.get(rv)
    across = block.reducer is not None and not scatters(block)
    if not steps and count <= MAX_SHARED and points >= MIN_REDUCED and across:
        if spatial:
            schedule.bind(_fused(schedule, spatial), "blockIdx.x")
        outer, lane = schedule.split(_fused(schedule, reduced), [None, threads])
        schedule.reorder(lane, outer)
        schedule.bind(lane, "threadIdx.x")
        return
    if spatial:
        fits = min(threads, count) if isinstance(threads, int) else threads
        outer, inner = schedule.split(_fused(schedule, spatial), [None, fits])
        schedule.bind(outer, "blockIdx.x")
        schedule.bind(inner, "threadIdx.x")


def _share(schedule: Schedule, name: str, threads: int | Decision) -> None:
    """Bind one block of a nest with several: the threads of one GPU block share out its elements,
    again and again."""
    rv = schedule.get_block(name)
    spatial, reduced, _ = _own(schedule, rv)
    if not spatial:
        return
    if len(spatial) + len(reduced) > 1:
        schedule.reorder(*spatial, *reduced)
    _, inner = schedule.split(_fused(schedule, spatial), [None, threads])
    schedule.bind(inner, "threadIdx.x")


def _own(schedule: Schedule, rv: BlockRV) -> tuple[list[LoopRV], list[LoopRV], list[LoopRV]]:
    """`_loops`, without those that hold other blocks as well."""
    alone = {schedule.get(x).var for x in schedule.get_loops(rv) if _holds(schedule, x) == 1}
    spatial, reduced, steps = (
        [x for x in kind if schedule.get(x).var in alone] for kind in _loops(schedule, rv)
    )
    return spatial, reduced, steps


def _holds(schedule: Schedule, loop: LoopRV) -> int:
    return len(list(sites(schedule.get(loop))))


def _fused(schedule: Schedule, loops: list[LoopRV]) -> LoopRV:
    return schedule.fuse(*loops) if len(loops) > 1 else loops[0]
