"""Convolutions and pooling on one image, channels last."""

from __future__ import annotations

from collections.abc import Sequence

from autosched import te
from autosched.errors import WorkloadError
from autosched.ops.registry import operator, out_extent, require, wider
from autosched.te import Tensor
from autosched.tir.expr import Expr

AXES = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}
"""Names of the spatial axes by their number."""


def padded(data: Tensor, pad: int, value: Expr, channels: Sequence[str] = ("c",)) -> Tensor:
    """`data` with `pad` elements of `value` on both sides of all axes but the last, `channels`."""
    if pad == 0:
        return data
    rank = len(data.shape) - len(channels)
    spatial, deep = data.shape[:rank], data.shape[rank:]

    def element(*at: Expr) -> Expr:
        where, c = at[:rank], at[rank:]
        inside = [
            bound
            for x, extent in zip(where, spatial, strict=True)
            for bound in (x >= pad, x < extent + pad)
        ]
        return te.if_then_else(te.all(*inside), data(*(x - pad for x in where), *c), value)

    names = (*AXES[rank], *channels)
    shape = (*(n + 2 * pad for n in spatial), *deep)
    result: Tensor = te.compute(shape, element, name="pad", varargs_names=names)
    return result


def convolution(
    name: str,
    data: Tensor,
    weight: Tensor,
    stride: int,
    pad: int,
    dilation: int = 1,
    groups: int = 1,
    total: str | None = None,
) -> Tensor:
    """Convolution of data (spatial…, CI) with weight (window…, CI / groups, CO): (positions…, CO),
    with sums of dtype `total`, or that of the data.

    Output channel co belongs to group co // (CO / groups), which sees that group's CI / groups
    input channels. The padding is a stage of its own, zeros. The layout of `weight` is free.
    """
    *spatial, _ = data.shape
    *window, depth, channels = weight.shape
    labels = AXES[len(spatial)]
    positions = tuple(
        out_extent(name, label, int(n), (int(k) - 1) * dilation + 1, stride, pad)
        for label, n, k in zip(labels, spatial, window, strict=True)
    )
    source = padded(data, pad, te.const(0, data.dtype))
    r = [te.reduce_axis((0, k), name=f"r{x}") for x, k in zip(labels, window, strict=True)]
    rc = te.reduce_axis((0, depth), name="rc")

    def element(*at: Expr) -> Expr:
        *where, co = at
        ci = rc if groups == 1 else co // (channels // groups) * depth + rc
        place = [x * stride + k * dilation for x, k in zip(where, r, strict=True)]
        pair = source(*place, ci), weight(*r, rc, co)
        return te.sum(wider(pair[0], total) * wider(pair[1], total), axis=[*r, rc])

    result: Tensor = te.compute(
        (*positions, channels),
        element,
        name=name,
        attrs={"layout_free_placeholders": [weight]},
        varargs_names=(*labels, "co"),
    )
    return result


