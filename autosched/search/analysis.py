"""Batched analysis: what a program, or each of a population of programs, does to the machine.

`analyse(func, target)` reads a scheduled program (of ints, or of arrays of shape (N,)) or the
lowered program of one candidate; the same code yields the same figures for all three, which the
tests hold. Figures are float64 columns. What each means:

Per block (`BlockStats`)
    iterations    runs of the innermost serial iteration (one register tile), over all threads
    lanes         elements of one vector instruction that do work, of `vector` lanes
    copies        vector instructions of the body in one iteration: unrolled loops x vectors
    accumulators  vector accumulators that live through the innermost reduction loops
    live          vector registers wanted: accumulators + one row of the cheapest operand + 1
    loads, wide   vector and broadcast loads in one iteration; those that are not contiguous, by
    element, a fraction of it where squares are transposed in registers
    guarded       loads in one iteration behind a condition on the axes, each with an address of its
                  own
    stores        vector stores in one iteration (a reduction stores once an entry, see below)
    entries       times that the innermost reduction loops are entered and their results stored
    waste         points computed per point of the domain: tails and recomputation
Per kernel, on a GPU: see `search/gpu.py`
Per stage (`StageStats`, a root of the program)
    degree, share parallel iterations; share of the work that the slowest thread has
    forks         parallel regions started
    traffic       cache lines entering L1, L2, L3 and pages missing the TLB, over all threads
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autosched.lowering.layout_rewrite import LayoutRewriteOption, option_of, split
from autosched.search.block_stats import (
    BlockFacts,
    BlockStats,
    StageStats,
    loads_of,
    scratch_of,
    stage_of,
)
from autosched.search.footprint import (
    LINE,
    Floats,
    LoopTree,
    SiteUses,
    Traffic,
    floats,
    homes_of,
    ranks_of,
    reduction_loops,
    site_uses,
)
from autosched.search.gpu import BlockWork, KernelStats, kernel_stats
from autosched.sketch.analysis import cost
from autosched.sketch.decisions import Mask
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import Digit
from autosched.tir.expr import Call, Slot, Var
from autosched.tir.nodes import CONSTANT_AXES, Block, PrimFunc
from autosched.tir.operations import OPS
from autosched.tir.padding import share_present

TLB_PAGES = 64.0
"""Pages that the first-level data TLB holds (64 to 96 on current cores)."""
MAX_COPIES = 288.0
"""Vector instructions in one iteration beyond which code size and build time explode."""
MAX_CONSTANT_COPIES = 2048.0
"""The same where unrolled loops index constant matrices: most terms vanish."""
MAX_THREAD_BYTES = 64.0 * 2**20
MAX_SCRATCH_BYTES = 2.0 * 2**30
REDUCE_ACCUMULATORS = 8.0
"""Accumulators that the code generator gives an unrolled reduction over lanes."""


@dataclass(frozen=True)
class Analysis:
    """All figures of `size` candidates (1 for one program)."""

    size: int
    blocks: dict[str, BlockStats]
    facts: dict[str, BlockFacts]
    stages: tuple[StageStats, ...]
    scratch_bytes: Floats
    thread_bytes: Floats
    resident_lines: Floats
    """Cache lines of everything the program touches."""
    traffic: Traffic
    """Lines entering L1, L2, L3 and pages missing the TLB over the whole program, started cold."""
    packed_bytes: Floats
    """Bytes written by blocks that compute nothing: copies into panels and padded buffers."""
    registers: int
    """Vector registers of the target."""
    sites: tuple[SiteUses, ...]
    """The blocks with their loops and accesses, in program order."""
    tree: LoopTree
    homes: dict[int, int]
    """By a buffer's id, how many loops stand around its allocation."""
    ranks: dict[int, tuple[int, int]]
    """By a buffer's id, its place among all, whatever the order of operands."""
    kernels: tuple[KernelStats, ...] = ()
    """On a GPU, one a stage."""

    @property
    def valid(self) -> Mask:
        """Whether a candidate is worth building: bounded code and scratch. Shape () or (size,)."""
        ok: Mask = (self.scratch_bytes <= MAX_SCRATCH_BYTES) & (
            self.thread_bytes <= MAX_THREAD_BYTES
        )
        if self.kernels:
            for kernel in self.kernels:
                ok = ok & kernel.valid
            return ok
        for name, stats in self.blocks.items():
            ok = ok & (stats.copies <= self.facts[name].max_copies)
        return ok

    def columns(self) -> dict[str, Floats]:
        """Every figure by name, shape (size,); `block/figure` for blocks, sums over stages."""
        return {k: np.broadcast_to(floats(v), (self.size,)) for k, v in self.figures().items()}

    def figures(self) -> dict[str, Floats]:
        """The same, each of shape () or (size,)."""
        found: dict[str, Floats] = {}
        for name, stats in self.blocks.items():
            for field in fields(stats):
                found[f"{name}/{field.name}"] = getattr(stats, field.name)
        found.update(zip(("l1_lines", "l2_lines", "l3_lines"), self.traffic.missed, strict=True))
        found["pages"] = self.traffic.pages
        for n, kernel in enumerate(self.kernels):
            found.update({f"kernel{n}/{k}": v for k, v in kernel.figures().items()})
        for key in ("scratch_bytes", "thread_bytes", "resident_lines", "packed_bytes"):
            found[key] = getattr(self, key)
        return found


