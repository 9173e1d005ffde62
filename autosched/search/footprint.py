"""Footprints and cache traffic of a program or of a population, one NumPy pass over the loop tree.

Everything is float64, of shape () or (N,). Unit loops contribute nothing anywhere, so a program
with its unit loops and the lowered one without them have equal figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.tir import dtypes
from autosched.tir.affine import Affine, Digit, always, is_zero, recombine
from autosched.tir.expr import Var
from autosched.tir.intrin import warp_code
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    PrimFunc,
    Site,
    allocated,
    sites,
    strides,
)
from autosched.tir.region import home, placements, shared_by

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
LINE = 64
PAGE = 4096
SETS = 64.0
"""Sets of a first-level cache whose ways are a page each."""
Widths = tuple[Floats, ...]
"""Elements touched in each dimension."""


def floats(x: Any) -> Floats:
    """An Int as float64: footprints of large problems overflow int64 products."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else np.asarray(x, dtype=np.float64)


@dataclass(frozen=True)
class Use:
    """One access of a site. `levels[d]` is what the loops from depth d inwards touch;
    `forms[n]` is dimension n as an affine form over loops (None if it is not affine)."""

    access: Access
    written: bool
    levels: tuple[Widths, ...]
    forms: tuple[Affine | None, ...]


@dataclass(frozen=True)
class SiteUses:
    """A block, its loops, and its accesses over them. `extents[d]` is that of loop d.

    `tile[d]`: loop d is part of the register tile (unrolled or vectorised, no serial loop inside);
    `reduces[d]`: it and all inside are that or serial loops of the reduction. A tile's results are
    in registers there. Bool arrays: which unit loops to ignore differs by candidate.
    """

    site: Site
    extents: tuple[Floats, ...]
    uses: tuple[Use, ...]
    tile: tuple[Mask, ...]
    reduces: tuple[Mask, ...]

    def in_memory(self, depth: int) -> Floats:
        """1 where results live in memory while the loops from `depth` inwards run, 0 in
        registers."""
        if not self.site.block.is_reduction:
            return floats(1.0)
        if depth >= len(self.reduces):
            return floats(0.0)
        return np.where(self.reduces[depth], 0.0, 1.0)


def homes_of(func: PrimFunc) -> dict[int, int]:
    """By a buffer's id, how many loops stand around its allocation: none for arguments."""
    params = {id(b) for b in func.params}
    users: dict[Buffer, list[Site]] = {}
    for site in sites(func):
        for access in (*site.block.reads, *site.block.writes):
            mine = users.setdefault(access.buffer, [])
            if not mine or mine[-1] is not site:
                mine.append(site)
    placed = placements(func)
    return {
        id(b): 0 if id(b) in params else len(placed[b] if b in placed else home(b, found))
        for b, found in users.items()
    }


def ranks_of(func: PrimFunc) -> dict[int, tuple[int, int]]:
    """By a buffer's id, its place among all, which does not hang on the order of operands: by the
    first parameter that it is computed from, then in the order in which buffers are written."""
    found = {id(b): (n, -1) for n, b in enumerate(func.params)}
    for place, site in enumerate(sites(func)):
        known = [found[id(a.buffer)] for a in site.block.reads if id(a.buffer) in found]
        first = min((n for n, _ in known), default=len(func.params))
        for access in site.block.writes:
            found.setdefault(id(access.buffer), (first, place))
    return found


def site_uses(func: PrimFunc, homes: Mapping[int, int]) -> list[SiteUses]:
    """Every block of `func` with its accesses, in program order."""
    every = list(sites(func))
    out = []
    for site in every:
        extents = tuple(floats(1.0 if idle(loop, site) else loop.extent) for loop in site.loops)
        values, sizes = site.block.values(), site.extents()
        depth = {id(loop.var): d for d, loop in enumerate(site.loops)}
        uses = []
        for written, accesses in ((True, site.block.writes), (False, site.block.reads)):
            for access in accesses:
                forms = tuple(
                    recombine(i.substitute(values, sizes)) if isinstance(i, Affine) else None
                    for i in access.indices
                )
                inside = _inside(access.buffer, site, homes[id(access.buffer)])
                levels = _levels(access, forms, extents, depth, inside)
                uses.append(Use(access, written, levels, forms))
        out.append(SiteUses(site, extents, tuple(uses), *_register_loops(site, extents)))
    return out


