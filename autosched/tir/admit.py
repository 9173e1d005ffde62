"""The one door through which programs come in: each is verified there, and no program twice.

Whatever hands a program on to schedules, searches or code generators takes what `admitted` returns.
What primitives and lowering make of such a program is as right as the program is: `derived` passes
that on, so that candidates are not verified one by one (and none is refused because a proof about
it is not found).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from autosched.errors import AutoschedError, VerifyError
from autosched.tir.faults import Fault, Places, Rule, report
from autosched.tir.nodes import PrimFunc
from autosched.tir.verify import faults

Refusal = Callable[[list[tuple[Rule, Fault]]], AutoschedError]


def admitted(
    func: PrimFunc, places: Places = MappingProxyType({}), refusal: Refusal | None = None
) -> PrimFunc:
    """`func`, verified unless it was before. Raises VerifyError as `verify` does, or `refusal` of
    the faults."""
    if not func.admitted:
        found = faults(func)
        if found:
            raise VerifyError(report(func, found, places)) if refusal is None else refusal(found)
        object.__setattr__(func, "admitted", True)
    return func


def derived(func: PrimFunc, origin: PrimFunc) -> PrimFunc:
    """`func`, admitted if `origin` is, of which something that keeps the meaning has made it."""
    if origin.admitted and not func.admitted:
        object.__setattr__(func, "admitted", True)
    return func
