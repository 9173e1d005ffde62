"""Operators of the predecessor's text that are more here than a call under another name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from autosched.checks import shown
from autosched.errors import WorkloadError
from autosched.graph.builder import const
from autosched.graph.ir import Atom
from autosched.graph.types import TensorType
from autosched.tir import dtypes

Attrs = Mapping[str, Any]


class Emitter(Protocol):
    """What a translation may bind, and ask."""

    def call(self, op: str, args: Sequence[Atom], results: int = 1, **attrs: Any) -> list[Atom]:
        """The results of an operator."""
        ...

    def together(self, parts: Sequence[Atom]) -> Atom:
        """A tuple."""
        ...

    def parts(self, a: Atom) -> Sequence[Atom]:
        """The parts of a tuple that the text writes out. Raises WorkloadError for another value."""
        ...

    def type(self, a: Atom) -> TensorType | None:
        """The type of a tensor, where it follows from what stands before."""
        ...


Translate = Callable[[Emitter, Sequence[Atom], Attrs], Atom]


def sides(padding: Any, rank: int = 2) -> tuple[int, ...]:
    """Padding as ONNX has it, from one number, one an axis, or one a side."""
    given = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,)
    if len(given) == 1:
        return given * (2 * rank)
    return given * 2 if len(given) == rank else given


def same(attrs: Attrs, **only: Any) -> None:
    """Raises WorkloadError for an attribute whose value has no translation."""
    for name, value in only.items():
        if attrs.get(name, value) not in (value, "", None):
            raise WorkloadError(f"{name} is {attrs[name]!r}; read is {value!r} alone")


def _of(values: Any, rank: int) -> tuple[int, ...]:
    """A number for each axis, of one for all of them."""
    return tuple(values) if isinstance(values, (tuple, list)) else (values,) * rank


LAYOUTS = {1: ("NCW", "OIW", "IOW"), 2: ("NCHW", "OIHW", "IOHW"), 3: ("NCDHW", "OIDHW", "IODHW")}
"""By the number of spatial axes: of data, of weights, of weights that are transposed."""


def _turned(e: Emitter, a: Atom, name: str, source: str, target: str) -> Atom:
    """A tensor whose axes are named by letters, in another order."""
    if source == target:
        return a
    if sorted(source) != sorted(target):
        raise WorkloadError(f"{name} is {source!r}; read are {target!r} and other orders of it")
    return e.call("Transpose", [a], perm=tuple(source.index(c) for c in target))[0]


def _arranged(translate: Translate, rank: int, weight: str = "") -> Translate:
    """The translation of an operator of data whose channels are second, and with `weight` of
    weights in that order, for any order of their axes."""

    def turned(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        name = "data_layout" if weight else "layout"
        own, found = LAYOUTS[rank][0], dict(a)
        given = found.pop(name, "") or own
        first = _turned(e, args[0], name, given, own)
        rest = list(args[1:])
        stored = found.pop("kernel_layout", "") or weight
        if weight and rest:
            rest[0] = _turned(e, rest[0], "kernel_layout", stored, weight)
        wanted = found.pop("out_layout", "") or given
        if sorted(wanted) != sorted(own):
            same(a, out_layout=own)
        return _turned(e, translate(e, [first, *rest], found), name, own, wanted)

    return turned


def _wide(e: Emitter, args: Sequence[Atom], a: Attrs) -> list[Atom]:
    """The operands of a product in the dtype `out_dtype`, in which it is summed."""
    dtype = a.get("out_dtype") or ""
    if not dtype or all(t is not None and t.dtype == dtype for t in map(e.type, args)):
        return list(args)
    return [e.call("Cast", [x], to=dtype)[0] for x in args]


def _conv(rank: int) -> Translate:
    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        return e.call("Conv", _wide(e, args, a), **_windows(a, rank))[0]

    return _arranged(translate, rank, LAYOUTS[rank][1])


def _windows(a: Attrs, rank: int) -> dict[str, Any]:
    """The attributes that convolutions share."""
    return {
        "strides": _of(a.get("strides", 1), rank),
        "pads": sides(a.get("padding", 0), rank),
        "dilations": _of(a.get("dilation", 1), rank),
        "group": a.get("groups", 1),
    }


def _conv2d_transpose(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    more = _of(a.get("output_padding", 0), 2)
    wide = _wide(e, args, a)
    return e.call("ConvTranspose", wide, output_padding=more, **_windows(a, 2))[0]


def _pool(op: str, rank: int) -> Translate:
    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        same(a, dilation=(1,) * rank)
        more = {"count_include_pad": int(a.get("count_include_pad", 0))} if op[0] == "A" else {}
        return e.call(
            op, args, kernel_shape=_of(a.get("pool_size", 1), rank),
            strides=_of(a.get("strides", 1), rank), pads=sides(a.get("padding", 0), rank),
            ceil_mode=int(a.get("ceil_mode", 0)), **more,
        )[0]  # fmt: skip

    return _arranged(translate, rank)


def _adaptive_pool(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    size = _of(a.get("output_size", ()), 2)
    if size == (1, 1):
        return e.call("GlobalAveragePool", args)[0]
    found = shape(e, args[0])[2:]
    wanted = size or found
    if any(n % m for n, m in zip(found, wanted, strict=True)):
        raise WorkloadError(f"output_size is {wanted}, which does not divide {found}")
    window = tuple(n // m for n, m in zip(found, wanted, strict=True))
    return e.call("AveragePool", args, kernel_shape=window, strides=window)[0]


def known(e: Emitter, a: Atom) -> TensorType:
    """The type of a tensor. Raises WorkloadError where it does not follow."""
    t = e.type(a)
    if t is None or t.shape is None:
        raise WorkloadError(
            "the type of its argument does not follow from what stands before; state it: "
            "let %x: Tensor[(1, 64), float32] = …"
        )
    return t


def shape(e: Emitter, a: Atom) -> tuple[int, ...]:
    return tuple(int(n) for n in known(e, a).known)


def _along(e: Emitter, bias: Atom, rank: int, axis: int) -> Atom:
    """A vector, to be broadcast along an axis of a tensor."""
    if not -rank <= axis < rank:
        raise WorkloadError(f"axis is {axis}; there are {rank} axes")
    after = tuple(range(1, rank - axis % rank))
    return e.call("Unsqueeze", [bias], axes=after)[0] if after else bias


def _batch_norm(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    same(a, axis=1)
    x, scale, bias, mean, variance = args
    if not a.get("scale", 1):  # 1 for each channel
        scale = e.call("Exp", e.call("Sub", [scale, scale]))[0]
    if not a.get("center", 1):
        bias = e.call("Sub", [bias, bias])[0]
    normal = [x, scale, bias, mean, variance]
    y = e.call("BatchNormalization", normal, epsilon=a.get("epsilon", 1e-5))[0]
    return e.together([y, mean, variance])


def _dense(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    t = e.type(args[0])
    x, weight = _wide(e, args, a)
    if t is None or len(t.known) == 2:
        return e.call("Gemm", [x, weight], transB=1)[0]
    return e.call("MatMul", [x, e.call("Transpose", [weight], perm=(1, 0))[0]])[0]


def _product(rank: int, second: int) -> Translate:
    """A product of tensors of a rank; `second`: the second one is turned where nothing is said."""
    perm = (*range(rank - 2), rank - 1, rank - 2)

    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        flags = a.get("transpose_a", 0), a.get("transpose_b", second)
        turned = [
            e.call("Transpose", [x], perm=perm)[0] if flag else x
            for x, flag in zip(_wide(e, args, a), flags, strict=True)
        ]
        return e.call("MatMul", turned)[0]

    return translate


def _by_axis(op: str) -> Translate:
    """An operator of a tensor and a vector along one of its axes."""

    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        x, vector = args
        axis = a.get("axis", 1)
        wide = vector if axis == -1 else _along(e, vector, len(shape(e, x)), axis)
        return e.call(op, [x, wide])[0]

    return translate


def chain(*ops: str) -> Translate:
    """Operators one of another, the innermost last."""

    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        for op in reversed(ops):
            args = e.call(op, args)
        return args[0]

    return translate


def _concatenate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    return e.call("Concat", e.parts(args[0]), axis=a.get("axis", 0))[0]


def _stack(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    axis = a.get("axis", 0)
    rows = [e.call("Unsqueeze", [x], axes=(axis,))[0] for x in e.parts(args[0])]
    return e.call("Concat", rows, axis=axis)[0]


def _split(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    given, axis = a.get("indices_or_sections"), a.get("axis", 0)
    if isinstance(given, int):
        return e.together(e.call("Split", args, given, axis=axis, num_outputs=given))
    if not isinstance(given, tuple):
        raise WorkloadError("indices_or_sections is missing")
    ends = [*given, shape(e, args[0])[axis]]
    sizes = tuple(b - a for a, b in zip([0, *given], ends, strict=True))
    return e.together(e.call("Split", args, len(sizes), axis=axis, split=sizes))


def _expand_dims(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    axis, count = a.get("axis", 0), a.get("num_newaxis", 1)
    if axis < 0:
        axis += len(shape(e, args[0])) + 1
    return e.call("Unsqueeze", args, axes=tuple(range(axis, axis + count)))[0]


def _clip(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    t = e.type(args[0])
    dtype = "float32" if t is None else t.dtype
    ends: list[Any] = [float(a[k]) for k in ("a_min", "a_max")]
    if dtypes.is_float(dtype):  # beyond the dtype's numbers nothing is left to clip
        most = float(np.finfo("float32" if dtype == "bfloat16" else dtype).max)
        ends = [x if abs(x) <= most else np.copysign(np.inf, x) for x in ends]
    else:
        least, most = dtypes.minimum(dtype), dtypes.maximum(dtype)
        ends = [max(np.ceil(ends[0]), least), min(np.floor(ends[1]), most)]
    return e.call("Clip", [*args, *(const(np.asarray(x), dtype) for x in ends)])[0]


def _take(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    x, at = args
    if a.get("axis") is None:
        x = e.call("Reshape", [x], shape=(-1,))[0]
    axis, mode = a.get("axis") or 0, a.get("mode", "clip")
    if mode not in ("clip", "wrap", "fast"):
        raise WorkloadError(f"mode is {shown(mode)}; expected clip, wrap or fast")
    if mode != "fast":  # clip is the mode that is meant where none is written
        size = shape(e, x)[axis]
        first, last, count = (const(np.asarray(n), "int64") for n in (0, size - 1, size))
        at = e.call("Cast", [at], to="int64")[0]  # which has all places
        inside = e.call("Clip", [at, first, last]) if mode == "clip" else e.call("Mod", [at, count])
        at = inside[0]
    return e.call("Gather", [x, at], axis=axis)[0]


def _place(op: str) -> Translate:
    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        axis = a.get("axis")
        (axis,) = axis if isinstance(axis, tuple) else (axis,)
        if axis is None:
            raise WorkloadError("the attribute axis is missing; write which axis it is along")
        more = {
            "keepdims": a.get("keepdims", 0),
            "select_last_index": a.get("select_last_index", 0),
        }
        found = e.call(op, args, axis=axis, **more)
        return e.call("Cast", found, to="int32")[0]

    return translate


def _strided_slice(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    first, last = a["begin"], a["end"]
    axes = a.get("axes") or tuple(range(len(first)))
    by = a.get("strides") or (1,)
    by = by * len(axes) if len(by) == 1 else by
    if a.get("slice_mode", "end") == "size":
        last = tuple(b + n if n >= 0 else 1 << 31 for b, n in zip(first, last, strict=True))
    return e.call("Slice", args, starts=first, ends=last, axes=axes, steps=by)[0]


def _pad(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    width = a["pad_width"]
    pads = (*(b for b, _ in width), *(n for _, n in width))
    return e.call("Pad", args, pads=pads, mode=a.get("pad_mode", "constant"))[0]


def _filled(value: int | None) -> Translate:
    """An array of one number, of a type that is stated, or that of an argument."""

    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        if "shape" in a:
            extents, dtype = tuple(a["shape"]), a.get("dtype", "float32")
            if value is None:
                dtype = a.get("dtype") or known(e, args[0]).dtype
                return e.call("Expand", e.call("Cast", args[:1], to=dtype), shape=extents)[0]
        else:
            t = known(e, args[0])
            extents, dtype = shape(e, args[0]), t.dtype
        return const(np.full(extents, value), dtype)

    return translate


def _dropout(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    return e.together(args)  # of a network that is not trained; there is no mask


def _resize(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    same(a, cubic_exclude=0, rounding_method="")
    if a.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise WorkloadError("coordinate_transformation_mode is 'tf_crop_and_resize'; not read")
    method, how = a.get("method", "linear"), a.get("coordinate_transformation_mode", "half_pixel")
    modes = {"linear": "linear", "nearest_neighbor": "nearest", "cubic": "cubic"}
    if method not in modes:
        raise WorkloadError(f"method is {method!r}; read are {', '.join(modes)}")
    nearest = "round_prefer_ceil" if how == "align_corners" else "floor"
    more: dict[str, Any] = {"nearest_mode": nearest} if method == "nearest_neighbor" else {}
    if method == "cubic":
        more = {"cubic_coeff_a": a.get("cubic_alpha", -0.5)}
    sizes = (*shape(e, args[0])[:2], *_of(a["size"], 2))
    return e.call("Resize", args[:1], mode=modes[method], sizes=sizes,
                  coordinate_transformation_mode=how, **more)[0]  # fmt: skip


def _upsampling(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    methods = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
    method = methods.get(a.get("method", "nearest_neighbor"), "")
    by = (a.get("scale_h", 1), a.get("scale_w", 1))
    size = tuple(round(n * s) for n, s in zip(shape(e, args[0])[2:], by, strict=True))
    how = "align_corners" if a.get("align_corners") else "asymmetric"
    return _resize(e, args, {"size": size, "method": method, "coordinate_transformation_mode": how})


def _layer_norm(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    same(a, axis=-1, center=1, scale=1)
    return e.call("LayerNormalization", args, epsilon=a.get("epsilon", 1e-5))[0]


_CONV = (
    "strides padding dilation groups channels kernel_size data_layout kernel_layout out_layout "
    "out_dtype"
)
_POOL = "pool_size strides padding dilation layout out_layout ceil_mode"
CALLS: dict[str, tuple[str, Translate]] = {
    **{f"nn.conv{n}d": (_CONV, _conv(n)) for n in LAYOUTS},
    "nn.conv2d_transpose": (
        f"{_CONV} output_padding",
        _arranged(_conv2d_transpose, 2, LAYOUTS[2][2]),
    ),
    **{f"nn.max_pool{n}d": (_POOL, _pool("MaxPool", n)) for n in LAYOUTS},
    **{
        f"nn.avg_pool{n}d": (f"{_POOL} count_include_pad", _pool("AveragePool", n)) for n in LAYOUTS
    },
    "nn.adaptive_avg_pool2d": ("output_size layout out_layout", _arranged(_adaptive_pool, 2)),
    **{
        f"nn.global_{n}_pool2d": ("layout out_layout", _arranged(chain(op), 2))
        for n, op in (("avg", "GlobalAveragePool"), ("max", "GlobalMaxPool"))
    },
    "nn.dense": ("units out_dtype", _dense),
    "nn.matmul": ("units out_dtype transpose_a transpose_b", _product(2, 0)),
    "nn.batch_matmul": ("transpose_a transpose_b out_dtype", _product(3, 1)),
    "nn.batch_norm": ("axis epsilon center scale", _batch_norm),
    "nn.layer_norm": ("axis epsilon center scale", _layer_norm),
    "nn.bias_add": ("axis", _by_axis("Add")),
    "nn.prelu": ("axis", _by_axis("PRelu")),
    "nn.dropout": ("rate", _dropout),
    "nn.pad": ("pad_width pad_mode", _pad),
    "nn.upsampling": ("scale_h scale_w layout method align_corners", _arranged(_upsampling, 2)),
    "image.resize2d": (
        "size roi layout method coordinate_transformation_mode rounding_method cubic_alpha "
        "cubic_exclude extrapolation_value out_dtype",
        _arranged(_resize, 2),
    ),
    "concatenate": ("axis", _concatenate),
    "stack": ("axis", _stack),
    "split": ("indices_or_sections axis", _split),
    "expand_dims": ("axis num_newaxis", _expand_dims),
    "strided_slice": ("begin end strides axes slice_mode", _strided_slice),
    "take": ("axis mode batch_dims", _take),
    "argmax": ("axis keepdims select_last_index", _place("ArgMax")),
    "argmin": ("axis keepdims select_last_index", _place("ArgMin")),
    "clip": ("a_min a_max", _clip),
    "not_equal": ("", chain("Not", "Equal")),
    "rsqrt": ("", chain("Reciprocal", "Sqrt")),
    "zeros": ("shape dtype", _filled(0)),
    "ones": ("shape dtype", _filled(1)),
    "full": ("shape dtype", _filled(None)),
    "zeros_like": ("", _filled(0)),
    "ones_like": ("", _filled(1)),
}
"""Operators, the attributes that are read, and what they are here."""
