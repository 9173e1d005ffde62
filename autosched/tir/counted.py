"""Whether the loops around a reduction take it over all points of its axes for each element, where
its bindings do not show it axis by axis: all loops fused, and split by a number that divides none.

Either all bindings together are the digits of one number, in one of their many forms, or the points
are few enough to be enumerated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from autosched.tir.affine import Affine, Digit, always
from autosched.tir.apart import injective
from autosched.tir.digits import Tail, as_digit, within
from autosched.tir.expr import Var
from autosched.tir.inequalities import check_time
from autosched.tir.nodes import Access, Block, Iter, Predicate, Site

MAX_POINTS = 1 << 18
"""Points that are enumerated at most: some hundredths of a second."""
FEW = 4096
"""Of a block's points, all of which are looked at for every access."""
_Ints = np.ndarray
_Bits = np.ndarray


def takes_all_points(site: Site) -> bool:
    """Whether the loops take the block of a reduction over all points of its reduction axes for
    each point of the others, once or again and again, and where it sets its element, over the first
    point first. Of constant extents."""
    extents = site.extents()
    if not all(isinstance(extents[x.var], int) for x in site.loops):
        return False
    if not all(isinstance(it.extent, int) for it in site.block.iters):
        return False
    pairs = list(zip(site.block.iters, site.block.bindings, strict=True))
    # Axes of extent 1 are 0, whatever they are bound to, unless a condition is about that.
    bound = [(it, form) for it, form in pairs if it.extent != 1]
    predicates = site.block.predicates

    def takes(axes: _Axes) -> bool:
        about = {v for form in _forms(axes, predicates) for v in form.variables()}
        loops = {x.var: int(x.extent) for x in site.loops if x.var in about}
        return _each_group(loops, axes, predicates, site.block.init)

    return takes(bound) or (bool(predicates) and len(bound) < len(pairs) and takes(pairs))


_Axes = Sequence[tuple[Iter, Affine]]
"""Axes with their bindings."""


def _forms(axes: _Axes, predicates: Sequence[Predicate]) -> list[Affine]:
    return [form for _, form in axes] + [p.form for p in predicates]


def _each_group(
    loops: dict[Var, int],
    bound: _Axes,
    predicates: Sequence[Predicate],
    init: bool,
    once: bool = False,
    counted: bool = False,
) -> bool:
    """`takes_all_points`, of each group of axes by itself; with `once` each element is taken
    through its points a single time. `counted`: the loops are one number already.

    Loops are cut where digits cut them first, and axes that share no loop are looked at one group
    after the other: a point of all loops is a point of each group's, and the first one is first in
    each. Where there are several groups, each takes its points once: what one repeats, another one
    might do in between.
    """
    loops, groups = _groups(loops, bound, predicates)
    if loops.keys() - {v for used, _, _ in groups for v in used}:
        return False
    once = once or len(groups) > 1
    for used, axes, conditions in groups:
        own = {v: n for v, n in loops.items() if v in used}
        forms = [form for _, form in axes]
        if all(it.kind != "reduce" for it, _ in axes) and always(injective(forms, own, own)):
            continue
        if _is_one_loop(axes, conditions, own):
            continue
        number = None if counted else _one_number(axes, conditions, own)
        if number is not None and _each_group(*number, init, once, counted=True):
            continue
        if not _takes_all(axes, conditions, own, init, once):
            return False
    return True


def _is_one_loop(axes: _Axes, predicates: Sequence[Predicate], loops: dict[Var, int]) -> bool:
    """Whether one loop visits one axis."""
    if len(axes) != 1 or predicates:
        return False
    ((it, form),) = axes
    v = form.single_var()
    return v is not None and loops == {v: it.extent}


_Number = tuple[dict[Var, int], list[tuple[Iter, Affine]], list[Predicate]]


def _one_number(
    axes: _Axes, predicates: Sequence[Predicate], loops: dict[Var, int]
) -> _Number | None:
    """The axes and predicates over a single loop, the number of whose digits they are sums, which
    these loops, outermost first, count up from 0; None if they are not."""
    found = [d for form in _forms(axes, predicates) for d in digits_in(form)]
    for base in dict.fromkeys(d.base for d in found):
        if loops.keys() - set(base.variables()):
            continue
        reach, left, tails = count_of(base, predicates, loops)
        if reach == 0:
            continue
        number = Var("n")
        over = [over_number(form, base, loops, tails, number) for form in _forms(axes, left)]
        forms = [form for form in over if form is not None]
        if len(forms) == len(over):
            kinds = [it for it, _ in axes]
            conditions = zip(forms[len(axes) :], (p.bound for p in left), strict=True)
            return (
                {number: reach},
                list(zip(kinds, forms, strict=False)),
                [Predicate(form, bound) for form, bound in conditions],
            )
    return None


