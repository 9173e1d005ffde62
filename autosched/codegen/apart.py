"""Do points of a block that run at once, or whose results wait in registers, write different
elements?"""

from __future__ import annotations

from collections.abc import Collection

from autosched.tir.affine import Affine, always
from autosched.tir.apart import determined_axes, injective
from autosched.tir.expr import Var
from autosched.tir.nodes import Site


def apart(site: Site, over: Collection[Var]) -> bool:
    """Whether different values of the loops `over`, all others standing still, provably name
    different elements of every buffer that the block writes.

    Sufficient, not necessary.
    """
    block, extents, values = site.block, site.extents(), site.block.values()
    for access in block.writes:
        forms = [i.substitute(values, extents) for i in access.indices if isinstance(i, Affine)]
        if always(injective(forms, over, extents)):
            continue
        known = determined_axes(site, access)
        axes = [b for it, b in zip(block.iters, block.bindings, strict=True) if id(it.var) in known]
        if not always(injective(axes, over, extents)):
            return False
    return True
