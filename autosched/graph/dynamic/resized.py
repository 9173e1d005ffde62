"""How Resize is padded.

By whole numbers, what is read does not depend on how long an axis is. Else the places that are read
are computed from the lengths in each call, as quotients of integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.graph.builder import Value, const
from autosched.graph.dynamic.counts import Count
from autosched.graph.dynamic.lengths import Axis, End
from autosched.graph.dynamic.values import Masks, Padded, Step, emit, needs_first, op
from autosched.graph.errors import Unsupported

EVEN = frozenset({"asymmetric", "half_pixel", "pytorch_half_pixel"})
"""Transformations whose places in the input do not depend on how long it is."""
PLACED = EVEN | {"align_corners"}
"""Those that are computed in each call."""


def resize(pad: Masks, step: Step) -> Sequence[Padded]:
    """Resize, by numbers or to sizes."""
    data, *others = step.args
    assert data is not None
    rank = len(data.ends)
    along = [a % rank for a in step.attr("axes") or range(rank)]
    if any(o is not None for o in others):
        raise Unsupported(f"{step.name} by numbers that are not known")
    data = _to_sizes(pad, step, data, along) if step.calls[0].attr("sizes") else _scaled(
        pad, step, data, along)  # fmt: skip
    return [Padded(data.value, checked(step, data.ends))]


def _scaled(pad: Masks, step: Step, data: Padded, along: Sequence[int]) -> Padded:
    """What is read beyond the elements that count is the last one, as at the end of an axis."""
    ends = list(data.ends)
    crop = step.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    for axis, scale in zip(along, step.attr("scales") or (), strict=False):
        if data.ends[axis] is None or (scale == 1 and not crop):
            continue
        if scale < 1 or scale != int(scale) or not _is_even(step):
            raise Unsupported(f"{step.name} by {scale:g} along an axis whose size varies")
        ends[axis] = times(step, data, axis, int(scale))
        data = _continued(pad, step, data, axis)
    return Padded(emit(step, [data])[0], tuple(ends))


def _to_sizes(pad: Masks, step: Step, data: Padded, along: Sequence[int]) -> Padded:
    """Along axes of varying sizes, one after the other; along all others at once."""
    forms = step.forms.get("sizes")
    kind = step.attr("coordinate_transformation_mode", "half_pixel")
    sizes, left = step.outs[0][0], set(along)
    for n, axis in enumerate(along):
        own, form = data.ends[axis], None if forms is None else forms.ravel()[n]
        if own is None and isinstance(form, int):
            continue
        if form is None or kind not in PLACED or step.attr("keep_aspect_ratio_policy"):
            raise Unsupported(f"{step.name} to a size that depends on the length")
        needs_first(step, data, [axis])
        left.remove(axis)
        if own != form:
            data = _placed(pad, step, data, axis, form)
    if any(sizes[a] != data.shape[a] for a in left):
        attrs = {k: step.attr(k) for k, _ in step.calls[0].attrs if k not in ("scales", "sizes")}
        attrs["sizes"] = tuple(sizes[a] if a in left else data.shape[a] for a in along)
        data = Padded(emit(step, [data], attrs)[0], data.ends)
    return data


def _placed(pad: Masks, step: Step, data: Padded, axis: int, form: Count) -> Padded:
    """The value with an axis of another size: its elements read places of the input."""
    mode = step.attr("mode", "nearest")
    if mode == "cubic" or step.attr("antialias"):
        raise Unsupported(f"{step.name}, cubic or antialiased, to a size that varies")
    own, size, zero = data.ends[axis], step.outs[0][0][axis], const(np.asarray(0))
    end = form if isinstance(form, End) else None
    old, new = (
        Value(const(np.asarray(n))) if e is None else pad.end(e)
        for e, n in ((own, data.shape[axis]), (end, size))
    )
    last = op("Sub", old, const(np.asarray(1)))
    over, under = _quotients(step, old, new, size)
    ends: tuple[Axis, ...] = (*data.ends[:axis], end, *data.ends[axis + 1 :])
    if mode == "nearest":
        places = op("Min", op("Max", _rounded(step, over, under), zero), last)
        return Padded(op("Gather", data.value, places, axis=axis), ends)
    over = op("Min", op("Max", over, zero), op("Mul", last, under))
    low = op("Div", over, under)
    share = op("Sub", over, op("Mul", low, under))
    dtype = data.value.dtype
    if dtype not in ("float32", "float64"):
        raise Unsupported(f"{step.name} of {dtype} to a size that varies")
    part = op("Div", op("Cast", share, to=dtype), op("Cast", under, to=dtype))
    part = op("Reshape", part, shape=(size, *(1,) * (len(ends) - axis - 1)))
    above = op("Min", op("Add", low, const(np.asarray(1))), last)
    first, second = (op("Gather", data.value, at, axis=axis) for at in (low, above))
    rest = op("Sub", const(np.asarray(1, dtype)), part)
    return Padded(op("Add", op("Mul", first, rest), op("Mul", second, part)), ends)


def _quotients(step: Step, old: Value, new: Value, size: int) -> tuple[Value, Value]:
    """Where the elements read, as integers and what they are divided by."""
    kind = step.attr("coordinate_transformation_mode", "half_pixel")
    one, two = const(np.asarray(1)), const(np.asarray(2))
    places = const(np.arange(size))
    if kind == "align_corners":
        return op("Mul", places, op("Sub", old, one)), op("Max", op("Sub", new, one), one)
    if kind == "asymmetric":
        return op("Mul", places, old), new
    # (i + 1/2) * old / new - 1/2
    double = op("Mul", new, two)
    over = op("Sub", op("Mul", const(2 * np.arange(size) + 1), old), new)
    if kind == "pytorch_half_pixel":
        over = op("Where", op("Equal", new, one), const(np.asarray(0)), over)
    return over, double


def _rounded(step: Step, over: Value, under: Value) -> Value:
    """Quotients as the nearest integers; those below 0 are brought to 0 later."""
    mode = step.attr("nearest_mode", "round_prefer_floor")
    one, two = const(np.asarray(1)), const(np.asarray(2))
    if mode == "floor":
        return op("Div", over, under)
    if mode == "ceil":
        return op("Div", op("Add", over, op("Sub", under, one)), under)
    twice = op("Add", op("Mul", over, two), under)
    if mode == "round_prefer_floor":
        twice = op("Sub", twice, one)
    return op("Div", twice, op("Mul", under, two))


def _is_even(step: Step) -> bool:
    transform = step.attr("coordinate_transformation_mode", "half_pixel")
    return transform in EVEN and not (step.attr("exclude_outside") or step.attr("antialias"))


def _continued(pad: Masks, step: Step, data: Padded, axis: int) -> Padded:
    """The value with the last element that counts in the padding of an axis, where it is read."""
    centres = step.attr("coordinate_transformation_mode", "half_pixel") != "asymmetric"
    mode = step.attr("nearest_mode", "round_prefer_floor")
    within = mode == "floor" or (centres and mode.startswith("round"))
    end = data.ends[axis]
    if end is None or (step.attr("mode", "nearest") == "nearest" and within):
        return data
    last = op("Sub", pad.end(end), const(np.asarray(1)))
    places = op("Min", const(np.arange(data.shape[axis])), last)
    return Padded(op("Gather", data.value, places, axis=axis), data.ends)


def checked(step: Step, ends: Sequence[Axis]) -> tuple[Axis, ...]:
    """Ends that agree with the sizes of the result."""
    for end, sizes in zip(ends, zip(*step.outs[0], strict=True), strict=True):
        expected = sizes[:1] * len(sizes) if end is None else (*map(end.at, step.grid.points),)
        if expected != sizes:
            raise Unsupported(f"{step.name} of sizes {', '.join(map(str, sizes))}")
    return tuple(ends)


def times(step: Step, data: Padded, axis: int, count: int) -> End:
    """So many elements for each of an axis."""
    needs_first(step, data, [axis])
    end = data.ends[axis]
    if not isinstance(end, End) or (end.by > 1 and count > 1):
        raise Unsupported(f"{step.name} of a number of windows")
    return end.scaled(count)
