"""A roofline model over the analysis: seconds of a candidate, and the bound of its task.

For each block the cycles of one register tile are the longest of: arithmetic issue, loads, the
latency of the accumulators' chains, and instruction issue; plus spills. A stage (a root of the
program) takes the longer of its cycles and of its cache traffic over each bandwidth, with part of
the shorter ones added since overlap is never perfect (Williams, Waterman and Patterson's roofline).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autosched.search.analysis import Analysis
from autosched.search.block_stats import BlockFacts, BlockStats
from autosched.search.footprint import LINE, Floats, floats
from autosched.sketch.analysis import cost
from autosched.target import Target
from autosched.target.gpu import device_of
from autosched.tir import dtypes
from autosched.tir.nodes import CONSTANT_AXES, PrimFunc, sites
from cost_model.gpu_roofline import gpu_roofline


@dataclass(frozen=True)
class Machine:
    """Rates of one core and of the memory behind it, for a current x86 server core.

    What is not a fact of the core was fitted to the ranks of 9,000 candidates of 57 tasks on Zen 5
    and six on Zen 3 (`docs/lab/search-2026-11.md`): what prefetching and reordering hide costs
    less than its latency.
    """

    clock: float = 3.7e9
    """Cycles a second."""
    arithmetic: float = 2.0
    """Vector operations a cycle."""
    loads: float = 2.0
    stores: float = 1.0
    issue: float = 6.0
    """Instructions a cycle."""
    latency: float = 4.0
    """Cycles of a multiply-add in a chain."""
    contention: float = 0.1
    """Part of the cycles of loads that multiply-adds cannot hide."""
    spill: float = 1.2
    """Cycles of a register that does not fit, each time it is used."""
    guard: float = 1.0
    """Cycles of a load behind a condition whose address finds no register; AVX2 only."""
    pointers: float = 24.0
    """Such loads whose addresses are at hand: in registers, or made again at no cost."""
    entry: float = 3.0
    """Cycles to start and store one accumulator."""
    loop: float = 4.0
    """Cycles to enter a nest of loops: counters, pointers, a mispredicted exit."""
    walk: float = 0.5
    """Cycles of a page that misses the first-level TLB."""
    l1_fill: float = 480e9
    """Bytes a second into L1 from L2, each core; l2_fill from L3, memory from DRAM, all cores."""
    l2_fill: float = 60e9
    memory: float = 40e9
    fork: float = 2e-6
    """Seconds to start and join a parallel loop, or a team of threads."""
    barrier: float = 0.2e-6
    """Seconds that a team waits for one another in each step: one runs a serial loop around
    parallel ones, which are not started each time."""
    overlap: float = 0.15
    """Part of the shorter bounds that is added to the longest."""


def machine_of(target: Target) -> Machine:
    """The rates of a target's cores."""
    if target.vector_bytes < 64:
        return Machine()
    if target.mcpu == "znver4":  # runs 64-byte vectors in halves
        return Machine(arithmetic=1.0, loads=1.0, stores=0.5, guard=0.0)
    return Machine(guard=0.0)


@dataclass(frozen=True)
class Prediction:
    """Seconds of each candidate, and what they are made of; see `roofline`."""

    seconds: Floats
    parts: tuple[Floats, ...]
    """Seconds of computing, of L1, L2 and memory traffic, and of page walks, over all stages."""


def roofline(analysis: Analysis, target: Target) -> Prediction:
    """What the model says of every candidate of an analysis, each of shape () or (N,)."""
    if target.is_gpu:
        return Prediction(*gpu_roofline(analysis, device_of(target)))
    machine = machine_of(target)
    registers = float(target.vector_registers)
    lines = analysis.resident_lines * float(LINE)
    cold = {"l2": lines > 0.8 * target.l2_bytes, "l3": lines > 0.8 * target.l3_bytes}
    total: Floats = floats(0.0)
    parts = [floats(0.0)] * 5
    for stage in analysis.stages:
        cycles = floats(0.0)
        for name in stage.blocks:
            cycles = cycles + block_cycles(
                analysis.blocks[name], analysis.facts[name], registers, machine
            )
        walks = machine.walk * stage.pages
        cycles = cycles + walks
        threads = 1.0 / np.maximum(stage.share, 1.0 / target.num_cores)
        compute = cycles * stage.share / machine.clock
        l1 = stage.l1_lines * LINE * stage.share / machine.l1_fill
        l2 = np.where(cold["l2"], stage.l2_lines * LINE * stage.share / machine.l2_fill, 0.0)
        dram = np.where(cold["l3"], stage.l3_lines * LINE / machine.memory, 0.0)
        dram = dram * np.maximum(1.0, 1.2 / threads)
        longest = np.maximum(np.maximum(compute, l1), np.maximum(l2, dram))
        shorter = compute + l1 + l2 + dram - longest
        waits = np.minimum(stage.forks, 1.0) * machine.fork
        waits = waits + np.maximum(stage.forks - 1.0, 0.0) * machine.barrier
        total = total + longest + machine.overlap * shorter + waits
        found = (compute, l1, l2, dram, walks * stage.share / machine.clock)
        parts = [a + b for a, b in zip(parts, found, strict=True)]
    return Prediction(total, tuple(parts))