def idle(loop: For, site: Site) -> bool:
    """Whether a loop bound to threads does nothing for a block, which does not use it: what all
    iterations of it would do alike is done once, by all threads together or by one."""
    if loop.thread is None or loop.thread.startswith("blockIdx"):
        return False
    block = site.block
    return not any(
        form.uses([loop.var]) for form in (*block.bindings, *(p.form for p in block.predicates))
    )


def _inside(buffer: Buffer, site: Site, home: int) -> list[bool]:
    """Of each loop, whether its iterations have the buffer together."""
    together = {id(v) for v in shared_by(buffer.scope, site.loops)}
    return [d >= home or id(loop.var) in together for d, loop in enumerate(site.loops)]


def _register_loops(
    site: Site, extents: tuple[Floats, ...]
) -> tuple[tuple[Mask, ...], tuple[Mask, ...]]:
    reduce_vars = reduction_loops(site)
    tile: list[Mask] = []
    reduces: list[Mask] = []
    in_tile, in_reduce = np.asarray(True), np.asarray(True)
    for loop, extent in zip(reversed(site.loops), reversed(extents), strict=True):
        unit = extent == 1.0
        written_out = loop.kind in ("unrolled", "vectorized") or warp_code(loop) is not None
        in_tile = in_tile & (written_out | unit)
        serial = loop.kind == "serial" and id(loop.var) in reduce_vars
        in_reduce = in_reduce & (in_tile | unit | serial)
        tile.append(in_tile)
        reduces.append(in_reduce)
    return tuple(reversed(tile)), tuple(reversed(reduces))


def reduction_loops(site: Site) -> set[int]:
    """Ids of the loop variables in the bindings of reduction axes."""
    return {
        id(v)
        for axis, form in zip(site.block.iters, site.block.bindings, strict=True)
        if axis.kind == "reduce"
        for v in form.variables()
    }


def _levels(
    access: Access,
    forms: tuple[Affine | None, ...],
    extents: tuple[Floats, ...],
    depth: Mapping[int, int],
    inside: Sequence[bool],
) -> tuple[Widths, ...]:
    """Widths with the loops from depth d inwards running, for d = 0 … number of loops.

    An intermediate is as large outside of the loops that it lives in as within; of a shared one,
    the loops `inside` are those of the threads too.
    """
    count = len(extents)
    shape = [floats(n) for n in access.buffer.shape]
    columns: list[list[Floats]] = []
    for form, full in zip(forms, shape, strict=True):
        if form is None:
            columns.append([full] * (count + 1))
            continue
        column: list[Floats] = [np.float64(1.0)] * (count + 1)  # type: ignore[list-item]
        digits = [(a, c) for a, c in form.terms if isinstance(a, Digit)]
        step = {
            depth[id(a)]: np.abs(floats(c))
            for a, c in form.terms
            if isinstance(a, Var) and id(a) in depth
        }
        moves = set(step) | {
            depth[id(v)] for a, _ in digits for v in a.variables() if id(v) in depth
        }
        running: Floats = floats(1.0)
        for d in range(count - 1, -1, -1):
            if d in moves and inside[d]:
                if d in step:
                    running = running + step[d] * (extents[d] - 1.0)
                total = running
                for atom, c in digits:
                    total = total + np.abs(floats(c)) * _digit_span(atom, d, extents, depth)
                column[d] = np.minimum(total, full)
            else:
                column[d] = column[d + 1]
        columns.append(column)
    return tuple(tuple(column[d] for column in columns) for d in range(count + 1))


def _digit_span(
    atom: Digit, level: int, extents: tuple[Floats, ...], depth: Mapping[int, int]
) -> Floats:
    """How far a digit moves while the loops from `level` inwards run."""
    span: Floats = floats(0.0)
    whole = is_zero(atom.base.const)  # all of the number runs, from 0 on
    for inner, c in atom.base.terms:
        if isinstance(inner, Digit):
            span = span + np.abs(floats(c)) * _digit_span(inner, level, extents, depth)
            whole = False
        elif depth.get(id(inner), -1) >= level:
            span = span + np.abs(floats(c)) * (extents[depth[id(inner)]] - 1.0)
            whole = whole and always(c > 0)
        else:
            whole = False
    steps = span / floats(atom.div)
    steps = np.floor(steps) if whole else np.ceil(steps)
    return steps if atom.mod is None else np.minimum(steps, floats(atom.mod) - 1.0)


