"""Operators of any opset as the registry has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant
from autosched.graph.ir import Atom, Const, tensor_type
from autosched.graph.onnx_import.many import MANY, gathered, pieces, split_sizes
from autosched.graph.onnx_import.packed import matmul_nbits
from autosched.graph.onnx_import.scope import Scope
from autosched.graph.onnx_import.tensors import dtype_name
from autosched.graph.spec import frozen

BFLOAT16 = 16
"""ONNX's number of the element type."""
FOUR_BITS = {21: ("uint8", 0, 15), 22: ("int8", -8, 7)}
"""ONNX's numbers of element types, what they are stored as here, and their bounds."""

Args = Sequence["Atom | None"]
Attrs = dict[str, Any]


class Upgraded(NamedTuple):
    """A call in today's form; `after` makes the node's result of the call's, `more` are results
    that are known."""

    name: str
    args: Args
    attrs: Attrs
    after: Callable[[Atom], Atom] | None = None
    more: Sequence[Atom] = ()


class Old(NamedTuple):
    """A call as a file has it."""

    scope: Scope
    name: str
    args: Args
    attrs: Attrs
    opset: int
    outputs: int

    def type(self, n: int) -> Any:
        """Type of argument n. Raises Unsupported where it is left out."""
        found = self.args[n] if n < len(self.args) else None
        if found is None:
            raise Unsupported(f"{self.name}: its input {n} is missing")
        return tensor_type(found)

    def one(self, name: str, args: Args, **attrs: Any) -> Atom:
        """The result of another operator."""
        return self.scope.emit(name, args, attrs)[0]

    def known(self, n: int) -> tuple[int, ...]:
        """Shape of argument n. Raises Unsupported where it depends on data."""
        shape = self.type(n).shape
        if shape is None:
            self.refuse(f"the shape of input {n} is not known; opset {self.opset} needs it here")
        return tuple(map(int, shape))

    def rank(self, a: Atom) -> int:
        """Number of axes of a value."""
        return len(tensor_type(a).shape or ())

    def refuse(self, why: str) -> NoReturn:
        """Raise Unsupported, naming the operator."""
        raise Unsupported(f"{self.name}: {why}")


def upgraded(scope: Scope, name: str, args: Args, attrs: Attrs, outputs: int) -> Upgraded:
    """A call of the scope's opset in today's form. Raises Unsupported."""
    rounds = name == "Cast" and attrs.get("to") in (BFLOAT16, "BFLOAT16")
    narrow = FOUR_BITS.get(attrs.get("output_dtype", 0)) if name == "QuantizeLinear" else None
    if narrow:
        attrs["output_dtype"] = narrow[0]
    for key in ("to", "dtype", "output_dtype"):
        if isinstance(attrs.get(key), (int, str)):
            attrs[key] = dtype_name(attrs[key], f"attribute {key}") if attrs[key] else None
    old = Old(scope, name, args, attrs, scope.opsets.get("", 1), outputs)
    row = RULES.get(name)
    found = None if row is None else row(old)
    if rounds:  # its values are kept as float32
        found = Upgraded(name, args, attrs, lambda y: old.one("RoundBfloat16", [y]))
    if narrow:
        ends = [constant(np.array(n, narrow[0])) for n in narrow[1:]]
        found = Upgraded(name, args, attrs, lambda y: old.one("Clip", [y, *ends]))
    if found is None:
        found = Upgraded(name, old.args, attrs)
    return found._replace(attrs={k: frozen(v) for k, v in found.attrs.items()})


def _aligned(old: Old) -> Upgraded | None:
    """Before opset 7 the second operand is aligned from an axis of the first one on."""
    if old.opset >= 7:
        return None
    old.attrs.pop("broadcast", 0)
    axis = old.attrs.pop("axis", None)
    return None if axis is None else _from_axis(old, axis)