def digits_in(form: Affine) -> list[Digit]:
    """The form as one digit, or else its terms."""
    whole = as_digit(form)
    found = [whole] if whole else [as_digit(Affine.of(atom)) for atom, _ in form.terms]
    return [d for d in found if d is not None]


def over_number(
    form: Affine, base: Affine, loops: dict[Var, int], tails: Sequence[Tail], number: Var
) -> Affine | None:
    """The form as a sum of digits of `number`, the value of `base`."""
    whole = as_digit(form)
    parts = [(whole, 1)] if whole else [(as_digit(Affine.of(a)), c) for a, c in form.terms]
    out = Affine(form.const)
    for part, c in parts:
        place = part and within(part, base, loops, tails)
        if not place:
            return None
        div, mod = place
        alone = div == 1 and mod is None
        out = out + Affine.of(number if alone else Digit(Affine.of(number), div, mod), c)
    return out


def count_of(
    base: Affine, predicates: Sequence[Predicate], loops: dict[Var, int]
) -> tuple[int, list[Predicate], list[Tail]]:
    """The n for which the loops, in their order, take a form through 0, 1, ... n - 1 at the points
    that the predicates let pass, but for those that are left; else 0. And what the inner loops
    count, where predicates end it.

    A predicate that bounds what the inner loops have counted, or the upper digits of that, is the
    tail of a split.
    """
    counted, reach = Affine(0), 1
    left, tails = list(predicates), list[Tail]()
    order = list(reversed(loops))
    for v, outer in zip(order, [*order[1:], None], strict=True):
        if base.coefficient(v) != reach:
            return 0, left, tails
        counted, reach = counted + Affine.of(v, reach), reach * loops[v]
        ends = [(p, _end(p, counted, reach, loops, tails)) for p in left]
        # Inside other loops, a bound below what the next one counts in is one of a digit.
        step = 0 if outer is None else base.coefficient(outer)
        found = [(p, end) for p, end in ends if end is not None and end >= step]
        if any(end < reach for _, end in found):
            reach = min(end for _, end in found)
            tails.append((counted, reach))
        left = [p for p in left if all(p is not q for q, _ in found)]
    return (reach if counted.same(base) else 0), left, tails


def _end(
    p: Predicate, counted: Affine, reach: int, loops: dict[Var, int], tails: Sequence[Tail]
) -> int | None:
    """The n for which a predicate says that `counted`, which is below `reach`, is below n."""
    if any(v not in loops for v in p.form.variables()):
        return None  # it bounds these loops by others
    digit = as_digit(p.form)
    place = digit and p.form.const == 0 and within(digit, counted, loops, tails)
    if not place or not (place[1] is None or place[0] * place[1] >= reach):
        return None
    return place[0] * int(p.bound)


_Group = tuple[set[Var], list[tuple[Iter, Affine]], list[Predicate]]
"""Loops, and the axes and predicates that are about them."""


