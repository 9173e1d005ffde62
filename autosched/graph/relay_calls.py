"""Operators of the predecessor's text that are more here than a call under another name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from autosched.errors import WorkloadError
from autosched.graph.builder import const
from autosched.graph.ir import Atom

Attrs = Mapping[str, Any]


class Emitter(Protocol):
    """What a translation may bind."""

    def call(self, op: str, args: Sequence[Atom], results: int = 1, **attrs: Any) -> list[Atom]:
        """The results of an operator."""
        ...

    def together(self, parts: Sequence[Atom]) -> Atom:
        """A tuple."""
        ...

    def parts(self, a: Atom) -> Sequence[Atom]:
        """The parts of a tuple that the text writes out. Raises WorkloadError for another value."""
        ...


Translate = Callable[[Emitter, Sequence[Atom], Attrs], Atom]


def sides(padding: Any, rank: int = 2) -> tuple[int, ...]:
    """Padding as ONNX has it, from one number, one an axis, or one a side."""
    given = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,)
    if len(given) == 1:
        return given * (2 * rank)
    return given * 2 if len(given) == rank else given


def _same(attrs: Attrs, **only: Any) -> None:
    """Raises WorkloadError for an attribute whose value has no translation."""
    for name, value in only.items():
        if attrs.get(name, value) not in (value, ""):
            raise WorkloadError(f"{name} is {attrs[name]!r}; read is {value!r} alone")


def _conv2d(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    _same(a, data_layout="NCHW", kernel_layout="OIHW", out_layout="")
    return e.call(
        "Conv", args, strides=_pair(a.get("strides", 1)), pads=sides(a.get("padding", 0)),
        dilations=_pair(a.get("dilation", 1)), group=a.get("groups", 1),
    )[0]  # fmt: skip


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def _pool(op: str) -> Translate:
    def translate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
        _same(a, layout="NCHW", out_layout="", dilation=(1, 1))
        more = {"count_include_pad": int(a.get("count_include_pad", 0))} if op[0] == "A" else {}
        return e.call(
            op, args, kernel_shape=_pair(a.get("pool_size", 1)), strides=_pair(a.get("strides", 1)),
            pads=sides(a.get("padding", 0)), ceil_mode=int(a.get("ceil_mode", 0)), **more,
        )[0]  # fmt: skip

    return translate


def _batch_norm(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    _same(a, axis=1)
    x, scale, bias, mean, variance = args
    if not a.get("scale", 1):  # 1 for each channel
        scale = e.call("Exp", e.call("Sub", [scale, scale]))[0]
    if not a.get("center", 1):
        bias = e.call("Sub", [bias, bias])[0]
    normal = [x, scale, bias, mean, variance]
    y = e.call("BatchNormalization", normal, epsilon=a.get("epsilon", 1e-5))[0]
    return e.together([y, mean, variance])


def _bias_add(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    if a.get("axis", 1) != -1:
        raise WorkloadError(
            f"axis is {a.get('axis', 1)}; read is -1 alone, as the rank is not known here: write "
            "add(%x, expand_dims(%bias, axis=1, num_newaxis=2))"
        )
    return e.call("Add", args)[0]


def _concatenate(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    return e.call("Concat", e.parts(args[0]), axis=a.get("axis", 0))[0]


def _split(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    count = a.get("indices_or_sections")
    if not isinstance(count, int):
        raise WorkloadError(f"indices_or_sections is {count!r}; read is a number of equal parts")
    return e.together(e.call("Split", args, count, axis=a.get("axis", 0), num_outputs=count))


def _expand_dims(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    axis, count = a.get("axis", 0), a.get("num_newaxis", 1)
    if axis < 0:
        raise WorkloadError(f"axis is {axis}; read is one from 0")
    return e.call("Unsqueeze", args, axes=tuple(range(axis, axis + count)))[0]


def _clip(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    low, high = (const(float(a[k]), "float32") for k in ("a_min", "a_max"))
    return e.call("Clip", [*args, low, high])[0]


def _batch_matmul(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    turned = [
        e.call("Transpose", [x], perm=(0, 2, 1))[0] if flag else x
        for x, flag in zip(args, (a.get("transpose_a", 0), a.get("transpose_b", 1)), strict=True)
    ]
    return e.call("MatMul", turned)[0]


def _layer_norm(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    _same(a, axis=-1, center=1, scale=1)
    return e.call("LayerNormalization", args, epsilon=a.get("epsilon", 1e-5))[0]


def _rsqrt(e: Emitter, args: Sequence[Atom], a: Attrs) -> Atom:
    return e.call("Reciprocal", e.call("Sqrt", args))[0]


SPECIAL: dict[str, tuple[str, Translate]] = {
    "nn.conv2d": (
        "strides padding dilation groups channels kernel_size data_layout kernel_layout "
        "out_layout out_dtype",
        _conv2d,
    ),
    "nn.max_pool2d": (
        "pool_size strides padding dilation layout out_layout ceil_mode", _pool("MaxPool"),
    ),
    "nn.avg_pool2d": (
        "pool_size strides padding dilation layout out_layout ceil_mode count_include_pad",
        _pool("AveragePool"),
    ),
    "nn.batch_norm": ("axis epsilon center scale", _batch_norm),
    "nn.bias_add": ("axis", _bias_add),
    "concatenate": ("axis", _concatenate),
    "split": ("indices_or_sections axis", _split),
    "expand_dims": ("axis num_newaxis", _expand_dims),
    "clip": ("a_min a_max", _clip),
    "nn.batch_matmul": ("transpose_a transpose_b out_dtype", _batch_matmul),
    "nn.layer_norm": ("axis epsilon center scale", _layer_norm),
    "rsqrt": ("", _rsqrt),
}  # fmt: skip
"""Operators, the attributes that are read, and what they are here."""
