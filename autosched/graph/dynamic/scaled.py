"""How operators are padded that make several elements of one: transposed convolutions and resizing.

An axis of n elements gets stride * n + more, or scale * n (`lengths.End`), or another size.
"""

from __future__ import annotations

from collections.abc import Sequence

from autosched.graph.dynamic.resized import resize, times
from autosched.graph.dynamic.values import Masks, Padded, Rule, Step, checked, emit, needs_first
from autosched.graph.errors import Unsupported


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
        ends[axis] = times(step, data, axis, strides[n]).longer(more)
    made = emit(step, [pad.zeroed(data, spatial), *others])[0]
    return [Padded(made, checked(step, ends))]


SCALED: dict[str, Rule] = {"ConvTranspose": _conv_transpose, "Resize": resize}
