"""The roofline of GPUs: seconds of each kernel of a candidate, from the analysis of its launch.

A kernel takes the longest of arithmetic, shared memory, the second-level cache and memory, with
part of the others added; arithmetic goes at the rate that the warps at hand can hide its latency
at (Volkov, Understanding Latency Hiding on GPUs, 2016), and nothing is faster than the waves of
blocks that do not fill the device.

The constants below are estimates from what is published of such devices; no measurement kept in
this project stands behind them. They order candidates; what is measured corrects the seconds.
"""

from __future__ import annotations

import numpy as np

from autosched.codegen.gpu.lookback import WINDOW
from autosched.search.analysis import Analysis
from autosched.search.footprint import LINE, Floats, floats
from autosched.search.gpu import SECTOR, KernelStats
from autosched.target.gpu import Device

OVERLAP = 0.25
"""Part of the shorter bounds that is added to the longest."""
LATENCY = 4.0
"""Cycles of a multiply-add: independent ones that a lane needs at a time."""
IN_FLIGHT = 24.0
"""Threads of a lane that hide the latency of memory."""
WARP, SCHEDULERS = 32.0, 4.0
"""Threads of a warp; parts of a processor that issue one of its instructions a cycle each."""
TURN = 6.0
"""Instructions of a round of a loop: its counter and the addresses of its loads."""
LOAD_CYCLES = 30.0
"""That the first multiply-adds of a round wait for their operands from shared memory."""
BLOCK_SECONDS = 5e-8
"""A processor needs at least so long from one block that it begins to the next."""
HANDED_SECONDS = 1e-6
"""From one block's handing on what a tile comes to until another one has it."""
FETCH_CYCLES = 700.0
"""From asking memory for a tile to having it, with the barriers."""


def gpu_roofline(analysis: Analysis, device: Device) -> tuple[Floats, tuple[Floats, ...]]:
    """(seconds of each candidate, seconds of arithmetic, shared memory, L2, memory and launches),
    each of shape () or (N,)."""
    total = floats(0.0)
    parts = [floats(0.0)] * 5
    for kernel in analysis.kernels:
        found = _kernel_parts(kernel, analysis, device)
        *work, launch = found
        longest = np.maximum(np.maximum(work[0], work[1]), np.maximum(work[2], work[3]))
        shorter = sum(work, floats(0.0)) - longest
        chain = kernel.tiles * HANDED_SECONDS / WINDOW
        begun = kernel.blocks * BLOCK_SECONDS / device.processors
        least = np.maximum(chain, begun)
        total = total + np.maximum(longest + OVERLAP * shorter, least) + launch
        parts = [a + b for a, b in zip(parts, found, strict=True)]
    return total, tuple(parts)


def _kernel_parts(kernel: KernelStats, analysis: Analysis, device: Device) -> list[Floats]:
    processors = float(device.processors)
    filled = np.maximum(kernel.wave_share, 1e-4)
    # Of one wave that leaves processors empty, the rest works undisturbed.
    busy = np.minimum(kernel.blocks / processors, 1.0)
    resident = np.maximum(kernel.occupancy * device.threads, 1.0) * np.where(
        busy < 1.0, 1.0, np.maximum(filled, 0.5)
    )
    chains = floats(1.0)
    for name in kernel.blocks_of:
        stats = analysis.blocks[name]
        chains = np.maximum(chains, np.minimum(np.maximum(stats.copies, 1.0), 16.0))
    hidden = np.minimum(resident * chains / (device.lanes * LATENCY), 1.0)
    others = kernel.requests + TURN * kernel.turns + 2.0 * kernel.guarded
    rate = processors * device.lanes * device.clock * busy * kernel.warp_share
    issued = kernel.flop + others
    arithmetic = issued / (rate * np.maximum(hidden, 1e-3)) * _stalls(kernel, issued, device)
    shared = kernel.waves / (processors * device.clock * busy)
    near = np.minimum(resident * kernel.warp_share / (device.lanes * IN_FLIGHT / 4.0), 1.0)
    spread = np.maximum(busy * near, 1e-3)
    moved = kernel.sectors * SECTOR
    unique = np.minimum(analysis.resident_lines * float(LINE), moved)
    # What does not fit the cache comes again, about as often as it is missed.
    missed = np.clip(unique / device.l2_bytes - 0.5, 0.0, 1.0) * 0.3
    memory = unique + missed * (moved - unique)
    return [
        arithmetic,
        shared,
        moved / (device.l2 * spread),
        memory / (device.memory * spread),
        # Before a scan in a single pass another kernel sets its marks to 0.
        device.launch * np.where(kernel.tiles > 0.0, 2.0, 1.0),
    ]


def _stalls(kernel: KernelStats, issued: Floats, device: Device) -> Floats:
    """Times as long as issuing takes, with what the warps at hand cannot hide: operands at the
    beginning of each round of the innermost loop, and fetches into shared memory."""
    per_block = np.maximum(np.ceil(kernel.threads / WARP), 1.0)
    there = np.ceil(kernel.blocks / device.processors)
    most = np.floor(kernel.occupancy * device.threads / (per_block * WARP) + 1e-6)
    resident = np.maximum(np.minimum(most, there), 1.0)
    mine = issued / np.maximum(kernel.turns, 1.0)
    warps = np.maximum(resident * per_block / SCHEDULERS, 1.0)
    rounds = np.where(kernel.waves > 0.0, (mine + LOAD_CYCLES) / (mine * warps), 1.0)
    cycles = np.maximum(issued / device.lanes / np.maximum(kernel.blocks, 1.0), 1.0)
    step = cycles / np.maximum(kernel.steps, 1.0)
    hidden = kernel.steps - kernel.exposed
    left = np.maximum(FETCH_CYCLES - step, 0.0) * hidden
    waited = FETCH_CYCLES * kernel.exposed + left
    fetches = (1.0 + waited / cycles) / resident
    stalls: Floats = np.maximum(rounds, 1.0) + np.maximum(fetches, 1.0) - 1.0
    return stalls
