"""Features of candidates, computed for a whole batch; `feature_table` says what they are."""

from __future__ import annotations

import numpy as np

from autosched.search.analysis import Analysis
from autosched.search.block_stats import BlockFacts, BlockStats
from autosched.search.footprint import LINE, Floats, SiteUses, Widths, floats, reduction_loops
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Call
from autosched.tir.nodes import Block, Buffer, strides
from autosched.tir.operations import OPS
from cost_model.feature_table import (
    BUFFERS,
    CLASSES,
    CURVE,
    CURVE_BASE,
    FEATURES,
    GPU,
    KINDS,
    POSITIONS,
    THREADS,
)

_FILE = {"addsub": "addsub", "mul": "mul", "div": "divmod", "cmp": "cmp", "math": "mathfunc"}


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
        """What is written, then what is read, with the widths touched from each depth inwards.

        Reads stand in the order of `ranks`: two spellings of a product have the same features.
        """
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
        written = {id(use.access.buffer) for use in self.site.uses if use.written}
        ranks = self.analysis.ranks
        return [
            *(found[b] for b in found if b in written),
            *(found[b] for b in sorted(found.keys() - written, key=lambda b: ranks[b])),
        ]

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
            return [floats(0.0)] * len(GPU)
        found = kernel.figures()
        found["coalesced"] = kernel.requested / np.maximum(kernel.sectors * 32.0, 1.0)
        return [found[n] for n, _, _ in GPU]


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
