"""Batched analysis of GPU kernels: what each root of a program asks of a device.

Like the rest of the analysis it reads programs of ints or of arrays of shape (N,), and its figures
are float64 columns of shape () or (N,). Loops bound to one axis count together; loops bound to
threads that a block does not use have one iteration for it (`footprint.idle`).

    blocks, threads, virtual   of the launch; of a block; virtual threads of a thread
    shared_bytes               of a block: arrays in the scope "shared", and what reductions across
                               threads go through
    registers                  of a thread, estimated: its local arrays for all its virtual threads,
                               one set of operands, and what addresses take
    copies                     statements that the largest unrolled body comes to
    occupancy                  share of a processor's threads that its blocks can fill
    warp_share                 share of the threads of a block's warps that exist
    wave_share                 share of the last wave of blocks that is filled, over all waves
    requested, sectors         bytes of global memory that threads ask for; 32-byte sectors that
                               their warps' requests fall into (coalesced: requested / 32)
    shared_loads, conflicts    words read from shared memory; times that a request is repeated
                               because lanes meet in a bank, averaged over them (a proxy: from the
                               step along the innermost loop of the threads)
    requests, waves, turns,    instructions that load and store, passes through shared memory, runs
    steps, exposed, guarded    of the innermost loop, fetches and what is waited for; see
                               `gpu_issue.py`
    flop                       arithmetic of the kernel, in operations of threads: those of tensor
                               cores count as a part of one (`gpu_mma.RATE`)
    tiles                      of steps that wait for each other, of a scan in a single pass; else 0
    intensity                  flop for each byte requested of global memory: reuse in a block
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from autosched.codegen.gpu.lookback import WINDOW
from autosched.schedule.annotate import STEPS
from autosched.search import gpu_mma
from autosched.search.footprint import (
    Floats,
    LoopTree,
    SiteUses,
    Use,
    floats,
    reduction_loops,
)
from autosched.search.gpu_issue import WARP, count_of, is_handed, issue_of, step_of
from autosched.sketch.decisions import Mask
from autosched.target import Target
from autosched.target.gpu import device_of, limits_of
from autosched.tir import dtypes
from autosched.tir.annotations import SINGLE_PASS, copies_of
from autosched.tir.nodes import Buffer, For, Node, kind_vars, sites
from autosched.tir.scope import SHARED

SECTOR = 32.0
"""Bytes that memory hands out at a time."""
BANKS = 32.0
ADDRESSES = 24.0
"""Registers that addresses, counters and what the compiler keeps take."""
MAX_COPIES = 2048.0
"""Statements of an unrolled body beyond which code size and build time explode."""


@dataclass(frozen=True)
class KernelStats:
    """Figures of one kernel; see the module's table. `blocks_of` names the program's blocks in
    it."""

    blocks_of: tuple[str, ...]
    blocks: Floats
    threads: Floats
    virtual: Floats
    shared_bytes: Floats
    registers: Floats
    copies: Floats
    occupancy: Floats
    warp_share: Floats
    wave_share: Floats
    requested: Floats
    sectors: Floats
    shared_loads: Floats
    conflicts: Floats
    requests: Floats
    waves: Floats
    turns: Floats
    steps: Floats
    exposed: Floats
    guarded: Floats
    flop: Floats
    tiles: Floats
    intensity: Floats
    valid: Mask
    """Whether the device can run it."""

    def figures(self) -> dict[str, Floats]:
        """Every figure by name."""
        skipped = ("blocks_of", "valid")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in skipped}


@dataclass(frozen=True)
class BlockWork:
    """What a kernel asks the analysis of one block: points computed, operations of one, vector
    instructions written out, registers for one set of operands, runs of what is unrolled."""

    points: Floats
    ops: float
    copies: Floats
    operands: Floats
    iterations: Floats


def kernel_stats(
    root: Node,
    uses: Mapping[int, SiteUses],
    work: Mapping[str, BlockWork],
    tree: LoopTree,
    homes: Mapping[int, int],
    target: Target,
) -> KernelStats:
    """Figures of the kernel that a root of the program becomes. `uses` by a block's id."""
    device, limits = device_of(target), limits_of(target)
    places = [uses[id(s.block)] for s in sites(root)]
    extents = launch_extents(places)
    one = floats(1.0)
    blocks, threads = one, one
    fits: Mask = np.asarray(True)
    for axis, extent in extents.items():
        if axis.startswith("blockIdx"):
            blocks = blocks * extent
        elif axis.startswith("threadIdx"):
            threads = threads * extent
        most = dict(limits.max_extents).get(axis)
        fits = fits if most is None else fits & (extent <= most)
    virtual = _virtual(places)
    shared, local = _memories(places, tree, homes, threads)
    copies, operands, flop = one, floats(0.0), floats(0.0)
    for place in places:
        mine = work[place.site.block.name]
        own = _product(place, "vthread")
        copies = np.maximum(copies, mine.copies * own / gpu_mma.points_of(place))
        held = gpu_mma.registers_of(place) if gpu_mma.nest_of(place) else mine.operands
        operands = np.maximum(operands, held)
        flop = flop + mine.points * mine.ops / gpu_mma.rate_of(place)
    registers = local + operands + ADDRESSES
    requested, sectors, words, repeated = _traffic(places, tree)
    tiles, rounds = floats(0.0), floats(0.0)
    for place in places:
        if place.site.block.annotation(SINGLE_PASS):
            tiles, handed, groups = _handed(place)
            rounds = blocks * threads * groups  # each thread adds up what the groups come to
            requested, sectors = requested + handed * 8.0, sectors + handed * 8.0 / SECTOR
    issue = issue_of(places, tree, homes, {n: w.iterations for n, w in work.items()})
    warps = np.ceil(threads / WARP)
    resident = np.minimum(
        np.minimum(np.floor(device.threads / (warps * WARP)), float(device.blocks)),
        np.minimum(
            np.floor(device.registers / (registers * warps * WARP)),
            np.floor(device.shared_bytes / np.maximum(shared, 1.0)),
        ),
    )
    at_once = np.maximum(resident, 1.0) * device.processors
    fits = fits & (threads <= limits.max_threads) & (shared <= limits.shared_bytes)
    fits = fits & (virtual <= device.max_virtual) & (copies <= MAX_COPIES)
    fits = fits & (registers <= device.thread_registers) & (resident >= 1.0)
    return KernelStats(
        blocks_of=tuple(p.site.block.name for p in places),
        blocks=blocks,
        threads=threads,
        virtual=virtual,
        shared_bytes=shared,
        registers=registers,
        copies=copies,
        occupancy=np.minimum(resident * warps * WARP / device.threads, 1.0),
        warp_share=threads / (warps * WARP),
        wave_share=blocks / (np.ceil(blocks / at_once) * at_once),
        requested=requested,
        sectors=sectors,
        shared_loads=words,
        conflicts=repeated / np.maximum(words, 1.0),
        requests=issue.requests,
        waves=issue.waves,
        turns=issue.turns + rounds,
        steps=issue.steps,
        exposed=issue.exposed,
        guarded=issue.guarded,
        flop=flop,
        tiles=tiles,
        intensity=flop / np.maximum(requested, 1.0),
        valid=fits,
    )


