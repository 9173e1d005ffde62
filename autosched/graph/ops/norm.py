"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.reduce import REDUCTIONS, Reduction, best_index, reduced
from autosched.graph.ops.registry import Operator, add, operator
from autosched.graph.ops.tensors import (
    TensorLike,
    broadcast,
    count,
    in_wider,
    normal_axis,
    rounded,
    stage,
    widened,
)


def _at(indices: Sequence[Any], over: Sequence[int]) -> list[Any]:
    return [0 if d in over else i for d, i in enumerate(indices)]


NOTHING = {"float32": -80.0, "float64": -700.0}
"""Where exp of a distance to the row's largest element counts as 0 in a softmax. Its quotient by
the row's sum may be subnormal from here on, and an operation on a subnormal number takes Intel's
processors a hundred times as long."""


def _softmax(name: str, end: Callable[[Any, Any, Any], Any]) -> None:
    def compute(x: TensorLike, *, axis: int = -1) -> Any:
        over = (normal_axis(axis, len(x.shape)),)
        top = reduced(x, over, True, Reduction(te.max), "top")

        def exp(*at: Any) -> Any:
            distance = x(*at) - top(*_at(at, over))
            if x.dtype not in NOTHING:
                return te.exp(distance)
            return te.select(distance < NOTHING[x.dtype], 0.0, te.exp(distance))

        moved = stage(x.shape, exp, "exp")
        total = reduced(moved, over, True, Reduction(), "total")

        def element(*at: Any) -> Any:
            row = _at(at, over)
            return end(moved(*at), x(*at) - top(*row), total(*row))

        return stage(x.shape, element, name.lower())

    add(Operator(name, in_wider(compute)))


# One division a row in place of one an element, for an error of 1.5 ulp in place of 0.5.
_softmax("Softmax", lambda e, moved, total: e * (1.0 / total))
_softmax("LogSoftmax", lambda e, moved, total: moved - te.log(total))


@operator("Hardmax")
def hardmax(x: TensorLike, *, axis: int = -1) -> Any:
    """1 at the first of the largest elements along an axis, else 0."""
    along = normal_axis(axis, len(x.shape))
    best = best_index("argmax", lambda b, a: b > a, te.min_value)(x, axis=along)

    def element(*at: Any) -> Any:
        return te.cast(best(*_at(at, (along,))) == at[along], x.dtype)

    return stage(x.shape, element, "hardmax")


@operator("LpNormalization")
@in_wider
def lp_normalization(x: TensorLike, *, axis: int = -1, p: int = 2) -> Any:
    """x over its norm along an axis; 0 where the norm is 0."""
    over = (normal_axis(axis, len(x.shape)),)
    if p not in (1, 2):
        raise Unsupported(f"attribute p is {p}; expected 1 or 2")
    rule = REDUCTIONS[f"ReduceL{int(p)}"]
    norm = reduced(x, over, True, rule, "norm")

    def element(*at: Any) -> Any:
        n = norm(*_at(at, over))
        zero = te.const(0, x.dtype)
        return te.select(n == zero, zero, x(*at) / te.select(n == zero, te.const(1, x.dtype), n))

    return stage(x.shape, element, "lp_norm")


