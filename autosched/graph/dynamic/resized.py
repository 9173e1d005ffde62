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
from autosched.graph.dynamic.values import (
    Masks,
    Padded,
    Step,
    checked,
    emit,
    needs_first,
    number,
    op,
)
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
    if step.attr("antialias") or step.attr("exclude_outside"):
        raise Unsupported(f"{step.name} without what lies outside, to a size that varies")
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
    if mode == "linear":
        over = op("Min", op("Max", over, zero), op("Mul", last, under))
    one, dtype = const(np.asarray(1)), data.value.dtype
    if dtype not in ("float32", "float64"):
        raise Unsupported(f"{step.name} of {dtype} to a size that varies")
    low = op("Sub", op("Div", op("Add", over, under), under), one)  # they are no less than -1
    share = op("Sub", over, op("Mul", low, under))
    part = op("Div", op("Cast", share, to=dtype), op("Cast", under, to=dtype))
    part = op("Reshape", part, shape=(size, *(1,) * (len(ends) - axis - 1)))
    total, same = None, None
    for n, weight in _weights(step, part, mode == "cubic"):
        place = op("Min", op("Max", op("Add", low, const(np.asarray(n))), zero), last)
        read = op("Gather", data.value, place, axis=axis)
        same = read if n == 0 else same
        term = op("Mul", read, weight)
        total = term if total is None else op("Add", total, term)
    assert total is not None
    assert same is not None
    # At the same size nothing is interpolated: neighbours that are not finite count for nothing.
    return Padded(op("Where", op("Equal", old, new), same, total), ends)


def _weights(step: Step, part: Value, cubic: bool) -> list[tuple[int, Value]]:
    """What the neighbours of a place count for: their numbers from the one below it, which is as
    far away as `part` says."""

    def polynomial(x: Value, *factors: float) -> Value:
        total = op("Mul", x, number(factors[0], part.dtype))
        for f in factors[1:-1]:
            total = op("Mul", op("Add", total, number(f, part.dtype)), x)
        return op("Add", total, number(factors[-1], part.dtype))

    rest = op("Sub", number(1, part.dtype), part)
    if not cubic:
        return [(0, rest), (1, part)]
    a = step.attr("cubic_coeff_a", -0.75)
    near, far = (a + 2, -(a + 3), 0, 1), (a, -5 * a, 8 * a, -4 * a)
    more, most = (op("Add", x, number(1, part.dtype)) for x in (part, rest))
    return [(-1, polynomial(more, *far)), (0, polynomial(part, *near)),
            (1, polynomial(rest, *near)), (2, polynomial(most, *far))]  # fmt: skip


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


def times(step: Step, data: Padded, axis: int, count: int) -> End:
    """So many elements for each of an axis."""
    needs_first(step, data, [axis])
    end = data.ends[axis]
    if not isinstance(end, End) or (end.by > 1 and count > 1):
        raise Unsupported(f"{step.name} of a number of windows")
    return end.scaled(count)