def bound_extents(loops: Sequence[For], extents: Sequence[Floats]) -> dict[str, Floats]:
    """Iterations bound to each axis around one block: directly nested loops count together, of
    others the innermost."""
    found: dict[str, Floats] = {}
    last: str | None = None
    for loop, extent in zip(loops, extents, strict=True):
        if loop.thread is not None:
            again = found.get(loop.thread) if loop.thread == last else None
            found[loop.thread] = extent if again is None else again * extent
        last = loop.thread
    return found


def launch_extents(places: Sequence[SiteUses]) -> dict[str, Floats]:
    """Extent of each axis of a launch: the largest that any block's loops have."""
    found: dict[str, Floats] = {}
    for place in places:
        loops = place.site.loops
        real = [floats(x.extent) for x in loops]  # those of threads that a block does not use, too
        for axis, extent in bound_extents(loops, real).items():
            found[axis] = np.maximum(found[axis], extent) if axis in found else extent
    return {axis: e for axis, e in found.items() if not axis.startswith("vthread")}


def _virtual(places: Sequence[SiteUses]) -> Floats:
    most = floats(1.0)
    for place in places:
        most = np.maximum(most, _product(place, "vthread"))
    return most


def _product(place: SiteUses, kind: str) -> Floats:
    """Iterations of the loops around a block bound to one kind of axis."""
    total = floats(1.0)
    for loop, extent in zip(place.site.loops, place.extents, strict=True):
        if loop.thread is not None and loop.thread.startswith(kind):
            total = total * extent
    return total


