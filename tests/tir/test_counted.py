"""The proof that loops take a reduction over all its points: what it says of random states of
schedules, and of such states with a number changed, going through all points says as well."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import pytest

from autosched import te
from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Schedule
from autosched.script import parse_func
from autosched.tir import counted
from autosched.tir.affine import Affine, Digit
from autosched.tir.nodes import Predicate, PrimFunc, Site, sites
from autosched.tir.points import within

MOST = 1 << 14


def total(rng: random.Random) -> PrimFunc:
    """A sum over one or two axes."""
    shape = [rng.choice([1, 2, 3, 4, 5, 6, 8]) for _ in range(rng.randint(1, 3))]
    reduced = [rng.choice([2, 3, 4, 6]) for _ in range(rng.randint(1, 2))]
    a = te.placeholder((*shape, *reduced), name="A")
    axes = [te.reduce_axis((0, n), name=f"r{k}") for k, n in enumerate(reduced)]
    b = te.compute(shape, lambda *i: te.sum(a[(*i, *axes)], axis=axes), name="B")
    return te.create_prim_func([a, b])


def shaped(rng: random.Random) -> Site:
    """The sum's block after some fusing, splitting and reordering."""
    schedule = Schedule(total(rng))
    (block,) = schedule.get_blocks()
    for _ in range(rng.randint(1, 5)):
        try:
            shape_loops(rng, schedule, block)
        except ScheduleError:
            continue
    (site,) = sites(schedule.func)
    return site


def shape_loops(rng: random.Random, schedule: Schedule, block: BlockRV) -> None:
    loops = list(schedule.get_loops(block))
    kind = rng.random()
    if kind < 0.5 and len(loops) > 1:
        first = rng.randrange(len(loops) - 1)
        schedule.fuse(*loops[first : rng.randint(first + 2, len(loops))])
    elif kind < 0.9:
        factors = [None, *(rng.randint(1, 12) for _ in range(rng.choice([1, 1, 2])))]
        schedule.split(rng.choice(loops), factors[:: rng.choice([1, -1])])
    else:
        rng.shuffle(loops)
        schedule.reorder(*loops)


def other(rng: random.Random, form: Affine) -> Affine:
    """The form with one number changed."""
    if not form.terms or rng.random() < 0.1:
        return form + 1
    terms = list(form.terms)
    n = rng.randrange(len(terms))
    atom, c = terms[n]
    if isinstance(atom, Digit) and rng.random() < 0.7:
        parts = {"base": atom.base, "div": atom.div, "mod": atom.mod}
        part = rng.choice(list(parts))
        if part == "base":
            parts["base"] = other(rng, atom.base)
        else:
            parts[part] = near(rng, parts[part] or 4)
        terms[n] = (Digit(**parts), c)
    else:
        terms[n] = (atom, near(rng, c))
    return Affine(form.const, tuple(terms))


def near(rng: random.Random, n: int) -> int:
    return max(1, rng.choice([n - 1, n + 1, 2 * n, n // 2]))


def changed(rng: random.Random, site: Site) -> Site:
    block = site.block
    bindings, predicates, iters = list(block.bindings), list(block.predicates), list(block.iters)
    n = rng.randrange(len(bindings))
    what = rng.choice(["binding", "binding", "bound", "condition", "none", "extent", "swap"])
    if what in ("bound", "condition", "none") and predicates:
        p = predicates.pop()
        if what == "bound":
            predicates.append(Predicate(p.form, near(rng, p.bound)))
        elif what == "condition":
            predicates.append(Predicate(other(rng, p.form), p.bound))
    elif what == "extent":
        iters[n] = replace(iters[n], extent=near(rng, iters[n].extent))
    elif what == "swap":
        bindings[0], bindings[n] = bindings[n], bindings[0]
    else:
        bindings[n] = other(rng, bindings[n])
    new = replace(block, bindings=tuple(bindings), predicates=tuple(predicates), iters=tuple(iters))
    return Site(new, site.loops)


def gone_through(site: Site) -> bool:
    """What all points say."""
    axes = list(zip(site.block.iters, site.block.bindings, strict=True))
    loops = {x.var: x.extent for x in site.loops}
    return counted._takes_all(axes, site.block.predicates, loops, site.block.init, once=False)


def in_domain(site: Site) -> bool:
    """What another rule sees to."""
    return all(
        within(site, form, it.extent) if form.terms else 0 <= form.const < it.extent
        for it, form in zip(site.block.iters, site.block.bindings, strict=True)
    )


@pytest.mark.parametrize("most", [0, 64])
def test_proofs_say_what_all_points_say(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`most`: points gone through in a proof; none, or those of a few loops."""

    def proved(site: Site) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(counted, "MAX_POINTS", most)
            return counted.takes_all_points(site)

    states = right = wrong = 0
    for seed in range(120):
        rng = random.Random(seed)
        site = shaped(rng)
        if prod(int(x.extent) for x in site.loops) > MOST:
            continue
        assert gone_through(site)
        states += 1
        right += proved(site)
        for _ in range(6):
            mutant = changed(rng, site)
            if proved(mutant) and in_domain(mutant):
                assert gone_through(mutant), (seed, mutant.block.bindings)
            else:
                wrong += 1
    assert right > 0.85 * states > 80
    assert wrong > 3 * states


FUSED = """
@T.prim_func
def main(B: T.Buffer((4, 5), "int32")):
    for o, n in T.grid(15, 4):
        with T.block("r"):
            a = T.axis.spatial(4, FUSED // 15)
            b = T.axis.spatial(5, FUSED // 3 % 5)
            c = T.axis.reduce(3, FUSED % 3)
            T.where(CONDITION)
            with T.init():
                B[a, b] = 0
            B[a, b] = B[a, b] + 1
"""
A, B, C = "FUSED // 15", "FUSED // 3 % 5", "FUSED % 3"


@pytest.mark.parametrize(
    ("condition", "set_", "right"),
    [
        (f"({B}) * 2 + ({C}) * 2 - {A} < 10", True, True),
        (f"{A} - {C} < 2", True, False),  # it may skip the first point, and take others
        (f"{A} - {C} < 2", False, True),
        (f"{C} < 2 and {A} + {C} < 4", True, True),
        ("FUSED < 59", True, True),
        ("o + n < 17", True, True),
        ("o >= 1", True, False),
        ("o >= 1", False, True),
    ],
)
def test_conditions_on_the_axes_of_one_loop(condition: str, set_: bool, right: bool) -> None:
    """Points that two loops count, four at a time, of which conditions skip some."""
    text = FUSED.replace("CONDITION", condition).replace("FUSED", "(o * 4 + n)")
    (site,) = sites(parse_func(text, check=False))
    block = replace(site.block, init=set_)
    assert counted.takes_all_points(Site(block, site.loops)) is right


@pytest.mark.parametrize(
    ("extent", "most", "right"), [(3, 3, True), (3, 4, False), (1, 1, True), (1, 2, False)]
)
def test_a_condition_may_keep_an_axis_inside(extent: int, most: int, right: bool) -> None:
    """Of elements that are none all points are skipped."""
    text = FUSED.replace("spatial(4", f"spatial({extent}")
    text = text.replace("CONDITION", f"{A} + {C} < {most}")
    (site,) = sites(parse_func(text.replace("FUSED", "(o * 4 + n)"), check=False))
    assert counted.takes_all_points(site) is right
