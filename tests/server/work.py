"""Work that code does, counted: the same on a machine that is busy."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import BuiltinMethodType, FrameType
from typing import Any

_ONE = frozenset({"append", "pop", "popleft", "extend", "copy", "startswith", "endswith"})
"""Methods whose time does not grow with what they are of."""


class _Counter:
    """Bytecodes, and for each call of a method of a sequence or a text the length of that: such a
    method looks through it."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes = True
        self.count += event == "opcode"
        return self.trace

    def profile(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "c_call" or not isinstance(arg, BuiltinMethodType):
            return
        owner = arg.__self__
        if isinstance(owner, list | tuple | str | bytes | bytearray) and arg.__name__ not in _ONE:
            self.count += len(owner)


def work(do: Callable[[], object]) -> int:
    """What `do` costs, threads that it starts included."""
    counter = _Counter()
    before = sys.gettrace(), sys.getprofile()
    threading.settrace(counter.trace)
    threading.setprofile(counter.profile)
    sys.settrace(counter.trace)
    sys.setprofile(counter.profile)
    try:
        do()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
        threading.setprofile(None)  # type: ignore[arg-type]
        threading.settrace(None)  # type: ignore[arg-type]
    return counter.count


def check_linear(do: Callable[[int], object], n: int) -> None:
    """That the work of `do(n)` grows with n and no faster: what the second n costs, the next two
    cost at most twice, and a fifth for what is allocated in steps."""
    first, second, fourth = (work(lambda size=size: do(size)) for size in (n, 2 * n, 4 * n))
    more, most = second - first, fourth - second
    assert most <= 2.4 * max(more, 2000), (first, second, fourth)


class Name(str):
    """A text that counts how often it is compared with another."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)