def _memories(
    places: Sequence[SiteUses], tree: LoopTree, homes: Mapping[int, int], threads: Floats
) -> tuple[Floats, Floats]:
    """(bytes of a block's shared memory, registers of a thread's local arrays)."""
    shared, local = floats(0.0), floats(0.0)
    seen: set[int] = set()
    for place in places:
        block, loops = place.site.block, place.site.loops
        moving = reduction_loops(place.site)
        across = any(
            (x.thread or "").startswith("threadIdx") and id(x.var) in moving for x in loops
        )
        if block.annotation(SINGLE_PASS):
            own, handed = _scanned(place, threads)
            shared, local = shared + handed, local + own
        for use in place.uses:
            buffer = use.access.buffer
            size = float(dtypes.itemsize(buffer.dtype))
            if use.written and across:
                shared = shared + threads * max(size, 4.0)
            if id(buffer) in seen or not use.written:
                continue
            seen.add(id(buffer))
            around = loops[: homes[id(buffer)]]
            if buffer.scope in SHARED:
                halves = _halves(place, around)
                shared = shared + halves * tree.allocated(buffer) * size
            elif buffer.scope == "local" or _of_thread(buffer, around):
                own = floats(1.0)
                for loop in around:
                    if (loop.thread or "").startswith("vthread"):
                        own = own * floats(loop.extent)
                local = local + own * tree.allocated(buffer) * size / 4.0
            elif block.is_reduction:
                local = local + 1.0
    return shared, local


def _scanned(place: SiteUses, threads: Floats) -> tuple[Floats, Floats]:
    """(registers of a thread's steps, shared memory) of a scan in a single pass; see
    `codegen/gpu/lookback.shared_bytes`."""
    steps = kind_vars(place.site.block, "sequential")
    rows, groups = floats(1.0), floats(1.0)
    for loop, extent in zip(place.site.loops, place.extents, strict=True):
        if loop.var in steps and loop.thread is None:
            rows = rows * extent
        elif loop.var in steps and (loop.thread or "").startswith("threadIdx"):
            groups = groups * extent
    size = max(4.0, float(dtypes.itemsize(place.site.block.writes[0].buffer.dtype)))
    handed = np.where(groups > 1.0, (threads + threads / groups) * size, 0.0)
    return rows * size / 4.0, 8.0 + handed


def _handed(place: SiteUses) -> tuple[Floats, Floats, Floats]:
    """(tiles of a scan in a single pass, words of 8 bytes that are set and asked for, groups)."""
    steps = kind_vars(place.site.block, "sequential")
    tiles, columns, groups = floats(1.0), floats(1.0), floats(1.0)
    for loop, extent in zip(place.site.loops, place.extents, strict=True):
        if loop.var not in steps:
            columns = columns * extent
        elif (loop.thread or "").startswith("blockIdx"):
            tiles = tiles * extent
        elif (loop.thread or "").startswith("threadIdx"):
            groups = groups * extent
    return tiles, tiles * columns * (WINDOW + 3.0), groups


def _halves(place: SiteUses, around: Sequence[For]) -> Floats:
    """Buffers that what a block writes alternates between: one where there is one step."""
    steps = floats(1.0)
    for loop in around:
        if loop.kind in STEPS:
            steps = steps * floats(loop.extent)
    return np.where(steps > 1.0, floats(copies_of(place.site.block)), 1.0)


