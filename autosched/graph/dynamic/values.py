"""Values with padding, and what hides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from autosched.graph.builder import Value, call, const, var
from autosched.graph.dynamic.counts import Forms, is_quotient
from autosched.graph.dynamic.lengths import Affine, Axis, End, Flat, Grid
from autosched.graph.errors import Unsupported
from autosched.graph.ir import Call, Const

Ends = tuple[Axis, ...]
"""For each axis of a value which of its elements count, None where its size is fixed."""


@dataclass(frozen=True)
class Padded:
    """A value at the capacity. `zero`: the axes whose elements that do not count are 0. `wider`:
    the input that this is the beginning of, where one axis with padding has more zeros."""

    value: Value
    ends: Ends
    zero: frozenset[int] = frozenset()
    wider: Value | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes at the capacity."""
        return tuple(int(n) for n in self.value.shape)

    @property
    def axes(self) -> list[int]:
        """Axes with padding."""
        return [n for n, end in enumerate(self.ends) if end is not None]


@dataclass(frozen=True)
class Step:
    """A call in all readings, with its arguments padded."""

    grid: Grid
    calls: tuple[Call, ...]
    args: tuple[Padded | None, ...]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    """Of arguments in each reading; () for one that is left out."""
    outs: tuple[tuple[tuple[int, ...], ...], ...]
    """Of each result, its shape in each reading."""
    forms: Mapping[str, Forms] = field(default_factory=dict)
    """Of attributes that follow from the lengths, the counts."""

    @cached_property
    def ends(self) -> tuple[Ends, ...]:
        """Of the results, by their shapes. An axis with elements that count between others, or
        that does not grow by one for each of a length, is one of an argument's, or given by an
        attribute. Raises Unsupported for an axis that grows otherwise."""
        known = {
            e for a in self.args if a for e in a.ends if isinstance(e, Flat) or (e and not e.single)
        }
        known |= {f for forms in self.forms.values() for f in forms.ravel() if is_quotient(f)}
        return tuple(
            tuple(self.grid.end(sizes, known) for sizes in zip(*shapes, strict=True))
            for shapes in self.outs
        )

    @property
    def name(self) -> str:
        """The operator."""
        return str(self.calls[0].callee)

    def attr(self, key: str, default: Any = None) -> Any:
        """An attribute that is the same at all lengths. Raises Unsupported where it is not."""
        values = [c.attr(key, default) for c in self.calls]
        if values.count(values[0]) != len(values):
            raise Unsupported(f"{self.name}: the attribute {key} depends on the length")
        return values[0]

    @property
    def whole(self) -> list[Padded]:
        """The arguments. Raises Unsupported where one is left out."""
        if any(a is None for a in self.args):
            raise Unsupported(f"{self.name}: an input that is left out is not padded")
        return [a for a in self.args if a is not None]


def op(name: str, *args: Value | Const, **attrs: Any) -> Value:
    """A call of an operator with one result."""
    made: Value = call(name, args, attrs)
    return made


def number(x: Any, dtype: str) -> Value | Const:
    """A scalar, of bfloat16 too, which arrays do not hold."""
    if dtype == "bfloat16":
        return op("Cast", const(np.asarray(x, np.float32)), to=dtype)
    return const(np.asarray(x, dtype))


def wide(p: Padded) -> Padded:
    """What sums are taken of: float32 of 16 bits, of which many elements overflow."""
    if p.value.dtype not in ("float16", "bfloat16"):
        return p
    return Padded(op("Cast", p.value, to="float32"), p.ends, p.zero)


def rounded(value: Value, p: Padded) -> Value:
    """A value in the dtype of another."""
    return value if value.dtype == p.value.dtype else op("Cast", value, to=p.value.dtype)


