"""Loops that count up one number, as one loop over it: what was fused and split is fused again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autosched.tir.affine import Affine
from autosched.tir.counted import count_of, digits_in, over_number
from autosched.tir.expr import Var
from autosched.tir.nodes import For, Predicate, Site
from autosched.tir.region import common_loops


def unsplit(places: Sequence[Site]) -> Iterator[list[Site]]:
    """The blocks in one loop in the place of several that all share, in each way in which that can
    be done: their axes are digits of the number that these loops count. The order of iterations
    stays."""
    shared = common_loops(places)
    block = places[0].block
    forms = [*block.bindings, *(p.form for p in block.predicates)]
    for base in dict.fromkeys(d.base for form in forms for d in digits_in(form)):
        used = set(base.variables())
        run = [n for n, loop in enumerate(shared) if loop.var in used]
        if len(run) < 2 or len(run) < len(used) or run[-1] - run[0] >= len(run):
            continue
        loops = shared[run[0] : run[-1] + 1]
        if not all(isinstance(x.extent, int) for x in loops):
            continue
        number = Var("n")
        found = [_over(site, base, loops, number) for site in places]
        reach = found[0][0] if found[0] else 0
        if not all(x is not None and x[0] == reach for x in found):
            continue
        one = For(number, reach, ())
        yield [
            Site(x[1].block, (*site.loops[: run[0]], one, *site.loops[run[-1] + 1 :]))
            for site, x in zip(places, found, strict=True)
            if x is not None
        ]


def _over(site: Site, base: Affine, loops: Sequence[For], number: Var) -> tuple[int, Site] | None:
    """How many values the number has, and the block whose axes are digits of it."""
    extents = {loop.var: int(loop.extent) for loop in loops}
    mine = [p for p in site.block.predicates if p.form.uses(extents)]
    reach, left, tails = count_of(base, mine, extents)
    if not reach:
        return None

    def change(form: Affine) -> Affine | None:
        rest, inside = form.split(list(extents))
        if not inside.terms:
            return form
        found = over_number(inside, base, extents, tails, number)
        return None if found is None else rest + found

    bindings = [change(form) for form in site.block.bindings]
    kept = [p for p in site.block.predicates if all(p is not q for q in mine) or p in left]
    forms = [change(p.form) for p in kept]
    if any(form is None for form in (*bindings, *forms)):
        return None
    predicates = tuple(
        Predicate(form, p.bound) for form, p in zip(forms, kept, strict=True) if form is not None
    )
    axes = tuple(form for form in bindings if form is not None)
    return reach, replace(site, block=replace(site.block, bindings=axes, predicates=predicates))
