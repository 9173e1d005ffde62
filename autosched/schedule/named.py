"""Blocks by name: every method of a schedule that takes a block takes its name as well."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from autosched.schedule.across import require_schedulable
from autosched.schedule.handles import BlockRV

_T = TypeVar("_T", bound=type)
_BLOCKS = ("block", "place")


def blocks_by_name(cls: _T) -> _T:
    """Let the methods of a class take the name of a block as their first argument: it stands for
    `get_block(name)`, which is a step of the trace of its own. Of an opaque block, those that
    schedule it are refused."""
    for name, method in list(vars(cls).items()):
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        parameters = list(inspect.signature(method).parameters)
        if len(parameters) > 1 and parameters[1] in _BLOCKS:
            setattr(cls, name, _resolving(method, parameters[1]))
    return cls


def _resolving(method: Callable[..., Any], first: str) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get(first)
        others = kwargs.get("consumers", ())
        named = isinstance(others, (list, tuple)) and any(isinstance(x, str) for x in others)
        if not isinstance(given, str) and not named:
            if self.has_opaque and isinstance(given, BlockRV) and not self._is_root(given):
                require_schedulable(self.get(given), method.__name__)
            return method(self, *args, **kwargs)
        before = len(self._steps)
        try:
            if isinstance(given, str):
                handle: BlockRV = self.get_block(given)
                if self.has_opaque and not self._is_root(handle):
                    require_schedulable(self.get(handle), method.__name__)
                args, kwargs = (
                    ((handle, *args[1:]), kwargs) if args else (args, {**kwargs, first: handle})
                )
            if named:
                found = [self.get_block(x) if isinstance(x, str) else x for x in others]
                kwargs = {**kwargs, "consumers": found}
            return method(self, *args, **kwargs)
        except BaseException:
            # Whatever ends a primitive, Ctrl-C too, the trace has only the steps that were done.
            del self._steps[before:]
            raise

    return call