def _from_axis(old: Old, axis: int) -> Upgraded | None:
    wide, narrow = old.known(0), old.known(1)
    after = len(wide) - axis % max(len(wide), 1) - len(narrow)
    if after <= 0 or not narrow or narrow == (1,):
        return None
    moved = old.one("Reshape", [old.args[1]], shape=(*narrow, *([1] * after)))
    return Upgraded(old.name, [old.args[0], moved, *old.args[2:]], old.attrs)


def _gemm(old: Old) -> None:
    if old.opset < 7:
        old.attrs.pop("broadcast", 0)


def _prelu(old: Old) -> Upgraded | None:
    return _from_axis(old, 1) if old.opset < 9 else None


def _constant_of_shape(old: Old) -> None:
    value = old.attrs.pop("value", None)
    if value is not None:
        old.attrs["value"], old.attrs["dtype"] = value.reshape(-1)[0].item(), value.dtype.name


def _range(old: Old) -> None:
    old.attrs["dtype"] = old.type(0).dtype


def _dropout(old: Old) -> Upgraded | None:
    """Drops nothing but in training; keeps all."""
    if _training(old):
        return None
    if old.outputs == 1:
        return Upgraded("Identity", old.args[:1], {})
    kind = "bool" if old.opset >= 10 else old.type(0).dtype
    one = constant(np.ones((), kind))
    mask = old.one("Expand", [one], shape=old.known(0)) if old.known(0) else one
    return Upgraded("Identity", old.args[:1], {}, more=[mask])


def _training(old: Old) -> bool:
    args = old.args
    if old.opset < 12 or len(args) < 3 or args[2] is None:
        return False
    # With a ratio of 0 nothing is left out.
    if isinstance(args[1], Const) and not args[1].value.any():
        return False
    return not isinstance(args[2], Const) or bool(args[2].value.any())


def _batch_norm(old: Old) -> None:
    if old.opset < 7 and not old.attrs.pop("is_test", 0):
        old.refuse(f"opset {old.opset} without is_test = 1 trains")
    for key in ("consumed_inputs", "is_test"):
        old.attrs.pop(key, None)


def _flattened(old: Old) -> Upgraded | None:
    """Before opset 13 the axes from `axis` on are one."""
    if old.opset >= 13:
        return None
    axis, rank = old.attrs.pop("axis", 1), len(old.known(0))
    if not -rank <= axis < max(rank, 1):
        old.refuse(f"attribute axis is {axis}; the input has the shape {old.known(0)}")
    shape, at = old.known(0), axis % max(rank, 1)
    if at >= rank - 1:
        return Upgraded(old.name, old.args, {**old.attrs, "axis": -1})
    rows = (prod(shape[:at]), prod(shape[at:]))
    flat = old.one("Reshape", [old.args[0]], shape=rows)
    return Upgraded(old.name, [flat], {"axis": -1}, lambda y: old.one("Reshape", [y], shape=shape))


def _mean_variance(old: Old) -> Upgraded:
    """ONNX's function body takes the variance as a difference of sums of squares, which rounding
    may make negative, and its root NaN. Values of float16 are computed in float32."""
    stored, x = old.type(0).dtype, old.args[0]
    if stored == "float16":
        x = old.one("Cast", [x], to="float32")
    axes = constant(np.array(old.attrs.pop("axes", (0, 2, 3)), np.int64))
    apart = old.one("Sub", [x, old.one("ReduceMean", [x, axes])])
    variance = old.one("ReduceMean", [old.one("Mul", [apart, apart]), axes])
    least = constant(np.array(1e-9, "float32" if stored == "float16" else stored))
    spread = old.one("Add", [old.one("Sqrt", [variance]), least])
    back = (lambda y: old.one("Cast", [y], to="float16")) if stored == "float16" else None
    return Upgraded("Div", [apart, spread], old.attrs, back)


_ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _upsample(old: Old) -> Upgraded:
    attrs = dict(old.attrs)
    if "height_scale" in attrs:
        attrs["scales"] = (1.0, 1.0, attrs.pop("height_scale"), attrs.pop("width_scale"))
    mode = "nearest" if attrs.get("mode", "nearest") == "nearest" else "linear"
    scales = old.args[1] if len(old.args) > 1 else None
    return Upgraded("Resize", [old.args[0], None, scales], {**attrs, **_ASYMMETRIC, "mode": mode})


