"""Operators of the predecessor's text on elements and their places: what they are here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import prod

import numpy as np

from autosched.checks import shown
from autosched.errors import WorkloadError
from autosched.graph.builder import const
from autosched.graph.ir import Atom, Const
from autosched.graph.relay_calls import Attrs, Emitter, Translate, known, same, shape
from autosched.tir import dtypes


def _floor_divide(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    x, y = args
    if dtypes.is_float(known(e, x).dtype):
        return e.call("Floor", e.call("Div", args))[0]
    whole = e.call("Sub", [x, e.call("Mod", args)[0]])[0]  # Div of integers truncates
    return e.call("Div", [whole, y])[0]


def _trunc(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    below = e.call("Floor", e.call("Abs", args))[0]
    return e.call("Mul", [*e.call("Sign", args), below])[0]


def _log(base: float) -> Translate:
    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        dtype = known(e, args[0]).dtype
        if not dtypes.is_float(dtype):
            raise WorkloadError(f"a logarithm of {dtype} is taken; cast it to a float before")
        factor = const(1 / np.log(base), dtype)
        return e.call("Mul", [*e.call("Log", args), factor])[0]

    return translate


def _tile(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    (x,), reps = args, tuple(a["reps"])
    t = e.type(x)
    if t is not None and t.shape is not None:
        more = len(reps) - len(t.shape)
        reps = (1,) * -more + reps
        if more > 0:
            x = e.call("Unsqueeze", [x], axes=tuple(range(more)))[0]
    return e.call("Tile", [x], repeats=reps)[0]


def _reshape(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    same(a, allowzero=0, reverse=0)
    wanted = tuple(a["newshape"])
    if min(wanted, default=0) < -1:
        wanted = tuple(_extents(iter(wanted), list(shape(e, args[0]))))
    return e.call("Reshape", args, shape=wanted)[0]


def _extents(wanted: Iterator[int], left: list[int]) -> Iterator[int]:
    """Extents of a reshape: 0 keeps one, -2 those that are left, -3 is two as one, and -4 splits
    one into the next two. `left` are those of the tensor that nothing has taken yet."""
    for n in wanted:
        if n == -2:
            yield from left
            left = []
        elif n == -4:
            whole, parts = left.pop(0), list(islice(wanted, 2))
            if len(parts) != 2 or 0 in parts:
                raise WorkloadError(f"newshape has {parts} behind -4; expected two sizes, or -1")
            rest = -prod(parts)
            yield from (whole // rest if m == -1 else m for m in parts)
        elif n == -3:
            yield left.pop(0) * left.pop(0)
        elif n < -4:
            raise WorkloadError(f"newshape has {n}; expected sizes, and 0 to -4")
        else:
            first = left.pop(0) if left else 0
            yield first if n == 0 else n


def _repeat(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    (x,), axis = args, a.get("axis")
    extents = shape(e, x)
    if axis is None:
        x, axis, extents = e.call("Reshape", [x], shape=(-1,))[0], 0, (prod(extents),)
    at = const(np.repeat(np.arange(extents[axis]), a["repeats"]))
    return e.call("Gather", [x, at], axis=axis)[0]


def _reverse(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    axes, beyond = (a["axis"],), (-(1 << 62),)
    return e.call("Slice", args, starts=(-1,), ends=beyond, axes=axes, steps=(-1,))[0]


def _full_like(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    x, fill = args
    number = e.call("Cast", [fill], to=known(e, x).dtype)
    return e.call("Expand", number, shape=shape(e, x))[0]


def _arange(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    """Its ends are printed twice: as arguments, and as attributes."""
    if not all(isinstance(x, Const) for x in args):
        raise WorkloadError("its ends are values; read are numbers alone")
    ends = [x.value.item() for x in args if isinstance(x, Const)]
    if len(ends) == 3:
        same(a, **dict(zip(("start", "stop", "step"), ends, strict=True)))
    elif any(k in a for k in ("start", "stop", "step")):
        raise WorkloadError("start, stop and step stand beside three numbers that are arguments")
    return const(np.arange(*ends).astype(a.get("dtype", "float32")))


def _shape_of(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    return const(np.array(shape(e, args[0])), a.get("dtype", "int32"))


def _mirror_pad(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    (x,), mode = args, str(a.get("mode", "SYMMETRIC")).lower()
    if mode not in ("symmetric", "reflect"):
        raise WorkloadError(f"mode is {shown(a['mode'])}; expected SYMMETRIC or REFLECT")
    for axis, (n, sides) in enumerate(zip(shape(e, x), a["pad_width"], strict=True)):
        if any(sides):
            at = np.pad(np.arange(n), sides, mode=mode)  # type: ignore[call-overload]
            x = e.call("Gather", [x, const(at)], axis=axis)[0]
    return x


def _gather_nd(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    """The first axis of the indices is the one that picks."""
    same(a, batch_dims=0)
    x, at = args
    rank = len(shape(e, at))
    turned = e.call("Transpose", [at], perm=(*range(1, rank), 0))[0]
    whole = e.call("Cast", [turned], to="int64")[0]
    return e.call("GatherND", [x, whole])[0]


def _one_hot(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    """An index that is not from 0 up to `depth` is nowhere."""
    at, *ends = args
    rank, dtype = len(shape(e, at)), a.get("dtype", "float32")
    axis = a.get("axis", -1) % (rank + 1)
    row = [1] * (rank + 1)
    row[axis] = a["depth"]
    places = const(np.arange(a["depth"]).reshape(row))
    at = e.call("Cast", e.call("Unsqueeze", [at], axes=(axis,)), to="int64")[0]
    here = e.call("Equal", [at, places])[0]
    on, off = (e.call("Cast", [x], to=dtype)[0] for x in ends)
    return e.call("Where", [here, on, off])[0]


ARRAYS: dict[str, tuple[str, Translate]] = {
    "floor_divide": ("", _floor_divide),
    "trunc": ("", _trunc),
    "log2": ("", _log(2)),
    "log10": ("", _log(10)),
    "tile": ("reps", _tile),
    "reshape": ("newshape allowzero reverse", _reshape),
    "repeat": ("repeats axis", _repeat),
    "reverse": ("axis", _reverse),
    "full_like": ("", _full_like),
    "arange": ("start stop step dtype", _arange),
    "shape_of": ("dtype", _shape_of),
    "nn.mirror_pad": ("mode pad_width", _mirror_pad),
    "gather_nd": ("batch_dims index_rank", _gather_nd),
    "one_hot": ("depth axis dtype", _one_hot),
}
"""Operators, the attributes that are read, and what they are here."""
