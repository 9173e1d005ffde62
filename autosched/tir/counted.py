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

from autosched.tir.affine import Affine, Digit, Int, always
from autosched.tir.apart import injective
from autosched.tir.digits import as_digit, within
from autosched.tir.expr import Var
from autosched.tir.inequalities import check_time
from autosched.tir.nodes import Access, Block, Iter, Predicate, Site

MAX_POINTS = 1 << 18
"""Points that are enumerated at most: some hundredths of a second."""
FEW = 4096
"""Of a block's points, all of which are looked at for every access."""


def takes_all_points(site: Site) -> bool:
    """Whether the loops take the block of a reduction over all points of its reduction axes for
    each point of the others, once or again and again, and where it sets its element, over the first
    point first. Of constant extents."""
    extents = site.extents()
    if not all(isinstance(extents[x.var], int) for x in site.loops):
        return False
    if not all(isinstance(it.extent, int) for it in site.block.iters):
        return False
    return _each_group(site, extents)


def _bound(site: Site) -> list[tuple[Iter, Affine]]:
    """Axes with their bindings; those of extent 1 are 0, whatever they are bound to."""
    pairs = zip(site.block.iters, site.block.bindings, strict=True)
    return [(it, form) for it, form in pairs if it.extent != 1]


def _is_one_number(
    axes: Sequence[tuple[Iter, Affine]], predicates: Sequence[Predicate], loops: dict[Var, int]
) -> bool:
    """Whether the axes are the digits of one number, which these loops, outermost first, count up
    from 0 to the product of the extents."""
    digits = [d for d in (as_digit(form) for _, form in axes) if d is not None]
    if len(digits) < len(axes):
        return False
    sizes = [int(it.extent) for it, _ in axes]
    for base in [p.form for p in predicates] + [d.base for d in digits]:
        if loops.keys() - set(base.variables()):
            continue
        places = [within(d, base, loops) for d in digits]
        if _counted(base, predicates, loops) == prod(sizes) and _are_all(places, sizes):
            return True
    return False


def _counted(base: Affine, predicates: Sequence[Predicate], loops: dict[Var, int]) -> int:
    """The n for which the loops, in their order, take a form through 0, 1, ... n - 1 at the points
    that all predicates let pass; else 0.

    A predicate that bounds what the inner loops have counted is the tail of a split.
    """
    counted, reach = Affine(0), 1
    left = list(predicates)
    for v in reversed(loops):
        if base.coefficient(v) != reach:
            return 0
        counted, reach = counted + Affine.of(v, reach), reach * loops[v]
        for p in [p for p in left if p.form.same(counted)]:
            reach = min(reach, int(p.bound))
            left.remove(p)
    return 0 if left or not counted.same(base) else reach


def _are_all(places: Sequence[tuple[int, int | None] | None], sizes: Sequence[int]) -> bool:
    """Whether digits `n // d % m`, m being the size of the axis, are all digits of a number, each
    once."""
    reach = 1
    known = [(*place, size) for place, size in zip(places, sizes, strict=True) if place]
    for div, mod, size in sorted(known, key=lambda x: x[0]):
        if div != reach or mod not in (None, size):
            return False
        reach *= size
    return len(known) == len(sizes)


def _each_group(site: Site, extents: dict[Var, Int]) -> bool:
    """`takes_all_points`, of each group of axes by itself.

    Loops are cut where digits cut them first, and axes that share no loop are looked at one group
    after the other: a point of all loops is a point of each group's, and the first one is first in
    each. Where there are several groups, each takes its points once: what one repeats, another one
    might do in between.
    """
    loops, groups = _groups(site, extents)
    if loops.keys() - {v for used, _, _ in groups for v in used}:
        return False
    for used, axes, predicates in groups:
        own = {v: n for v, n in loops.items() if v in used}
        forms = [form for _, form in axes]
        if all(it.kind != "reduce" for it, _ in axes) and always(injective(forms, own, own)):
            continue
        if _is_one_number(axes, predicates, own):
            continue
        if not _takes_all(axes, predicates, own, site.block.init, len(groups) > 1):
            return False
    return True


_Group = tuple[set[Var], list[tuple[Iter, Affine]], list[Predicate]]
"""Loops, and the axes and predicates that are about them."""


def _groups(site: Site, extents: dict[Var, Int]) -> tuple[dict[Var, int], list[_Group]]:
    """The loops that axes or predicates are about, as they are cut, outermost first, with their
    extents; and the groups."""
    bound, predicates = _bound(site), site.block.predicates
    forms = [form for _, form in bound] + [p.form for p in predicates]
    loops: dict[Var, int] = {}
    values: dict[Var, Affine] = {}
    about = {v for form in forms for v in form.variables()}
    for loop in site.loops:
        if loop.var not in about:
            continue
        parts, step = [], int(loop.extent)
        for cut in reversed(_cuts(loop.var, step, forms)):
            parts.append((Var(f"{loop.var.name}_{cut}"), step // cut, cut))
            step = cut
        loops |= {v: n for v, n, _ in parts if n > 1}
        values[loop.var] = sum((Affine.of(v, c) for v, n, c in parts if n > 1), Affine(0))
    inside = {**extents, **loops}
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
    return loops, groups


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
    axes: Sequence[tuple[Iter, Affine]],
    predicates: Sequence[Predicate],
    loops: dict[Var, int],
    init: bool,
    once: bool,
) -> bool:
    """`takes_all_points` of some axes, by enumeration of the points of these loops; with `once`
    each element is taken through them a single time."""
    if prod(loops.values()) > MAX_POINTS:
        return False
    check_time()
    points = np.indices([*loops.values(), 1]).reshape(len(loops) + 1, -1)
    values: dict[Var, Any] = dict(zip(loops, points, strict=False))
    passed = np.ones(points.shape[1], bool)
    for p in predicates:
        passed &= np.asarray(p.form.evaluate(values) < p.bound)
    step = np.zeros(int(passed.sum()), np.int64)
    element = np.zeros_like(step)
    steps = 1
    for it, form in axes:
        at = (form.evaluate(values) + 0 * points[-1])[passed]
        if at.size and (at.min() < 0 or at.max() >= it.extent):
            return False
        if it.kind == "reduce":
            step, steps = step * it.extent + at, steps * int(it.extent)
        else:
            element = element * it.extent + at
    if step.size % steps or (once and np.unique(element).size * steps != step.size):
        return False
    runs = np.argsort(element, kind="stable").reshape(-1, steps)
    same = (element[runs] == element[runs][:, :1]).all()
    taken = step[runs]
    begins = not init or (taken[:, 0] == 0).all()
    return bool(same and begins and (np.sort(taken, axis=1) == np.arange(steps)).all())


def writes_once(block: Block, access: Access) -> bool:
    """Whether all points of a block, being few, write elements of their own: gone through."""
    extents = [it.extent for it in block.iters]
    forms = [i for i in access.indices if isinstance(i, Affine)]
    if not all(isinstance(n, int) for n in extents) or len(forms) < len(access.indices):
        return False
    count = prod(int(n) for n in extents)
    axes = {it.var for it in block.iters}
    if not forms or count > FEW or any(v not in axes for i in forms for v in i.variables()):
        return False
    points = np.indices([int(n) for n in extents]).reshape(len(extents), -1)
    at = {it.var: points[n] for n, it in enumerate(block.iters)}
    elements = np.array([form.evaluate(at) + 0 * points[0] for form in forms])
    return bool(np.unique(elements, axis=1).shape[1] == count)
