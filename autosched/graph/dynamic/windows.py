"""How operators are padded that combine the elements of windows: convolutions and pools.

An axis of n elements has floor((n - size) / stride) + 1 windows: it does not grow by whole elements
where the stride is greater than 1 (`lengths.End`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autosched.graph.builder import Value, const
from autosched.graph.dynamic.lengths import Axis, End, Flat
from autosched.graph.dynamic.sums import FILLERS, filled_for, mean
from autosched.graph.dynamic.values import (
    Ends,
    Masks,
    Padded,
    Rule,
    Step,
    emit,
    needs_first,
    number,
    op,
)
from autosched.graph.errors import Unsupported
from autosched.tir import dtypes


@dataclass(frozen=True)
class Windows:
    """Of one axis: how many elements a window reaches over, and what is padded."""

    reach: int
    stride: int
    before: int
    after: int
    above: bool
    """Whether a last window may be less than whole (`ceil_mode`)."""
    count: Axis = None
    """How many there are, where the elements lie after padding that depends on the lengths."""

    def end(self, end: Axis) -> Axis:
        """How many there are."""
        if self.count is not None:
            return self.count
        if end is None:
            return None
        if not isinstance(end, End):
            raise Unsupported("windows of an axis that several of other lengths were made")
        whole = end.longer(self.before + self.after)
        if not self.above:
            return whole.windows(self.reach, self.stride)
        # The last one begins before the padding behind.
        more = whole.longer(self.stride - 1).windows(self.reach, self.stride)
        last = end.longer(self.before).windows(1, self.stride)
        return min(more, last, key=lambda e: e.more)


def _windows(
    pad: Masks, step: Step, data: Padded, kernel: Sequence[int], filler: float
) -> tuple[list[Windows], Padded]:
    """Of the axes behind the first two, and the value with the padding that depends on its sizes
    (`auto_pad`) before and after it."""
    rank = len(data.ends) - 2
    strides, dilations = step.attr("strides") or [1] * rank, step.attr("dilations") or [1] * rank
    kind = step.attr("auto_pad") or "NOTSET"
    pads = step.attr("pads") if kind == "NOTSET" else None
    pads = pads or [0] * (2 * rank)
    above = bool(step.attr("ceil_mode", 0))
    found = [
        Windows((k - 1) * d + 1, s, pads[n], pads[n + rank], above)
        for n, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True))
    ]
    if kind.startswith("SAME"):
        for n, w in enumerate(found):
            found[n], data = _same(pad, step, data, n + 2, w, filler)
    return found, data


def _same(
    pad: Masks, step: Step, data: Padded, axis: int, w: Windows, filler: float
) -> tuple[Windows, Padded]:
    """As many windows as the size over the stride, rounded up: what they reach beyond the elements
    is half before and half after these."""
    end, upper = data.ends[axis], step.attr("auto_pad") == "SAME_UPPER"
    if isinstance(end, Flat):
        raise Unsupported("windows of an axis that several of other lengths were made")
    if end is None or w.stride == 1 or (end.by == 1 and end.times % w.stride == 0):
        size = data.shape[axis] if end is None else end.more
        total = max(-size % w.stride + w.reach - w.stride, 0)
        before = total // 2 if upper else total - total // 2
        return replace(w, before=before, after=total - before, above=False), data
    if step.name == "AveragePool" or not dtypes.is_float(data.value.dtype):
        raise Unsupported(f"{step.name} with padding that depends on the length")
    count = end.windows(1, w.stride)
    rest = op("Sub", op("Mul", pad.end(count), const(np.asarray(w.stride))), pad.end(end))
    total_ = op("Add", rest, const(np.asarray(w.reach - w.stride)))
    total_ = op("Max", total_, const(np.asarray(0)))
    less = op("Div", op("Add", total_, const(np.asarray(0 if upper else 1))), const(np.asarray(2)))
    size = (step.outs[0][0][axis] - 1) * w.stride + w.reach
    places = op("Sub", const(np.arange(size)), less)
    zero, last = const(np.asarray(0)), const(np.asarray(data.shape[axis] - 1))
    moved = op("Gather", data.value, op("Min", op("Max", places, zero), last), axis=axis)
    inside = op("And", op("GreaterOrEqual", places, zero), op("Less", places, pad.end(end)))
    inside = op("Reshape", inside, shape=(size, *(1,) * (len(data.ends) - axis - 1)))
    value = op("Where", inside, moved, number(filler, data.value.dtype))
    ends = (*data.ends[:axis], None, *data.ends[axis + 1 :])
    return replace(w, above=False, count=count), Padded(value, ends, data.zero - {axis})


def _attributes(step: Step, windows: Sequence[Windows]) -> dict[str, Any]:
    """Those of the call, with its padding in numbers."""
    attrs = {k: step.attr(k) for k, _ in step.calls[0].attrs}
    attrs.pop("auto_pad", None)
    return attrs | {"pads": (*(w.before for w in windows), *(w.after for w in windows))}


def _ends(step: Step, first: Ends, data: Padded, windows: Sequence[Windows]) -> Ends:
    """Of the result. Axes whose number of windows is the same at all lengths have no padding."""
    found = [w.end(end) for w, end in zip(windows, data.ends[2:], strict=True)]
    ends: list[Axis] = []
    for end, sizes in zip((*first, *found), zip(*step.outs[0], strict=True), strict=True):
        if end is not None and [*map(end.at, step.grid.points)] != [*sizes]:
            raise Unsupported(f"{step.name} of sizes {', '.join(map(str, sizes))}")
        ends.append(None if len(set(sizes)) == 1 else end)
    return tuple(ends)


def _conv(pad: Masks, step: Step) -> Sequence[Padded]:
    """Zeros after the elements that count are what a convolution pads with."""
    data, *others = step.args
    assert data is not None
    if any(o is not None and o.axes for o in others) or data.ends[1] is not None:
        raise Unsupported(f"{step.name}: a weight that depends on the length")
    spatial = range(2, len(data.ends))
    needs_first(step, data, spatial)
    kernel = step.shapes[0][1][2:]
    windows, data = _windows(pad, step, data, kernel, 0)
    ends = _ends(step, (data.ends[0], None), data, windows)
    given = [pad.zeroed(data, spatial), *others]
    return [Padded(emit(step, given, _attributes(step, windows))[0], ends)]


def _pool(pad: Masks, step: Step) -> Sequence[Padded]:
    (data,) = step.whole
    spatial = [axis for axis in data.axes if axis > 1]
    if len(step.outs) > 1 and data.axes != [0]:
        raise Unsupported(f"{step.name}: places along an axis whose size depends on the length")
    if not spatial:
        return [Padded(v, e) for v, e in zip(
            emit(step, [data], outputs=len(step.outs)), step.ends, strict=True
        )]  # fmt: skip
    filler = -np.inf if step.name == "MaxPool" else 0
    windows, data = _windows(pad, step, data, step.attr("kernel_shape"), filler)
    ends = _ends(step, data.ends[:2], data, windows)
    attrs = _attributes(step, windows)
    if step.name == "AveragePool":
        padded = [windows[a - 2] for a in spatial]
        return [Padded(_averages(pad, step, data, padded, attrs), ends)]
    left = [axis for axis in data.axes if axis > 1]
    return [Padded(emit(step, [filled_for(pad, step, data, left, filler)], attrs)[0], ends)]


def _averages(
    pad: Masks, step: Step, data: Padded, padded: Sequence[Windows], attrs: dict[str, Any]
) -> Value:
    """The mean of those elements of a window that there are."""
    above = any(w.above for w in padded)
    counted = bool(step.attr("count_include_pad", 0))
    if not above and (counted or all(w.before == w.after == 0 for w in padded)):
        return emit(step, [pad.zeroed(data, range(2, len(data.ends)))], attrs)[0]
    if counted:
        raise Unsupported(f"{step.name} that counts padding, with windows that are not whole")
    # Both are divided by one number, whichever windows there are at the capacity.
    attrs = {**attrs, "count_include_pad": 1}
    there = op("Expand", const(np.asarray(1, data.value.dtype)), shape=(1, 1, *data.shape[2:]))
    ones = pad.zeroed(replace(data, value=there, ends=(None, None, *data.ends[2:]),
                              zero=frozenset(), wider=None), range(2, len(data.ends)))  # fmt: skip
    data = pad.zeroed(data, range(2, len(data.ends)))
    return op("Div", emit(step, [data], attrs)[0], emit(step, [ones], attrs)[0])


def _global(pad: Masks, step: Step) -> Sequence[Padded]:
    """All elements of a channel."""
    (data,) = step.whole
    axes = [axis for axis in data.axes if axis > 1]
    if step.name == "GlobalAveragePool":
        return [mean(pad, step, data, axes)]
    filler = FILLERS["ReduceMax"] if step.name == "GlobalMaxPool" else 0
    return [Padded(emit(step, [filled_for(pad, step, data, axes, filler)])[0], step.ends[0])]


WINDOWS: dict[str, Rule] = {
    "Conv": _conv,
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), _global),
}
