"""How operators are padded that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.graph.builder import Value, const
from autosched.graph.dynamic.counts import Count, within
from autosched.graph.dynamic.lengths import Axis, End, Flat
from autosched.graph.dynamic.values import (
    Masks,
    Padded,
    Rule,
    Step,
    checked,
    emit,
    needs_first,
    needs_fixed,
    number,
    op,
)
from autosched.graph.errors import Unsupported
from autosched.graph.ir import Call, Const


def _transpose(pad: Masks, step: Step) -> Sequence[Padded]:
    (data,) = step.whole
    perm = step.attr("perm") or tuple(reversed(range(len(data.ends))))
    zero = frozenset(n for n, axis in enumerate(perm) if axis in data.zero)
    return [Padded(emit(step, [data])[0], step.ends[0], zero)]


def _expand(pad: Masks, step: Step) -> Sequence[Padded]:
    data = step.whole[0]
    made = emit(step, [data], dict(step.calls[0].attrs))[0]
    shift = len(step.ends[0]) - len(data.ends)
    for axis, end in enumerate(step.ends[0]):
        own = data.ends[axis - shift] if axis >= shift else None
        if own == end:
            continue
        # The shape may have fewer axes than the value: those before are the value's own.
        asked = not _in_steps(end) or _asked(step, axis - len(step.ends[0]), end)
        if own is not None or not asked:
            raise Unsupported("Expand of axes of different lengths")
    return [Padded(made, step.ends[0], frozenset(a + shift for a in data.zero))]


def _in_steps(end: Axis) -> bool:
    """Whether an axis does not grow by one element for each of a length."""
    return isinstance(end, End) and not end.single


def _asked(step: Step, axis: int, end: Axis) -> bool:
    """Whether the shape that a call is given says that an axis ends there."""
    forms = step.forms.get("shape")
    return forms is not None and bool(forms.ravel()[axis] == end)


def _filled(pad: Masks, step: Step) -> Sequence[Padded]:
    """ConstantOfShape, of a shape that is known."""
    if step.args:
        raise Unsupported(f"{step.name} of a shape that is not known")
    if any(_in_steps(e) and not _asked(step, n, e) for n, e in enumerate(step.ends[0])):
        raise Unsupported(f"{step.name} of a number of windows")
    made = emit(step, [], dict(step.calls[0].attrs))[0]
    return [Padded(made, step.ends[0])]


def _range(pad: Masks, step: Step) -> Sequence[Padded]:
    """Integers one after the other from a start that may follow from the lengths."""
    starts, limits, steps = (
        [np.ravel(c.attr(key)).tolist() for c in step.calls] for key in ("start", "limit", "delta")
    )
    first = pad.grid.affine([n for (n,) in starts])
    if first is None or step.args or steps.count([1]) < len(steps):
        raise Unsupported("Range of other numbers than one after the other")
    if not all(isinstance(n, int) for (n,) in starts + limits):
        raise Unsupported("Range of numbers that are no integers")
    places = const(np.arange(limits[0][0] - starts[0][0]))
    made = op("Add", pad.affine(first), places)
    return [Padded(op("Cast", made, to=step.attr("dtype", "int64")), step.ends[0])]


def _split(pad: Masks, step: Step) -> Sequence[Padded]:
    data = step.whole[0]
    axis = step.attr("axis", 0) % len(data.ends)
    needs_fixed(step, data, [axis])
    made = emit(step, step.args, outputs=len(step.ends))
    return [Padded(v, ends, data.zero) for v, ends in zip(made, step.ends, strict=True)]


def _trilu(pad: Masks, step: Step) -> Sequence[Padded]:
    """A diagonal that moves with the length is compared with the places of the elements."""
    data = step.whole[0]
    rank = len(data.ends)
    needs_first(step, data, range(rank - 2, rank))
    diagonals = [c.attr("k", 0) for c in step.calls]
    if len(set(diagonals)) == 1:
        return [Padded(emit(step, step.args)[0], step.ends[0], data.zero)]
    diagonal = pad.grid.affine(diagonals)
    if diagonal is None:
        raise Unsupported("Trilu of a diagonal that depends on the length otherwise")
    rows, columns = data.shape[-2:]
    places = const(np.arange(columns)[None, :] - np.arange(rows)[:, None])
    compare = "GreaterOrEqual" if step.attr("upper", 1) else "LessOrEqual"
    inside = op(compare, places, pad.affine(diagonal))
    made = op("Where", inside, data.value, number(0, data.value.dtype))
    return [Padded(made, step.ends[0], data.zero)]


def _concat(pad: Masks, step: Step) -> Sequence[Padded]:
    parts, (ends,) = step.whole, step.ends
    rank = len(ends)
    axis = step.attr("axis") % rank
    for p in parts:
        needs_first(step, p, [axis])
        if any(p.ends[n] != ends[n] for n in range(rank) if n != axis):
            raise Unsupported("Concat of axes of different lengths")
    zero = frozenset.intersection(*(p.zero for p in parts)) - {axis}
    if isinstance(ends[axis], Flat) or sum(_in_steps(p.ends[axis]) for p in parts) > 1:
        raise Unsupported("Concat of axes of different lengths")
    if all(p.ends[axis] is None for p in parts[:-1]):
        return [Padded(emit(step, parts)[0], ends, zero | (parts[-1].zero & {axis}))]
    if len(parts) == 2 and parts[1].ends[axis] is None and parts[1].shape[axis] == 1:
        made = _appended(pad, parts, axis)
    else:
        made = _closed_up(pad, parts, axis)
    return [Padded(made, ends, zero | {axis})]


def _blank(p: Padded, axis: int) -> Value:
    """One more element along an axis, 0."""
    shape = tuple(1 if n == axis else d for n, d in enumerate(p.shape))
    return op("Expand", number(0, p.value.dtype), shape=shape)


def _appended(pad: Masks, parts: Sequence[Padded], axis: int) -> Value:
    """One element more, as a cache grows: it takes the place of the first zero."""
    old, end = pad.zeroed(parts[0], [axis]), parts[0].ends[axis]
    assert end is not None
    size = old.shape[axis] + 1
    if old.wider is not None and old.wider.shape[axis] == size:
        longer = old.wider
    else:
        longer = op("Concat", old.value, _blank(old, axis), axis=axis)
    places = np.arange(size).reshape(-1, *(1,) * (len(old.ends) - axis - 1))
    here = op("Equal", const(places), pad.end(end))
    return op("Where", here, parts[1].value, longer)


def _closed_up(pad: Masks, parts: Sequence[Padded], axis: int) -> Value:
    """What comes after a part moves up to where its elements that count end."""
    last = pad.zeroed(parts[-1], [axis])
    joined = op("Concat", *(p.value for p in (*parts[:-1], last)), _blank(last, axis), axis=axis)
    size = sum(p.shape[axis] for p in parts)
    index: Value | Const = const(np.arange(size))
    where, before = index, Value(const(np.asarray(0)))
    for p in parts[:-1]:
        end, whole = p.ends[axis], const(np.asarray(p.shape[axis]))
        if end is None:
            before = op("Add", before, whole)
            continue
        before = op("Add", before, pad.end(end))
        passed = op("Cast", op("GreaterOrEqual", where, before), to="int64")
        padding = op("Sub", whole, pad.end(end))
        index = op("Add", index, op("Mul", passed, padding))
    index = op("Min", index, const(np.asarray(size)))  # the padding reads the zeros
    return op("Gather", joined, index, axis=axis)


def _slice(pad: Masks, step: Step) -> Sequence[Padded]:
    data, (ends,) = step.whole[0], step.ends
    rank = len(ends)
    value, zero = data.value, set(data.zero)
    ranges = [_ranges(c, shapes[0]) for c, shapes in zip(step.calls, step.shapes, strict=True)]
    for axis in range(rank):
        starts, counts, (by, *others) = zip(*(r[axis] for r in ranges), strict=True)
        if isinstance(ends[axis], Flat) and ends[axis] != data.ends[axis]:
            raise Unsupported("Slice of a number of elements that depends on the length otherwise")
        start, count, size = starts[0], counts[0], data.shape[axis]
        own = data.ends[axis]
        if (_in_steps(own) and len({_written(c, axis, rank) for c in step.calls}) > 1) or (
            # The sizes at the readings may be those of another axis by chance.
            _in_steps(ends[axis])
            and not (isinstance(own, End) and own.longer(count - size) == ends[axis])
            and not (set(starts) == {0} and _stop(step, axis) == ends[axis] and (
                within(ends[axis], size if own is None else own, pad.grid)
            ))
        ):  # fmt: skip
            raise Unsupported("Slice of windows by numbers that depend on the length")
        first = not isinstance(own, Flat) or own.is_first or ends[axis] == own
        if first and set(starts) == {0} and (count, by) == (size, 1):
            zero -= set() if ends[axis] == own else {axis}
            continue
        needs_first(step, data, [axis])
        if any(b != by for b in others):
            raise Unsupported("Slice whose step depends on the length")
        zero.discard(axis)
        if by == -1 and own is not None and own == ends[axis] and count == size:
            value = op("Gather", value, _turned(pad, own, size), axis=axis)
            continue
        if by != 1 and ends[axis] is not None:
            raise Unsupported("Slice with a step along an axis whose size depends on the length")
        if len(set(starts)) == 1:
            stop = start + by * count
            stops = (stop if stop >= 0 else -size - 1,)
            value = op("Slice", value, starts=(start,), ends=stops, axes=(axis,), steps=(by,))
            continue
        begin = _start(pad, step, axis, starts)
        places = op("Add", begin, const(by * np.arange(count)))
        if ends[axis] is not None:
            places = op("Min", places, const(np.asarray(size - 1)))
        value = op("Gather", value, places, axis=axis)
    return [Padded(value, ends, frozenset(zero))]


def _turned(pad: Masks, end: Axis, size: int) -> Value:
    """The places of an axis from the last that counts to the first; the padding reads the first."""
    assert end is not None
    last = op("Sub", pad.end(end), const(np.asarray(1)))
    return op("Max", op("Sub", last, const(np.arange(size))), const(np.asarray(0)))


def _start(pad: Masks, step: Step, axis: int, starts: Sequence[int]) -> Value:
    """Where a slice begins, in numbers that grow with the lengths, or so many before the end."""
    moved, end = pad.grid.affine(starts), step.whole[0].ends[axis]
    if moved is not None:
        return pad.affine(moved)
    written = {_written(c, axis, len(step.ends[0]))[0] for c in step.calls}
    before = written.pop()
    if written or before >= 0 or not isinstance(end, End):
        raise Unsupported("Slice whose start depends on the length otherwise")
    if [end.at(p) + before for p in pad.grid.points] != [*starts]:
        raise Unsupported("Slice that begins before an axis whose size depends on the length")
    return pad.end(end.longer(before))


def _stop(step: Step, axis: int) -> Count:
    """Where a slice along an axis ends, as far as it is a count."""
    rank = len(step.ends[0])
    axes = step.calls[0].attr("axes") or tuple(range(len(step.calls[0].attr("starts"))))
    forms = step.forms.get("ends")
    found = [n for n, a in enumerate(axes) if a % rank == axis]
    return None if forms is None or not found else forms.ravel()[found[0]]


def _written(made: Call, axis: int, rank: int) -> tuple[int, ...]:
    """Start and end of a slice along an axis as they are given; none where it is whole."""
    starts, stops = made.attr("starts"), made.attr("ends")
    axes = made.attr("axes") or tuple(range(len(starts)))
    return tuple(
        n for a, *given in zip(axes, starts, stops, strict=True) if a % rank == axis for n in given
    )


def _ranges(made: Any, shape: Sequence[int]) -> list[tuple[int, int, int]]:
    """Start, number of elements and step of a slice along each axis."""
    starts, stops = made.attr("starts"), made.attr("ends")
    if starts is None or stops is None or made.args[1:]:
        raise Unsupported("Slice by numbers that are not known")
    out = [(0, n, 1) for n in shape]
    axes = made.attr("axes") or tuple(range(len(starts)))
    steps = made.attr("steps") or (1,) * len(starts)
    for axis, a, b, by in zip(axes, starts, stops, steps, strict=True):
        found = range(*slice(a, b, by).indices(shape[axis]))
        # slice.indices takes -1 for "from the end"; ONNX counts an end below -size as before 0.
        out[axis % len(shape)] = (found.start, len(found), by)
    return out


def _gather(pad: Masks, step: Step) -> Sequence[Padded]:
    data, index = step.whole
    axis = step.attr("axis", 0) % len(data.ends)
    made = emit(step, [data, _from_start(pad, index, data, [axis])])[0]
    rank = len(index.ends)
    zero = {a if a < axis else a + rank - 1 for a in data.zero if a != axis}
    return [Padded(made, step.ends[0], frozenset(zero))]


def _from_start(pad: Masks, index: Padded, data: Padded, axes: Sequence[int]) -> Value:
    """Indices of elements along axes, the last axis of `index` where these are several: 0 in the
    padding, and below 0 counted from the last element that counts."""
    index = pad.zeroed(index, index.axes)
    value = index.value
    flats = [e for e in (data.ends[a] for a in axes) if isinstance(e, Flat)]
    if flats:
        return _among_others(pad, value, flats[0])
    known = isinstance(value.atom, Const) and (value.atom.value >= 0).all()
    if known or all(data.ends[a] is None for a in axes):
        return value
    last = pad.sizes([data.ends[a] for a in axes], [data.shape[a] for a in axes])
    if len(axes) == 1:
        last = op("Reshape", last, shape=())
    if value.dtype != "int64":
        last = op("Cast", last, to=value.dtype)
    negative = op("Less", value, const(np.asarray(0, value.dtype)))
    return op("Where", negative, op("Add", value, last), value)


def _among_others(pad: Masks, index: Value, end: Flat) -> Value:
    """Where elements lie that are given by their numbers among those that count."""
    index, zero = op("Cast", index, to="int64"), const(np.asarray(0))
    index = op("Where", op("Less", index, zero), op("Add", index, pad.end(end)), index)
    places, stride = Value(zero), 1
    for size, part in reversed(end.parts):
        count = const(np.asarray(size)) if part is None else pad.end(part)
        place = op("Mul", op("Mod", index, count), const(np.asarray(stride)))
        places = op("Add", places, place)
        index, stride = op("Div", index, count), stride * size
    return places


def _gather_elements(pad: Masks, step: Step) -> Sequence[Padded]:
    data, index = step.whole
    axis = step.attr("axis", 0) % len(data.ends)
    for n, (own, end) in enumerate(zip(data.ends, index.ends, strict=True)):
        if n != axis and own != end and (isinstance(own, Flat) or isinstance(end, Flat)):
            raise Unsupported(f"{step.name} of axes of different lengths")
    return [Padded(emit(step, [data, _from_start(pad, index, data, [axis])])[0], step.ends[0])]


def _gather_nd(pad: Masks, step: Step) -> Sequence[Padded]:
    data, index = step.whole
    first = step.attr("batch_dims", 0)
    needs_fixed(step, index, [len(index.ends) - 1])
    axes = range(first, first + index.shape[-1])
    needs_first(step, data, axes)
    found = _from_start(pad, index, data, axes)
    return [Padded(emit(step, [data, found])[0], step.ends[0])]


def _scatter_nd(pad: Masks, step: Step) -> Sequence[Padded]:
    """Rows that are written are given by places that do not vary in number."""
    data, index, updates = step.whole
    needs_fixed(step, index, range(len(index.ends)))
    axes = range(index.shape[-1])
    needs_first(step, data, axes)
    rest = data.ends[len(axes) :]
    if updates.ends != (*index.ends[:-1], *rest):
        raise Unsupported(f"{step.name} of axes of different lengths")
    found = _from_start(pad, index, data, axes)
    return [Padded(emit(step, [data, found, updates])[0], data.ends)]


def _pad(pad: Masks, step: Step) -> Sequence[Padded]:
    """Elements after those that count stand in the padding."""
    data, *others = step.args
    assert data is not None
    rank = len(data.ends)
    pads, axes = step.attr("pads"), step.attr("axes") or range(rank)
    known = [o for o in others if o is not None]
    if len(known) < len(others) or len(known) > 1:
        raise Unsupported(f"{step.name}: an input that is not known")
    filler = known[0].value if known else number(step.attr("value", 0.0), data.value.dtype)
    value = data
    for n, axis in enumerate(a % rank for a in axes):
        before, after = pads[n], pads[n + len(axes)]
        if data.ends[axis] is None or (before == 0 and after == 0):
            continue
        needs_first(step, data, [axis])
        if step.attr("mode", "constant") != "constant" or min(before, after) < 0:
            raise Unsupported(f"{step.name} along an axis whose size depends on the length")
        value = Padded(op("Where", pad.mask(value, axis), value.value, filler), value.ends)
    return [Padded(emit(step, [value, *known])[0], step.ends[0])]


def _tile(pad: Masks, step: Step) -> Sequence[Padded]:
    """One element as many times as a length says, too."""
    data, forms = step.whole[0], step.forms.get("repeats")
    if len(step.args) > 1:
        raise Unsupported("Tile by numbers that are not known")
    every = list(zip(*(c.attr("repeats") for c in step.calls), strict=True))
    ends = list(data.ends)
    for axis, repeats in enumerate(every):
        if len(set(repeats)) > 1:
            end = None if forms is None else forms.ravel()[axis]
            if data.shape[axis] != 1 or data.ends[axis] is not None or not isinstance(end, End):
                raise Unsupported("Tile by a number that depends on the length")
            ends[axis] = end
        elif repeats[0] != 1:
            needs_fixed(step, data, [axis])
    attrs = {"repeats": tuple(r[0] for r in every)}
    return [Padded(emit(step, [data], attrs)[0], checked(step, ends), data.zero)]


MOVES: dict[str, Rule] = {
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "Range": _range,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
}
