"""inline: injective producers are computed where they are used."""

from __future__ import annotations

from autosched.errors import ScheduleError
from autosched.passes.base import func_pass
from autosched.schedule.inline import compute_inline
from autosched.sketch.analysis import analyse_blocks
from autosched.sketch.rules.inline import worth_inlining
from autosched.tir.nodes import PrimFunc, loops_of
from autosched.tir.opaque import has_opaque, rejoined


@func_pass("inline")
def inline(func: PrimFunc) -> PrimFunc:
    """Injective producers that are cheap, or read once a point, go into their consumers.

    What the search always inlines, and by the same rule. A block that `compute_inline` refuses
    stays: loops that were already scheduled around it may depend on it. Raises ScheduleError for a
    lowered function.

    rewrite:
        with T.block("B"):                      with T.block("C"):
            B[vi] = A[vi] + 1           ->          C[vi] = (A[vi] + 1) * 2
        with T.block("C"):
            C[vi] = B[vi] * 2
    """
    if func.allocs or any(loop.allocs for loop in loops_of(func)):
        raise ScheduleError(
            f"{func.name} has been lowered: its intermediates have their places, outside which "
            "nothing may read them; inline before lower"
        )
    return rejoined(func, _inlined) if has_opaque(func) else _inlined(func)


def _inlined(func: PrimFunc) -> PrimFunc:
    refused: set[str] = set()
    while True:
        blocks = analyse_blocks(func)
        found = [n for n in blocks if n not in refused and worth_inlining(n, blocks)]
        if not found:
            return func
        try:
            func = compute_inline(func, found[-1])
        except ScheduleError:
            refused.add(found[-1])
