"""Which dimension of which parameter tells a symbolic size."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from autosched.errors import ArgumentError
from autosched.tir.affine import Int
from autosched.tir.nodes import Buffer
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar


@dataclass(frozen=True, eq=False, slots=True)
class Solution:
    """`var` is `(extent - offset) / scale`, of dimension `dim` of parameter `param`.

    `offset` holds only variables of earlier solutions.
    """

    var: SizeVar
    param: int
    dim: int
    scale: int
    offset: Int


class Sized(Protocol):
    """A function over buffers, some of symbolic sizes."""

    @property
    def name(self) -> str: ...

    @property
    def params(self) -> tuple[Buffer, ...]: ...

    @property
    def sizes(self) -> tuple[SizeVar, ...]: ...


def told(func: Sized, shapes: Sequence[Sequence[int]]) -> dict[SizeVar, Int]:
    """The symbolic sizes as the shapes of arguments, one a parameter, tell them.

    Raises ArgumentError if they tell none; whether all shapes agree is left to be checked.
    """
    values: dict[SizeVar, Int] = {}
    for s in solve(func)[0]:
        shape = shapes[s.param] if s.param < len(shapes) else ()
        offset = s.offset.substitute(values) if isinstance(s.offset, Size) else s.offset
        if s.dim >= len(shape) or shape[s.dim] <= int(offset) or (shape[s.dim] - offset) % s.scale:
            b = func.params[s.param]
            raise ArgumentError(
                f"size {s.var.name} of {func.name} cannot be told from {b.name}: its shape is "
                f"{shape}; expected ({', '.join(map(str, b.shape))})"
            )
        values[s.var] = (shape[s.dim] - offset) // s.scale
    return values


def solve(func: Sized) -> tuple[list[Solution], list[SizeVar]]:
    """How every size follows from the shapes of the parameters, and the sizes that do not.

    A dimension that is the size itself is taken first, then those that are `scale * size + offset`
    in one size that is not known yet.
    """
    dims = [
        (p, d, n)
        for p, b in enumerate(func.params)
        for d, n in enumerate(b.shape)
        if isinstance(n, Size)
    ]
    left = dict.fromkeys(func.sizes)
    out: list[Solution] = []
    while left:
        found = _next(dims, left, plain=True) or _next(dims, left, plain=False)
        if found is None:
            break
        out.append(found)
        del left[found.var]
    return out, list(left)


def _next(
    dims: list[tuple[int, int, Size]], left: Collection[SizeVar], plain: bool
) -> Solution | None:
    for param, dim, n in dims:
        unknown = [v for v in dict.fromkeys(n.variables()) if v in left]
        if len(unknown) != 1:
            continue
        (var,) = unknown
        scale = next((c for m, c in n.terms if len(m) == 1 and m[0] is var), 0)
        offset = n - Size.of(var) * scale
        mixed = isinstance(offset, Size) and any(v is var for v in offset.variables())
        if (
            scale < 1
            or mixed
            or (plain and not (scale == 1 and not isinstance(offset, Size) and offset == 0))
        ):
            continue
        return Solution(var, param, dim, scale, offset)
    return None


def unsolved_message(func: Sized, var: SizeVar) -> str:
    """What is wrong with a size that no shape tells, and what to do."""
    uses = [
        f"{b.name} has shape ({', '.join(map(str, b.shape))})"
        for b in func.params
        if any(isinstance(n, Size) and any(v is var for v in n.variables()) for n in b.shape)
    ]
    where = f": {'; '.join(uses)}" if uses else ", and stands in no shape of a parameter"
    return (
        f"the size {var.name} does not follow from the shapes of the parameters{where}; "
        f"one dimension must be {var.name}, or a multiple of it plus what is known, such as "
        f"2 * {var.name} + 1"
    )
