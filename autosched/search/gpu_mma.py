"""Blocks that warps do on tensor cores, as the analysis of kernels counts them.

The loops of an instruction count as written out, of which one copy is the instruction. What the
threads of a warp read of an operand is shared out among those that have it together: `ldmatrix`
loads 16 bytes a thread, of rows that lie in different banks unless their distance is an even number
of such.
"""

from __future__ import annotations

import numpy as np

from autosched.search.footprint import Floats, LoopTree, SiteUses, Use, floats, reduction_loops
from autosched.tir import dtypes
from autosched.tir.affine import Digit
from autosched.tir.intrin import warp_code
from autosched.tir.nodes import For, strides

RATE, GROUP_RATE = 8.0, 16.0
"""Multiply-adds of halves while a processor's lanes do one each, by warps and by warpgroups; twice
as many of bytes."""
ROW = 16.0
"""Bytes of a row of a matrix that `ldmatrix` loads."""
SCATTERED = 8.0
"""Times as long as rows that lie elsewhere than `ldmatrix` may take."""


def nest_of(place: SiteUses) -> tuple[For, ...]:
    """The loops that an instruction of a warp does; none for other blocks."""
    return tuple(x for x in place.site.loops if warp_code(x) is not None)


def is_grouped(place: SiteUses) -> bool:
    """Whether four warps do a block together, which read operands where they are."""
    codes = (warp_code(x) for x in place.site.loops)
    return any(code is not None and code.warps > 1 for code in codes)


def points_of(place: SiteUses) -> float:
    """Points of one thread in one instruction; 1 for other blocks."""
    out = 1.0
    for loop in nest_of(place):
        out *= int(loop.extent)
    return out


def rate_of(place: SiteUses) -> float:
    """Operations that count as one of a thread's."""
    if not nest_of(place):
        return 1.0
    rate = GROUP_RATE if is_grouped(place) else RATE
    return rate * 2.0 / dtypes.itemsize(place.site.block.reads[0].buffer.dtype)


def sharing(use: Use, place: SiteUses) -> Floats:
    """Threads of a warp that have an element of an operand together."""
    out = floats(1.0)
    for loop, extent in zip(place.site.loops, place.extents, strict=True):
        if loop.thread == "threadIdx.x" and not _moves(use, loop):
            out = out * extent
    return out


def registers_of(place: SiteUses) -> Floats:
    """Registers of a thread for what it holds of both operands."""
    total, nest = floats(0.0), () if is_grouped(place) else nest_of(place)
    moving = reduction_loops(place.site)
    for use in place.uses:
        if use.written or not nest:
            continue
        held = floats(float(dtypes.itemsize(use.access.buffer.dtype)) / 4.0)
        for d, loop in enumerate(place.site.loops):
            inner = loop in nest or (id(loop.var) not in moving and loop.kind == "unrolled")
            if inner and _moves(use, loop):
                held = held * place.extents[d]
        total = total + held / sharing(use, place)
    return total


def conflicts(use: Use, place: SiteUses, tree: LoopTree) -> Floats:
    """Passes of a load of matrices, over those that rows in different banks take."""
    if is_grouped(place):
        return floats(1.0)
    size = float(dtypes.itemsize(use.access.buffer.dtype))
    rows, columns, terms = nest_of(place)
    lanes = [x for x in place.site.loops if x.thread == "threadIdx.x" and _moves(use, x)]
    if _moves(use, rows):
        step, near = [_step(use, x, tree) for x in lanes][-1:], _step(use, terms, tree)
    else:
        step, near = [_step(use, columns, tree)], _step(use, terms, tree)
        turned = (step[0] == 1.0) & (size == 2.0)
        step = [np.where(turned, near, step[0])]
        near = np.where(turned, 1.0, near)
    apart = step[0] * size / ROW if step else floats(1.0)
    ways = floats(1.0)
    for power in (2.0, 4.0, 8.0):
        ways = np.where(np.floor(apart / power) * power == apart, power, ways)
    whole = (np.floor(apart) == apart) & (near == 1.0)
    found: Floats = np.where(whole, ways, SCATTERED)
    return found


def _moves(use: Use, loop: For) -> bool:
    return any(form is None or form.uses([loop.var]) for form in use.forms)


def _step(use: Use, loop: For, tree: LoopTree) -> Floats:
    """Elements between neighbouring iterations of a loop."""
    buffer, total = use.access.buffer, floats(0.0)
    for form, stride in zip(use.forms, strides(tree.shapes[id(buffer)], buffer.align), strict=True):
        for atom, c in form.terms if form is not None else ():
            if isinstance(atom, Digit):
                total = total + (floats(stride) if atom.base.uses([loop.var]) else 0.0)
            elif atom is loop.var:
                total = total + np.abs(floats(c)) * stride
    return total
