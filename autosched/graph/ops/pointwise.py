"""Operators that compute each element by itself: tables of one line a row."""

from __future__ import annotations

import operator as py
from collections.abc import Callable, Sequence
from math import inf, pi
from typing import Any

from autosched import te
from autosched.errors import TensorExprError
from autosched.graph.ops.registry import Operator, add, operator
from autosched.graph.ops.tensors import TensorLike, broadcast, broadcast_shape, stage, wider
from autosched.tir import dtypes
from autosched.tir.expr import Expr


def _single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of float16 computed in float32, as intermediate values overflow or cancel."""

    def compute(x: Expr, **attrs: float) -> Expr:
        made: Expr = te.cast(function(te.cast(x, wider(x.dtype)), **attrs), x.dtype)
        return made

    return compute


def _mish(x: Expr) -> Expr:
    """x * tanh(log(1 + exp(x))), as a quotient in exp(-|x|), which does not overflow; nor do its
    derivatives."""
    e = te.exp(-te.abs(x))
    above = te.select(x < 0, e * (e + 2.0), 1.0 + 2.0 * e)
    found: Expr = x * (above / (above + te.select(x < 0, te.const(2.0, x.dtype), 2.0 * e * e)))
    return found


UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": te.abs,
    "Ceil": te.ceil,
    "Cos": te.cos,
    "Erf": te.erf,
    "Exp": te.exp,
    "Floor": te.floor,
    "HardSwish": _single(lambda x: x * te.max(te.min(x * (1 / 6) + 0.5, 1.0), 0.0)),
    "Identity": lambda x: x,
    "IsNaN": lambda x: x != x,
    "Log": te.log,
    "Mish": _single(_mish),
    "Neg": py.neg,
    "Not": te.logical_not,
    "Reciprocal": lambda x: 1.0 / x,
    "Relu": lambda x: te.max(x, te.const(0, x.dtype)),
    "Round": te.round,
    "Sigmoid": _single(te.sigmoid),
    "Sign": lambda x: _sign(x),
    "Sin": te.sin,
    "Softplus": _single(lambda x: te.max(x, 0.0) + te.log(1.0 + te.exp(-te.abs(x)))),
    "Softsign": _single(lambda x: x / (1.0 + te.abs(x))),
    "Sqrt": te.sqrt,
    "Tan": _single(lambda x: te.sin(x) / te.cos(x)),
    "Tanh": te.tanh,
}


def _div(a: Expr, b: Expr) -> Expr:
    if dtypes.is_float(a.dtype):
        return a / b
    # Towards zero, as ONNX and C do.
    quotient = te.floordiv(te.abs(a), te.abs(b)) if a.dtype != "uint8" else te.floordiv(a, b)
    return quotient if a.dtype == "uint8" else te.select((a < 0) == (b < 0), quotient, -quotient)


def _pow(a: Expr, b: Expr) -> Expr:
    kind = a.dtype if dtypes.is_float(a.dtype) else "float64"
    number = getattr(b, "value", None)
    if number in (2, 3) and dtypes.is_float(a.dtype):
        return a * a if number == 2 else a * a * a
    if number == 0.5 and dtypes.is_float(a.dtype):
        # As pow of C has it, and onnxruntime.
        return te.select(a == te.const(-inf, a.dtype), te.const(inf, a.dtype), te.sqrt(a))
    return te.cast(te.power(te.cast(a, kind), te.cast(b, kind)), a.dtype)


def _sign(x: Expr) -> Expr:
    found = te.cast(x > 0, x.dtype) - te.cast(x < 0, x.dtype)
    return te.select(x == x, found, x) if dtypes.is_float(x.dtype) else found


def _double(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Computed in float64, as the terms cancel."""

    def compute(x: Expr) -> Expr:
        made: Expr = te.cast(function(te.cast(x, "float64")), x.dtype)
        return made

    return compute


def _atan(x: Expr) -> Expr:
    """Cephes' rational function after reduction to |x| <= 0.66."""
    size = te.abs(x)
    far, middle = size > 2.414213562373095, size > 0.66
    base = te.select(far, pi / 2, te.select(middle, pi / 4, te.const(0.0, x.dtype)))
    flipped = te.cast(-1.0, x.dtype) / te.max(size, 0.5)
    y = te.select(far, flipped, te.select(middle, (size - 1.0) / (size + 1.0), size))
    z = y * y
    above = _polynomial(z, (-0.8750608600031904, -16.157537187333652, -75.00855792314705,
                            -122.8866684490136, -64.85021904942025))  # fmt: skip
    below = _polynomial(z, (1.0, 24.858464901423062, 165.02700983169885, 432.88106049129027,
                            485.3903996359137, 194.5506571482614))  # fmt: skip
    found = base + (y + y * z * above / below)
    return te.select(x < 0, -found, te.select(x == x, found, x))


