"""Regions: which elements of a buffer a part of the program touches.

A region is one interval a dimension: `start`, affine in the loops outside the part, and `width`.
It is exact for boxes of dense tiles and never smaller than what is touched. Array-valued like
everything over `Int`: the footprints of a population come from here too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.tir.affine import Affine, Digit, Extents, Int, always, imax, imin
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Access,
    Buffer,
    For,
    Predicate,
    PrimFunc,
    Site,
    kind_vars,
    loops_of,
    path_to,
    sites,
)
from autosched.tir.scope import SHARED, WARP
from autosched.tir.size_atoms import Undecided


@dataclass(frozen=True, eq=False, slots=True)
class Interval:
    """`width` elements from `start`, which may lie outside the dimension where tiles overhang."""

    start: Affine
    width: Int


Region = tuple[Interval, ...]


def access_region(
    access: Access,
    values: dict[Var, Affine],
    extents: Extents,
    inner: Collection[Var],
    predicates: Sequence[Predicate] = (),
) -> Region:
    """Region of one access while the loops `inner` run; `values` binds the block's axes.

    Of the block's `predicates` those count that bound what an index adds over these loops.
    """
    out = []
    for n, index in enumerate(access.indices):
        whole = Interval(Affine(0), access.buffer.shape[n])
        if not isinstance(index, Affine):
            out.append(whole)
            continue
        outside, inside = index.substitute(values, extents).split(inner)
        low, high = guarded_span(inside, predicates, extents)
        out.append(_clipped(outside + low, high - low + 1, access.buffer.shape[n], extents))
    return tuple(out)


def guarded_span(
    form: Affine, predicates: Sequence[Predicate], extents: Extents
) -> tuple[Int, Int]:
    """The least and the greatest value of a form, of points where the predicates hold. Those count
    that speak of the form's own variables alone, and that known sizes decide."""
    low, high = form.span(extents)
    own = set(form.variables())
    for p in predicates:
        if own.issuperset(p.form.variables()):
            with suppress(Undecided):
                high = imin(high, (form - p.form).span(extents)[1] + p.bound - 1)
    return low, high


def _clipped(start: Affine, width: Int, size: Int, extents: Extents) -> Interval:
    """The interval without what provably lies outside [0, size).

    Only the form of `start` decides which way is taken, never a value, so that a population gets
    column by column what each candidate gets alone.
    """
    try:
        return _cut(start, width, size, extents)
    except Undecided:  # what is cut off depends on symbolic sizes: nothing is
        return Interval(start, width)


def _cut(start: Affine, width: Int, size: Int, extents: Extents) -> Interval:
    if start.is_const():
        low = imin(imax(start.const, 0 * start.const), size - 1)
        high = imin(start.const + width, size)
        return Interval(Affine(low), imax(high - low, 0 * low + 1))
    # A start below 0 makes the interval's end count too, so only then the width must stay whole.
    inside = start.span(extents)[0] >= 0
    if isinstance(inside, np.ndarray):
        widths: Any = (imin(width, size), width)
        return Interval(start, np.where(inside, *widths))
    return Interval(start, imin(width, size) if always(inside) else width)


def union(a: Region, b: Region, shape: Sequence[Int]) -> Region:
    """Smallest region known to hold both: starts must differ by a constant, else the whole
    dimension."""
    out = []
    for x, y, n in zip(a, b, shape, strict=True):
        gap = y.start - x.start
        if gap.terms:
            out.append(Interval(Affine(0), n))
            continue
        try:
            out.append(_hull(x, y, gap.const, n))
        except Undecided:
            out.append(Interval(Affine(0), n))
    return tuple(out)


def _hull(x: Interval, y: Interval, gap: Int, n: Int) -> Interval:
    """The interval from the first element of both to the last; `y` starts `gap` after `x`."""
    shift = imin(gap, 0 * gap)
    start = x.start + shift
    width = imax(x.width - shift, gap + y.width - shift)
    return Interval(start, imin(width, n - start.const) if start.is_const() else width)


