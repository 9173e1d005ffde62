"""How operators are padded that give the elements of a value other axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.graph.dynamic.lengths import Axis, End, Flat
from autosched.graph.dynamic.values import Masks, Padded, Rule, Step, emit
from autosched.graph.errors import Unsupported


@dataclass(frozen=True)
class Part:
    """An axis, or a part of one that several were reshaped to: its size in each reading."""

    sizes: tuple[int, ...]
    end: End | None
    zero: bool = True


def _reshape(pad: Masks, step: Step) -> Sequence[Padded]:
    """Also Squeeze, Unsqueeze and Flatten. The elements stay in their order, so each axis of the
    result is made of parts of the value that follow one another."""
    data = step.whole[0]
    attrs = dict(step.calls[0].attrs)
    attrs = {k: v if k == "shape" else step.attr(k) for k, v in attrs.items()}
    made = emit(step, [data], attrs)[0]
    left = _joined([p for axis in range(len(data.ends)) for p in _parts(pad, data, axis)])
    ends: list[Axis] = []
    zero = set()
    for axis, sizes in enumerate(zip(*step.outs[0], strict=True)):
        taken = _joined(_taken(step, left, sizes))
        ends.append(_axis(taken))
        if ends[-1] is not None and all(p.zero for p in taken):
            zero.add(axis)
    return [Padded(made, tuple(ends), frozenset(zero))]


def _parts(pad: Masks, data: Padded, axis: int) -> list[Part]:
    end = data.ends[axis]
    parts = end.parts if isinstance(end, Flat) else ((data.shape[axis], end),)
    return [
        Part(
            tuple(size if own is None else own.at(p) for p in pad.grid.points),
            own,
            own is None or axis in data.zero,
        )
        for size, own in parts
    ]


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Fixed parts that follow one another as one; those of one element are left out."""
    out: list[Part] = []
    for p in parts:
        if out and p.end is None and out[-1].end is None:
            p = Part(tuple(a * b for a, b in zip(out.pop().sizes, p.sizes, strict=True)), None)
        if p.end is not None or p.sizes[0] != 1:
            out.append(p)
    return out


def _taken(step: Step, left: list[Part], sizes: tuple[int, ...]) -> list[Part]:
    """The first parts of those that are left, as many as an axis of these sizes has."""
    taken = []
    while any(n != 1 for n in sizes):
        first = left.pop(0) if left else Part((1,) * len(sizes), None)
        part = first
        if first.end is None:
            size = math.gcd(first.sizes[0], *sizes)
            part = Part((size,) * len(sizes), None)
            if size != first.sizes[0]:
                left.insert(0, Part((first.sizes[0] // size,) * len(sizes), None))
        if 0 in sizes or part.sizes[0] == 1 or any(
            n % m for n, m in zip(sizes, part.sizes, strict=True)
        ):  # fmt: skip
            raise Unsupported(f"{step.name} of a part of an axis whose size depends on the length")
        sizes = tuple(n // m for n, m in zip(sizes, part.sizes, strict=True))
        taken.append(part)
    return taken


def _axis(parts: Sequence[Part]) -> Axis:
    if all(p.end is None for p in parts):
        return None
    if len(parts) == 1:
        return parts[0].end
    return Flat(tuple((p.sizes[0], p.end) for p in parts))


def _shape(pad: Masks, step: Step) -> Sequence[Padded]:
    """Sizes that the readings do not tell."""
    data = step.whole[0]
    start, stop = step.attr("start", 0), step.attr("end")
    made = pad.sizes(data.ends[start:stop], data.shape[start:stop])
    return [Padded(made, (None,))]


RESHAPES: dict[str, Rule] = {
    "Shape": _shape,
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), _reshape),
}
