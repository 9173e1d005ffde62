"""A request for children of tests: any function, named as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from measure.process.protocol import Request, resolve


@dataclass(frozen=True)
class _Call(Request[Any]):
    function: str
    args: tuple[Any, ...]

    def answer(self, fds: Sequence[int]) -> Any:
        return resolve(self.function)(*self.args)


def calling(function: str, *args: Any) -> Request[Any]:
    """A call of "module:function"."""
    return _Call(function, args)
