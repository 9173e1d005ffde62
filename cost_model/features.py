"""Per-store features: what a learned model is told of each block of a candidate.

`FEATURES` is the table of names, units and formulas. Groups 1 to 5 are those of Ansor (Zheng et
al., OSDI 2020, and `auto_scheduler`'s `feature.cc`); group 6 is what this code generator makes
true, group 7 what a GPU makes of the store's kernel. All are functions of the scheduled program, of
ints or of a population's columns; groups 1 to 6 are equal to those of the lowered program. Unit
loops count nowhere. Values are not scaled, since trees only compare.

Words of the table: *points* are the points of the block that are computed, tails and recomputation
included; *loops* are those with more than one iteration; *inside loop d* means one iteration of it;
`B0` is the buffer written, `B1` … those read, in the order of the reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.search.analysis import Analysis, BlockFacts, BlockStats
from autosched.search.footprint import LINE, Floats, SiteUses, Widths, floats, reduction_loops
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Call
from autosched.tir.nodes import Block, Buffer, strides
from autosched.tir.operations import OPS


@dataclass(frozen=True)
class Feature:
    """One column: its group of the table, unit and formula."""

    group: int
    name: str
    unit: str
    formula: str


BUFFERS = 5
"""Buffers described; further ones are left out."""
CURVE = 10
CURVE_BASE = 8.0
CLASSES = ("mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc")
KINDS = {"vec": "vectorized", "unroll": "unrolled", "parallel": "parallel"}
POSITIONS = (
    *("none", "inner_spatial", "middle_spatial", "outer_spatial"),
    *("inner_reduce", "middle_reduce", "outer_reduce", "mixed"),
)
THREADS = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")
_FILE = {"addsub": "addsub", "mul": "mul", "div": "divmod", "cmp": "cmp", "math": "mathfunc"}


def _table() -> tuple[Feature, ...]:
    found: list[Feature] = []

    def add(group: int, name: str, unit: str, formula: str) -> None:
        found.append(Feature(group, name, unit, formula))

    for kind in ("float", "int"):
        for name in CLASSES:
            what = "multiply and add that depends on it" if name == "mad" else name
            add(1, f"{kind}_{name}", "operations", f"{kind} {what} in the body x points")
    add(1, "bool_op", "operations", "connectives of truth values in the body x points")
    add(1, "select_op", "operations", "selections in the body x points")
    for name, kind in KINDS.items():
        add(1, f"{name}_num", "loops", f"number of {kind} loops")
        add(1, f"{name}_prod", "iterations", f"product of the extents of the {kind} loops")
        add(1, f"{name}_len", "iterations", f"extent of the innermost {kind} loop, or 1")
        for position in POSITIONS:
            add(1, f"{name}_type_{position}", "0 or 1", f"where the innermost {kind} loop stands")
    add(1, "is_gpu", "0 or 1", "a loop is bound to a GPU axis")
    for thread in THREADS:
        add(1, f"{thread.replace('.', '_')}_len", "iterations", f"extent bound to {thread}")
    add(1, "vthread_len", "iterations", "product of the extents bound to virtual threads")
    for n in range(BUFFERS):
        b = f"B{n}"
        for kind in ("read", "write", "read_write"):
            add(2, f"{b}_acc_{kind}", "0 or 1", f"{b} is accessed so")
        add(2, f"{b}_bytes", "bytes", "accesses x size of an element, over all points")
        add(2, f"{b}_unique_bytes", "bytes", "size of the box touched")
        add(2, f"{b}_lines", "cache lines", "bytes x min(stride x size, 64) / size / 64")
        add(2, f"{b}_unique_lines", "cache lines", "lines of the box touched")
        for kind in ("loop", "serial", "none"):
            add(2, f"{b}_reuse_{kind}", "0 or 1", "reused over a loop, from another block, or not")
        add(2, f"{b}_reuse_dis_iter", "iterations", "of all loops inside the innermost reusing one")
        add(2, f"{b}_reuse_dis_bytes", "bytes", "of all buffers touched inside that loop")
        add(2, f"{b}_reuse_ct", "iterations", "extent of that loop, 0 without reuse")
        for kind in ("bytes", "unique_bytes", "lines", "unique_lines"):
            add(2, f"{b}_{kind}_d_reuse_ct", "per reuse", f"{kind} / max(reuse_ct, 0.5)")
        add(2, f"{b}_stride", "elements", "step of the innermost loop that moves the access")
    for n in range(CURVE):
        add(
            3,
            f"arith_intensity_{n}",
            "FLOP / byte",
            f"of the smallest sub-nest with {CURVE_BASE:.0f}^{n} points, else of the whole nest",
        )
    add(4, "alloc_size", "bytes", "size of B0 as lowering allocates it")
    add(4, "alloc_prod", "bytes", "alloc_size x alloc_outer_prod")
    add(4, "alloc_outer_prod", "iterations", "of the loops around the allocation")
    add(4, "alloc_inner_prod", "iterations", "of the loops inside it")
    add(5, "outer_prod", "iterations", "product of all extents")
    add(5, "num_loops", "loops", "number of loops")
    add(5, "unrolled_copies", "instructions", "vector instructions of one iteration of the code")
    for name, unit, formula in _OWN:
        add(6, name, unit, formula)
    for name, unit, formula in _GPU:
        add(7, f"gpu_{name}", unit, formula)
    return tuple(found)


_OWN = (
    ("iterations", "iterations", "runs of the innermost serial iteration (a register tile)"),
    ("lanes", "elements", "elements of a vector instruction that do work"),
    ("accumulators", "registers", "vector accumulators alive through the innermost reduction"),
    ("live", "registers", "vector registers wanted in the register tile"),
    ("spilled", "registers", "live - registers of the target, at least 0"),
    ("loads", "instructions", "vector and broadcast loads of one iteration"),
    ("gathered", "elements", "elements of one iteration loaded one by one"),
    ("guarded", "instructions", "loads of one iteration behind conditions on the axes"),
    ("loads_per_copy", "ratio", "(loads + gathered) / unrolled_copies"),
    ("entries", "times", "innermost reduction loops entered and their results stored"),
    ("reduction", "iterations", "iterations / entries: steps of a register tile's reduction"),
    ("waste", "ratio", "points / points of the domain: tails and recomputation"),
    ("packed_bytes", "bytes", "written by blocks that only copy, in the whole program"),
    ("thread_bytes", "bytes", "scratch of one thread, in the whole program"),
    ("scratch_bytes", "bytes", "all intermediates of the program"),
    ("resident_lines", "cache lines", "everything that the program touches"),
    ("degree", "iterations", "parallel iterations of the stage"),
    ("share", "ratio", "share of the stage's work of the slowest thread"),
    ("forks", "times", "parallel loops of the stage started"),
    ("l1_lines", "cache lines", "entering the first-level caches, whole program"),
    ("l2_lines", "cache lines", "entering the second-level caches, whole program"),
    ("l3_lines", "cache lines", "entering the last-level cache, whole program"),
    ("pages", "pages", "missing the first-level TLB, whole program"),
    ("flop_per_l1_line", "FLOP / line", "float operations of the block / l1_lines"),
    ("flop_per_l2_line", "FLOP / line", "float operations of the block / l2_lines"),
)
_GPU = (
    ("blocks", "blocks", "of the store's kernel"),
    ("threads", "threads", "of a block"),
    ("virtual", "threads", "virtual threads of a thread"),
    ("shared_bytes", "bytes", "shared memory of a block, with what goes through it across threads"),
    ("registers", "registers", "of a thread: local arrays, operands, addresses (estimated)"),
    ("copies", "statements", "of the largest unrolled body"),
    ("occupancy", "ratio", "share of a processor's threads that its blocks can fill"),
    ("warp_share", "ratio", "threads / threads of the block's warps"),
    ("wave_share", "ratio", "share of all waves of blocks that is filled"),
    ("requested", "bytes", "of global memory that threads ask for"),
    ("sectors", "sectors", "of 32 bytes that the requests of warps fall into"),
    ("coalesced", "ratio", "requested / (32 x sectors)"),
    ("shared_loads", "words", "read from shared memory"),
    ("conflicts", "times", "that a request of shared memory is repeated, a proxy from its step"),
    ("requests", "instructions", "of threads, that load and store"),
    ("waves", "passes", "of warps through shared memory"),
    ("turns", "times", "that the innermost serial loop goes round, over all threads"),
    ("steps", "times", "that a block fetches into shared memory"),
    ("exposed", "times", "that it waits for what it fetches, since no step before did"),
    ("guarded", "points", "asked for in an unrolled body"),
    ("flop", "operations", "arithmetic of the kernel"),
    ("intensity", "FLOP / byte", "flop / requested: reuse within a block"),
)
"""Figures of `search/gpu.py`, 0 on CPUs."""
FEATURES = _table()
NAMES = tuple(f.name for f in FEATURES)
WIDTH = len(FEATURES)


def store_features(analysis: Analysis) -> list[list[Floats]]:
    """Features of every block in program order: WIDTH columns of shape () or (N,) each."""
    return [_Store(analysis, n).features() for n in range(len(analysis.sites))]


class _Store:
    """One block of an analysed program."""

    def __init__(self, analysis: Analysis, place: int) -> None:
        self.analysis = analysis
        self.site: SiteUses = analysis.sites[place]
        self.block: Block = self.site.site.block
        self.stats: BlockStats = analysis.blocks[self.block.name]
        self.facts: BlockFacts = analysis.facts[self.block.name]
        self.extents = self.site.extents
        self.on = [e > 1.0 for e in self.extents]
        self.points = self.stats.waste * self.facts.points
        self.inner = [floats(1.0)]  # iterations of the loops from depth d inwards, reversed below
        for e in reversed(self.extents):
            self.inner.append(self.inner[-1] * e)
        self.inner.reverse()
        self.counts = _counts(self.block)
        self.flop = sum(v * (2 if k == "float_mad" else 1) for k, v in self.counts.items())
        self.buffers = self._buffers()
        self.bytes_inside = [
            sum((_volume(w[d]) * _itemsize(b) for b, w in self.buffers), floats(0.0))
            for d in range(len(self.extents) + 1)
        ]

    def _buffers(self) -> list[tuple[Buffer, tuple[Widths, ...]]]:
        """Buffers in structural order, with the widths touched from each depth inwards."""
        found: dict[int, tuple[Buffer, tuple[Widths, ...]]] = {}
        for use in self.site.uses:
            b = use.access.buffer
            old = found.get(id(b))
            levels = use.levels
            if old is not None:
                levels = tuple(
                    tuple(map(np.maximum, x, y)) for x, y in zip(old[1], levels, strict=True)
                )
            found[id(b)] = (b, levels)
        return list(found.values())

    def features(self) -> list[Floats]:
        """All columns in the order of the table."""
        columns = [
            floats(self.counts.get(f"{k}_{c}", 0)) for k in ("float", "int") for c in CLASSES
        ]
        columns += [floats(self.counts.get(k, 0)) for k in ("bool_op", "select_op")]
        columns = [c * self.points for c in columns]
        for kind in KINDS.values():
            columns += self._loops_of(kind)
        columns += self._threads()
        for n in range(BUFFERS):
            columns += self._access(n)
        columns += self._curve()
        columns += self._allocation()
        number = sum((on * floats(1.0) for on in self.on), floats(0.0))
        columns += [self.inner[0], number, self.stats.copies]
        return columns + self._own()

    def _loops_of(self, kind: str) -> list[Floats]:
        """num, prod, len and position of the loops of one kind."""
        loops = self.site.site.loops
        reduce_vars = reduction_loops(self.site.site)
        spatial_vars = {
            id(v)
            for axis, form in zip(self.block.iters, self.block.bindings, strict=True)
            if axis.kind == "spatial"
            for v in form.variables()
        }
        number, product, length, position = (floats(x) for x in (0.0, 1.0, 1.0, 0.0))
        for d, loop in enumerate(loops):
            if loop.kind != kind:
                continue
            on, e = self.on[d], self.extents[d]
            number, product, length = number + on, product * e, np.where(on, e, length)
            innermost, outermost = self.inner[d + 1] <= 1.0, self.inner[0] <= self.inner[d]
            if id(loop.var) in reduce_vars and id(loop.var) in spatial_vars:
                place = floats(7.0)
            else:
                first = 4.0 if id(loop.var) in reduce_vars else 1.0
                place = np.where(innermost, first, np.where(outermost, first + 2.0, first + 1.0))
            position = np.where(on, place, position)
        types = [(position == float(k)) * floats(1.0) for k in range(len(POSITIONS))]
        return [number, product, length, *types]

    def _threads(self) -> list[Floats]:
        bound: dict[str, Floats] = {}
        for loop, e in zip(self.site.site.loops, self.extents, strict=True):
            if loop.thread is not None:
                key = "vthread" if loop.thread.startswith("vthread") else loop.thread
                bound[key] = bound.get(key, floats(1.0)) * e
        lengths = [bound.get(t, floats(1.0)) for t in (*THREADS, "vthread")]
        return [floats(1.0 if bound else 0.0), *lengths]

    def _access(self, n: int) -> list[Floats]:
        """The 18 columns of buffer `n`; zeros where there is none."""
        if n >= len(self.buffers):
            return [floats(0.0)] * 18
        buffer, widths = self.buffers[n]
        uses = [u for u in self.site.uses if u.access.buffer is buffer]
        written = any(u.written for u in uses)
        read = any(not u.written for u in uses) or (written and self.block.is_reduction)
        kinds = [read and not written, written and not read, read and written]
        size = float(_itemsize(buffer))
        touched = self.points * (size * len(uses))
        unique = _volume(widths[0]) * size
        step = self._stride(n)
        lines = np.maximum(touched * np.minimum(step * size, float(LINE)) / (size * LINE), 1.0)
        unique_lines = self.analysis.tree.lines(buffer, widths[0])
        count, distance, between = self._reuse(n)
        loop = count > 0.0
        serial = self._elsewhere(buffer)
        counted = np.maximum(count, 0.5)
        amounts = [touched, unique, lines, unique_lines]
        return [
            *(floats(float(k)) for k in kinds),
            *amounts,
            loop * floats(1.0),
            np.where(loop, 0.0, float(serial)),
            np.where(loop, 0.0, float(not serial)),
            distance,
            between,
            count,
            *(a / counted for a in amounts),
            step,
        ]

    def _moves(self, n: int) -> dict[int, Floats]:
        """Steps, in elements of the buffer as allocated, of the loops that move its accesses.

        Loops around an allocation do not: each of their iterations has a buffer of its own.
        """
        buffer = self.buffers[n][0]
        home = self.analysis.homes[id(buffer)]
        depth = {id(loop.var): d for d, loop in enumerate(self.site.site.loops) if d >= home}
        steps = strides(self.analysis.tree.shapes[id(buffer)], buffer.align)
        found: dict[int, Floats] = {}
        for use in self.site.uses:
            if use.access.buffer is not buffer:
                continue
            for form, stride in zip(use.forms, steps, strict=True):
                for d, step in _steps(form, depth):
                    old = found.get(d)
                    found[d] = step * stride if old is None else old + step * stride
        return found

    def _stride(self, n: int) -> Floats:
        step = floats(0.0)
        for d, mine in sorted(self._moves(n).items()):
            step = np.where(self.on[d], mine, step)
        return step

    def _reuse(self, n: int) -> tuple[Floats, Floats, Floats]:
        """(extent, iterations inside, bytes inside) of the innermost loop that moves no access."""
        moves = self._moves(n)
        count, distance, between = floats(0.0), floats(0.0), floats(0.0)
        home = self.analysis.homes[id(self.buffers[n][0])]
        for d, e in enumerate(self.extents):
            if d in moves or d < home:
                continue
            on = self.on[d]
            count = np.where(on, e, count)
            distance = np.where(on, self.inner[d + 1], distance)
            between = np.where(on, self.bytes_inside[d + 1], between)
        return count, distance, between

    def _elsewhere(self, buffer: Buffer) -> bool:
        """Whether another block accesses the buffer."""
        return any(
            u.access.buffer is buffer
            for s in self.analysis.sites
            if s is not self.site
            for u in s.uses
        )

    def _curve(self) -> list[Floats]:
        intensity = [
            self.flop * points / np.maximum(size, 1.0)
            for points, size in zip(self.inner, self.bytes_inside, strict=True)
        ]
        found: list[Floats] = []
        for n in range(CURVE):
            value = intensity[0]
            for points, mine in zip(self.inner[1:], intensity[1:], strict=True):
                value = np.where(points >= CURVE_BASE**n, mine, value)
            found.append(value)
        return found

    def _allocation(self) -> list[Floats]:
        buffer = self.buffers[0][0]
        size = self.analysis.tree.allocated(buffer) * float(_itemsize(buffer))
        inside = self.inner[self.analysis.homes[id(buffer)]]
        outside = self.inner[0] / inside
        return [size, size * outside, outside, inside]

    def _own(self) -> list[Floats]:
        a, s = self.analysis, self.stats
        stage = next(x for x in a.stages if self.block.name in x.blocks)
        flop = self.flop * self.points
        l1, l2, l3 = a.traffic.missed
        return [
            s.iterations,
            s.lanes,
            s.accumulators,
            s.live,
            np.maximum(s.live - float(a.registers), 0.0),
            s.loads,
            s.wide,
            s.guarded,
            (s.loads + s.wide) / s.copies,
            s.entries,
            s.iterations / np.maximum(s.entries, 1.0),
            s.waste,
            a.packed_bytes,
            a.thread_bytes,
            a.scratch_bytes,
            a.resident_lines,
            stage.degree,
            stage.share,
            stage.forks,
            l1,
            l2,
            l3,
            a.traffic.pages,
            flop / np.maximum(l1, 1.0),
            flop / np.maximum(l2, 1.0),
            *self._kernel(),
        ]

    def _kernel(self) -> list[Floats]:
        """Figures of the kernel that the block is part of."""
        name = self.block.name
        kernel = next((k for k in self.analysis.kernels if name in k.blocks_of), None)
        if kernel is None:
            return [floats(0.0)] * len(_GPU)
        found = kernel.figures()
        found["coalesced"] = kernel.requested / np.maximum(kernel.sectors * 32.0, 1.0)
        return [found[n] for n, _, _ in _GPU]


def _itemsize(buffer: Buffer) -> int:
    return dtypes.itemsize(buffer.dtype)


def _volume(widths: Widths) -> Floats:
    total = floats(1.0)
    for w in widths:
        total = total * w
    return total


def _steps(form: Affine | None, depth: dict[int, int]) -> list[tuple[int, Floats]]:
    """(depth, step) of every loop in one index; loops inside digits count as steps of one."""
    if form is None:
        return []
    found: list[tuple[int, Floats]] = []
    for atom, c in form.terms:
        if isinstance(atom, Digit):
            found += [(depth[id(v)], floats(1.0)) for v in atom.variables() if id(v) in depth]
        elif id(atom) in depth:
            found.append((depth[id(atom)], np.abs(floats(c))))
    return found


def _counts(block: Block) -> dict[str, int]:
    """Operations of one point by class."""
    found: dict[str, int] = {}

    def visit(e: ex.Expr) -> None:
        if isinstance(e, Call):
            kind = OPS[e.op].cost
            number = "int" if e.dtype.startswith(("int", "uint")) else "float"
            key = {"bool": "bool_op", "select": "select_op"}.get(
                kind, f"{number}_{_FILE.get(kind, 'otherfunc')}"
            )
            found[key] = found.get(key, 0) + 1
            for x in e.args:
                visit(x)

    for body in block.body:
        visit(body)
    if block.reducer is not None:
        for body in block.reducer.combine:
            visit(body)
    for number in ("float", "int"):
        # A product that goes into a sum is one instruction.
        both = min(found.get(f"{number}_mul", 0), found.get(f"{number}_addsub", 0))
        if both:
            found[f"{number}_mad"] = both
            found[f"{number}_mul"] -= both
            found[f"{number}_addsub"] -= both
    return found


def markdown() -> str:
    """The table as a document: `docs/features.md`."""
    lines = ["# Features of a store", "", "For those who read or change what the cost model sees."]
    lines += ["", *(__doc__ or "").splitlines()[2:], ""]
    lines += ["| group | feature | unit | formula |", "|---|---|---|---|"]
    lines += [f"| {f.group} | `{f.name}` | {f.unit} | {f.formula} |" for f in FEATURES]
    return "\n".join(lines) + "\n"
