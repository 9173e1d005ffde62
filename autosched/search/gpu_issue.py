"""What else than arithmetic a GPU's kernel issues, read off a population like the rest.

requests   load and store instructions of threads: neighbours that unrolled loops touch at an
           aligned place are one vector, what cooperating threads copy is some more for indices
waves      passes of warps through shared memory: of words that lanes share, one is read; lanes
           at steps of a power of two meet in a bank and come one after the other
turns      times that the innermost loop that is not unrolled goes round, over all threads
steps      times that a block waits for what it fetches, each for as long as memory takes
guarded    points asked for in the innermost loops: of a tile that overhangs along a reduction those
           of the step in which this ends
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.codegen.gpu.double import SHORT
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
from autosched.sketch.decisions import Mask
from autosched.tir import dtypes
from autosched.tir.affine import Digit
from autosched.tir.annotations import SINGLE_PASS, copies_of
from autosched.tir.expr import Var
from autosched.tir.intrin import warp_code
from autosched.tir.nodes import Block, For, strides
from autosched.tir.scope import SHARED

WARP = 32.0
VECTOR_BYTES = 16.0
COPIED = 6.0
"""Instructions for the place of a vector that is copied to shared memory."""
WAVE_BYTES = 128.0
"""Bytes that a warp reads from shared memory at once."""


@dataclass(frozen=True)
class Issue:
    """Figures of one kernel, each of shape () or (N,); see the module."""

    requests: Floats
    waves: Floats
    turns: Floats
    steps: Floats
    guarded: Floats
    exposed: Floats


def issue_of(
    places: Sequence[SiteUses],
    tree: LoopTree,
    homes: Mapping[int, int],
    iterations: Mapping[str, Floats],
) -> Issue:
    """Of the blocks of a kernel; `iterations` of each, by name, are runs of its unrolled body."""
    requests, waves, turns, steps, guarded, exposed = (floats(0.0) for _ in range(6))
    for place in places:
        block, points = place.site.block, floats(1.0)
        for extent in place.extents:
            points = points * extent
        vector = block.annotation("cooperative")
        if vector is None:
            turns = turns + iterations[block.name]
        else:
            own, together = _steps(place, homes[id(block.writes[0].buffer)])
            steps = np.maximum(steps, own)
            ahead = floats(copies_of(block))
            exposed = np.maximum(exposed, np.where(ahead > 1.0, own / together, own))
        asked = _asked(place, homes)
        guarded = guarded + asked * points
        for use in place.uses:
            buffer = use.access.buffer
            if buffer.scope == "local" or not use.access.indices or is_handed(use, block):
                continue
            count = count_of(use, place, points)
            size = float(dtypes.itemsize(buffer.dtype))
            if gpu_mma.nest_of(place):
                own = count * size / gpu_mma.sharing(use, place)
                requests = requests + (0.0 if gpu_mma.is_grouped(place) else own / gpu_mma.ROW)
                waves = waves + own / WAVE_BYTES * gpu_mma.conflicts(use, place, tree)
                continue
            width = width_of(use, place, tree, homes, size, vector)
            width = 1.0 / (asked + (1.0 - asked) / width)  # what is asked for goes one by one
            each = 1.0 if vector is None else 1.0 + COPIED / 2.0
            requests = requests + each * count / width
            if buffer.scope in SHARED and not use.written:
                waves = waves + count / width / WARP * _passes(use, place, tree, width, size)
    return Issue(requests, waves, turns, steps, guarded, exposed)


def is_handed(use: Use, block: Block) -> bool:
    """Whether what is read of the step before is in a register, or handed on between threads."""
    single = bool(block.annotation(SINGLE_PASS))
    return single and not use.written and use.access.buffer is block.writes[0].buffer


def count_of(use: Use, place: SiteUses, points: Floats) -> Floats:
    """Elements that threads load or store: a register is used again by unrolled copies."""
    total = points
    sums = place.site.block.is_reduction and use.written
    moving = reduction_loops(place.site) if sums else frozenset()
    for d, loop in enumerate(place.site.loops):
        if id(loop.var) in moving:
            total = total / np.maximum(place.extents[d], 1.0)
        elif (
            loop.kind in ("unrolled", "vectorized") or warp_code(loop) is not None
        ) and not _moves(use, loop):
            total = total / np.where(place.tile[d], place.extents[d], 1.0)
    return total


def _moves(use: Use, loop: For) -> bool:
    return any(form is None or form.uses([loop.var]) for form in use.forms)


def step_of(use: Use, loop: For, tree: LoopTree) -> Floats:
    """Elements between neighbouring iterations of a loop."""
    buffer = use.access.buffer
    total = floats(0.0)
    for form, stride in zip(use.forms, strides(tree.shapes[id(buffer)], buffer.align), strict=True):
        if form is None:
            return floats(WARP + 1.0)  # data decide: anywhere
        for atom, c in form.terms:
            if isinstance(atom, Digit):
                total = total + (floats(stride) if atom.base.uses([loop.var]) else 0.0)
            elif atom is loop.var:
                total = total + np.abs(floats(c)) * stride
    return total


def _steps(place: SiteUses, home: int) -> tuple[Floats, Floats]:
    """(steps of all loops around a shared array, those that are fetched ahead of without a break:
    of the innermost loops, as `codegen/gpu/double.py` makes them one)."""
    total, together = floats(1.0), floats(1.0)
    for loop in reversed(place.site.loops[:home]):
        if loop.kind in STEPS:
            total = total * floats(loop.extent)
            together = together * np.where(together <= SHORT, floats(loop.extent), 1.0)
    return total, together


def _asked(place: SiteUses, homes: Mapping[int, int]) -> Floats:
    """Share of a block's points whose terms may not exist. Where a loop outside of the nest that
    computes decides it, only its last iterations ask (`c_source.versions`), else all do."""
    loops, moving = place.site.loops, reduction_loops(place.site)
    shared = [u.access.buffer for u in place.uses if u.access.buffer.scope in SHARED]
    first = next((d + 1 for d, x in enumerate(loops) if id(x.var) in moving), 0)
    nest = max((homes[id(b)] for b in shared), default=first)
    depth = {id(x.var): d for d, x in enumerate(loops)}
    none = floats(1.0)
    for p in place.site.block.predicates:
        if not any(id(v) in moving for v in p.form.variables()):
            continue
        inner, outer = floats(p.form.const), []
        for atom, c in p.form.terms:
            d = depth.get(id(atom))
            if d is None:
                return floats(1.0)
            most = floats(place.extents[d]) - 1.0
            if d < nest and loops[d].thread is None:
                outer.append((floats(c), most))
            else:
                inner = inner + np.maximum(floats(c), 0.0) * most
        room = floats(p.bound) - 1.0 - inner
        if len(outer) == 1 and not any(_is_thread(v, place) for v in p.form.variables()):
            ((step, last),) = outer
            whole = np.maximum(np.floor(room / step) + 1.0, 0.0) / (last + 1.0)
            none = none * np.minimum(whole, 1.0)
        else:
            reach = sum((np.maximum(c, 0.0) * m for c, m in outer), floats(0.0))
            none = none * np.where(reach <= room, 1.0, 0.0)
    share: Floats = 1.0 - none
    return share


def _is_thread(v: Var, place: SiteUses) -> bool:
    return any(x.var is v and x.thread is not None for x in place.site.loops)


def width_of(
    use: Use,
    place: SiteUses,
    tree: LoopTree,
    homes: Mapping[int, int],
    size: float,
    vector: Any = None,
) -> Floats:
    """Elements of one instruction: 1, 2 or 4, neighbours along an unrolled loop, or, of copies by
    `vector` elements, along the last one; everything else moves by multiples of it."""
    shared = use.access.buffer.scope in SHARED
    home = homes[id(use.access.buffer)] if shared else 0
    out = floats(1.0)
    for width in (2.0, 4.0):
        if width * size > VECTOR_BYTES:
            continue
        fits: Mask = np.asarray(True)
        found: Mask = np.asarray(False)
        for d, loop in enumerate(place.site.loops):
            if d < home and (loop.thread is None or loop.thread.startswith("blockIdx")):
                continue  # a shared array begins where the block's tile does
            extent, step = place.extents[d], step_of(use, loop, tree)
            whole = np.floor(extent / width) * width == extent
            last = vector is not None and d == len(place.site.loops) - 1
            unrolled = place.tile[d] if vector is None else np.asarray(last)
            run = (step == 1.0) & whole & unrolled
            found = found | run
            far = np.floor(step / width) * width == step
            fits = fits & (run | far | (extent <= 1.0))
        if vector is not None:
            fits = fits & (floats(vector) >= width)
        out = np.where(fits & found, width, out)
    return out


def _passes(use: Use, place: SiteUses, tree: LoopTree, width: Floats, size: float) -> Floats:
    """Passes of one instruction of a warp."""
    lanes, distinct, ways, seen = floats(1.0), floats(1.0), floats(1.0), np.asarray(False)
    for d in range(len(place.site.loops) - 1, -1, -1):
        loop, extent = place.site.loops[d], place.extents[d]
        if loop.thread != "threadIdx.x":
            continue
        step = step_of(use, loop, tree) * (size / 4.0)
        taken = np.maximum(np.minimum(extent, WARP / lanes), 1.0)
        distinct = np.where(step > 0.0, distinct * taken, distinct)
        lanes = lanes * taken
        meet = floats(1.0)
        for power in (2.0, 4.0, 8.0, 16.0, 32.0):
            meet = np.where((step > 0.0) & (np.floor(step / power) * power == step), power, meet)
        here = (taken > 1.0) & (step > 0.0) & ~seen
        most = np.minimum(meet * 4.0 / (width * size), taken)
        ways = np.where(here, np.maximum(most, 1.0), ways)
        seen = seen | here
    passes: Floats = np.maximum(distinct * width * size / WAVE_BYTES, 1.0) * ways
    return passes