@dataclass(frozen=True)
class Foot:
    """What a part of the program touches: `lines` and `pages` held, `conflicting` lines (those that
    a first-level cache must have for the fullest of its sets to hold its share), and `moved` lines
    that cross a cache boundary when it is loaded once (written lines go both ways)."""

    lines: Floats
    pages: Floats
    conflicting: Floats
    moved: Floats

    def lost(self, level: int, capacity: float) -> Floats:
        """Share of what is held that a cache of `capacity` lines loses before it is used again.

        Around the capacity the share grows from 0 to 1, since replacement is not perfect LRU; in
        the first level (0) the fullest sets may lose theirs although the cache as a whole has room.
        """
        share = np.clip(self.lines / capacity / 0.5 - 1.5, 0.0, 1.0)
        if level > 0:
            return share
        return np.maximum(share, np.clip((self.conflicting / capacity - 1.1) / 0.6, 0.0, 1.0))


@dataclass(frozen=True)
class Traffic:
    """Lines that enter each cache (`missed[k]` for capacity k), and pages that miss the TLB."""

    missed: tuple[Floats, ...]
    pages: Floats


class LoopTree:
    """Footprints of all parts of a program, and its traffic through a hierarchy of caches."""

    def __init__(self, func: PrimFunc, uses: list[SiteUses]) -> None:
        self.func = func
        self.uses = {id(u.site.block): u for u in uses}
        self.shapes: dict[int, Widths] = {}
        params = {id(b) for b in func.params}
        for site in uses:
            for use in site.uses:
                key = id(use.access.buffer)
                if key in params:
                    self.shapes[key] = tuple(floats(n) for n in use.access.buffer.shape)
                else:
                    self.shapes[key] = _widest(self.shapes.get(key), use.levels[0])
        self._strides: dict[int, Widths] = {}
        self._feet: dict[tuple[int, ...], Foot] = {}
        self._cache: dict[tuple[int, ...], tuple[Floats, Floats, Floats, Widths]] = {}

    def allocated(self, buffer: Buffer) -> Floats:
        """Elements of a buffer as lowering allocates it."""
        return floats(allocated(self.shapes[id(buffer)], buffer.align))

    def lines(self, buffer: Buffer, widths: Widths) -> Floats:
        """Cache lines of a box of a buffer."""
        return self._lines(buffer, widths)[0]

    def foot(self, blocks: list[Block], depth: int) -> Foot:
        """What `blocks`, which share `depth` loops, touch in one iteration of those loops."""
        key = (depth, *map(id, blocks))
        if key not in self._feet:
            self._feet[key] = self._foot(blocks, depth)
        return self._feet[key]

    def _foot(self, blocks: list[Block], depth: int) -> Foot:
        found: dict[int, tuple[Buffer, Widths, bool, Floats]] = {}
        for block in blocks:
            site = self.uses[id(block)]
            for use in site.uses:
                key = id(use.access.buffer)
                old = found.get(key)
                widths = _widest(
                    old[1] if old else None, use.levels[min(depth, len(use.levels) - 1)]
                )
                weight = site.in_memory(depth) if use.written else floats(1.0)
                if old is not None:
                    weight = np.maximum(weight, old[3])
                found[key] = (
                    use.access.buffer,
                    widths,
                    use.written or bool(old and old[2]),
                    weight,
                )
        lines: Floats = floats(0.0)
        pages: Floats = floats(0.0)
        conflicting: Floats = floats(0.0)
        moved: Floats = floats(0.0)
        for buffer, widths, written, weight in found.values():
            n, p, c = (weight * x for x in self._lines(buffer, widths))
            lines, pages, conflicting = lines + n, pages + p, conflicting + c
            moved = moved + (2.0 * n if written else n)
        return Foot(lines, pages, conflicting, moved)

    def _lines(self, buffer: Buffer, widths: Widths) -> tuple[Floats, Floats, Floats]:
        """(lines, pages, conflicting lines) of a box: row by row, or the whole span where rows lie
        closer.

        Rows whose distance is a multiple of the page size fall into the same sets of the
        first-level cache, which is indexed by the offset in a page: only a few of them can stay.
        """
        key = (id(buffer), *map(id, widths))
        hit = self._cache.get(key)
        if hit is not None:
            return hit[0], hit[1], hit[2]
        size = dtypes.itemsize(buffer.dtype)
        steps = strides(self.shapes[id(buffer)], buffer.align)
        outer: Floats = floats(1.0)
        span: Floats = floats(1.0)
        for n in range(len(widths) - 1, -1, -1):
            span = span + (widths[n] - 1.0) * steps[n]
            if n < len(widths) - 1:
                outer = outer * widths[n]
        run = widths[-1] if widths else floats(1.0)
        row = np.ceil(run * (size / LINE))
        lines = np.minimum(outer * row, np.ceil(span * (size / LINE)))
        pages = np.minimum(outer * np.ceil(run * (size / PAGE)), np.ceil(span * (size / PAGE)))
        conflicting = lines
        if len(widths) > 1:
            places = np.minimum(self._places(buffer), outer)
            conflicting = np.maximum(lines, outer * row * SETS / np.minimum(places * row, SETS))
            conflicting = np.where(lines < outer * row, lines, conflicting)
        self._cache[key] = (
            lines,
            pages,
            conflicting,
            widths,
        )  # holding widths keeps their ids from being reused
        return lines, pages, conflicting

    def _places(self, buffer: Buffer) -> Floats:
        """How many different offsets in a page the rows of a buffer start at."""
        found = self._strides.get(id(buffer))
        if found is None:
            row = strides(self.shapes[id(buffer)], buffer.align)[-2]
            stride = row * dtypes.itemsize(buffer.dtype)
            found = (floats(PAGE / np.gcd(floats(stride).astype(np.int64), PAGE)),)
            self._strides[id(buffer)] = found
        return found[0]

    def traffic(
        self, node: For | Block, depth: int, lines: tuple[float, ...], pages: float
    ) -> Traffic:
        """Traffic of one execution of `node`, which stands inside `depth` loops.

        If what one iteration touches fits, consecutive iterations reuse it and the loop loads
        only what is distinct; otherwise each iteration pays again. A unit loop is its body: without
        the loop its children would stand directly in the one around it.
        """
        if isinstance(node, Block):
            foot = self.foot([node], depth)
            return Traffic((foot.moved,) * len(lines), foot.pages)
        below = [s.block for s in sites(node)]
        whole, body = self.foot(below, depth), self.foot(below, depth + 1)
        inner = [self.traffic(child, depth + 1, lines, pages) for child in node.body]
        extent = floats(node.extent)
        loops = extent > 1.0
        missed = tuple(
            _mix(
                np.where(loops, body.lost(k, limit), 1.0),
                extent * _sum(t.missed[k] for t in inner),
                whole.moved,
            )
            for k, limit in enumerate(lines)
        )
        lost = np.where(loops, np.clip(body.pages / pages / 0.5 - 1.5, 0.0, 1.0), 1.0)
        return Traffic(missed, _mix(lost, extent * _sum(t.pages for t in inner), whole.pages))

    def total(self, stages: list[Traffic], lines: tuple[float, ...], pages: float) -> Traffic:
        """Traffic of the program, given that of its roots: nothing is loaded twice if all of it
        fits."""
        whole = self.foot([s.site.block for s in self.uses.values()], 0)
        missed = tuple(
            _mix(whole.lost(k, limit), _sum(t.missed[k] for t in stages), whole.moved)
            for k, limit in enumerate(lines)
        )
        lost = np.clip(whole.pages / pages / 0.5 - 1.5, 0.0, 1.0)
        return Traffic(missed, _mix(lost, _sum(t.pages for t in stages), whole.pages))


def _sum(parts: Iterable[Floats]) -> Floats:
    return sum(parts, floats(0.0))


def _mix(lost: Floats, again: Floats, once: Floats) -> Floats:
    """Traffic if a share of the data is lost between iterations: that share is loaded again."""
    mixed: Floats = lost * again + (1.0 - lost) * np.minimum(once, again)
    return mixed


def _widest(a: Widths | None, b: Widths) -> Widths:
    if a is None or a is b:
        return b
    return tuple(x if x is y else np.maximum(x, y) for x, y in zip(a, b, strict=True))