def _polynomial(x: Expr, factors: Sequence[float]) -> Expr:
    total: Any = factors[0]
    for f in factors[1:]:
        total = x * total + f
    return total  # type: ignore[no-any-return]


def _asin(x: Expr) -> Expr:
    # sqrt((1 - x)(1 + x)) is 0 at the ends, where the quotient is infinite, and NaN beyond them.
    rest = te.sqrt((1.0 - x) * (1.0 + x))
    ends = te.select(x < 0, te.const(-pi / 2, x.dtype), te.const(pi / 2, x.dtype))
    return te.select(te.abs(x) == 1.0, ends, _atan(x / rest))


def _asinh(x: Expr) -> Expr:
    size = te.abs(x)
    found = _log1p(size + size * size / (1.0 + te.sqrt(size * size + 1.0)))
    return te.select(x < 0, -found, found)


def _log1p(x: Expr) -> Expr:
    whole = 1.0 + x
    return te.select(whole == 1.0, x, te.log(whole) * x / (whole - 1.0))


def _sinh(x: Expr) -> Expr:
    series = x * (1.0 + x * x / 6.0 * (1.0 + x * x / 20.0 * (1.0 + x * x / 42.0)))
    return te.select(te.abs(x) < 0.1, series, (te.exp(x) - te.exp(-x)) * 0.5)


UNARY |= {
    n: _double(f)
    for n, f in {
        "Acos": lambda x: pi / 2 - _asin(x),
        "Acosh": lambda x: te.log(x + te.sqrt((x - 1.0) * (x + 1.0))),
        "Asin": _asin,
        "Asinh": _asinh,
        "Atan": _atan,
        "Atanh": lambda x: 0.5 * (_log1p(x) - _log1p(-x)),
        "Cosh": lambda x: (te.exp(x) + te.exp(-x)) * 0.5,
        "Sinh": _sinh,
    }.items()
}

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": py.add,
    "And": te.all,
    "Div": _div,
    "Equal": lambda a, b: a == b,
    "Greater": py.gt,
    "GreaterOrEqual": py.ge,
    "Less": py.lt,
    "LessOrEqual": py.le,
    "Mul": py.mul,
    "Or": te.any,
    "Pow": _pow,
    "PRelu": lambda x, slope: te.select(x < te.const(0, x.dtype), x * slope, x),
    "Sub": py.sub,
    "Xor": lambda a, b: a != b,
}
VARIADIC: dict[str, Callable[[Any, Any], Any]] = {
    "Max": te.max,
    "Mean": py.add,
    "Min": te.min,
    "Sum": py.add,
}


def pointwise(name: str, function: Callable[..., Any], *tensors: TensorLike) -> Any:
    """`function` of the elements of tensors that are broadcast to one shape."""
    shape = broadcast_shape(*(t.shape for t in tensors))
    reads = [broadcast(t, shape) for t in tensors]
    return stage(shape, lambda *at: function(*(read(*at) for read in reads)), name)


def _check_dtypes(name: str, tensors: Sequence[TensorLike]) -> None:
    """Operands of an operator have one dtype: ONNX converts nothing, though `te` would."""
    found = list(dict.fromkeys(t.dtype for t in tensors))
    if len(found) > 1:
        raise TensorExprError(
            f"{name} takes operands of one dtype; found {' and '.join(found)}; Cast one of them"
        )


def _unary(name: str, function: Callable[[Any], Any]) -> None:
    def compute(x: TensorLike) -> Any:
        return pointwise(name.lower(), function, x)

    add(Operator(name, compute))


def _binary(name: str, function: Callable[[Any, Any], Any]) -> None:
    def compute(a: TensorLike, b: TensorLike) -> Any:
        if name != "Pow":
            _check_dtypes(name, (a, b))
        return pointwise(name.lower(), function, a, b)

    add(Operator(name, compute))


def _variadic(name: str, function: Callable[[Any, Any], Any]) -> None:
    def compute(*tensors: TensorLike) -> Any:
        def element(first: Any, *rest: Any) -> Any:
            sums = name in ("Mean", "Sum")
            total = te.cast(first, wider(first.dtype)) if sums else first
            for e in rest:
                total = function(total, te.cast(e, total.dtype))
            return te.cast(total / len(tensors) if name == "Mean" else total, first.dtype)

        _check_dtypes(name, tensors)
        return pointwise(name.lower(), element, *tensors)

    add(Operator(name, compute))


for _name, _function in UNARY.items():
    _unary(_name, _function)
for _name, _pair in BINARY.items():
    _binary(_name, _pair)
for _name, _pair in VARIADIC.items():
    _variadic(_name, _pair)