def touched(buffer: Buffer, places: Sequence[Site], inner: Collection[Var]) -> Region | None:
    """Union of the regions of all accesses of `buffer` in `places` while the loops `inner` run."""
    total: Region | None = None
    for site in places:
        values, extents = site.block.values(), site.extents()
        for access in (*site.block.writes, *site.block.reads):
            if access.buffer is buffer:
                region = access_region(access, values, extents, inner)
                total = region if total is None else union(total, region, buffer.shape)
    return total


def shared_by(scope: str, loops: Sequence[For]) -> list[Var]:
    """Of the loops around a place, those whose iterations have one buffer of this scope together:
    the threads of a block share what is in `SHARED`, whichever of them fills it, and those along x
    what is one of a warp."""
    if scope == WARP:
        return [x.var for x in loops if x.thread == "threadIdx.x"]
    if scope not in SHARED:
        return []
    return [x.var for x in loops if x.thread is not None and not x.thread.startswith("blockIdx")]


def elements(region: Region) -> Int:
    """Number of elements."""
    n: Int = 1
    for interval in region:
        n = n * interval.width
    return n


def common_loops(places: Sequence[Site]) -> tuple[For, ...]:
    """The loops that all `places` share, outermost first."""
    out = []
    for level in zip(*(s.loops for s in places), strict=False):
        if any(loop is not level[0] for loop in level):
            break
        out.append(level[0])
    return tuple(out)


def users_of(func: PrimFunc, buffer: Buffer) -> list[Site]:
    """Blocks that access `buffer`, in program order."""
    return [
        s for s in sites(func) if any(a.buffer is buffer for a in (*s.block.reads, *s.block.writes))
    ]


def placements(func: PrimFunc) -> dict[Buffer, tuple[For, ...]]:
    """The loops inside which each buffer of a lowered program is allocated."""
    out: dict[Buffer, tuple[For, ...]] = dict.fromkeys(func.allocs, ())
    for loop in loops_of(func):
        for b in loop.allocs:
            out[b] = path_to(func, loop.var)
    return out


def home(buffer: Buffer, users: Sequence[Site]) -> tuple[For, ...]:
    """The loops inside which an intermediate can live, given the blocks that access it.

    Those that all users share, down to the first that carries values of it from one step to the
    next, or whose iterations run at once on one thread (the lanes of a vector). An intermediate
    that only one block touches is kept whole: nothing bounds its life.
    """
    if len(users) == 1:
        return ()
    out = []
    for loop in common_loops(users):
        if loop.kind == "vectorized" or carries(loop, buffer, users):
            break
        out.append(loop)
    return tuple(out)


def carries(loop: For, buffer: Buffer, users: Sequence[Site]) -> bool:
    """Whether a sequential loop may hand elements of `buffer` to its later iterations."""
    if all(loop.var not in kind_vars(s.block, "sequential") for s in users):
        return False
    outside = {x.var for x in users[0].loops[: users[0].loops.index(loop)]}
    written = [
        (_forms(s, a), s.extents()) for s in users for a in s.block.writes if a.buffer is buffer
    ]
    read = [_forms(s, a) for s in users for a in s.block.reads if a.buffer is buffer]
    return any(not _same_step(loop, outside, e, w, r) for w, e in written for r in read)


def _forms(site: Site, access: Access) -> list[Affine | None]:
    values = site.block.values()
    return [i.substitute(values) if isinstance(i, Affine) else None for i in access.indices]


def _same_step(
    loop: For,
    outside: Collection[Var],
    extents: Extents,
    written: Sequence[Affine | None],
    read: Sequence[Affine | None],
) -> bool:
    """Whether an element that both name is one of the same iteration of `loop`: some index tells
    the iteration, whatever the loops inside it are at."""
    known = {loop.var, *outside}
    for w, r in zip(written, read, strict=True):
        if w is None or r is None or not w.same(r):
            continue
        step = w.coefficient(loop.var)
        inside = [v for v in w.variables() if v not in known]
        if any(isinstance(a, Digit) and a.base.uses([loop.var]) for a, _ in w.terms):
            continue
        low, high = w.split(inside)[1].span(extents)
        if always(imax(step, -step) > high - low):
            return True
    return False
