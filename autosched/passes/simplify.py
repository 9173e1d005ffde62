"""simplify and lower, the two passes that other parts of the compiler are made of."""

from __future__ import annotations

from autosched.lowering import lower as lowering
from autosched.passes.base import func_pass
from autosched.tir import simplify as simplification
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import has_opaque, rejoined


@func_pass("simplify")
def simplify(func: PrimFunc) -> PrimFunc:
    """Unit loops, needless predicates and conditions, and constant arithmetic go.

    rewrite:
        for i, j in T.grid(4, 1):                   for i in T.serial(4):
            with T.block("B"):                          with T.block("B"):
                T.where(i + j < 4)          ->              vi = spatial(4, i)
                vi = spatial(4, i + j)                      B[vi] = A[vi]
                B[vi] = A[vi] if vi >= 0 else 0
    """
    if has_opaque(func):
        return rejoined(func, simplification.simplify)
    return simplification.simplify(func)


@func_pass("lower")
def lower(func: PrimFunc) -> PrimFunc:
    """The lowered form (see `autosched.lower`), from which code is generated."""
    return lowering.lower(func)