def analyse(func: PrimFunc, target: Target, size: int = 1) -> Analysis:
    """Figures of a scheduled or lowered program; `size` is N if its extents are arrays of shape
    (N,). Transform stages that leave the kernel are not counted."""
    if option_of(func) is LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED:
        func, _ = split(func)
    homes = homes_of(func)
    uses = site_uses(func, homes)
    tree = LoopTree(func, uses)
    blocks: dict[str, BlockStats] = {}
    facts: dict[str, BlockFacts] = {}
    packed: Floats = floats(0.0)
    for site in uses:
        block = site.site.block
        known = _facts(block, target)
        stats = _block_stats(site, known)
        blocks[block.name], facts[block.name] = stats, known
        if known.ops == 0.0 and not known.is_reduction:
            packed = packed + stats.waste * known.points * known.itemsize
    limits = tuple(c / LINE for c in (target.l1_bytes, target.l2_bytes, target.l3_bytes))
    walks = [tree.traffic(node, 0, limits, TLB_PAGES) for node in func.body]
    stages = tuple(stage_of(n, t, target) for n, t in zip(func.body, walks, strict=True))
    traffic = tree.total(walks, limits, TLB_PAGES)
    scratch, private = scratch_of(func, uses, tree)
    kernels: tuple[KernelStats, ...] = ()
    if target.is_gpu:
        work = {n: _work(stats, facts[n]) for n, stats in blocks.items()}
        by_id = {id(u.site.block): u for u in uses}
        kernels = tuple(kernel_stats(n, by_id, work, tree, homes, target) for n in func.body)
    resident = tree.foot([s.site.block for s in uses], 0).lines
    return Analysis(
        size=size,
        blocks=blocks,
        facts=facts,
        stages=stages,
        scratch_bytes=scratch,
        thread_bytes=private,
        resident_lines=resident,
        traffic=traffic,
        packed_bytes=packed,
        registers=target.vector_registers,
        sites=tuple(uses),
        tree=tree,
        homes=homes,
        ranks=ranks_of(func),
        kernels=kernels,
    )


def _work(stats: BlockStats, facts: BlockFacts) -> BlockWork:
    """A block as the analysis of kernels asks for it."""
    points = stats.waste * facts.points
    operands = np.minimum(stats.loads, 2.0 * np.maximum(stats.live - stats.accumulators, 1.0))
    return BlockWork(points, facts.ops, stats.copies, operands, stats.iterations)


