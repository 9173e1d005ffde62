"""How operators are padded that make several elements of one: transposed convolutions and resizing.

An axis of n elements gets stride * n + more, or scale * n (`lengths.End`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.graph.builder import Value, const
from autosched.graph.dynamic.lengths import Axis, End
from autosched.graph.dynamic.values import Masks, Padded, Rule, Step, emit, needs_first, op
from autosched.graph.errors import Unsupported

EVEN = frozenset({"asymmetric", "half_pixel", "pytorch_half_pixel"})
"""Transformations whose places in the input do not depend on how long it is."""


def _conv_transpose(pad: Masks, step: Step) -> Sequence[Padded]:
    """Zeros after the elements that count add nothing."""
    data, *others = step.args
    assert data is not None
    if any(o is not None and o.axes for o in others) or data.ends[1] is not None:
        raise Unsupported(f"{step.name}: a weight that depends on the length")
    spatial = [axis for axis in data.axes if axis > 1]
    if not spatial:
        return [Padded(emit(step, step.args)[0], step.ends[0])]
    rank = len(data.ends) - 2
    if step.attr("auto_pad", "NOTSET") not in ("NOTSET", "") or step.attr("output_shape"):
        raise Unsupported(f"{step.name} to a size that depends on the length")
    needs_first(step, data, spatial)
    kernel, pads = step.shapes[0][1][2:], step.attr("pads") or [0] * (2 * rank)
    strides, dilations, extra = (
        step.attr(key) or [default] * rank
        for key, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    ends = [data.ends[0], *(None,) * (rank + 1)]
    for axis in spatial:
        n = axis - 2
        reach = (kernel[n] - 1) * dilations[n] + 1
        more = reach - strides[n] + extra[n] - pads[n] - pads[n + rank]
        ends[axis] = _times(step, data, axis, strides[n]).longer(more)
    made = emit(step, [pad.zeroed(data, spatial), *others])[0]
    return [Padded(made, _checked(step, ends))]


def _resize(pad: Masks, step: Step) -> Sequence[Padded]:
    """What is read beyond the elements that count is the last one, as at the end of an axis."""
    data, *others = step.args
    assert data is not None
    rank = len(data.ends)
    along = [a % rank for a in step.attr("axes") or range(rank)]
    ends = list(data.ends)
    crop = step.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    if any(o is not None for o in others):
        raise Unsupported(f"{step.name} by numbers that are not known")
    if any(data.ends[a] is not None for a in along) and not step.attr("scales"):
        raise Unsupported(f"{step.name} to a size that depends on the length")
    for axis, scale in zip(along, step.attr("scales") or (), strict=False):
        if data.ends[axis] is None or (scale == 1 and not crop):
            continue
        needs_first(step, data, [axis])
        if scale < 1 or scale != int(scale) or not _is_even(step):
            raise Unsupported(f"{step.name} by {scale:g} along an axis whose size varies")
        ends[axis] = _times(step, data, axis, int(scale))
        data = Padded(_continued(pad, step, data, axis), data.ends)
    return [Padded(emit(step, [data])[0], _checked(step, ends))]


def _is_even(step: Step) -> bool:
    transform = step.attr("coordinate_transformation_mode", "half_pixel")
    return transform in EVEN and not (step.attr("exclude_outside") or step.attr("antialias"))


def _continued(pad: Masks, step: Step, data: Padded, axis: int) -> Value:
    """The value with the last element that counts in the padding of an axis, where it is read."""
    centres = step.attr("coordinate_transformation_mode", "half_pixel") != "asymmetric"
    mode = step.attr("nearest_mode", "round_prefer_floor")
    within = mode == "floor" or (centres and mode.startswith("round"))
    end = data.ends[axis]
    if end is None or (step.attr("mode", "nearest") == "nearest" and within):
        return data.value
    last = op("Sub", pad.end(end), const(np.asarray(1)))
    return op("Gather", data.value, op("Min", const(np.arange(data.shape[axis])), last), axis=axis)


def _times(step: Step, data: Padded, axis: int, count: int) -> End:
    """So many elements for each of an axis."""
    end = data.ends[axis]
    if not isinstance(end, End) or (end.by > 1 and count > 1):
        raise Unsupported(f"{step.name} of a number of windows")
    return end.scaled(count)


def _checked(step: Step, ends: Sequence[Axis]) -> tuple[Axis, ...]:
    """Ends that agree with the sizes of the result."""
    for end, sizes in zip(ends, zip(*step.outs[0], strict=True), strict=True):
        expected = sizes[:1] * len(sizes) if end is None else (*map(end.at, step.grid.points),)
        if expected != sizes:
            raise Unsupported(f"{step.name} of sizes {', '.join(map(str, sizes))}")
    return tuple(ends)


SCALED: dict[str, Rule] = {"ConvTranspose": _conv_transpose, "Resize": _resize}
