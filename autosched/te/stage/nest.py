"""The loop axes of a stage: what split, fuse and reorder have made of the axes it began with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Union

from autosched.errors import ScheduleError
from autosched.integers import as_int
from autosched.te.tensor import Extent, IterVar, Operation
from autosched.tir import dtypes
from autosched.tir.affine import ceildiv


@dataclass(frozen=True, eq=False, slots=True)
class Split:
    """`parent` made `outer * extent(inner) + inner`; one of `factor` and `nparts` is given."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None


@dataclass(frozen=True, eq=False, slots=True)
class Fuse:
    """The axes `parts`, outermost first, made one."""

    parts: tuple[IterVar, ...]
    fused: IterVar


@dataclass(frozen=True, eq=False, slots=True)
class Reorder:
    """The axes `order` permuted among the places that they had."""

    order: tuple[IterVar, ...]


LoopCall = Union[Split, Fuse, Reorder]


def root_axes(op: Operation) -> tuple[IterVar, ...]:
    """The axes that the stage of an operation begins with, outermost first."""
    return (*op.axis, *op.reduce_axis)


def names(axes: Sequence[IterVar]) -> str:
    """Axes for a message: `i, j`."""
    return ", ".join(a.name for a in axes) or "none"


class Nest:
    """The loops of one stage as they will be.

    `leaves` are the axes that are loops now, outermost first; `calls` the changes so far. Extents
    are those of the whole domain: where the stage is computed inside another one's loop, it gets
    loops over the part that is needed there.
    """

    def __init__(self, stage: str, roots: Sequence[IterVar]) -> None:
        self.stage = stage
        self.roots = tuple(roots)
        self.leaves: list[IterVar] = list(roots)
        self.calls: list[LoopCall] = []
        self.gone: dict[IterVar, str] = {}

    def give_to_scan(self, axis: IterVar, scan: str) -> None:
        """Make the first axis of a scan's stage no loop of this one."""
        self._replace(
            [axis],
            (),
            f"given to scan {scan}, which keeps the order of the steps: schedule its loop over "
            f"them, s[{scan}] and its op.scan_axis",
        )
        self.roots = self.roots[1:]

    def owns(self, axis: IterVar) -> bool:
        """Whether the axis is, or was, a loop of this stage."""
        return axis in self.gone or self._place(axis) is not None

    def require_leaf(self, axis: IterVar, what: str) -> None:
        """Raise ScheduleError if an axis that this stage owns is no loop any more."""
        if axis in self.gone:
            raise ScheduleError(
                f"{what}: axis {axis.name} of stage {self.stage} was {self.gone[axis]}; its loops "
                f"now are {names(self.leaves)}"
            )

    def split(
        self, parent: IterVar, factor: Any, nparts: Any, what: str
    ) -> tuple[IterVar, IterVar]:
        """Replace a leaf by (outer, inner)."""
        if (factor is None) == (nparts is None):
            given = "neither" if factor is None else "both"
            _refuse(f"{what}: give either factor= or nparts=; found {given}")
        size = _positive(factor if nparts is None else nparts, what)
        rest: Any = ceildiv(parent.extent, size)
        outer, inner = (rest, size) if nparts is None else (size, rest)
        made = (
            self._derived(f"{parent.name}.outer", outer, parent.kind),
            self._derived(f"{parent.name}.inner", inner, parent.kind),
        )
        self._replace([parent], made, f"split into {names(made)}")
        self.calls.append(
            Split(parent, *made, None if factor is None else size, None if nparts is None else size)
        )
        return made

    def fuse(self, parts: Sequence[IterVar], what: str) -> IterVar:
        """Replace leaves that follow one another by one."""
        first = self._place(parts[0])
        assert first is not None
        found = self.leaves[first : first + len(parts)]
        if any(a is not b for a, b in zip(found, parts, strict=False)) or len(found) < len(parts):
            _refuse(
                f"{what}: fuse takes loops that follow one another, outermost first; those of "
                f"stage {self.stage} are {names(self.leaves)}"
            )
        extent: Any = 1
        for a in parts:
            extent = extent * a.extent
        kind = "reduce" if any(a.kind == "reduce" for a in parts) else parts[0].kind
        fused = self._derived(f"{'.'.join(a.name for a in parts)}.fused", extent, kind)
        self._replace(parts, [fused], f"fused into {fused.name}")
        self.calls.append(Fuse(tuple(parts), fused))
        return fused

    def reorder(self, order: Sequence[IterVar], what: str) -> None:
        """Permute leaves among the places that they have."""
        for n, a in enumerate(order):
            if any(a is b for b in order[:n]):
                _refuse(f"{what}: axis {a.name} is named twice")
        places = sorted(p for p in map(self._place, order) if p is not None)
        for place, axis in zip(places, order, strict=True):
            self.leaves[place] = axis
        self.calls.append(Reorder(tuple(order)))

    def _derived(self, name: str, extent: Extent, kind: Any) -> IterVar:
        return IterVar(name, dtypes.INDEX, 0, extent, kind, self.stage)

    def _place(self, axis: IterVar) -> int | None:
        return next((n for n, a in enumerate(self.leaves) if a is axis), None)

    def _replace(self, old: Sequence[IterVar], new: Sequence[IterVar], how: str) -> None:
        place = self._place(old[0])
        assert place is not None
        self.leaves[place : place + len(old)] = new
        for a in old:
            self.gone[a] = how


def _positive(value: Any, what: str) -> int:
    found = as_int(value)
    if found is None or found < 1:
        _refuse(f"{what}: a factor is a positive int; found {value!r}")
    return found


def _refuse(message: str) -> NoReturn:
    raise ScheduleError(message)
