"""How each operator is padded; see `padded`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autosched.graph.builder import Value, call, const
from autosched.graph.dynamic.values import Masks, Padded, Step, op
from autosched.graph.errors import Unsupported
from autosched.graph.infer import inference
from autosched.graph.ir import Const

Rule = Callable[[Masks, Step], Sequence[Padded]]

KEEP_ZERO = frozenset({"Abs", "Cast", "Identity", "Neg", "Relu", "Sign", "Sqrt", "Tanh"})
"""Functions of one number that are 0 at 0."""

BATCHED = frozenset({
    "AveragePool", "BatchNormalization", "ConvTranspose", "DepthToSpace", "GlobalAveragePool",
    "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN",
    "LpPool", "MaxPool", "Resize", "SpaceToDepth",
})  # fmt: skip
"""Operators that take the elements along their first axis one by one."""


def rule_of(step: Step) -> Rule:
    """The rule of an operator. Raises Unsupported where there is none."""
    found = RULES.get(step.name)
    if found is not None:
        return found
    if not any(a is not None and a.axes for a in step.args) and not any(
        end is not None for ends in step.ends for end in ends
    ):
        return _fixed
    if step.name in BATCHED:
        return _batched
    if inference(step.calls[0], len(step.ends)).kind == "pointwise":
        return _pointwise
    raise Unsupported(f"{step.name} of an axis whose size depends on the length is not padded")


def _emit(
    step: Step, args: Sequence[Padded | Value | None], attrs: Any = None, outputs: int = 1
) -> tuple[Value, ...]:
    """The call with other arguments; its attributes must be the same at all lengths unless they
    are given."""
    if attrs is None:
        attrs = {k: step.attr(k) for c in step.calls for k, _ in c.attrs}
    values = [a.value if isinstance(a, Padded) else a for a in args]
    made = call(step.name, values, attrs, outputs)
    return made if outputs > 1 else (made,)


def _fixed(pad: Masks, step: Step) -> Sequence[Padded]:
    made = _emit(step, step.args, outputs=len(step.ends))
    return [Padded(v, ends) for v, ends in zip(made, step.ends, strict=True)]


def _pointwise(pad: Masks, step: Step) -> Sequence[Padded]:
    (ends,) = step.ends
    for a in step.args:
        for own, end in zip(() if a is None else a.ends[::-1], ends[::-1], strict=False):
            if own is not None and own != end:
                raise Unsupported(f"{step.name} of axes of different lengths")
    zero = frozenset[int]()
    if step.name in KEEP_ZERO and step.args[0] is not None:
        zero = step.args[0].zero
    return [Padded(_emit(step, step.args)[0], ends, zero)]


def _batched(pad: Masks, step: Step) -> Sequence[Padded]:
    data, *others = step.args
    if data is None or any(o is not None and o.axes for o in others) or len(step.ends) > 1:
        raise Unsupported(f"{step.name}: an input depends on the length")
    if data.axes != [0] or [n for n, e in enumerate(step.ends[0]) if e is not None] != [0]:
        raise Unsupported(f"{step.name} along an axis whose size depends on the length")
    return [Padded(_emit(step, step.args)[0], step.ends[0])]


def _conv(pad: Masks, step: Step) -> Sequence[Padded]:
    """Zeros after the elements that count are what a convolution pads with."""
    data, *others = step.args
    assert data is not None
    if any(o is not None and o.axes for o in others) or data.ends[1] is not None:
        raise Unsupported(f"{step.name}: a weight that depends on the length")
    data = pad.zeroed(data, range(2, len(data.ends)))
    return [Padded(_emit(step, [data, *others])[0], step.ends[0])]


def _needs_fixed(step: Step, p: Padded, axes: Sequence[int]) -> None:
    if any(p.ends[a] is not None for a in axes):
        raise Unsupported(f"{step.name} along an axis whose size depends on the length")


def _layer_norm(pad: Masks, step: Step) -> Sequence[Padded]:
    data = step.args[0]
    assert data is not None
    if any(a is not None and a.axes for a in step.args[1:]):
        raise Unsupported(f"{step.name}: a scale that depends on the length")
    rank = len(data.ends)
    _needs_fixed(step, data, range(step.attr("axis", -1) % rank, rank))
    made = _emit(step, step.args, outputs=len(step.ends))
    return [Padded(v, ends) for v, ends in zip(made, step.ends, strict=True)]


def _softmax(pad: Masks, step: Step) -> Sequence[Padded]:
    (data,) = step.whole
    axis = step.attr("axis", -1) % len(data.ends)
    if data.ends[axis] is not None:
        data = Padded(pad.masked(data, axis, -np.inf), data.ends)
    zero = frozenset({axis} if step.name == "Softmax" else ())
    return [Padded(_emit(step, [data])[0], step.ends[0], zero & frozenset(data.axes))]


def _matmul(pad: Masks, step: Step) -> Sequence[Padded]:
    x, y = step.whole
    if min(len(x.ends), len(y.ends)) < 2:
        raise Unsupported(f"{step.name} of a vector is not padded")
    return [Padded(_emit(step, _contracted(pad, step, x, -1, y, -2))[0], step.ends[0])]


def _gemm(pad: Masks, step: Step) -> Sequence[Padded]:
    x, y, *rest = step.args
    assert x is not None
    assert y is not None
    pair = _contracted(
        pad, step, x, 0 if step.attr("transA") else 1, y, 1 if step.attr("transB") else 0
    )
    return [Padded(_emit(step, [*pair, *rest])[0], step.ends[0])]


def _contracted(
    pad: Masks, step: Step, x: Padded, m: int, y: Padded, n: int
) -> tuple[Padded, Padded]:
    """The factors of a product over axes m and n, whose padding must be 0 in both: what stands
    there may be no number."""
    m, n = m % len(x.ends), n % len(y.ends)
    if x.ends[m] != y.ends[n]:
        raise Unsupported(f"{step.name} over axes of different lengths")
    return pad.zeroed(x, [m]), pad.zeroed(y, [n])


LEAST = {"ReduceMax": -np.inf, "ReduceMin": np.inf, "ArgMax": -np.inf, "ArgMin": np.inf}


def _reduce(pad: Masks, step: Step) -> Sequence[Padded]:
    (data,) = step.whole
    rank = len(data.ends)
    axes: Sequence[int]
    if step.name.startswith("Arg"):
        axes = (step.attr("axis", 0),)
    else:
        axes = step.attr("axes") or (() if step.attr("noop_with_empty_axes") else range(rank))
    padded = [a % rank for a in axes if data.ends[a % rank] is not None]
    if not padded:
        return _fixed(pad, step)
    if step.name in LEAST:
        if np.dtype(data.value.dtype).kind != "f":
            raise Unsupported(f"{step.name} of {data.value.dtype} along padding")
        for axis in padded:
            data = Padded(pad.masked(data, axis, LEAST[step.name]), data.ends)
    elif step.name in ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
        data = pad.zeroed(data, padded)
    elif step.name == "ReduceMean" and len(padded) == 1:
        return [_mean(pad, step, data, padded[0])]
    else:
        raise Unsupported(f"{step.name} along an axis whose size depends on the length")
    return [Padded(_emit(step, [data])[0], step.ends[0])]


def _mean(pad: Masks, step: Step, data: Padded, axis: int) -> Padded:
    """The mean of all, times their number over that of those that count."""
    end, size = data.ends[axis], data.shape[axis]
    assert end is not None
    mean = _emit(step, [pad.zeroed(data, [axis])])[0]
    count = op("Cast", pad.end(end), to=mean.dtype)
    share = op("Div", const(np.asarray(size, mean.dtype)), count)
    return Padded(op("Mul", mean, share), step.ends[0])


def _transpose(pad: Masks, step: Step) -> Sequence[Padded]:
    (data,) = step.whole
    perm = step.attr("perm") or tuple(reversed(range(len(data.ends))))
    zero = frozenset(n for n, axis in enumerate(perm) if axis in data.zero)
    return [Padded(_emit(step, [data])[0], step.ends[0], zero)]


def _reshape(pad: Masks, step: Step) -> Sequence[Padded]:
    """Also Squeeze, Unsqueeze and Flatten: a padded axis stays as it is, with as many elements
    before and after it."""
    data, (ends,) = step.whole[0], step.ends
    made = _emit(step, [data], {} if step.name == "Identity" else _shape_attrs(step))[0]
    found = Padded(made, ends)
    after = {_after(found, axis): axis for axis in found.axes}
    zero = set()
    for axis in data.axes:
        new = after.pop(_after(data, axis), None)
        if new is None or ends[new] != data.ends[axis]:
            raise Unsupported(
                f"{step.name} of an axis whose size depends on the length with others"
            )
        if axis in data.zero:
            zero.add(new)
    if after:
        raise Unsupported(f"{step.name} makes an axis whose size depends on the length")
    return [Padded(made, ends, frozenset(zero))]


def _shape_attrs(step: Step) -> dict[str, Any]:
    attrs = dict(step.calls[0].attrs)
    return {k: v if k == "shape" else step.attr(k) for k, v in attrs.items()}


def _after(p: Padded, axis: int) -> tuple[int, tuple[int, ...]]:
    """The elements after an axis, as a product of a number and lengths."""
    sizes = list(zip(p.shape, p.ends, strict=True))[axis + 1 :]
    ends = sorted(e for _, e in sizes if e is not None)
    return math.prod(n for n, e in sizes if e is None), tuple(ends)


def _expand(pad: Masks, step: Step) -> Sequence[Padded]:
    data = step.whole[0]
    made = _emit(step, [data], dict(step.calls[0].attrs))[0]
    shift = len(step.ends[0]) - len(data.ends)
    for axis in data.axes:
        if step.ends[0][axis + shift] != data.ends[axis]:
            raise Unsupported("Expand of axes of different lengths")
    return [Padded(made, step.ends[0], frozenset(a + shift for a in data.zero))]


def _filled(pad: Masks, step: Step) -> Sequence[Padded]:
    """ConstantOfShape, of a shape that is known."""
    if step.args:
        raise Unsupported(f"{step.name} of a shape that is not known")
    made = _emit(step, [], dict(step.calls[0].attrs))[0]
    return [Padded(made, step.ends[0])]


def _split(pad: Masks, step: Step) -> Sequence[Padded]:
    data = step.whole[0]
    axis = step.attr("axis", 0) % len(data.ends)
    _needs_fixed(step, data, [axis])
    made = _emit(step, step.args, outputs=len(step.ends))
    return [Padded(v, ends, data.zero) for v, ends in zip(made, step.ends, strict=True)]


def _cumulative(pad: Masks, step: Step) -> Sequence[Padded]:
    data = step.whole[0]
    axis = step.attr("axis", 0) % len(data.ends)
    if step.attr("reverse"):
        _needs_fixed(step, data, [axis])
    return [Padded(_emit(step, step.args)[0], step.ends[0])]


def _trilu(pad: Masks, step: Step) -> Sequence[Padded]:
    """A diagonal that moves with the length is compared with the places of the elements."""
    data = step.whole[0]
    (k, *others), lengths = [c.attr("k", 0) for c in step.calls], list(pad.lengths)
    if all(other == k for other in others):
        return [Padded(_emit(step, step.args)[0], step.ends[0], data.zero)]
    if any(k - other != lengths[0] - n for other, n in zip(others, lengths[1:], strict=True)):
        raise Unsupported("Trilu of a diagonal that depends on the length otherwise")
    rows, columns = data.shape[-2:]
    places = const(np.arange(columns)[None, :] - np.arange(rows)[:, None])
    diagonal = pad.end(k - lengths[0])
    compare = "GreaterOrEqual" if step.attr("upper", 1) else "LessOrEqual"
    inside = op(compare, places, diagonal)
    made = op("Where", inside, data.value, const(np.zeros((), data.value.dtype)))
    return [Padded(made, step.ends[0], data.zero)]


def _concat(pad: Masks, step: Step) -> Sequence[Padded]:
    parts, (ends,) = step.whole, step.ends
    rank = len(ends)
    axis = step.attr("axis") % rank
    for p in parts:
        if any(p.ends[n] != ends[n] for n in range(rank) if n != axis):
            raise Unsupported("Concat of axes of different lengths")
    zero = frozenset.intersection(*(p.zero for p in parts)) - {axis}
    growing = [n for n, p in enumerate(parts) if p.ends[axis] is not None]
    if len(growing) > 1:
        raise Unsupported("Concat of two axes whose sizes depend on the length")
    if not growing or growing[0] == len(parts) - 1:
        whole = zero | (parts[-1].zero & {axis} if growing else frozenset())
        return [Padded(_emit(step, parts)[0], ends, whole)]
    (n,) = growing
    if n == 0 and len(parts) == 2 and parts[1].shape[axis] == 1:
        made = _appended(pad, parts, axis)
    else:
        made = _closed_up(pad, parts, n, axis)
    return [Padded(made, ends, zero | {axis})]


def _blank(p: Padded, axis: int) -> Value | Const:
    """One more element along an axis, 0."""
    return const(np.zeros([1 if n == axis else d for n, d in enumerate(p.shape)], p.value.dtype))


def _appended(pad: Masks, parts: Sequence[Padded], axis: int) -> Value:
    """One element more, as a cache grows: it takes the place of the first zero."""
    old, end = pad.zeroed(parts[0], [axis]), parts[0].ends[axis]
    assert end is not None
    longer = op("Concat", old.value, _blank(old, axis), axis=axis)
    places = np.arange(old.shape[axis] + 1).reshape(-1, *(1,) * (len(old.ends) - axis - 1))
    here = op("Equal", const(places), pad.end(end))
    return op("Where", here, parts[1].value, longer)


def _closed_up(pad: Masks, parts: Sequence[Padded], n: int, axis: int) -> Value:
    """What comes after part n moves up to where its elements that count end."""
    before, after = (sum(p.shape[axis] for p in ps) for ps in (parts[:n], parts[n + 1 :]))
    end = parts[n].ends[axis]
    assert end is not None
    joined = op("Concat", *(p.value for p in parts), _blank(parts[n], axis), axis=axis)
    size = before + parts[n].shape[axis] + after
    where, first = const(np.arange(size)), pad.end(before + end)
    moved = op("Add", op("Sub", where, first), const(np.asarray(size - after)))
    chosen = op("Where", op("Less", where, first), where, moved)
    index = op("Min", chosen, const(np.asarray(size)))  # the padding reads the zeros
    return op("Gather", joined, index, axis=axis)


def _slice(pad: Masks, step: Step) -> Sequence[Padded]:
    data, (ends,) = step.whole[0], step.ends
    rank = len(ends)
    value, zero = data.value, set(data.zero)
    ranges = [_ranges(c, shapes[0]) for c, shapes in zip(step.calls, step.shapes, strict=True)]
    lengths = list(pad.lengths)
    for axis in range(rank):
        (start, count, by), *others = (r[axis] for r in ranges)
        size = data.shape[axis]
        if (start, count, by) == (0, size, 1):
            if any(r[axis][0] != 0 for r in ranges[1:]):
                raise Unsupported("Slice whose start depends on the length otherwise")
            continue
        if any(b != by for _, _, b in others):
            raise Unsupported("Slice whose step depends on the length")
        zero.discard(axis)
        if all(s == start for s, _, _ in others):
            if by != 1 and ends[axis] is not None:
                raise Unsupported(
                    "Slice with a step along an axis whose size depends on the length"
                )
            stop = start + by * count
            stops = (stop if stop >= 0 else -size - 1,)
            value = op("Slice", value, starts=(start,), ends=stops, axes=(axis,), steps=(by,))
            continue
        moved = [start - (lengths[0] - n) for n in lengths[1:]]
        if ends[axis] is not None or [s for s, _, _ in others] != moved:
            raise Unsupported("Slice whose start depends on the length otherwise")
        at = start - lengths[0] + by * np.arange(count)
        value = op("Gather", value, pad.affine(at, np.ones(count)), axis=axis)
    return [Padded(value, ends, frozenset(zero))]


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
    index = pad.zeroed(index, index.axes)
    end, value = data.ends[axis], index.value
    if end is not None and not (isinstance(value.atom, Const) and (value.atom.value >= 0).all()):
        negative = op("Less", value, const(np.asarray(0, value.dtype)))
        last = op("Cast", pad.end(end), to=value.dtype)
        value = op("Where", negative, op("Add", value, last), value)
    made = _emit(step, [data, value])[0]
    rank = len(index.ends)
    zero = {a if a < axis else a + rank - 1 for a in data.zero if a != axis}
    return [Padded(made, step.ends[0], frozenset(zero))]


RULES: dict[str, Rule] = {
    "Concat": _concat,
    "Conv": _conv,
    "ConstantOfShape": _filled,
    "CumSum": _cumulative,
    "Expand": _expand,
    "Flatten": _reshape,
    "Gather": _gather,
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax,
    "MatMul": _matmul,
    "RMSNormalization": _layer_norm,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _reshape,
    **dict.fromkeys(
        ("ArgMax", "ArgMin", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin",
         "ReduceSum", "ReduceSumSquare"),
        _reduce,
    ),
}  # fmt: skip