def _of_thread(buffer: Buffer, around: Sequence[For]) -> bool:
    """Whether an intermediate without a scope lives inside loops of threads."""
    return any((x.thread or "").startswith("threadIdx") for x in around)


def _traffic(places: Sequence[SiteUses], tree: LoopTree) -> tuple[Floats, Floats, Floats, Floats]:
    """(bytes requested of global memory, sectors, words read from shared memory, words times the
    repetitions of their requests)."""
    requested, sectors, words, repeated = (floats(0.0) for _ in range(4))
    for place in places:
        block = place.site.block
        points = floats(1.0)
        for extent in place.extents:
            points = points * extent
        fetched = block.annotation("cooperative") is not None
        for use in place.uses:
            buffer = use.access.buffer
            if buffer.scope == "local" or not use.access.indices or is_handed(use, block):
                continue
            size = float(dtypes.itemsize(buffer.dtype))
            count = count_of(use, place, points)
            if buffer.scope in SHARED:
                if not use.written and gpu_mma.nest_of(place):
                    mine = count * size / 4.0 / gpu_mma.sharing(use, place)
                    words = words + mine
                    repeated = repeated + mine * gpu_mma.conflicts(use, place, tree)
                elif not use.written:
                    ways = _conflicts(use, place, tree, size)
                    words = words + count * size / 4.0
                    repeated = repeated + ways * count * size / 4.0
                continue
            requested = requested + count * size
            each = _row(use, place, size) if fetched else _warp(use, place, tree, size)
            sectors = sectors + count * each
    return requested, sectors, words, repeated


def _warp(use: Use, place: SiteUses, tree: LoopTree, size: float) -> Floats:
    """Sectors for each element that a thread asks for: from 1 / (elements of a sector) to 1."""
    lanes, spread = floats(1.0), floats(size)
    vector = floats(size)
    for d in range(len(place.site.loops) - 1, -1, -1):
        loop, extent = place.site.loops[d], place.extents[d]
        step = step_of(use, loop, tree) * size
        if loop.kind in ("vectorized", "unrolled"):
            near = (step > 0.0) & (step <= size) & place.tile[d]
            vector = np.where(near, np.minimum(size * extent, 16.0), vector)
            spread = np.maximum(spread, vector)
        if loop.thread != "threadIdx.x":
            continue
        taken = np.minimum(extent, WARP / lanes)
        # Neighbours that do not touch are sectors of their own.
        apart = np.maximum(np.minimum(step / np.maximum(spread, 1.0), SECTOR / spread), 1.0)
        spread = np.where(step > 0.0, spread * np.maximum(taken, 1.0) * apart, spread)
        lanes = lanes * np.maximum(taken, 1.0)
    elements = np.maximum(lanes * vector / size, 1.0)
    found: Floats = np.minimum(np.maximum(np.ceil(spread / SECTOR), 1.0) / elements, 1.0)
    return found


def _row(use: Use, place: SiteUses, size: float) -> Floats:
    """The same where threads number through a box: sectors of its rows, by element."""
    own = 0
    for d, loop in enumerate(place.site.loops):
        own = d + 1 if loop.thread is not None else own
    widths = use.levels[own]
    run = widths[-1] * size
    found: Floats = np.ceil(run / SECTOR) / widths[-1]
    return np.minimum(found, 1.0)


def _conflicts(use: Use, place: SiteUses, tree: LoopTree, size: float) -> Floats:
    """Times that a warp's request is repeated: lanes at steps of a multiple of a power of two meet
    in a bank."""
    ways, found = floats(1.0), np.asarray(False)
    for d in range(len(place.site.loops) - 1, -1, -1):
        loop, extent = place.site.loops[d], place.extents[d]
        if loop.thread != "threadIdx.x":
            continue
        step = step_of(use, loop, tree) * (size / 4.0)
        meet = floats(1.0)
        for power in (2.0, 4.0, 8.0, 16.0, 32.0):
            meet = np.where((step > 0.0) & (np.floor(step / power) * power == step), power, meet)
        here = (extent > 1.0) & ~found
        ways = np.where(here, np.minimum(meet, np.minimum(extent, BANKS)), ways)
        found = found | here
    return ways
