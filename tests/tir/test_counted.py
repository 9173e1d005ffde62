"""Loops that take a reduction over all its points: proofs, held to enumeration in plain Python."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest

from autosched.errors import VerifyError
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.tir import counted
from autosched.tir.affine import Affine, Digit, digit
from autosched.tir.expr import Var
from autosched.tir.nodes import PrimFunc, Site, sites

NEST = """
@T.prim_func
def main(B: T.Buffer(({rows}, {columns}), "float32")):
    for i, j, k in T.grid({rows}, {columns}, {steps}):
        with T.block("r"):
            a = T.axis.spatial({rows}, i)
            b = T.axis.spatial({columns}, j)
            c = T.axis.reduce({steps}, k)
            with T.init():
                B[a, b] = T.float32(0)
            B[a, b] = B[a, b] + T.float32(1)
"""


def fused(sizes: Sequence[int], factor: int, order: Sequence[int]) -> PrimFunc:
    rows, columns, steps = sizes
    sch = Schedule(read(NEST.format(rows=rows, columns=columns, steps=steps)))
    loops = sch.get_loops(sch.get_block("r"))
    sch.reorder(*(loops[n] for n in order))
    sch.split(sch.fuse(*(loops[n] for n in order)), [None, factor])
    return sch.func


def read(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def site_of(func: PrimFunc) -> Site:
    (site,) = sites(func)
    return site


@pytest.mark.parametrize("factor", [7, 10, 128, 3000])
def test_all_loops_fused_and_split_of_many_points(factor: int) -> None:
    """Too many points to enumerate, and digits that are written in several ways."""
    func = fused((512, 500, 384), factor, (1, 2, 0))
    assert read(func.script()).script() == func.script()


def taken(site: Site) -> bool:
    """The rule, point by point."""
    block = site.block
    loops = [x.var for x in site.loops]
    steps = list(
        itertools.product(
            *(range(int(it.extent)) for it in site.block.iters if it.kind == "reduce")
        )
    )
    seen: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for point in itertools.product(*(range(int(x.extent)) for x in site.loops)):
        values = dict(zip(loops, point, strict=True))
        if any(p.form.evaluate(values) >= p.bound for p in site.block.predicates):
            continue
        at = [int(form.evaluate(values)) for form in block.bindings]
        kinds = [it.kind for it in site.block.iters]
        element = tuple(x for x, kind in zip(at, kinds, strict=True) if kind != "reduce")
        seen[element].append(
            tuple(x for x, kind in zip(at, kinds, strict=True) if kind == "reduce")
        )
    runs = [
        found[n : n + len(steps)]
        for found in seen.values()
        for n in range(0, len(found), len(steps))
    ]
    return all(run[0] == steps[0] and sorted(run) == steps for run in runs)


def test_proofs_hold_point_by_point() -> None:
    """Of right schedules, and of texts in which one number was changed."""
    rng = random.Random(3)
    proved = refused = 0
    for _ in range(400):
        sizes = [rng.choice((1, 2, 3, 4, 5, 6)) for _ in range(3)]
        factor = rng.choice((2, 3, 4, 5, 8, 10))
        func = fused(sizes, factor, rng.sample(range(3), 3))
        assert counted.takes_all_points(site_of(func))
        text = func.script()
        numbers = [n for n, c in enumerate(text) if c.isdigit() and text[n - 2] in "/%*+"]
        if not numbers:
            continue
        at = rng.choice(numbers)
        try:
            site = site_of(read(text[:at] + str(rng.randint(1, 9)) + text[at + 1 :]))
        except VerifyError:
            refused += 1
            continue
        if counted.takes_all_points(site):
            proved += 1
            assert taken(site)
    assert proved > 20
    assert refused > 100


def test_what_is_proved_by_one_number_is_found_by_enumeration() -> None:
    rng = random.Random(5)
    outcomes: dict[tuple[bool, bool], int] = defaultdict(int)
    for _ in range(600):
        sizes = [rng.choice((2, 3, 4, 6)) for _ in range(3)]
        func = fused(sizes, rng.choice((3, 4, 10)), (0, 1, 2))
        site = site_of(func)
        bindings = list(site.block.bindings)
        if rng.random() < 0.7:
            n = rng.randrange(3)
            ((atom, c),) = bindings[n].terms if len(bindings[n].terms) == 1 else ((None, 1),)
            if isinstance(atom, Digit):
                mod = None if atom.mod is None else max(1, atom.mod + rng.randint(-1, 1))
                changed = Digit(atom.base, max(1, atom.div + rng.randint(-1, 1)), mod)
                bindings[n] = Affine.of(changed, c)
        block = replace(site.block, bindings=tuple(bindings))
        site = Site(block, site.loops)
        loops, groups = counted._groups(site, site.extents())
        for used, axes, predicates in groups:
            own = {v: n for v, n in loops.items() if v in used}
            proof = counted._is_one_number(axes, predicates, own)
            found = counted._takes_all(axes, predicates, own, True, True)
            outcomes[proof, found] += 1
    assert outcomes[True, False] == 0
    assert outcomes[True, True] > 50
    assert outcomes[False, False] > 50


def test_digits_are_their_numbers() -> None:
    rng = random.Random(7)
    x, y, z = Var("x"), Var("y"), Var("z")
    for _ in range(2000):
        extents = {v: rng.randint(1, 6) for v in (x, y, z)}
        terms = tuple((v, rng.choice((-8, -4, 1, 1, 2, 4, 6, 12, 24))) for v in (x, y, z))
        form = Affine(rng.randint(-5, 9), terms)
        div, mod = rng.choice((2, 4, 6, 12, 24, 48)), rng.choice((None, 2, 3, 5))
        found = digit(form, div, mod, extents)
        for point in itertools.product(*(range(n) for n in extents.values())):
            values = dict(zip(extents, point, strict=True))
            number = form.evaluate(values) // div
            assert found.evaluate(values) == (number if mod is None else number % mod)
