"""Which threads touch which elements: what barriers, scopes and the race checker ask.

First by proof (`tir/verify_races.py`): equal elements, so equal threads. Where that fails and there
are few enough points, by going through all of them (`tir/touch.py`), which finds the threads that
meet or that there are none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autosched.tir.affine import Affine, Digit, always, same_int
from autosched.tir.apart import injective
from autosched.tir.expr import Var
from autosched.tir.nodes import For
from autosched.tir.touch import MAX_POINTS, Meeting, Touch, search
from autosched.tir.verify_races import Iterations

FEW_POINTS = 1 << 15
"""Of one access, gone through one by one before any proof."""


def meet(
    a: Touch, b: Touch, still: Collection[Var], axes: Sequence[For]
) -> tuple[bool, Meeting | None]:
    """Whether two threads, different in the `axes`, may touch one element through `a` and `b`, and
    which, where that was found out. The loops `still` are in one iteration on both sides."""
    moving = [x for x in axes if x.extent != 1]
    if a.buffer is not b.buffer or not moving:
        return False, None
    if _alternate(a, b, still):
        return False, None
    if a.access is b.access and a.forms is not None and a.site is b.site:
        # Each element belongs to one iteration of all loops: the usual case, and a quick one.
        over = {v for f in a.forms for v in f.variables()} - set(still)
        over |= {x.var for x in moving}
        if always(injective(a.forms, sorted(over, key=lambda v: v.name), a.site.extents())):
            return False, None
    few = search(a, b, still, moving, FEW_POINTS)
    if few is not None:
        return few
    targets = [x.var for x in moving]
    # An access by data names any element: nothing is proved from the other indices alone.
    if Iterations(a.facts, b.facts, still, targets).are_apart(a.access, b.access):
        return False, None
    return search(a, b, still, moving, MAX_POINTS) or (True, None)


def _alternate(a: Touch, b: Touch, still: Collection[Var]) -> bool:
    """Whether some index is never the same on both sides while the loops `still` stand still: the
    halves of a double buffer in two steps that follow each other."""
    if a.forms is None or b.forms is None:
        return False
    return any(_differ(x, y, still) for x, y in zip(a.forms, b.forms, strict=True))


def _differ(x: Affine, y: Affine, still: Collection[Var]) -> bool:
    gap = y - x
    if not gap.is_const():
        if len(x.terms) != 1 or len(y.terms) != 1:
            return False
        (p, one), (q, other) = x.terms[0], y.terms[0]
        if not (isinstance(p, Digit) and isinstance(q, Digit)):
            return False
        if p.mod is None or q.mod is None:
            return False
        pairs = ((p.div, 1), (q.div, 1), (p.mod, q.mod), (one, other), (x.const, y.const))
        gap = q.base - p.base
        if not gap.is_const() or not all(same_int(m, n) for m, n in pairs):
            return False
        return always(gap.const % p.mod != 0) and _stands(p.base, still)
    return always(gap.const != 0) and _stands(x, still)


def _stands(form: Affine, still: Collection[Var]) -> bool:
    return set(form.variables()) <= set(still)