def _facts(block: Block, target: Target) -> BlockFacts:
    ops = sum(cost(e) for e in block.body)
    if block.reducer is not None:
        ops += sum(cost(e) for e in block.reducer.combine)
        fused = block.reducer.name == "sum" and any(
            isinstance(e, Call) and e.op == "mul" for e in block.body
        )
        ops -= 1.0 if fused and target.has_fma else 0.0
    itemsize = dtypes.itemsize(block.writes[0].buffer.dtype)
    points: Floats = floats(1.0)
    for axis in block.iters:
        points = points * floats(axis.extent)
    constant = block.annotation(CONSTANT_AXES) is not None
    limit = MAX_CONSTANT_COPIES if constant else MAX_COPIES
    lanes = max(target.vector_bytes // itemsize, 1)
    return BlockFacts(ops, lanes, itemsize, block.is_reduction, points, limit, share_present(block))


def _block_stats(site: SiteUses, facts: BlockFacts) -> BlockStats:
    loops = site.site.loops
    reduce_vars = reduction_loops(site.site)
    one = floats(1.0)
    lanes, vectors, spatial, reduce_copies = one, one, one, one
    lane_reduce = False
    inside: dict[
        int, Floats
    ] = {}  # loops of the register tile: variable -> extent (1 where it is not in it)
    iterations, red = one, one
    for d in range(len(loops) - 1, -1, -1):
        loop, extent = loops[d], site.extents[d]
        e = np.where(site.tile[d], extent, 1.0)
        inside[id(loop.var)] = e
        if loop.kind == "vectorized":
            vectors = np.ceil(e / facts.vector)
            lanes = e / vectors
            lane_reduce = id(loop.var) in reduce_vars
        elif id(loop.var) in reduce_vars:
            reduce_copies = reduce_copies * e
        else:
            spatial = spatial * e
        outer = np.where(site.tile[d], 1.0, extent)
        iterations = iterations * outer
        red = red * np.where(site.reduces[d], outer, 1.0)
    executed, waste_points = _executed(site, inside)
    iterations = iterations * executed
    copies = spatial * reduce_copies * vectors
    lane_copies = np.minimum(reduce_copies, REDUCE_ACCUMULATORS) if lane_reduce else one
    accumulators = spatial * vectors * lane_copies if facts.is_reduction else floats(0.0)
    loads, wide, cheapest = one * 0.0, one * 0.0, None
    for use in site.uses:
        if use.written:
            continue
        n, gathered = loads_of(use, site, inside, facts)
        loads, wide = loads + n, wide + gathered
        cheapest = n if cheapest is None else np.minimum(cheapest, n)
    guarded = _guarded(site, inside, facts)
    live = accumulators + (cheapest if cheapest is not None else 0.0) + 1.0
    stores = floats(0.0) if facts.is_reduction else spatial * vectors
    entries = (
        np.maximum(iterations / np.maximum(red, 1.0), 1.0) if facts.is_reduction else floats(0.0)
    )
    return BlockStats(
        iterations=iterations,
        lanes=lanes,
        copies=copies,
        accumulators=accumulators,
        live=live,
        loads=loads,
        wide=wide,
        stores=stores,
        guarded=guarded,
        entries=entries,
        waste=waste_points / facts.points,
    )


def _guarded(site: SiteUses, inside: dict[int, Floats], facts: BlockFacts) -> Floats:
    """Loads of one iteration that are behind conditions on the axes, such as inlined padding."""
    block = site.site.block
    behind: dict[int, set[int]] = {}  # number of a read -> ids of the axes of its conditions
    for body in block.body:
        for e in ex.walk(body):
            if not isinstance(e, Call) or OPS[e.op].cost != "select":
                continue
            parts = list(ex.walk(e.args[0]))
            if any(isinstance(x, Slot) for x in parts):
                continue
            axes = {id(x) for x in parts if isinstance(x, Var)}
            for branch in e.args[1:]:
                for x in ex.walk(branch):
                    if isinstance(x, Slot):
                        behind.setdefault(x.index, set()).update(axes)
    total = floats(0.0)
    for axes in behind.values():
        moving = {
            id(v)
            for axis, form in zip(block.iters, block.bindings, strict=True)
            if id(axis.var) in axes
            for v in form.variables()
        }
        count = floats(1.0)
        for loop in site.site.loops:
            if id(loop.var) in moving:
                e_tile = inside[id(loop.var)]
                if loop.kind == "vectorized":
                    e_tile = np.ceil(e_tile / facts.vector)
                count = count * e_tile
        total = total + count
    return total


def _executed(site: SiteUses, inside: dict[int, Floats]) -> tuple[Floats, Floats]:
    """(share of the padded iterations that run, points computed).

    A tail on serial loops is a run-time trip count; within the register tile it is computed.
    Predicates over the same loops cut the same iterations: only the tightest counts.
    """
    extents = {id(loop.var): e for loop, e in zip(site.site.loops, site.extents, strict=True)}
    groups: list[tuple[set[int], Floats]] = []
    for p in site.site.block.predicates:
        if any(isinstance(a, Digit) for a, _ in p.form.terms):
            continue
        const, bound = floats(p.form.const), floats(p.bound)
        span, tile = floats(1.0), floats(1.0)
        for atom, c in p.form.terms:
            step = floats(c)
            span = span + np.maximum(step, 0.0) * (extents[id(atom)] - 1.0)
            tile = tile + np.abs(step) * (inside.get(id(atom), floats(1.0)) - 1.0)
        needed = np.ceil((bound - const) / tile) * tile
        share = np.clip(needed / span, 0.0, 1.0)
        variables = {id(v) for v in p.form.variables()}
        for other in [g for g in groups if g[0] & variables]:
            groups.remove(other)
            variables, share = variables | other[0], np.minimum(share, other[1])
        groups.append((variables, share))
    total: Floats = floats(1.0)
    for _, share in groups:
        total = total * share
    points: Floats = total
    for e in site.extents:
        points = points * e
    return total, points
