"""How operators are padded that combine elements along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autosched.graph.builder import Value
from autosched.graph.dynamic.lengths import Axis
from autosched.graph.dynamic.values import (
    Masks,
    Padded,
    Rule,
    Step,
    emit,
    needs_first,
    number,
    op,
    rounded,
    wide,
)
from autosched.graph.errors import Unsupported
from autosched.tir import dtypes


def _softmax(pad: Masks, step: Step) -> Sequence[Padded]:
    (data,) = step.whole
    axis = step.attr("axis", -1) % len(data.ends)
    if data.ends[axis] is not None:
        data = Padded(pad.masked(data, axis, -np.inf), data.ends)
    zero = frozenset({axis} if step.name == "Softmax" else ())
    return [Padded(emit(step, [data])[0], step.ends[0], zero & frozenset(data.axes))]


def _matmul(pad: Masks, step: Step) -> Sequence[Padded]:
    x, y = step.whole
    pair = _contracted(pad, step, x, -1, y, -2 if len(y.ends) > 1 else -1)
    return [Padded(emit(step, pair)[0], step.ends[0])]


def _matmul_integer(pad: Masks, step: Step) -> Sequence[Padded]:
    """Padding is the zero point of one factor, so that nothing is added."""
    x, y, *zeros = step.args
    assert x is not None
    assert y is not None
    if any(z is not None and z.axes for z in zeros):
        raise Unsupported(f"{step.name}: a zero point that depends on the length")
    if x.ends[-1] is not None:
        zero = zeros[0] if zeros else None
        if zero is not None and math.prod(zero.shape) != 1:
            raise Unsupported(f"{step.name} over padding, with a zero point for each row")
        filler = number(0, x.value.dtype) if zero is None else zero.value
        x = Padded(op("Where", pad.mask(x, len(x.ends) - 1), x.value, filler), x.ends)
    return [Padded(emit(step, [x, y, *zeros])[0], step.ends[0])]


def _gemm(pad: Masks, step: Step) -> Sequence[Padded]:
    x, y, *rest = step.args
    assert x is not None
    assert y is not None
    pair = _contracted(
        pad, step, x, 0 if step.attr("transA") else 1, y, 1 if step.attr("transB") else 0
    )
    return [Padded(emit(step, [*pair, *rest])[0], step.ends[0])]


def _contracted(
    pad: Masks, step: Step, x: Padded, m: int, y: Padded, n: int
) -> tuple[Padded, Padded]:
    """The factors of a product over axes m and n, whose padding must be 0 in both: what stands
    there may be no number."""
    m, n = m % len(x.ends), n % len(y.ends)
    if x.ends[m] != y.ends[n]:
        raise Unsupported(f"{step.name} over axes of different lengths")
    return pad.zeroed(x, [m]), pad.zeroed(y, [n])


FILLERS = {
    "ArgMax": -np.inf, "ArgMin": np.inf, "ReduceL1": 0, "ReduceL2": 0, "ReduceLogSum": 0,
    "ReduceLogSumExp": -np.inf, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceProd": 1,
    "ReduceSum": 0, "ReduceSumSquare": 0,
}  # fmt: skip
"""What changes no result of a reduction."""


def _reduce(pad: Masks, step: Step) -> Sequence[Padded]:
    if len(step.args) > 1:
        raise Unsupported(f"{step.name} over axes that are not known")
    (data,) = step.whole
    rank = len(data.ends)
    axes: Sequence[int]
    if step.name.startswith("Arg"):
        axes = (step.attr("axis", 0),)
        needs_first(step, data, axes)
    else:
        axes = step.attr("axes") or (() if step.attr("noop_with_empty_axes") else range(rank))
    padded = [a % rank for a in axes if data.ends[a % rank] is not None]
    if padded and step.name == "ReduceMean":
        return [mean(pad, step, data, padded)]
    filler = FILLERS.get(step.name)
    if padded and filler is not None:
        data = filled_for(pad, step, data, padded, filler)
    elif padded:
        raise Unsupported(f"{step.name} along an axis whose size depends on the length")
    return [Padded(emit(step, [data])[0], step.ends[0])]


def filled_for(pad: Masks, step: Step, data: Padded, axes: Sequence[int], filler: float) -> Padded:
    """The value with what changes no result in its padding."""
    if filler == 0:
        return pad.zeroed(data, axes)
    if step.attr("select_last_index"):
        # Where all elements are the least that there are, the last place is one of the padding.
        raise Unsupported(f"{step.name} of the last index along padding")
    dtype = data.value.dtype
    if np.isinf(filler) and not dtypes.is_float(dtype):
        if step.name == "ReduceLogSumExp" or dtype == "bool":
            raise Unsupported(f"{step.name} of {dtype} along padding")
        limits = np.iinfo(dtype)
        filler = limits.min if filler < 0 else limits.max
    for axis in axes:
        data = Padded(pad.masked(data, axis, filler), data.ends)
    return data


def mean(pad: Masks, step: Step, data: Padded, axes: Sequence[int]) -> Padded:
    """The mean of all, times their number over that of those that count."""
    if not dtypes.is_float(data.value.dtype):
        raise Unsupported(f"{step.name} of {data.value.dtype} along padding")
    whole = wide(data)
    dtype = whole.value.dtype
    made = emit(step, [pad.zeroed(whole, axes)])[0]
    for axis in axes:
        end = data.ends[axis]
        assert end is not None
        share = op("Div", number(data.shape[axis], dtype), op("Cast", pad.end(end), to=dtype))
        made = op("Mul", made, share)
    return Padded(rounded(made, data), step.ends[0])


def _cumulative(pad: Masks, step: Step) -> Sequence[Padded]:
    data = step.whole[0]
    axis = step.attr("axis", 0) % len(data.ends)
    needs_first(step, data, [axis])
    if step.attr("reverse"):
        data = pad.zeroed(data, [axis])
    return [Padded(emit(step, [data, *step.args[1:]])[0], step.ends[0])]


def _einsum(pad: Masks, step: Step) -> Sequence[Padded]:
    """Axes that the result has not are summed."""
    left, arrow, right = step.attr("equation").replace(" ", "").partition("->")
    if not arrow or "..." in left:
        raise Unsupported(f"{step.name}: {left}{arrow}{right} is not padded")
    operands = []
    ends: dict[str, Axis] = {}
    for p, letters in zip(step.whole, left.split(","), strict=True):
        if len(set(letters)) < len(letters):
            raise Unsupported(f"{step.name}: {left}{arrow}{right} is not padded")
        for letter, end in zip(letters, p.ends, strict=True):
            if ends.setdefault(letter, end) != end:
                raise Unsupported(f"{step.name} over axes of different lengths")
        operands.append(pad.zeroed(p, [n for n, c in enumerate(letters) if c not in right]))
    return [Padded(emit(step, operands)[0], step.ends[0])]


def _recurrent(pad: Masks, step: Step) -> Sequence[Padded]:
    """Steps beyond the length are left out, as those of the shorter sequences of a batch."""
    x, *others = step.args
    assert x is not None
    first = bool(step.attr("layout"))
    steps, batch = (1, 0) if first else (0, 1)
    states = 0 if first else 1
    for n, other in enumerate(others, 1):
        allowed = {4: [0], 5: [states], 6: [states]}.get(n, [])
        if other is not None and any(a not in allowed for a in other.axes):
            raise Unsupported(f"{step.name}: an input that depends on the length")
    needs_first(step, x, [steps])
    if x.ends[2] is not None:
        raise Unsupported(f"{step.name} of a width that depends on the length")
    args: list[Padded | Value | None] = [x, *others]
    end = x.ends[steps]
    if end is not None and (len(args) < 5 or args[4] is None):
        args += [None] * (5 - len(args))
        lengths = op("Cast", pad.end(end), to="int32")
        args[4] = op("Expand", lengths, shape=(x.shape[batch],))
    made = emit(step, args, outputs=len(step.ends))
    return [Padded(v, ends) for v, ends in zip(made, step.ends, strict=True)]


SUMS: dict[str, Rule] = {
    "CumSum": _cumulative,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "LogSoftmax": _softmax,
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
    "Softmax": _softmax,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("ReduceMean", *FILLERS), _reduce),
}
