"""The roofline of GPUs: seconds of each kernel of a candidate, from the analysis of its launch.

A kernel takes the longest of arithmetic, shared memory, the second-level cache and memory, with
part of the others added; arithmetic goes at the rate that the warps at hand can hide its latency
at (Volkov, Understanding Latency Hiding on GPUs, 2016), and nothing is faster than the waves of
blocks that do not fill the device.
"""

from __future__ import annotations

import numpy as np

from autosched.gpu_target import Device
from autosched.search.analysis import Analysis
from autosched.search.footprint import LINE, Floats, floats
from autosched.search.gpu import SECTOR, KernelStats

OVERLAP = 0.25
"""Part of the shorter bounds that is added to the longest."""
LATENCY = 4.0
"""Cycles of a multiply-add: independent ones that a lane needs at a time."""
IN_FLIGHT = 24.0
"""Threads of a lane that hide the latency of memory."""
BANK_BYTES = 128.0
"""Bytes that a processor reads from its shared memory in a cycle."""
ISSUE = 0.35
"""Multiply-adds that an instruction of another kind costs: addresses, loads, loops."""


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
        total = total + longest + OVERLAP * shorter + launch
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
    others = floats(0.0)
    for name in kernel.blocks_of:
        stats, facts = analysis.blocks[name], analysis.facts[name]
        loads = stats.loads + stats.stores + 2.0
        others = others + stats.waste * facts.points * ISSUE * loads / np.maximum(stats.copies, 1.0)
    rate = processors * device.lanes * device.clock * busy * kernel.warp_share
    arithmetic = (kernel.flop + others) / (rate * np.maximum(hidden, 1e-3))
    shared = kernel.shared_loads * kernel.conflicts * 4.0
    shared = shared / (processors * BANK_BYTES * device.clock * busy)
    near = np.minimum(resident / (device.lanes * IN_FLIGHT / 4.0), 1.0)
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
        floats(device.launch),
    ]
