"""Conditions that primitives share: who uses a loop, what runs once, what iterations touch.

Conditions over `Int` are a bool, a bool array of shape (N,), one a candidate, or `Unknown`, of what
does not hold for all symbolic sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NoReturn

import numpy as np

from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule.population import candidate_node
from autosched.tir.affine import (
    Affine,
    Digit,
    Extents,
    Int,
    always,
    imax,
    recombine,
    same_int,
    sometimes,
)
from autosched.tir.apart import Condition
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Node,
    Predicate,
    PrimFunc,
    buffers_of,
    loops_of,
)
from autosched.tir.printer import format_node
from autosched.tir.region import Interval, Region, access_region
from autosched.tir.size_atoms import Unknown


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


def is_population(func: PrimFunc) -> bool:
    """Whether an extent, a shape or an alignment differs by candidate."""
    shapes = [n for b in buffers_of(func) for n in (*b.shape, *(x for a in b.align for x in a))]
    return is_array(*extents_of(func).values(), *shapes)


def check_one_program(func: PrimFunc, what: str) -> None:
    """Raise NotBatchable for a population: the verifier and its proofs take numbers of one."""
    if is_population(func):
        raise NotBatchable(f"{what}: what is right is shown for one candidate at a time")


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
        gap = recombine(a.start - b.start)
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


def joined(regions: Sequence[Region]) -> list[Region]:
    """The regions, and what of them continue each other along one dimension make together."""
    out: list[Region] = []
    for region in regions:
        found = [both for a in out if (both := _continued(a, region)) is not None]
        for one in (*found, region):  # each once: overlapping regions make the same over and over
            if all(_differ(one, a) for a in out):
                out.append(one)
    # What was made along one dimension may continue others along another one.
    again = len(regions) < len(out) <= MOST_JOINED and len(out[0]) > 1
    return joined(out) if again else out


MOST_JOINED = 16
"""Regions that are joined once more."""


def _differ(a: Region, b: Region) -> list[int]:
    """The dimensions along which two regions are not the same."""
    return [
        n
        for n, (x, y) in enumerate(zip(a, b, strict=True))
        if not (x.start.same(y.start) and same_int(x.width, y.width))
    ]


def _continued(a: Region, b: Region) -> Region | None:
    """What two regions that differ along one dimension make, if `b` begins inside or just behind
    `a`, or holds it."""
    differ = _differ(a, b)
    if len(differ) != 1:
        return None
    (n,) = differ
    x, y = a[n], b[n]
    gap = y.start - x.start
    if not gap.is_const() or not always((gap.const >= 0) & (gap.const <= x.width)):
        return None
    whole = Interval(x.start, imax(x.width, gap.const + y.width))
    return (*a[:n], whole, *a[n + 1 :])


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
    access: Access,
    values: dict[Var, Affine],
    extents: Extents,
    inner: Collection[Var],
    predicates: Sequence[Predicate] = (),
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
    return access_region(access, values, extents, inner, predicates)


def accesses(block: Block, buffer: Buffer) -> bool:
    """Whether the block reads or writes `buffer`."""
    return any(a.buffer is buffer for a in (*block.reads, *block.writes))
