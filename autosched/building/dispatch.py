"""What stands in for a function as it was written when it is built: the hook of
`ApplyHistoryBest`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from autosched.target import Target
from autosched.tir.nodes import PrimFunc

Choose = Callable[[PrimFunc, Target], PrimFunc | None]
"""The program to build in place of a function; None for no opinion."""

_choosers: ContextVar[tuple[Choose, ...]] = ContextVar("autosched_choosers", default=())


@contextmanager
def choosing(choose: Choose) -> Iterator[None]:
    """While the `with` block runs, and in its thread or task only, `choose` is asked for every
    function that is built; of nested blocks the innermost that has an opinion decides."""
    token = _choosers.set((choose, *_choosers.get()))
    try:
        yield
    finally:
        _choosers.reset(token)


def chosen(func: PrimFunc, target: Target) -> PrimFunc:
    """What is to be built for `func`: itself where nobody has an opinion."""
    for choose in _choosers.get():
        found = choose(func, target)
        if found is not None:
            return found
    return func
