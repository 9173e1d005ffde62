"""The workloads on which the predecessor's tests count its sketches, with our names of blocks."""

from __future__ import annotations

from autosched import te
from autosched.te import create_prim_func
from autosched.tir.nodes import PrimFunc

LOWEST = -3.4028234663852886e38


def _padded(x: te.Tensor, p: int, fill: float) -> te.Tensor:
    """(N, C, H, W) with `p` rows and columns of `fill` around each image."""
    n, c, h, w = (int(e) for e in x.shape)
    return te.compute(
        (n, c, h + 2 * p, w + 2 * p),
        lambda n, c, i, j: te.if_then_else(
            te.all(i >= p, i < h + p, j >= p, j < w + p),
            x[n, c, i - p, j - p],
            te.const(fill, "float32"),
        ),
        name="pad",
    )


def matmul(n: int, m: int, c: int) -> PrimFunc:
    a, b = te.placeholder((n, c), name="A"), te.placeholder((c, m), name="B")
    k = te.reduce_axis((0, c), name="k")
    attrs = {"layout_free_placeholders": [b]}
    return create_prim_func(
        [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="C", attrs=attrs)]
    )


def double_matmul(n: int) -> PrimFunc:
    a, b, c = (te.placeholder((n, n), name=x) for x in "ABC")
    k, r = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="r")
    d = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="D")
    return create_prim_func(
        [a, b, c, te.compute((n, n), lambda i, j: te.sum(d[i, r] * c[r, j], axis=r), name="E")]
    )


def conv2d_bn_relu(n: int, h: int, ci: int, co: int, k: int, p: int) -> PrimFunc:
    """NCHW, stride 1: bias, scale, offset and max(x, 0) after the convolution."""
    x = te.placeholder((n, ci, h, h), name="data")
    w = te.placeholder((co, ci, k, k), name="kernel")
    bias, scale, offset = (te.placeholder((co,), name=s) for s in ("bias", "scale", "offset"))
    pad = _padded(x, p, 0.0)
    rc, ry, rx = (te.reduce_axis((0, e), name=s) for e, s in ((ci, "rc"), (k, "ry"), (k, "rx")))
    o = h + 2 * p - k + 1
    shape = (n, co, o, o)
    conv = te.compute(
        shape,
        lambda n, f, i, j: te.sum(pad[n, rc, i + ry, j + rx] * w[f, rc, ry, rx], [rc, ry, rx]),
        name="conv",
    )
    a = te.compute(shape, lambda n, f, i, j: conv[n, f, i, j] + bias[f], name="biased")
    b = te.compute(shape, lambda n, f, i, j: a[n, f, i, j] * scale[f], name="scaled")
    c = te.compute(shape, lambda n, f, i, j: b[n, f, i, j] + offset[f], name="shifted")
    zero = te.const(0, "float32")
    relu = te.compute(
        shape,
        lambda n, f, i, j: te.select(c[n, f, i, j] > zero, c[n, f, i, j], zero),
        name="relu",
    )
    return create_prim_func([x, w, bias, scale, offset, relu])


def max_pool2d(n: int, h: int, c: int, p: int) -> PrimFunc:
    x = te.placeholder((n, c, h, h), name="data")
    pad = _padded(x, p, LOWEST)
    ry, rx = te.reduce_axis((0, 2), name="ry"), te.reduce_axis((0, 2), name="rx")
    o = h + 2 * p - 1
    return create_prim_func(
        [
            x,
            te.compute(
                (n, c, o, o),
                lambda n, c, i, j: te.max(pad[n, c, i + ry, j + rx], axis=[ry, rx]),
                name="pool",
            ),
        ]
    )


def row_min(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    return create_prim_func([a, te.compute((n,), lambda i: te.min(a[i, k], axis=k), name="B")])


def softmax(*shape: int) -> PrimFunc:
    """Over the last axis."""
    a = te.placeholder(shape, name="A")
    k, r = (te.reduce_axis((0, shape[-1]), name=s) for s in "kr")
    top = te.compute(shape[:-1], lambda *i: te.max(a[(*i, k)], axis=k), name="top")
    e = te.compute(shape, lambda *i: te.exp(a[i] - top[i[:-1]]), name="exp")
    s = te.compute(shape[:-1], lambda *i: te.sum(e[(*i, r)], axis=r), name="total")
    return create_prim_func([a, te.compute(shape, lambda *i: e[i] / s[i[:-1]], name="softmax")])


def zero_rank(n: int) -> PrimFunc:
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), name="k")
    return create_prim_func([a, te.compute((), lambda: te.sum(a[k], axis=k), name="B")])