def block_cycles(
    stats: BlockStats, facts: BlockFacts, registers: float, machine: Machine
) -> Floats:
    """Cycles of a block over all its iterations, on one core. Terms of padding are left out by the
    code generator, whatever the loops around them."""
    work = stats.copies * max(facts.ops, 0.0) / machine.arithmetic
    loads = (stats.loads + stats.wide) / machine.loads
    stores = stats.stores / machine.stores
    instructions = (
        stats.copies * max(facts.ops, 1.0)
        + 0.5 * stats.loads
        + 2.0 * stats.wide
        + stats.stores
        + 3.0
    )
    bound = np.maximum(np.maximum(work, loads), np.maximum(stores, instructions / machine.issue))
    if facts.is_reduction:
        chains = np.maximum(stats.accumulators, 1.0)
        bound = np.maximum(bound, machine.latency * stats.copies / chains)
        bound = bound + machine.contention * loads
    bound = bound + machine.guard * np.maximum(stats.guarded - machine.pointers, 0.0)
    spilled = np.maximum(stats.live - registers, 0.0) if facts.is_reduction else floats(0.0)
    once = stats.entries * (machine.entry * stats.accumulators + machine.loop)
    return facts.present * stats.iterations * (bound + machine.spill * spilled) + once


def least_seconds(func: PrimFunc, target: Target, flops: float) -> float:
    """Seconds that no schedule for a CPU goes below, for a measured peak of float32 multiply-adds
    in FLOP/s, two each: one operation for each point of a reduction, and arguments moved once, as
    fast as from L1 where the last cache holds them.

    Transforms by constant matrices, whose terms are mostly zeros, count as nothing, so that the
    bound is loose for Winograd's form. `bound_seconds` is in the units of the cost model instead.
    """
    machine = machine_of(target)
    points = 0.0
    for block in (site.block for site in sites(func)):
        if block.reducer is not None and block.annotation(CONSTANT_AXES) is None:
            # Dot products of narrow types take several multiply-adds for each element.
            sizes = (dtypes.itemsize(a.buffer.dtype) for a in (*block.reads, *block.writes))
            points += math.prod(int(axis.extent) for axis in block.iters) * min(sizes) / 4
    size = sum(math.prod(map(int, b.shape)) * dtypes.itemsize(b.dtype) for b in func.params)
    cached = size <= 0.8 * target.l3_bytes
    rate = machine.l1_fill * target.num_cores if cached else 2 * machine.memory
    return max(2 * points / flops, size / rate)


def bound_seconds(func: PrimFunc, target: Target) -> float:
    """A lower bound of the seconds of any schedule: arithmetic at the vector units' rate, and every
    argument moved once.

    It depends on the workload and the target alone, so that what is measured in its units stays
    comparable as a search goes on, and between tasks.
    """
    machine = machine_of(target)
    device = device_of(target) if target.is_gpu else None
    cycles, operations = 0.0, 0.0
    for site in sites(func):
        block = site.block
        points = 1.0
        for axis in block.iters:
            points *= int(axis.extent)
        ops = sum(cost(e) for e in (*block.body, *(block.reducer.combine if block.reducer else ())))
        if block.reducer is not None and block.reducer.name == "sum" and ops >= 2.0:
            ops -= 1.0 if target.has_fma else 0.0
        lanes = max(target.vector_bytes // dtypes.itemsize(block.writes[0].buffer.dtype), 1)
        cycles += points * ops / lanes / machine.arithmetic
        operations += points * ops
    size = 0.0
    for b in func.params:
        elements = 1.0
        for n in b.shape:
            elements *= int(n)
        size += elements * dtypes.itemsize(b.dtype)
    if device is not None:
        rate = device.processors * device.lanes * device.clock
        return max(operations / rate, size / device.memory, device.launch)
    cached = size <= 0.8 * target.l3_bytes
    bandwidth = machine.l2_fill * target.num_cores if cached else machine.memory
    return max(cycles / machine.clock / target.num_cores, size / bandwidth, 1e-9)
