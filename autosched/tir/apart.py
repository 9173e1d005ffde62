"""Whether different iterations give different numbers, so that loops may run at once.

The primitives and the verifier ask here, so that what one accepts the other accepts.

Conditions over `Int` are a bool, a bool array of shape (N,), one a candidate, or `Unknown`, of what
does not hold for all symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from autosched.tir.affine import (
    Affine,
    Digit,
    Extents,
    Int,
    always,
    imax,
    is_zero,
    same_int,
    sometimes,
)
from autosched.tir.digits import digits_apart
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, For, Site
from autosched.tir.region import guarded_span
from autosched.tir.size import Size
from autosched.tir.size_atoms import Undecided

Condition = Any
"""bool, a bool array of shape (N,), or a size.Unknown."""


def radix_apart(atoms: Sequence[tuple[Int, Int]]) -> Condition:
    """Whether `sum(coefficient * x)` over x in [0, extent) takes every value once.

    Sufficient, not necessary: sorted by coefficient, each must exceed what those below can reach.
    """
    if all(isinstance(v, (int, np.integer)) for atom in atoms for v in atom):
        reach: int = 0
        for step, extent in sorted((abs(int(c)), int(e)) for c, e in atoms):
            if extent > 1:
                if step <= reach:
                    return False
                reach += step * (extent - 1)
        return True
    if any(isinstance(v, Size) for atom in atoms for v in atom):
        return _sizes_apart(atoms)
    ok: Condition = True
    for n, (c, e) in enumerate(atoms):
        below: Any = 0
        for m, (d, f) in enumerate(atoms):
            if m != n:
                a, b = imax(c, -c), imax(d, -d)
                first = (b < a) | ((b == a) & ((f < e) | ((f == e) & (m < n))))
                below = below + np.where(first, b * (f - 1), 0)
        ok = ok & ((e <= 1) | (imax(c, -c) > below))
    return ok


def _sizes_apart(atoms: Sequence[tuple[Int, Int]]) -> bool:
    """`radix_apart` of symbolic numbers: in the order that is found, if any, to hold for all."""
    left = [(c if always(c >= 0) else -c, e) for c, e in atoms if not same_int(e, 1)]
    reach: Int = 0
    while left:
        found = next(
            (x for x in left if always(x[0] > reach) and all(always(x[0] <= c) for c, _ in left)),
            None,
        )
        if found is None:
            return False
        left.remove(found)
        reach = reach + found[0] * (found[1] - 1)
    return True


def injective(forms: Sequence[Affine], over: Collection[Var], extents: Extents) -> Condition:
    """Whether different values of the variables `over` give different values of the forms.

    Sufficient, not necessary. Every variable must stand in one form only, or in digits that
    together make up one base.
    """
    ok = _injective(forms, over, extents)
    return True if not always(ok) and digits_apart(forms, over, extents) else ok


def _injective(forms: Sequence[Affine], over: Collection[Var], extents: Extents) -> Condition:
    wanted = {id(v) for v in over}
    seen: set[int] = set()
    ok: Condition = True
    digits: list[Digit] = []
    for form in forms:
        atoms: list[tuple[Int, Int]] = []
        for atom, c in form.split(over)[1].terms:
            low, high = Affine.of(atom).span(extents)
            atoms.append((c, high - low + 1))
            if isinstance(atom, Digit):
                digits.append(atom)
            elif id(atom) in seen:
                return False
            else:
                seen.add(id(atom))
        ok = ok & radix_apart(atoms) if atoms else ok
    while digits:
        base = digits[0].base
        group = [d for d in digits if d.base.same(base)]
        digits = [d for d in digits if not d.base.same(base)]
        inside = [v for v in base.variables() if id(v) in wanted]
        if any(id(v) in seen for v in inside) or not complete_digits(group, base, extents):
            base, inside = _turned(group, seen, wanted, extents)
            if not inside:
                return False
        ok = ok & _injective([base], inside, extents)
        seen |= {id(v) for v in inside}
    for v in over:
        if id(v) not in seen:
            ok = ok & (extents[v] == 1)
    return ok


def _turned(
    group: Sequence[Digit], seen: set[int], wanted: set[int], extents: Extents
) -> tuple[Affine, list[Var]]:
    """Of the digit `(known + rest) % mod`, where other forms tell what is known: the rest, if its
    range is below `mod`, and its variables; none of them where that is not shown."""
    base = group[0].base
    new = list(dict.fromkeys(v for v in base.variables() if id(v) in wanted - seen))
    kept, rest = base.split(new)
    fixed = any(id(v) not in {id(x) for x in new} for v in rest.variables())
    low, high = rest.span(extents)
    mod = group[0].mod
    if fixed or len(group) > 1 or mod is None or not same_int(group[0].div, 1):
        return kept, []
    return (rest, new) if always(high - low < mod) else (kept, [])


def complete_digits(group: Sequence[Digit], base: Affine, extents: Extents) -> bool:
    """Whether the digits of one base together determine it."""
    div: Int = 1
    left = list(group)
    while left:
        found = next((d for d in left if same_int(d.div, div)), None)
        if found is None:
            return False
        left.remove(found)
        if found.mod is None:
            return True
        div = found.div * found.mod
        low, high = base.span(extents)
        if always(low >= 0) and always(high < div):
            return True
    return False


def iterations_apart(site: Site, loop: For) -> Condition:
    """Whether different iterations of `loop` (those outside it fixed) write different elements."""
    block, extents = site.block, site.extents()
    n = next(k for k, x in enumerate(site.loops) if x is loop)
    inside = [x.var for x in site.loops[n:]]
    written = [determined_axes(site, access) for access in block.writes]
    forms = [
        b
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind != "sequential" and all(id(it.var) in w for w in written)
    ]
    ok: Condition = False
    for form in forms:
        if any(isinstance(a, Digit) and a.base.uses([loop.var]) for a, _ in form.terms):
            continue
        low, high = guarded_span(form.split(inside[1:])[1], block.predicates, extents)
        step = form.coefficient(loop.var)
        try:
            ok = ok | (imax(step, -step) > high - low)
        except Undecided:
            continue
    if always(ok):
        return ok
    used = [v for v in inside if v is loop.var or any(f.uses([v]) for f in forms)]
    return ok | injective(forms, used, extents)


def determined_axes(site: Site, access: Access) -> set[int]:
    """Ids of the axes that the element determines: all, those of an index that takes every value
    once, such as an axis by itself, and those of which the indices hold all digits."""
    bare = [i.single_var() if isinstance(i, Affine) else None for i in access.indices]
    alone = {id(v) for v in bare if v is not None}
    if len(alone) == len(bare):
        return alone
    # Of a lowered program, indices are forms of loops as well.
    extents = {**site.extents(), **{it.var: it.extent for it in site.block.iters}}
    forms = [index for index in access.indices if isinstance(index, Affine)]
    used = list(dict.fromkeys(v for form in forms for v in form.variables()))
    if always(injective(forms, used, extents)):
        return {id(v) for v in used}
    out: set[int] = set()
    digits: list[Digit] = []
    for index in access.indices:
        if not isinstance(index, Affine):
            continue
        atom, c = index.terms[0] if len(index.terms) == 1 else (None, 1)
        axes = list(dict.fromkeys(index.variables()))
        if isinstance(atom, Digit) and same_int(c, 1) and is_zero(index.const):
            digits.append(atom)
        elif always(injective([index], axes, extents)):
            out |= {id(v) for v in axes}
    while digits:
        base = digits[0].base
        group = [d for d in digits if d.base.same(base)]
        digits = [d for d in digits if not d.base.same(base)]
        axes = list(dict.fromkeys(base.variables()))
        if complete_digits(group, base, extents) and always(injective([base], axes, extents)):
            out |= {id(v) for v in axes}
    return out


def settled(
    site: Site, access: Access, moved: Collection[Var], inside: Collection[Var]
) -> Condition:
    """Whether an element in the region that `access` names while the loops `inside` run is named
    then or never: no other iteration of the loops `moved`, inside which those stand, comes to it
    first.

    So it is where the element tells the axes that `moved` decide, and the loops `inside` visit a
    box of axes in full. (A region is a hull: `2 * j + i` leaves gaps in it for another i to fill.)
    """
    block, extents = site.block, site.extents()
    live = [v for v in moved if not same_int(extents[v], 1)]
    told = determined_axes(site, access)
    bound = list(zip(block.iters, block.bindings, strict=True))
    if not any(b.uses(live) for _, b in bound) and not _names_loops(access, live):
        return True
    if any(b.uses(live) and (id(it.var) not in told or it.kind != "spatial") for it, b in bound):
        return False
    known = {it.var for it, _ in bound if it.kind == "spatial" and id(it.var) in told}
    forms = [i for i in access.indices if isinstance(i, Affine) and i.uses(known)]
    if any(not known.issuperset(form.variables()) for form in forms):
        return False
    ok: Condition = False
    if all(len(form.terms) == 1 and isinstance(form.terms[0][0], Var) for form in forms):
        ok = fills_box([b for it, b in bound if it.var in known], inside, extents)
    if always(ok):
        return ok
    values = block.values()
    return ok | fills_box([form.substitute(values, extents) for form in forms], inside, extents)


def _names_loops(access: Access, loops: Collection[Var]) -> bool:
    return any(isinstance(i, Affine) and i.uses(loops) for i in access.indices)


def fills_box(forms: Sequence[Affine], inside: Collection[Var], extents: Extents) -> Condition:
    """Whether the forms take every combination of the values that each takes while the loops
    `inside` run: as many as there are, and each once."""
    used = [v for v in inside if any(form.uses([v]) for form in forms)]
    full = as_many(forms, used, extents)
    return full & injective(forms, used, extents) if sometimes(full) else False


def as_many(forms: Sequence[Affine], over: Collection[Var], extents: Extents) -> Condition:
    """Whether the variables `over` have as many combinations as the values of the forms."""
    points: Int = 1
    for v in over:
        points = points * extents[v]
    volume: Int = 1
    for form in forms:
        low, high = form.split(over)[1].span(extents)
        volume = volume * (high - low + 1)
    return points == volume