@operator("LRN")
@in_wider
def lrn(
    x: TensorLike, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Any:
    """x over a power of the mean square of `size` channels around."""
    channels = x.shape[1]
    before = (size - 1) // 2

    def total(n: Any, c: Any, *at: Any) -> Any:
        k = te.reduce_axis((0, size), name="k")
        i = c + k - before
        inside = te.all(i >= 0, i < channels)
        e = te.if_then_else(inside, x(n, i, *at), te.const(0, x.dtype))
        return te.sum(e * e, axis=k)

    squares = stage(x.shape, total, "squares")

    def element(*at: Any) -> Any:
        return x(*at) / te.power(squares(*at) * (alpha / size) + bias, te.const(beta, x.dtype))

    return stage(x.shape, element, "lrn")


@operator("BatchNormalization", spatial=True)
def batch_normalization(
    x: TensorLike,
    scale: TensorLike,
    offset: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, by channel."""
    if not spatial:
        raise Unsupported("attribute spatial is 0; only statistics by channel are supported")
    kind, kinds = x.dtype, (mean.dtype, variance.dtype)
    x, scale, offset, mean, variance = map(widened, (x, scale, offset, mean, variance))
    means: tuple[Any, ...] = ()
    if training_mode:
        over = (0, *range(2, len(x.shape)))
        n = count([x.shape[d] for d in over])
        batch = reduced(x, over, False, REDUCTIONS["ReduceMean"], "batch_mean")
        centred = stage(x.shape, lambda n, c, *at: x(n, c, *at) - batch(c), "centred")
        squares = reduced(centred, over, False, REDUCTIONS["ReduceSumSquare"], "squares")
        spread = stage(squares.shape, lambda c: squares(c) * (1 / n), "batch_variance")
        mixed = (_mixed(old, new, momentum) for old, new in ((mean, batch), (variance, spread)))
        means = tuple(map(rounded, mixed, kinds))
        mean, variance = batch, spread

    def element(n: Any, *at: Any) -> Any:
        c = at[0] if at else 0
        factor = scale(c) * te.rsqrt(variance(c) + te.const(epsilon, variance.dtype))
        return (x(n, *at) - mean(c)) * factor + offset(c)

    out = rounded(stage(x.shape, element, "batch_norm"), kind)
    return (out, *means) if means else out


def _mixed(old: TensorLike, new: TensorLike, momentum: float) -> Any:
    return stage(old.shape, lambda c: old(c) * momentum + new(c) * (1 - momentum), "running")


def normalized(x: TensorLike, over: Sequence[int], epsilon: float, name: str) -> Any:
    """(x - mean) / sqrt(variance + epsilon), both taken over some axes."""
    return standardized(x, over, epsilon, name)[0]


def standardized(
    x: TensorLike, over: Sequence[int], epsilon: float, name: str
) -> tuple[Any, Any, Any]:
    """The same, the mean, and the factor 1 / sqrt(variance + epsilon)."""
    n = count([x.shape[d] for d in over])
    total = reduced(x, over, True, Reduction(), "sum")
    mean = stage(total.shape, lambda *at: total(*at) * (1 / n), "mean")
    centred = stage(x.shape, lambda *at: x(*at) - mean(*_at(at, over)), "centred")
    squares = reduced(centred, over, True, Reduction(before=lambda e: e * e), "squares")
    factor = stage(
        squares.shape,
        lambda *at: te.rsqrt(squares(*at) * (1 / n) + te.const(epsilon, x.dtype)),
        "factor",
    )
    out = stage(x.shape, lambda *at: centred(*at) * factor(*_at(at, over)), name)
    return out, mean, factor


FLOAT16 = 10
"""ONNX's number of the element type."""


@operator("LayerNormalization")
def layer_normalization(
    x: TensorLike,
    scale: TensorLike,
    offset: TensorLike | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Any:
    """Normalised over the axes from `axis` on; of float16 the mean and the factor are float32, as
    they are computed, but where `stash_type` asks for float16."""
    over = tuple(range(normal_axis(axis, len(x.shape)), len(x.shape)))
    kind = x.dtype
    x, scale = widened(x), widened(scale)
    offset = None if offset is None else widened(offset)
    out, mean, factor = standardized(x, over, epsilon, "normalized")
    by = broadcast(scale, x.shape)
    plus = None if offset is None else broadcast(offset, x.shape)

    def element(*at: Any) -> Any:
        e = out(*at) * by(*at)
        return e if plus is None else e + plus(*at)

    statistics = kind if stash_type == FLOAT16 else mean.dtype
    made = rounded(stage(x.shape, element, "layer_norm"), kind)
    return made, rounded(mean, statistics), rounded(factor, statistics)


@operator("RMSNormalization")
@in_wider
def rms_normalization(
    x: TensorLike, scale: TensorLike, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` on."""
    over = tuple(range(normal_axis(axis, len(x.shape)), len(x.shape)))
    n = count([x.shape[d] for d in over])
    squares = reduced(x, over, True, Reduction(before=lambda e: e * e), "squares")
    by = broadcast(scale, x.shape)

    def element(*at: Any) -> Any:
        mean = squares(*_at(at, over)) * (1 / n) + te.const(epsilon, x.dtype)
        return x(*at) * te.rsqrt(mean) * by(*at)

    return stage(x.shape, element, "rms_norm")


@operator("InstanceNormalization")
@in_wider
def instance_normalization(
    x: TensorLike, scale: TensorLike, offset: TensorLike, *, epsilon: float = 1e-5
) -> Any:
    """Normalised over the spatial axes, by channel of each image."""
    out = normalized(x, tuple(range(2, len(x.shape))), epsilon, "normalized")
    return stage(
        x.shape,
        lambda n, c, *at: out(n, c, *at) * scale(c) + offset(c),
        "instance_norm",
    )


@operator("GroupNormalization", spatial=True)
@in_wider
def group_normalization(
    x: TensorLike,
    scale: TensorLike,
    offset: TensorLike,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """Normalised over groups of channels with their positions; scaled by channel.

    Sums are taken by channel, then by group, so that the inner loops run over memory as it lies,
    whichever axis is last.
    """
    channels = x.shape[1]
    each = channels // num_groups
    per_group = scale.shape[0] == num_groups and num_groups != channels
    over = tuple(range(2, len(x.shape)))
    n = each * count([x.shape[d] for d in over])

    def by_group(sums: Any, name: str) -> Any:
        """For each channel the sum over its group."""

        def element(*at: Any) -> Any:
            k = te.reduce_axis((0, each), name="k")
            image, channel, *rest = at
            return te.sum(sums(image, channel // each * each + k, *rest), axis=k)

        return stage(sums.shape, element, name) if each > 1 else sums

    sums = by_group(reduced(x, over, True, Reduction(), "sum"), "sums")
    centred = stage(x.shape, lambda *at: x(*at) - sums(*_at(at, over)) * (1 / n), "centred")
    squares = by_group(
        reduced(centred, over, True, Reduction(before=lambda e: e * e), "square"), "squares"
    )
    factor = stage(
        squares.shape,
        lambda *at: te.rsqrt(squares(*at) * (1 / n) + te.const(epsilon, x.dtype)),
        "factor",
    )

    def scaled(*at: Any) -> Any:
        by = at[1] // each if per_group else at[1]
        return centred(*at) * factor(*_at(at, over)) * scale(by) + offset(by)

    return stage(x.shape, scaled, "group_norm")