def _groups(
    loops: dict[Var, int], bound: _Axes, predicates: Sequence[Predicate]
) -> tuple[dict[Var, int], list[_Group]]:
    """The loops as they are cut, outermost first, with their extents; and the groups."""
    forms = _forms(bound, predicates)
    inside: dict[Var, int] = {}
    values: dict[Var, Affine] = {}
    for v, extent in loops.items():
        parts, step = [], extent
        for cut in reversed(_cuts(v, step, forms)):
            parts.append((Var(f"{v.name}_{cut}"), step // cut, cut))
            step = cut
        inside |= {part: n for part, n, _ in parts if n > 1}
        values[v] = sum((Affine.of(part, c) for part, n, c in parts if n > 1), Affine(0))
    groups: list[_Group] = []
    items: list[tuple[list[tuple[Iter, Affine]], list[Predicate], Affine]] = [
        ([(it, form)], [], form) for it, form in bound
    ] + [([], [p], p.form) for p in predicates]
    for axes, conditions, form in items:
        cut_form = form.substitute(values, inside)
        used = set(cut_form.variables())
        axes = [(it, cut_form) for it, _ in axes]
        conditions = [Predicate(cut_form, p.bound) for p in conditions]
        for other in [g for g in groups if used & g[0]]:
            groups.remove(other)
            used |= other[0]
            axes, conditions = other[1] + axes, other[2] + conditions
        groups.append((used, axes, conditions))
    return inside, groups


def _cuts(loop: Var, extent: int, forms: Sequence[Affine]) -> list[int]:
    """The steps of the parts of a loop: 1, and what digits of the loop alone divide it by, as long
    as each divides the next one and the last one the extent."""
    found: set[int] = set()
    left = list(forms)
    while left:
        for atom, _ in left.pop().terms:
            if isinstance(atom, Digit):
                left.append(atom.base)
                if atom.base.single_var() is loop:
                    found |= {int(atom.div), int(atom.div) * int(atom.mod or 1)}
    cuts = [1]
    for cut in sorted(found):
        if cut > cuts[-1] and cut < extent and cut % cuts[-1] == 0 and extent % cut == 0:
            cuts.append(cut)
    return cuts


def _takes_all(
    axes: _Axes,
    predicates: Sequence[Predicate],
    loops: dict[Var, int],
    init: bool,
    once: bool,
) -> bool:
    """`takes_all_points` of some axes, by enumeration of the points of these loops; with `once`
    each element is taken through them a single time. A condition on the axes skips points, but may
    skip the first of an element with all others only."""
    if prod(loops.values()) > MAX_POINTS:
        return False
    check_time()
    points = np.indices([*loops.values(), 1]).reshape(len(loops) + 1, -1)
    values: dict[Var, Any] = dict(zip(loops, points, strict=False))
    step = np.zeros(points.shape[1], np.int64)
    element = np.zeros_like(step)
    inside = np.ones(points.shape[1], bool)
    counts = np.ones_like(inside)
    steps = 1
    for it, form in axes:
        at = form.evaluate(values) + 0 * points[-1]
        here = (at >= 0) & (at < it.extent)
        inside &= here
        if it.kind == "reduce":
            counts &= here
            step, steps = step * it.extent + at, steps * int(it.extent)
        else:  # a condition may keep it inside, so that it has other values here
            element = element * (at.max() - at.min() + 1) + at - at.min()
    holds = [np.asarray(p.form.evaluate(values) < p.bound) for p in predicates]
    passed = np.logical_and.reduce([np.ones_like(inside), *holds])
    all_kept = np.ones_like(inside)
    ways = (lambda: (passed, all_kept), lambda: _conditions(holds, counts, element * steps + step))
    for way in ways:
        taken, kept = way()
        valid = counts[taken].all() and inside[taken & kept].all()
        if valid and _in_runs(step[taken], element[taken], kept[taken], steps, init, once):
            return True
    return False


def _in_runs(step: _Ints, element: _Ints, kept: _Bits, steps: int, init: bool, once: bool) -> bool:
    """Whether iterations, in their order, take each element through all steps, again and again or
    once; where `init`, the first one first, which is kept if any is."""
    if step.size % steps or (once and np.unique(element).size * steps != step.size):
        return False
    runs = np.argsort(element, kind="stable").reshape(-1, steps)
    same = (element[runs] == element[runs][:, :1]).all()
    taken, left = step[runs], kept[runs]
    begins = not init or ((taken[:, 0] == 0) & (left[:, 0] | ~left.any(axis=1))).all()
    return bool(same and begins and (np.sort(taken, axis=1) == np.arange(steps)).all())


def _conditions(holds: Sequence[_Bits], counts: _Bits, point: _Ints) -> tuple[_Bits, _Bits]:
    """(the iterations left by the predicates that end loops; where the conditions on axes hold): no
    condition keeps a reduced axis inside, and each says the same wherever it meets a point."""
    ends, kept = list(holds), np.ones_like(counts)
    for one in holds:
        others = [x for x in ends if x is not one]
        passed = np.logical_and.reduce([np.ones_like(counts), *others])
        order = np.flatnonzero(passed)[np.argsort(point[passed], kind="stable")]
        again = point[order][1:] == point[order][:-1]
        if counts[passed].all() and (one[order][1:] == one[order][:-1])[again].all():
            ends, kept = others, kept & one
    return np.logical_and.reduce([np.ones_like(counts), *ends]), kept


def writes_once(block: Block, free: Sequence[Iter], access: Access) -> bool:
    """Whether the points of some axes of a block, being few, write elements of their own: gone
    through. Points of the other axes may write the same element, if it does not depend on these."""
    forms = [i for i in access.indices if isinstance(i, Affine)]
    used = {v for i in forms for v in i.variables()}
    iters = list(free) if used <= {it.var for it in free} else list(block.iters)
    extents = [it.extent for it in iters]
    if not all(isinstance(n, int) for n in extents) or len(forms) < len(access.indices):
        return False
    count = prod(int(n) for n in extents)
    if not forms or count > FEW or not used <= {it.var for it in iters}:
        return False
    points = np.indices([int(n) for n in extents]).reshape(len(extents), -1)
    at = {it.var: points[n] for n, it in enumerate(iters)}
    elements = np.array([form.evaluate(at) + 0 * points[0] for form in forms])
    return bool(np.unique(elements, axis=1).shape[1] == count)
