"""Conditions that primitives share: who uses a loop, what runs once, what iterations touch.

Conditions over `Int` are a bool, a bool array of shape (N,), one a candidate, or `Unknown`, of what
does not hold for all symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule.digits import digits_apart
from autosched.schedule.population import candidate_node
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
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, Buffer, For, Node, PrimFunc, Site, loops_of
from autosched.tir.printer import format_node
from autosched.tir.region import Region, access_region
from autosched.tir.size import Size, Undecided, Unknown

Condition = Any
"""bool, a bool array of shape (N,), or a size.Unknown."""


def require(condition: Condition, message: str) -> None:
    """Raise ScheduleError unless the condition holds for all candidates and sizes; NotBatchable if
    it holds for some candidates only."""
    if always(condition):
        return
    if isinstance(condition, Unknown):
        raise ScheduleError(f"{message} (for some of the symbolic sizes)")
    if sometimes(condition):
        raise NotBatchable(f"{message} (for some candidates of the population, not for all)")
    raise ScheduleError(message)


def show(value: Int) -> str:
    """An extent for a message; of an array only its length, since messages are made before the
    check."""
    return f"{len(value)} candidates' values" if isinstance(value, np.ndarray) else str(value)


def refuse(message: str, node: Node | None = None) -> NoReturn:
    """Raise ScheduleError, with the text of a part of the program (of a population, as candidate 0
    has it)."""
    raise ScheduleError(
        message if node is None else f"{message}\n{format_node(candidate_node(node, 0))}"
    )


def extents_of(func: PrimFunc) -> dict[Var, Int]:
    """Extent of every loop."""
    return {loop.var: loop.extent for loop in loops_of(func)}


def loop_vars(loops: Iterable[For]) -> list[Var]:
    """Variables of loops."""
    return [loop.var for loop in loops]


def names(variables: Iterable[Var]) -> str:
    """Variables for a message: `i, j`."""
    return ", ".join(v.name for v in variables) or "none"


def is_array(*values: Int | None) -> bool:
    """Whether any value differs by candidate."""
    return any(isinstance(v, np.ndarray) for v in values)


def ordered_vars(block: Block) -> set[Var]:
    """Loop variables in the bindings of reduce and sequential axes."""
    return {
        v
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind != "spatial"
        for v in b.variables()
    }


def bare_axes(block: Block, access: Access) -> list[Var] | None:
    """The axes that index `access`, if every index is an axis by itself and none repeats."""
    out: list[Var] = []
    for index in access.indices:
        var = index.single_var() if isinstance(index, Affine) else None
        if var is None or any(var is v for v in out):
            return None
        out.append(var)
    return out


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
            return False
        ok = ok & _injective([base], inside, extents)
        seen |= {id(v) for v in inside}
    for v in over:
        if id(v) not in seen:
            ok = ok & (extents[v] == 1)
    return ok


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


def contained(
    inner: Region, outer: Region, shape: Sequence[Int], extents: Extents | None = None
) -> Condition:
    """Whether `inner` provably lies in `outer`; with `extents`, of the loops that their starts are
    forms of, also where these differ by more than a constant."""
    ok: Condition = True
    for a, b, n in zip(inner, outer, shape, strict=True):
        if b.start.is_const():
            whole = (b.start.const <= 0) & (b.start.const + b.width >= n)
        else:
            whole = False
        gap = a.start - b.start
        if gap.terms and extents is not None:
            low, high = gap.span(extents)
            first, last = b.start.span(extents)  # beyond the dimension there is nothing to hold
            above = (high + a.width <= b.width) | (first + b.width >= n)
            ok = ok & (whole | (((low >= 0) | (last <= 0)) & above))
        elif gap.terms:
            ok = ok & whole
        else:
            ok = ok & (whole | ((gap.const >= 0) & (gap.const + a.width <= b.width)))
    return ok


def mixed_digits(form: Affine, inner: Collection[Var], extents: Extents) -> bool:
    """Whether a digit that differs by candidate stands over loops in `inner`: its region could then
    be simplified for one candidate and not for another.

    The highest digit of a number that all runs inside is 0 where it is left out, so there the
    extents may differ.
    """
    wanted = set(inner)
    for atom, _ in form.terms:
        if isinstance(atom, Digit) and atom.base.uses(inner):
            values: list[Int | None] = [atom.div, atom.mod, atom.base.const]
            values += [c for _, c in atom.base.terms]
            if atom.mod is not None or not wanted.issuperset(atom.base.variables()):
                values += [extents[v] for v in atom.base.variables()]
            if is_array(*values):
                return True
    return False


def _may_hold_digits(index: Affine, values: dict[Var, Affine]) -> bool:
    """Whether the index has digits, or comes to have them from the bindings."""
    for atom, _ in index.terms:
        if isinstance(atom, Digit):
            return True
        if atom in values and any(isinstance(a, Digit) for a, _ in values[atom].terms):
            return True
    return False


def required(
    access: Access, values: dict[Var, Affine], extents: Extents, inner: Collection[Var]
) -> Region:
    """Region of an access while the loops `inner` run; NotBatchable where it has no array form."""
    for index in access.indices:
        if not isinstance(index, Affine) or not _may_hold_digits(index, values):
            continue
        if mixed_digits(index.substitute(values, extents), inner, extents):
            raise NotBatchable(
                f"the region of {access.buffer.name} depends on (x // d) % m with different d or m "
                f"in the candidates; schedule them one at a time"
            )
    return access_region(access, values, extents, inner)


def accesses(block: Block, buffer: Buffer) -> bool:
    """Whether the block reads or writes `buffer`."""
    return any(a.buffer is buffer for a in (*block.reads, *block.writes))


def iterations_apart(site: Site, loop: For) -> Condition:
    """Whether different iterations of `loop` (those outside it fixed) write different elements."""
    block, extents = site.block, site.extents()
    n = next(k for k, x in enumerate(site.loops) if x is loop)
    inside = loop_vars(site.loops[n:])
    written = [determined_axes(block, access) for access in block.writes]
    forms = [
        b
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind == "spatial" and all(id(it.var) in w for w in written)
    ]
    ok: Condition = False
    for form in forms:
        if any(isinstance(a, Digit) and a.base.uses([loop.var]) for a, _ in form.terms):
            continue
        low, high = form.split(inside[1:])[1].span(extents)
        step = form.coefficient(loop.var)
        try:
            ok = ok | (imax(step, -step) > high - low)
        except Undecided:
            continue
    if always(ok):
        return ok
    used = [v for v in inside if v is loop.var or any(f.uses([v]) for f in forms)]
    return ok | injective(forms, used, extents)


def determined_axes(block: Block, access: Access) -> set[int]:
    """Ids of the axes that the element determines: all, those of an index that takes every value
    once, such as an axis by itself, and those of which the indices hold all digits."""
    extents = {it.var: it.extent for it in block.iters}
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
