"""Transposed convolution on one image, channels last."""

from __future__ import annotations

from autosched import te
from autosched.errors import WorkloadError
from autosched.ops.registry import operator, require
from autosched.te import Tensor
from autosched.tir.expr import Expr


@operator
def conv2d_transpose(
    H: int, W: int, CI: int, CO: int, K: int, S: int, P: int, dtype: str = "float32"
) -> list[Tensor]:
    """The gradient of a convolution with respect to its data, as a layer that enlarges an image.

    data (H, W, CI), weight (K, K, CI, CO); data[i, j] times weight[r, q] is added to
    out[i S + r - P, j S + q - P], where that exists; out is (HO, WO, CO) with
    HO = (H - 1) S - 2 P + K.

    What reaches out[y, x] are the taps r with r = (y + P) mod S, so the outputs are computed by
    phase: for each of the S x S remainders a plain convolution of stride 1 with ceil(K / S) taps a
    dimension. Nothing in those loops is divided, guarded or multiplied by an inserted zero, which a
    convolution over a dilated image does for all but one in S x S products; the weights are read
    once, in rows of CO. Around them stand cheap stages over the data and the result: padding,
    which also shifts the data of the phases that begin one element later (where S does not divide
    P), and the interleaving of the phases. The other dense form, the product of all data with all
    taps followed by a sum of what overlaps, was as fast on small images and writes K K / (S S)
    times the output.
    Where S does not divide K, missing taps are zeros that a stage adds.
    """
    name = "conv2d_transpose"
    require(name, 1, H=H, W=W, CI=CI, CO=CO, K=K, S=S)
    require(name, 0, P=P)
    HO, WO = _out_extent("H", H, K, S, P), _out_extent("W", W, K, S, P)
    data = te.placeholder((H, W, CI), name="data", dtype=dtype)
    weight = te.placeholder((K, K, CI, CO), name="weight", dtype=dtype)
    taps = -(-K // S)
    rows, columns = -(-HO // S), -(-WO // S)
    zero = te.const(0, dtype)

    def inside(i: Expr, extent: int) -> list[Expr]:
        return [i >= 0, i < extent]

    def shifted(a: Expr, b: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        y, x = i + _first(a, S, P) - (taps - 1), j + _first(b, S, P) - (taps - 1)
        return te.if_then_else(te.all(*inside(y, H), *inside(x, W)), data[y, x, c], zero)

    padded = te.compute((S, S, rows + taps - 1, columns + taps - 1, CI), shifted, name="pad")
    kernel = weight
    if K % S:
        kernel = te.compute(
            (taps * S, taps * S, CI, CO),
            lambda r, q, ci, co: te.if_then_else(te.all(r < K, q < K), weight[r, q, ci, co], zero),
            name="taps",
        )
    ry = te.reduce_axis((0, taps), name="ry")
    rx = te.reduce_axis((0, taps), name="rx")
    rc = te.reduce_axis((0, CI), name="rc")
    phases = te.compute(
        (S, S, rows, columns, CO),
        lambda a, b, y, x, co: te.sum(
            padded[a, b, y - ry + (taps - 1), x - rx + (taps - 1), rc]
            * kernel[a + ry * S, b + rx * S, rc, co],
            axis=[ry, rx, rc],
        ),
        name="phases",
        attrs={"layout_free_placeholders": [weight]} if kernel is weight else None,
    )
    out = te.compute(
        (HO, WO, CO),
        lambda y, x, co: phases[(y + P) % S, (x + P) % S, y // S, x // S, co],
        name=name,
    )
    return [data, weight, out]


def _first(phase: Expr, stride: int, pad: int) -> Expr:
    """The data element that the first tap of a phase's first output reads: ceil((P - phase) / S).

    That output is y = S * first + phase - P, the only one of its phase in [0, S).
    """
    if pad % stride == 0:
        return te.const(pad // stride, "int64")
    return (pad + stride - 1 - phase) // stride


def _out_extent(axis: str, size: int, window: int, stride: int, pad: int) -> int:
    extent = (size - 1) * stride - 2 * pad + window
    if extent < 1:
        raise WorkloadError(
            f"the padding {pad} of conv2d_transpose cuts off all of the "
            f"{(size - 1) * stride + window} elements along {axis}; expected a smaller one"
        )
    return extent