@operator("Cast")
def cast(x: TensorLike, *, to: str, saturate: int = 1, round_mode: str = "up") -> Any:
    """Conversion; `to` is a dtype by name."""
    return pointwise("cast", lambda e: _converted(e, to), x)


@operator("CastLike")
def cast_like(x: TensorLike, like: TensorLike, *, saturate: int = 1, round_mode: str = "up") -> Any:
    """Conversion to the dtype of the second input."""
    return pointwise("cast", lambda e: _converted(e, like.dtype), x)


@operator("RoundBfloat16")
def round_bfloat16(x: TensorLike) -> Any:
    """float32 values rounded to those that bfloat16 has; not ONNX's: a Cast to bfloat16."""
    return pointwise("round", lambda e: te.cast(te.cast(e, "bfloat16"), "float32"), x)


def _converted(e: Expr, to: str) -> Expr:
    return e != te.const(0, e.dtype) if to == "bool" and e.dtype != "bool" else te.cast(e, to)


@operator("Clip")
def clip(
    x: TensorLike,
    low: TensorLike | None = None,
    high: TensorLike | None = None,
    *,
    min: float | None = None,
    max: float | None = None,
) -> Any:
    """The nearest value in [low, high]; attributes in opsets before 11."""

    def element(e: Expr, *bounds: Expr) -> Expr:
        given = iter(bounds)
        below = next(given) if low is not None else min
        above = next(given) if high is not None else max
        if below is not None:
            e = te.max(e, below)
        return e if above is None else te.min(e, above)

    bounds = [t for t in (low, high) if t is not None]
    _check_dtypes("Clip", (x, *bounds))
    return pointwise("clip", element, x, *bounds)


@operator("Where")
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Any:
    """x where the condition holds, else y."""
    _check_dtypes("Where", (x, y))
    return pointwise("where", te.select, condition, x, y)


@operator("Mod")
def mod(a: TensorLike, b: TensorLike, *, fmod: int = 0) -> Any:
    """The rest of a division, with the sign of b; with `fmod` that of a."""

    def element(x: Expr, y: Expr) -> Expr:
        if dtypes.is_float(x.dtype):
            # In float64, so that the quotient is not rounded up to the next number.
            a, b = (te.abs(te.cast(e, "float64")) for e in (x, y))
            size = te.cast(te.select(a < b, a, a - te.floor(a / b) * b), x.dtype)
            rest = te.select(x < 0, -size, size)
            other = te.all(rest != te.const(0, x.dtype), (rest < 0) != (y < 0))
            return rest if fmod else te.select(other, rest + y, rest)
        if not fmod:
            return te.floormod(x, y)
        rest = te.floormod(te.abs(x), te.abs(y))
        return te.select(x < 0, -rest, rest)

    _check_dtypes("Mod", (a, b))
    return pointwise("mod", element, a, b)


ATTRIBUTED: dict[str, Callable[..., Any]] = {
    "Celu": lambda x, *, alpha=1.0: te.select(x < 0, (te.exp(x / alpha) - 1.0) * alpha, x),
    "Elu": lambda x, *, alpha=1.0: te.select(x < 0, (te.exp(x) - 1.0) * alpha, x),
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: te.max(te.min(x * alpha + beta, 1.0), 0.0),
    "LeakyRelu": lambda x, *, alpha=0.01: te.select(x < 0, x * alpha, x),
    "Selu": lambda x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: (
        te.select(x < 0, (te.exp(x) - 1.0) * alpha, x) * gamma
    ),
    "ThresholdedRelu": lambda x, *, alpha=1.0: te.select(x > alpha, x, te.const(0, x.dtype)),
}
"""With the defaults of their attributes."""


def _attributed(name: str, function: Callable[..., Any]) -> None:
    element = _single(function)

    @operator(name, attrs_of=function)
    def compute(x: TensorLike, **attrs: float) -> Any:
        return pointwise(name.lower(), lambda e: element(e, **attrs), x)


for _name, _function in ATTRIBUTED.items():
    _attributed(_name, _function)


@operator("IsInf")
def is_inf(x: TensorLike, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    """Whether an element is infinite."""

    def element(e: Expr) -> Expr:
        found: Any = te.const(False, "bool")
        if detect_positive:
            found = te.any(found, e == inf)
        return te.any(found, e == -inf) if detect_negative else found

    return pointwise("isinf", element, x)


@operator("Gelu")
def gelu(x: TensorLike, *, approximate: str = "none") -> Any:
    """x times the normal distribution's integral up to x; "tanh" approximates it."""

    def element(e: Expr) -> Expr:
        if approximate == "tanh":
            inner = (e + e * e * e * 0.044715) * 0.7978845608028654
            return e * 0.5 * (te.tanh(inner) + 1.0)
        return e * 0.5 * (te.erf(e * 0.5**0.5) + 1.0)

    return pointwise("gelu", _single(element), x)
