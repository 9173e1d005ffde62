"""Operators with many arguments or results, as several with few: one expression of hundreds of
operands is too deep, and slow to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched.graph.ir import Atom, Const

MANY = 64
"""Arguments or results up to which an operator is taken as it is."""
PART = 32
"""Arguments of each of several operators that stand for one."""

One = Callable[..., Atom]
"""The result of an operator of these arguments and attributes."""


def gathered(
    name: str, args: Sequence[Atom | None], attrs: dict[str, Any], one: One
) -> Sequence[Atom | None]:
    """At most PART values of which the operator `name`, which may be applied to parts first, gives
    what it gives of `args`."""
    while len(args) > PART:
        parts = [args[n : n + PART] for n in range(0, len(args), PART)]
        args = [one(name, part, **attrs) if len(part) > 1 else part[0] for part in parts]
    return args


def pieces(x: Atom, sizes: Sequence[int], axis: int, one: One) -> list[Atom]:
    """What Split gives, as slices."""
    out, begin = [], 0
    for size in sizes:
        out.append(
            one("Slice", [x], starts=(begin,), ends=(begin + size,), axes=(axis,), steps=(1,))
        )
        begin += size
    return out


def split_sizes(extent: int, outputs: int, given: Atom | None, attr: Any) -> list[int] | None:
    """The sizes of the pieces of a Split; None where they are known only when it runs, or do not
    fit."""
    if isinstance(given, Const):
        attr = given.value.tolist()
    elif given is not None:
        return None
    if attr is None:
        size = -(-extent // outputs)
        attr = [min(size, extent - n * size) for n in range(outputs)]
    sizes = [int(n) for n in attr]
    fits = len(sizes) == outputs and sum(sizes) == extent and min(sizes) >= 0
    return sizes if fits else None