def _resize(old: Old) -> Upgraded | None:
    if old.opset >= 11:
        return None
    return Upgraded("Resize", [old.args[0], None, old.args[1]], {**old.attrs, **_ASYMMETRIC})


def _top_k(old: Old) -> Upgraded | None:
    if "k" not in old.attrs:
        return None
    k = constant(np.array([old.attrs.pop("k")], np.int64))
    return Upgraded("TopK", [old.args[0], k], old.attrs)


def _split(old: Old) -> Upgraded | None:
    count = old.attrs.get("num_outputs", old.outputs)
    if count != old.outputs:
        old.refuse(f"attribute num_outputs is {count}; the node has {old.outputs} outputs")
    if old.outputs <= MANY:
        return None
    shape, axis = old.known(0), old.attrs.get("axis", 0)
    given = old.args[1] if len(old.args) > 1 else None
    extent = shape[axis] if -len(shape) <= axis < len(shape) else -1
    sizes = split_sizes(extent, old.outputs, given, old.attrs.get("split"))
    if sizes is None or old.args[0] is None:
        return None  # the operator says what is wrong
    first, *rest = pieces(old.args[0], sizes, axis, old.one)
    return Upgraded("Identity", [first], {}, more=rest)


def _many(old: Old) -> Upgraded | None:
    """Operators that may be applied to parts of their arguments first."""
    if len(old.args) <= MANY or None in old.args:
        return None
    return Upgraded(old.name, gathered(old.name, old.args, old.attrs, old.one), old.attrs)


def _fused_matmul(old: Old) -> Upgraded:
    """onnxruntime's product of matrices that may be transposed, times a number."""
    attrs, args = old.attrs, list(old.args)
    for n, side in enumerate("AB"):
        order = list(range(len(old.known(n))))
        if attrs.pop(f"transBatch{side}", 0):  # the first axis becomes that of the rows
            order = [*order[1:-1], 0, order[-1]]
        if attrs.pop(f"trans{side}", 0):
            order[-2:] = order[:-3:-1]
        if order != sorted(order):
            args[n] = old.one("Transpose", [args[n]], perm=tuple(order))
    alpha = attrs.pop("alpha", 1.0)
    return Upgraded("MatMul", args, attrs, None if alpha == 1 else lambda y: old.one(
        "Mul", [y, constant(np.array(alpha, old.type(0).dtype))]))  # fmt: skip


ACTIVATIONS = {"Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",),
               "Relu": (), "Sigmoid": (), "Tanh": ()}  # fmt: skip
"""What onnxruntime fuses with convolutions and products, and the attributes that it gives it."""


def _fused(name: str) -> Callable[[Old], Upgraded]:
    """A layer of onnxruntime's with its activation; a convolution may have an addend."""

    def upgrade(old: Old) -> Upgraded:
        attrs = old.attrs
        kind = attrs.pop("activation", "")
        given = attrs.pop("activation_params", ())
        own = {k: attrs.pop(f"activation_{k}") for k in ("alpha", "beta", "gamma")
               if f"activation_{k}" in attrs}  # fmt: skip
        if kind and kind not in ACTIVATIONS:
            old.refuse(f"attribute activation is {kind!r}; there are {', '.join(ACTIVATIONS)}")
        params = {**dict(zip(ACTIVATIONS.get(kind, ()), given, strict=False)), **own}
        addend = old.args[3] if name == "Conv" and len(old.args) > 3 else None

        def after(y: Atom) -> Atom:
            y = y if addend is None else old.one("Add", [y, addend])
            return old.one(kind, [y], **params) if kind else y

        return Upgraded(name, old.args[:3], attrs, after)

    return upgrade