def _inputs(
    spatial: Sequence[int], ci: int, co: int, k: int, dtype: str, groups: int = 1
) -> tuple[Tensor, Tensor]:
    data = te.placeholder((*spatial, ci), name="data", dtype=dtype)
    window = (k,) * len(spatial)
    weight = te.placeholder((*window, ci // groups, co), name="weight", dtype=dtype)
    return data, weight


def _require_groups(name: str, ci: int, co: int, groups: int) -> None:
    for argument, channels in (("CI", ci), ("CO", co)):
        if channels % groups:
            raise WorkloadError(
                f"{argument} of {name} is {channels}, which {groups} groups do not divide"
            )


@operator
def conv1d(
    L: int, CI: int, CO: int, K: int, S: int, P: int, dtype: str = "float32"
) -> list[Tensor]:
    """Convolution along one axis; data (L, CI), weight (K, CI, CO), stride S, padding P."""
    require("conv1d", 1, L=L, CI=CI, CO=CO, K=K, S=S)
    require("conv1d", 0, P=P)
    data, weight = _inputs((L,), CI, CO, K, dtype)
    return [data, weight, convolution("conv1d", data, weight, S, P)]


@operator
def conv2d(
    H: int,
    W: int,
    CI: int,
    CO: int,
    K: int,
    S: int,
    P: int,
    D: int = 1,
    G: int = 1,
    dtype: str = "float32",
) -> list[Tensor]:
    """Convolution; data (H, W, CI), weight (K, K, CI / G, CO), stride S, padding P, dilation D and
    G groups; the result is (HO, WO, CO) with HO = (H + 2 P - (K - 1) D - 1) // S + 1."""
    data, weight = conv2d_inputs("conv2d", H, W, CI, CO, K, S, P, D, G, dtype)
    return [data, weight, convolution("conv2d", data, weight, S, P, D, G)]


@operator
def conv2d_bias_relu(
    H: int,
    W: int,
    CI: int,
    CO: int,
    K: int,
    S: int,
    P: int,
    D: int = 1,
    G: int = 1,
    dtype: str = "float32",
) -> list[Tensor]:
    """max(conv2d(data, weight) + bias, 0), as `conv2d` with bias (CO,)."""
    data, weight = conv2d_inputs("conv2d_bias_relu", H, W, CI, CO, K, S, P, D, G, dtype)
    bias = te.placeholder((CO,), name="bias", dtype=dtype)
    conv = convolution("conv2d", data, weight, S, P, D, G)
    out = te.compute(conv.shape, lambda y, x, co: te.max(conv[y, x, co] + bias[co], 0), name="relu")
    return [data, weight, bias, out]


@operator
def conv2d_bn_relu(
    H: int,
    W: int,
    CI: int,
    CO: int,
    K: int,
    S: int,
    P: int,
    D: int = 1,
    G: int = 1,
    dtype: str = "float32",
) -> list[Tensor]:
    """max((conv2d(data, weight) + bias) * bn_scale + bn_offset, 0), as `conv2d`; each (CO,)."""
    data, weight = conv2d_inputs("conv2d_bn_relu", H, W, CI, CO, K, S, P, D, G, dtype)
    bias, scale, offset = (
        te.placeholder((CO,), name=n, dtype=dtype) for n in ("bias", "bn_scale", "bn_offset")
    )
    conv = convolution("conv2d", data, weight, S, P, D, G)
    shape = conv.shape
    biased = te.compute(shape, lambda y, x, co: conv[y, x, co] + bias[co], name="bias_add")
    scaled = te.compute(shape, lambda y, x, co: biased[y, x, co] * scale[co], name="bn_mul")
    moved = te.compute(shape, lambda y, x, co: scaled[y, x, co] + offset[co], name="bn_add")
    out = te.compute(shape, lambda y, x, co: te.max(moved[y, x, co], 0), name="relu")
    return [data, weight, bias, scale, offset, out]


def conv2d_inputs(
    name: str,
    H: int,
    W: int,
    CI: int,
    CO: int,
    K: int,
    S: int,
    P: int,
    D: int,
    G: int,
    dtype: str,
) -> tuple[Tensor, Tensor]:
    """data (H, W, CI) and weight (K, K, CI / G, CO). Raises WorkloadError for what is none."""
    require(name, 1, H=H, W=W, CI=CI, CO=CO, K=K, S=S, D=D, G=G)
    require(name, 0, P=P)
    _require_groups(name, CI, CO, G)
    return _inputs((H, W), CI, CO, K, dtype, G)


@operator
def conv3d(
    D: int,
    H: int,
    W: int,
    CI: int,
    CO: int,
    K: int,
    S: int,
    P: int,
    dtype: str = "float32",
) -> list[Tensor]:
    """Convolution in three dimensions; data (D, H, W, CI), weight (K, K, K, CI, CO)."""
    require("conv3d", 1, D=D, H=H, W=W, CI=CI, CO=CO, K=K, S=S)
    require("conv3d", 0, P=P)
    data, weight = _inputs((D, H, W), CI, CO, K, dtype)
    return [data, weight, convolution("conv3d", data, weight, S, P)]


@operator
def depthwise_conv2d(
    H: int, W: int, C: int, K: int, S: int, P: int, dtype: str = "float32"
) -> list[Tensor]:
    """Convolution of each channel by itself; data (H, W, C), weight (K, K, C)."""
    require("depthwise_conv2d", 1, H=H, W=W, C=C, K=K, S=S)
    require("depthwise_conv2d", 0, P=P)
    data = te.placeholder((H, W, C), name="data", dtype=dtype)
    weight = te.placeholder((K, K, C), name="weight", dtype=dtype)
    shape = _window_shape("depthwise_conv2d", H, W, C, K, S, P)
    source = padded(data, P, te.const(0, dtype))
    ry = te.reduce_axis((0, K), name="ry")
    rx = te.reduce_axis((0, K), name="rx")
    out = te.compute(
        shape,
        lambda y, x, c: te.sum(
            source[y * S + ry, x * S + rx, c] * weight[ry, rx, c], axis=[ry, rx]
        ),
        name="depthwise_conv2d",
        attrs={"layout_free_placeholders": [weight]},
    )
    return [data, weight, out]


@operator
def conv2d_capsule(
    H: int,
    W: int,
    CI: int,
    CO: int,
    K: int,
    S: int,
    P: int,
    CAP: int,
    dtype: str = "float32",
) -> list[Tensor]:
    """Convolution of images of matrices, which are multiplied instead of numbers (Hinton et al.,
    Matrix capsules with EM routing, 2018).

    data (H, W, CAP, CAP, CI), weight (K, K, CAP, CAP, CI, CO), out (HO, WO, CAP, CAP, CO):
    out[y, x, i, j, co] = sum of data[y S + ry - P, x S + rx - P, i, k, ci] * weight[ry, rx, k, j,
    ci, co]. The layout of `weight` is free.
    """
    name = "conv2d_capsule"
    require(name, 1, H=H, W=W, CI=CI, CO=CO, K=K, S=S, CAP=CAP)
    require(name, 0, P=P)
    data = te.placeholder((H, W, CAP, CAP, CI), name="data", dtype=dtype)
    weight = te.placeholder((K, K, CAP, CAP, CI, CO), name="weight", dtype=dtype)
    HO, WO, _ = _window_shape(name, H, W, CO, K, S, P)
    source = padded(data, P, te.const(0, dtype), ("i", "k", "c"))
    ry = te.reduce_axis((0, K), name="ry")
    rx = te.reduce_axis((0, K), name="rx")
    rk = te.reduce_axis((0, CAP), name="rk")
    rc = te.reduce_axis((0, CI), name="rc")
    out = te.compute(
        (HO, WO, CAP, CAP, CO),
        lambda y, x, i, j, co: te.sum(
            source[y * S + ry, x * S + rx, i, rk, rc] * weight[ry, rx, rk, j, rc, co],
            axis=[ry, rx, rk, rc],
        ),
        name=name,
        attrs={"layout_free_placeholders": [weight]},
    )
    return [data, weight, out]


@operator
def max_pool2d(
    H: int, W: int, C: int, K: int, S: int, P: int, dtype: str = "float32"
) -> list[Tensor]:
    """Largest element of each K by K window; data (H, W, C). Padding never wins."""
    require("max_pool2d", 1, H=H, W=W, C=C, K=K, S=S)
    require("max_pool2d", 0, P=P)
    data = te.placeholder((H, W, C), name="data", dtype=dtype)
    shape = _window_shape("max_pool2d", H, W, C, K, S, P)
    source = padded(data, P, te.min_value(dtype))
    ry = te.reduce_axis((0, K), name="ry")
    rx = te.reduce_axis((0, K), name="rx")
    out = te.compute(
        shape,
        lambda y, x, c: te.max(source[y * S + ry, x * S + rx, c], axis=[ry, rx]),
        name="max_pool2d",
    )
    return [data, out]


def _window_shape(
    name: str, H: int, W: int, C: int, K: int, S: int, P: int
) -> tuple[int, int, int]:
    return out_extent(name, "H", H, K, S, P), out_extent(name, "W", W, K, S, P), C
