"""A roofline model over the batched analysis, and its correction by what has been measured.

For each block the cycles of one register tile are the longest of: arithmetic issue, loads, the
latency of the accumulators' chains, and instruction issue; plus spills. A stage (a root of the
program) takes the longer of its cycles and of its cache traffic over each bandwidth, with part of
the shorter ones added since overlap is never perfect (Williams, Waterman and Patterson's roofline).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autosched.search.analysis import Analysis, BlockFacts, BlockStats
from autosched.search.evaluate import analyse_population
from autosched.search.footprint import Floats, floats
from autosched.search.model import Scores, Seconds
from autosched.sketch.space import Population, Space
from autosched.target import Target
from cost_model.correction import Correction, fit_correction
from cost_model.figures import Figures

LINE = 64.0


@dataclass(frozen=True)
class Machine:
    """Rates of one core and of the memory behind it; defaults for a current x86 server core."""

    clock: float = 3.7e9
    """Cycles a second."""
    arithmetic: float = 2.0
    """Vector operations a cycle."""
    loads: float = 2.0
    stores: float = 1.0
    issue: float = 6.0
    """Instructions a cycle."""
    latency: float = 5.5
    """Cycles of a multiply-add in a chain: 4 in the unit, and what waiting for operands adds."""
    contention: float = 0.2
    """Part of the cycles of loads that multiply-adds cannot hide."""
    spill: float = 1.2
    """Cycles of a register that does not fit, each time it is used."""
    entry: float = 0.9
    """Cycles to start and store one accumulator."""
    loop: float = 4.0
    """Cycles to enter a nest of loops: counters, pointers, a mispredicted exit."""
    walk: float = 8.0
    """Cycles of a page that misses the first-level TLB."""
    l1_fill: float = 160e9
    """Bytes a second into L1 from L2, each core; l2_fill from L3, memory from DRAM, all cores."""
    l2_fill: float = 80e9
    memory: float = 40e9
    fork: float = 2e-6
    """Seconds to start and join a parallel loop."""
    overlap: float = 0.35
    """Part of the shorter bounds that is added to the longest."""


class AnalyticModel:
    """Predicts -log(seconds). `fit` gives a model that corrects itself by measurements."""

    def __init__(
        self, machine: Machine | None = None, correction: Correction | None = None
    ) -> None:
        self.machine = machine or Machine()
        self.correction = correction
        self._figures: tuple[Space, Figures] | None = None

    def seconds(
        self, space: Space, population: Population
    ) -> tuple[Seconds, npt.NDArray[np.float64]]:
        """(predicted seconds (N,), infinite where not legal; features (N, F) of the correction)."""
        if self._figures is None or self._figures[0] is not space:
            width = 1 + FEATURES + len(space.variants)
            self._figures = (space, Figures(lambda p: self._compute(space, p), width))
        table = self._figures[1].of(population)
        return table[:, 0], table[:, 1:]

    def _compute(self, space: Space, population: Population) -> npt.NDArray[np.float64]:
        found = np.zeros((len(population), 1 + FEATURES + len(space.variants)))
        found[:, 0] = np.inf
        for group in analyse_population(space, population):
            total, table = predict_seconds(group.analysis, space.target, self.machine)
            found[group.rows, 0] = np.where(group.analysis.valid, total, np.inf)
            found[group.rows, 1 : 1 + FEATURES] = table
            found[group.rows, 1 + FEATURES + group.variant] = 1.0
        return found

    def predict(self, space: Space, population: Population) -> Scores:
        """float32 (N,): -log(seconds), minus infinity where a candidate is not legal."""
        seconds, features = self.seconds(space, population)
        with np.errstate(divide="ignore"):
            scores = -np.log(seconds)
        if self.correction is not None:
            scores = scores - self.correction.residual(features)
        return scores.astype(np.float32)

    def fit(self, space: Space, population: Population, seconds: Seconds) -> AnalyticModel:
        """A model whose errors on the candidates measured are taken out, near them and along
        features."""
        correction = None
        if len(population):
            predicted, features = self.seconds(space, population)
            known = np.isfinite(predicted)
            correction = fit_correction(features[known], predicted[known], seconds[known])
        fitted = AnalyticModel(self.machine, correction)
        fitted._figures = self._figures
        return fitted


FEATURES = 12


def predict_seconds(
    analysis: Analysis, target: Target, machine: Machine
) -> tuple[Floats, npt.NDArray[np.float64]]:
    """(seconds (N,), log2 features (N, FEATURES)) of one group of candidates."""
    registers = float(target.vector_registers)
    cold = {
        "l2": analysis.resident_lines * LINE > 0.8 * target.l2_bytes,
        "l3": analysis.resident_lines * LINE > 0.8 * target.l3_bytes,
    }
    total: Floats = floats(0.0)
    parts: list[tuple[Floats, ...]] = []
    for stage in analysis.stages:
        cycles = floats(0.0)
        for name in stage.blocks:
            cycles = cycles + block_cycles(
                analysis.blocks[name], analysis.facts[name], registers, machine
            )
        cycles = cycles + machine.walk * stage.pages
        threads = 1.0 / np.maximum(stage.share, 1.0 / target.num_cores)
        compute = cycles * stage.share / machine.clock
        l1 = stage.l1_lines * LINE * stage.share / machine.l1_fill
        l2 = np.where(cold["l2"], stage.l2_lines * LINE * stage.share / machine.l2_fill, 0.0)
        dram = np.where(cold["l3"], stage.l3_lines * LINE / machine.memory, 0.0)
        dram = dram * np.maximum(1.0, 1.2 / threads)
        bounds = np.stack(np.broadcast_arrays(compute, l1, l2, dram))
        longest = bounds.max(axis=0)
        total = (
            total
            + longest
            + machine.overlap * (bounds.sum(axis=0) - longest)
            + stage.forks * machine.fork
        )
        parts.append(
            (compute, l1, l2, dram, stage.pages * machine.walk * stage.share / machine.clock)
        )
    return np.broadcast_to(total, (analysis.size,)), _features(analysis, total, parts)


def block_cycles(
    stats: BlockStats, facts: BlockFacts, registers: float, machine: Machine
) -> Floats:
    """Cycles of a block over all its iterations, on one core."""
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
    spilled = np.maximum(stats.live - registers, 0.0) if facts.is_reduction else floats(0.0)
    once = stats.entries * (machine.entry * stats.accumulators + machine.loop)
    return stats.iterations * (bound + machine.spill * spilled) + once


def _features(
    analysis: Analysis, total: Floats, parts: list[tuple[Floats, ...]]
) -> npt.NDArray[np.float64]:
    """What the correction may lean on, in powers of two, for the block with most iterations."""
    names = list(analysis.blocks)
    weights = np.stack(
        [
            np.broadcast_to(
                analysis.blocks[n].iterations * analysis.blocks[n].copies, (analysis.size,)
            )
            for n in names
        ]
    )
    main = analysis.blocks[names[int(weights.mean(axis=1).argmax())]]
    sums = [sum(part[k] for part in parts) / total for k in range(5)]
    columns = [
        *(np.log2(s + 2.0**-6) for s in sums),
        np.log2(np.maximum(main.accumulators, 1.0)),
        np.log2(np.maximum(main.live, 1.0)),
        np.log2((main.loads + main.wide + 0.1) / main.copies),
        np.log2(np.maximum(main.lanes, 1.0)),
        4.0 * np.log2(main.waste + 1e-9),
        0.25 * np.log2(analysis.packed_bytes + analysis.thread_bytes + 1.0),
        0.5 * np.log2(np.maximum(main.iterations / np.maximum(main.entries, 1.0), 1.0)),
    ]
    return np.stack([np.broadcast_to(floats(c), (analysis.size,)) for c in columns], axis=1)