@dataclass
class Masks:
    """Values that follow from the lengths, which are inputs of the model."""

    grid: Grid
    lengths: tuple[Value, ...]
    made: dict[tuple[int, End | Flat], Value] = field(default_factory=dict)

    @staticmethod
    def over(grid: Grid) -> Masks:
        """With an input for each length."""
        count = len(grid.capacity)
        names = ["length"] if count == 1 else [f"length_{n}" for n in range(count)]
        return Masks(grid, tuple(var(name, (), "int64") for name in names))

    def affine(self, numbers: Affine, dtype: str = "int64") -> Value:
        """Numbers that grow with the lengths."""
        total = Value(const(numbers.start.astype(np.int64)))
        for step, length in zip(numbers.steps, self.lengths, strict=True):
            if step.any():
                total = op("Add", total, op("Mul", const(step.astype(np.int64)), length))
        return total if dtype == "int64" else op("Cast", total, to=dtype)

    def end(self, end: End | Flat) -> Value:
        """How many elements count, a scalar."""
        if isinstance(end, Flat):
            total = Value(const(np.asarray(1)))
            for size, part in end.parts:
                count = const(np.asarray(size)) if part is None else self.end(part)
                total = op("Mul", total, count)
            return total
        first, *others = (self.lengths[n] for n in end.of)
        for other in others:
            first = op("Add", first, other)
        if end.times != 1:
            first = op("Mul", first, const(np.asarray(end.times, np.int64)))
        total = op("Add", first, const(np.asarray(end.more, np.int64)))
        return total if end.by == 1 else op("Div", total, const(np.asarray(end.by, np.int64)))

    def sizes(self, ends: Sequence[Axis], shape: Sequence[int]) -> Value:
        """How many elements of axes count, a row."""
        counts: list[Value | Const] = [
            const(np.asarray([size])) if end is None else op("Reshape", self.end(end), shape=(1,))
            for size, end in zip(shape, ends, strict=True)
        ]
        return op("Concat", *counts, axis=0)

    def mask(self, p: Padded, axis: int) -> Value:
        """Which elements along an axis count, in the shape of an operand beside the value."""
        end, size, rank = p.ends[axis], p.shape[axis], len(p.ends)
        assert end is not None
        below = self.made.get((size, end))
        if below is None:
            below = self.made[size, end] = self._below(size, end)
        after = (1,) * (rank - axis - 1)
        return op("Reshape", below, shape=(size, *after)) if after else below

    def _below(self, size: int, end: End | Flat) -> Value:
        """Which elements of an axis count."""
        if isinstance(end, End):
            return op("Less", const(np.arange(size)), self.end(end))
        sizes = [n for n, _ in end.parts]
        below = Value(const(np.ones(sizes, bool)))
        for n, (count, part) in enumerate(end.parts):
            if part is not None:
                own = self._below(count, part)
                after = (1,) * (len(sizes) - n - 1)
                below = op("And", below, op("Reshape", own, shape=(count, *after)))
        return op("Reshape", below, shape=(size,))

    def masked(self, p: Padded, axis: int, other: Any) -> Value:
        """The value with `other` in the padding of an axis."""
        return op("Where", self.mask(p, axis), p.value, number(other, p.value.dtype))

    def zeroed(self, p: Padded, axes: Sequence[int]) -> Padded:
        """The value with 0 in the padding of these axes, those without padding left out."""
        for axis in axes:
            if p.ends[axis] is not None and axis not in p.zero:
                p = Padded(self.masked(p, axis, 0), p.ends, p.zero | {axis})
        return p


Rule = Callable[[Masks, Step], Sequence[Padded]]
"""The results of a call."""


def emit(
    step: Step, args: Sequence[Padded | Value | None], attrs: Any = None, outputs: int = 1
) -> tuple[Value, ...]:
    """The call with other arguments; its attributes must be the same at all lengths unless they
    are given."""
    if attrs is None:
        attrs = {k: step.attr(k) for c in step.calls for k, _ in c.attrs}
    values = [a.value if isinstance(a, Padded) else a for a in args]
    made = call(step.name, values, attrs, outputs)
    return made if outputs > 1 else (made,)


def needs_fixed(step: Step, p: Padded, axes: Sequence[int]) -> None:
    """Raises Unsupported for axes with padding."""
    if any(p.ends[a] is not None for a in axes):
        raise Unsupported(f"{step.name} along an axis whose size depends on the length")


def needs_first(step: Step, p: Padded, axes: Sequence[int]) -> None:
    """Raises Unsupported for axes of which others than the first elements count."""
    if any(isinstance(p.ends[a], Flat) for a in axes):
        raise Unsupported(f"{step.name} along an axis that several of other lengths were made")


def checked(step: Step, ends: Sequence[Axis]) -> tuple[Axis, ...]:
    """Ends that agree with the sizes of the result."""
    for end, sizes in zip(ends, zip(*step.outs[0], strict=True), strict=True):
        expected = sizes[:1] * len(sizes) if end is None else (*map(end.at, step.grid.points),)
        if expected != sizes:
            raise Unsupported(f"{step.name} of sizes {', '.join(map(str, sizes))}")
    return tuple(ends)


def fixed(pad: Masks, step: Step) -> Sequence[Padded]:
    """The call as it is: each element that counts reads such ones only."""
    made = emit(step, step.args, outputs=len(step.outs))
    return [Padded(v, ends) for v, ends in zip(made, step.ends, strict=True)]