def _qgemm(old: Old) -> Upgraded:
    """Gemm of quantised matrices, whose bias has the scale of their product; a result without a
    scale is not quantised."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, scale, zero = [*old.args, *[None] * 9][:9]
    alpha, axis = old.attrs.get("alpha", 1.0), 0 if old.attrs.get("transB", 0) else 1
    left = old.one("DequantizeLinear", [a, a_scale, a_zero])
    right = old.one("DequantizeLinear", [b, b_scale, b_zero], axis=axis)
    bias = None
    if c is not None:
        unit = old.one("Mul", [old.one("Mul", [a_scale, b_scale]), _number(alpha)])
        bias = old.one("Mul", [old.one("Cast", [c], to="float32"), unit])
    return Upgraded(
        "Gemm",
        [left, right, bias],
        old.attrs,
        None if scale is None else lambda y: old.one("QuantizeLinear", [y, scale, zero]),
    )


def _number(value: float) -> Const:
    return constant(np.array(value, np.float32))


def _qlinear_softmax(old: Old) -> None:
    version, axis = old.attrs.pop("opset", 13), old.attrs.get("axis", -1)
    if version < 13 and axis not in (-1, len(old.known(0)) - 1):
        old.refuse(f"attribute opset is {version}, where axis {axis} is not the only one")


def _dynamic_lstm(old: Old) -> Upgraded:
    """The LSTM of the weights as they are meant; onnxruntime rounds the states as well."""
    x, w, r, b, lengths, h, c, peep, w_scale, w_zero, r_scale, r_zero = (
        *old.args, *[None] * 12)[:12]  # fmt: skip

    def meant(q: Atom | None, scale: Atom | None, zero: Atom | None) -> Atom:
        turned = old.one("Transpose", [q], perm=(0, 2, 1))  # (D, 4 H, I)
        rows, width = (*tensor_type(turned).known[:2], 1), int(tensor_type(turned).known[2])
        # Of (D) or (D, 4 H); one block a row.
        given = [None if a is None else old.one(
            "Expand", [old.one("Unsqueeze", [a], axes=tuple(range(old.rank(a), 3)))], shape=rows)
            for a in (scale, zero)]  # fmt: skip
        return old.one("DequantizeLinear", [turned, *given], axis=2, block_size=width)

    weights = [meant(w, w_scale, w_zero), meant(r, r_scale, r_zero)]
    return Upgraded("LSTM", [x, *weights, b, lengths, h, c, peep], old.attrs)


def _qlinear_concat(old: Old) -> Upgraded:
    """Each part as it is meant, put together, and quantised."""
    scale, zero, *rest = old.args
    parts = [old.one("DequantizeLinear", rest[n : n + 3]) for n in range(0, len(rest), 3)]
    return Upgraded(
        "Concat", parts, old.attrs, lambda y: old.one("QuantizeLinear", [y, scale, zero])
    )


RULES: dict[str, Callable[[Old], Upgraded | None]] = {
    **dict.fromkeys(("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub",
                     "Xor"), _aligned),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _flattened),
    "BatchNormalization": _batch_norm,
    "ConstantOfShape": _constant_of_shape,
    "Dropout": _dropout,
    "Gemm": _gemm,
    "MeanVarianceNormalization": _mean_variance,
    "PRelu": _prelu,
    "Range": _range,
    "Resize": _resize,
    "Split": _split,
    **dict.fromkeys(("Concat", "Max", "Min", "Sum"), _many),
    "TopK": _top_k,
    "Upsample": _upsample,
    "com.microsoft.FusedConv": _fused("Conv"),
    "com.microsoft.FusedGemm": _fused("Gemm"),
    **dict.fromkeys(("com.microsoft.FusedMatMul", "com.microsoft.TransposeMatMul"), _fused_matmul),
    "com.microsoft.MatMulNBits": matmul_nbits,
    "com.microsoft.QGemm": _qgemm,
    "com.microsoft.DynamicQuantizeLSTM": _dynamic_lstm,
    "com.microsoft.QLinearConcat": _qlinear_concat,
    "com.microsoft.QLinearSoftmax": _qlinear_softmax,
}  # fmt: skip
"""What is another today; a rule gives None where nothing but attributes changes."""
