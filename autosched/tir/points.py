"""What proofs leave open, found out by going through all points of a few loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.inequalities import check_time
from autosched.tir.nodes import Site

MAX_POINTS = 1 << 20
"""Gone through at most: a few hundredths of a second, and 8 MiB an operation."""


def within(site: Site, form: Affine, extent: object) -> bool:
    """Whether `0 <= form < extent` at all points that the predicates of a block let pass; False
    where there are more than MAX_POINTS, or symbolic sizes.

    The digits of a number that is fused and split again and again take on more forms than rules
    put together.
    """
    extents = site.extents()
    used = dict.fromkeys(form.variables())
    if not isinstance(extent, int) or not _few(used, extents):
        return False
    predicates = []
    for p in site.block.predicates:
        more = used | dict.fromkeys(p.form.variables())
        if isinstance(p.bound, int) and _few(more, extents):
            used = more
            predicates.append(p)
    check_time()
    grid = np.ogrid[tuple(slice(0, int(extents[v])) for v in used)]
    values: dict[Var, Any] = dict(zip(used, grid, strict=True))
    found: Any = form.evaluate(values)
    bad = (found < 0) | (found >= extent)
    for p in predicates:
        bad = bad & (p.form.evaluate(values) < p.bound)
    return not np.any(bad)


def _few(variables: dict[Var, None], extents: dict[Var, Any]) -> bool:
    count = 1
    for v in variables:
        if not isinstance(extents.get(v), int):
            return False
        count *= extents[v]
    return len(variables) > 0 and count <= MAX_POINTS
