"""How normalisations are padded: the mean and the variance are of the elements that count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autosched.graph.builder import Value, const
from autosched.graph.dynamic.values import (
    Masks,
    Padded,
    Rule,
    Step,
    emit,
    number,
    op,
    rounded,
    wide,
)
from autosched.graph.errors import Unsupported


@dataclass(frozen=True)
class _Norm:
    """A normalisation over some axes of a value that is `wide`."""

    pad: Masks
    over: tuple[int, ...]
    epsilon: float

    def centred(self, data: Padded) -> Padded:
        """x - mean, 0 in the padding."""
        data = self.pad.zeroed(data, self.over)
        less = op("Sub", data.value, self._mean(data, data.value))
        return self.pad.zeroed(Padded(less, data.ends), self.over)

    def scaled(self, data: Padded) -> Value:
        """x / sqrt(mean(x * x) + epsilon), of what is 0 in the padding."""
        squares = self._mean(data, op("Mul", data.value, data.value))
        more = op("Add", squares, number(self.epsilon, data.value.dtype))
        return op("Div", data.value, op("Sqrt", more))

    def _mean(self, data: Padded, terms: Value) -> Value:
        total = op("ReduceSum", terms, axes=self.over, keepdims=1)
        ends = [data.ends[a] for a in self.over]
        count = Value(const(np.asarray(math.prod(
            data.shape[a] for a, end in zip(self.over, ends, strict=True) if end is None
        ))))  # fmt: skip
        for end in ends:
            if end is not None:
                count = op("Mul", count, self.pad.end(end))
        return op("Div", total, op("Cast", count, to=terms.dtype))


def _by_channel(pad: Masks, step: Step) -> Sequence[Padded]:
    """InstanceNormalization and GroupNormalization: over groups of channels and their places."""
    data, *scales = step.whole
    if any(s.axes for s in scales) or data.ends[1] is not None:
        raise Unsupported(f"{step.name} of channels that depend on the length")
    if all(end is None for end in data.ends[2:]):
        return [Padded(emit(step, step.args)[0], data.ends)]
    batch, channels, *places = data.shape
    groups = step.attr("num_groups", channels)
    grouped = Padded(
        op("Reshape", wide(data).value, shape=(batch, groups, channels // groups, *places)),
        (data.ends[0], None, None, *data.ends[2:]),
        frozenset(a + 1 for a in data.zero if a > 1),
    )
    norm = _Norm(pad, tuple(range(2, len(grouped.ends))), step.attr("epsilon", 1e-5))
    made = op("Reshape", norm.scaled(norm.centred(grouped)), shape=data.shape)
    by, offset = (_each(wide(s).value, channels, len(places)) for s in scales)
    made = op("Add", op("Mul", made, by), offset)
    return [Padded(rounded(made, data), data.ends)]


def _each(scale: Value, channels: int, rank: int) -> Value:
    """A number for each channel, or for each group, beside a value (batch, channels, places)."""
    (size,) = scale.shape
    groups = op("Reshape", scale, shape=(size, 1))
    whole = op("Expand", groups, shape=(size, channels // size))
    return op("Reshape", whole, shape=(channels, *(1,) * rank))


def _by_axes(pad: Masks, step: Step) -> Sequence[Padded]:
    """LayerNormalization and RMSNormalization: over the last axes."""
    data, *scales = step.args
    assert data is not None
    if any(s is not None and s.axes for s in scales):
        raise Unsupported(f"{step.name}: a scale that depends on the length")
    rank = len(data.ends)
    over = tuple(range(step.attr("axis", -1) % rank, rank))
    if all(data.ends[a] is None for a in over):
        made = emit(step, step.args, outputs=len(step.ends))
        return [Padded(v, ends) for v, ends in zip(made, step.ends, strict=True)]
    if len(step.outs) > 1:
        raise Unsupported(f"{step.name} of several results along padding")
    norm = _Norm(pad, over, step.attr("epsilon", 1e-5))
    whole = wide(data)
    rms = step.name == "RMSNormalization"
    value = norm.scaled(pad.zeroed(whole, over) if rms else norm.centred(whole))
    for name, s in zip(("Mul", "Add"), scales, strict=False):
        value = value if s is None else op(name, value, wide(s).value)
    return [Padded(rounded(value, data), data.ends)]


NORMS: dict[str, Rule] = {
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), _by_channel),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _by_axes),
}
