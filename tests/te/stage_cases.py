"""Schedules in the stage view as users of that style write them, each with its NumPy meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched import te

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A schedule, its parameters (outputs last) and what they hold, given the inputs."""

    schedule: te.StageSchedule
    args: Sequence[te.Tensor]
    meaning: Callable[..., Array | tuple[Array, ...]]


def _matmul(n: int, k: int, m: int) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.IterVar]:
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda x, y: te.sum(a[x, r] * b[r, y], axis=r), name="C")
    return a, b, c, r


def blocked_matmul() -> Case:
    """Tiles of the output, the reduction cut and moved outside the tile."""
    a, b, c, _ = _matmul(32, 24, 48)
    s = te.create_schedule(c.op)
    xo, yo, xi, yi = s[c].tile(c.op.axis[0], c.op.axis[1], x_factor=8, y_factor=16)
    (k,) = s[c].op.reduce_axis
    ko, ki = s[c].split(k, factor=4)
    s[c].reorder(xo, yo, ko, xi, ki, yi)
    s[c].vectorize(yi)
    return Case(s, [a, b, c], np.matmul)


def uneven_matmul() -> Case:
    """No factor divides, not even that of the vectors; a fused parallel loop."""
    a, b, c, k = _matmul(13, 17, 19)
    s = te.create_schedule(c.op)
    xo, yo, xi, yi = s[c].tile(*s[c].op.axis, 4, 8)
    ko, ki = s[c].split(k, nparts=3)
    s[c].reorder(xo, yo, ko, ki, xi, yi)
    s[c].unroll(xi)
    s[c].vectorize(yi)
    s[c].parallel(s[c].fuse(xo, yo))
    return Case(s, [a, b, c], np.matmul)


def packed_matmul() -> Case:
    """A packed operand as a computation of its own, and a block of the output kept apart."""
    n, m, k, block = 32, 40, 24, 8
    a = te.placeholder((n, k), name="A")
    b = te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    packed = te.compute(
        (-(-m // block), k, block), lambda big, z, little: b[z, big * block + little], name="packed"
    )
    c = te.compute(
        (n, m),
        lambda x, y: te.sum(
            a[x, r] * packed[te.floordiv(y, block), r, te.floormod(y, block)], axis=r
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    cache = s.cache_write(c, "global")
    xo, yo, _xi, yi = s[c].tile(c.op.axis[0], c.op.axis[1], block, block)
    s[cache].compute_at(s[c], yo)
    xc, yc = s[cache].op.axis
    ko, ki = s[cache].split(s[cache].op.reduce_axis[0], factor=4)
    s[cache].reorder(ko, xc, ki, yc)
    s[cache].unroll(ki)
    s[cache].vectorize(yc)
    s[c].vectorize(yi)
    s[c].parallel(xo)
    z, _, w = s[packed].op.axis
    s[packed].vectorize(w)
    s[packed].parallel(z)
    return Case(s, [a, b, c], np.matmul)


def staged_operands() -> Case:
    """Copies of both operands inside the loops of the block that reads them."""
    a, b, c, k = _matmul(16, 20, 24)
    s = te.create_schedule(c.op)
    cl = s.cache_write(c, "local")
    aa = s.cache_read(a, "global", [cl])
    bb = s.cache_read(b, "global", [cl])
    al = s.cache_read(aa, "local", [cl])
    xo, yo, _, _ = s[c].tile(*c.op.axis, 8, 6)
    s[cl].compute_at(s[c], yo)
    # The user's own reduction axis is that of the stage that computes.
    ko, ki = s[cl].split(k, factor=5)
    x, y = s[cl].op.axis
    s[cl].reorder(ko, ki, x, y)
    s[al].compute_at(s[cl], ki)
    s[aa].compute_at(s[cl], ko)
    s[bb].compute_at(s[cl], ko)
    s[bb].vectorize(s[bb].op.axis[1])
    s[c].parallel(xo)
    return Case(s, [a, b, c], np.matmul)


def padded_conv() -> Case:
    """Padding inlined, the convolution inside tiles of bias and relu, its input copied by rows."""
    ci, co, size, kernel = 4, 6, 9, 3
    data = te.placeholder((ci, size, size), name="data")
    weight = te.placeholder((co, ci, kernel, kernel), name="weight")
    bias = te.placeholder((co,), name="bias")
    pad = te.compute(
        (ci, size + 2, size + 2),
        lambda c, y, x: te.if_then_else(
            te.all(y >= 1, y < size + 1, x >= 1, x < size + 1), data[c, y - 1, x - 1], 0.0
        ),
        name="pad",
    )
    rc = te.reduce_axis((0, ci), name="rc")
    ry = te.reduce_axis((0, kernel), name="ry")
    rx = te.reduce_axis((0, kernel), name="rx")
    conv = te.compute(
        (co, size, size),
        lambda f, y, x: te.sum(pad[rc, y + ry, x + rx] * weight[f, rc, ry, rx], axis=[rc, ry, rx]),
        name="conv",
    )
    out = te.compute(
        (co, size, size), lambda f, y, x: te.max(conv[f, y, x] + bias[f], 0.0), name="out"
    )
    s = te.create_schedule(out.op)
    s[pad].compute_inline()
    rows = s.cache_read(pad, "local", [conv])
    f, y, x = s[out].op.axis
    fo, fi = s[out].split(f, factor=4)
    yo, yi = s[out].split(y, nparts=3)
    s[out].reorder(fo, yo, fi, yi, x)
    s[out].vectorize(x)
    s[out].parallel(s[out].fuse(fo, yo))
    s[conv].compute_at(s[out], yi)
    s[conv].reorder(*s[conv].op.reduce_axis, *s[conv].op.axis)
    s[conv].vectorize(s[conv].op.axis[2])
    s[rows].compute_at(s[conv], rc)
    return Case(s, [data, weight, bias, out], _conv_bias_relu)


def _conv_bias_relu(data: Array, weight: Array, bias: Array) -> Array:
    wide = np.pad(data, ((0, 0), (1, 1), (1, 1)))
    n = data.shape[1]
    total = sum(
        np.einsum("oc,cyx->oyx", weight[:, :, r, q], wide[:, r : r + n, q : q + n])
        for r in range(3)
        for q in range(3)
    )
    return np.maximum(total + bias[:, None, None], 0)


def softmax() -> Case:
    """Four stages a row, all inside the loop over rows."""
    n, m = 7, 12
    x = te.placeholder((n, m), name="X")
    k1, k2 = te.reduce_axis((0, m), "k1"), te.reduce_axis((0, m), "k2")
    top = te.compute((n,), lambda i: te.max(x[i, k1], axis=k1), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: e[i, j] / total[i], name="out")
    s = te.create_schedule(out.op)
    i, j = s[out].op.axis
    s[top].compute_at(s[out], i)
    s[e].compute_at(s[out], i)
    s[total].compute_at(s[out], i)
    s[e].vectorize(s[e].op.axis[1])
    s[out].vectorize(s[out].split(j, factor=8)[1])
    s[out].parallel(i)

    def meaning(a: Array) -> Array:
        powers = np.exp(a - a.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    return Case(s, [x, out], meaning)


def factored_sum() -> Case:
    """Partial sums with a tail, computed for each row as vectors."""
    n, m = 10, 43
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    _ko, ki = s[b].split(b.op.reduce_axis[0], factor=8)
    bf = s.rfactor(b, ki, factor_axis=-1)
    i, lane = s[bf].op.axis
    s[bf].compute_at(s[b], s[b].op.axis[0])
    s[bf].reorder(s[bf].op.reduce_axis[0], i, lane)
    s[bf].vectorize(lane)
    s[b].parallel(s[b].op.axis[0])
    return Case(s, [a, b], lambda x: x.sum(1))


def factored_fused_sum() -> Case:
    """Two reduction axes, one not from 0, fused and cut into parallel parts."""
    a = te.placeholder((3, 8, 7), name="A")
    p, q = te.reduce_axis((2, 8), "p"), te.reduce_axis((0, 7), "q")
    b = te.compute((3,), lambda i: te.sum(a[i, p, q], axis=[p, q]), name="B")
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(s[b].fuse(p, q), nparts=4)
    bf = s.rfactor(b, outer)
    s[bf].parallel(s[bf].op.axis[0])
    s[b].unroll(s[b].op.reduce_axis[0])
    return Case(s, [a, b], lambda x: x[:, 2:, :].sum((1, 2)))


def _argmax(n: int, m: int) -> tuple[list[te.Tensor], te.IterVar, Callable[..., Any]]:
    """The place of the largest element of rows, a reducer over pairs: the inputs and outputs, the
    reduction axis and the meaning."""
    idx = te.placeholder((n, m), name="idx", dtype="int64")
    val = te.placeholder((n, m), name="val")

    def combine(x: Any, y: Any) -> Any:
        # Of equal values the first place: without that the order of combination would matter.
        better = te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] < y[0]))
        return te.select(better, x[0], y[0]), te.select(better, x[1], y[1])

    argmax = te.comm_reducer(
        combine, lambda t0, t1: (te.const(2**40, t0), te.min_value(t1)), name="argmax"
    )
    k = te.reduce_axis((0, m), "k")
    where, best = te.compute((n,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")

    def meaning(numbers: Array, values: Array) -> tuple[Array, Array]:
        top = values.max(1)
        return np.where(values == top[:, None], numbers, 2**40).min(1), top

    return [idx, val, where, best], k, meaning


def factored_argmax() -> Case:
    """A reducer over pairs, factored."""
    args, k, meaning = _argmax(5, 24)
    where = args[2]
    s = te.create_schedule(where.op)
    _, ki = s[where].split(k, factor=4)
    parts = s.rfactor(where, ki, 1)
    s[parts[0]].compute_at(s[where], s[where].op.axis[0])
    s[where].parallel(s[where].op.axis[0])
    return Case(s, args, meaning)


def cached_argmax() -> Case:
    """Both outputs of a reducer over pairs, in buffers of their own, tile by tile."""
    args, k, meaning = _argmax(13, 24)
    where, best = args[2:]
    s = te.create_schedule(where.op)
    cached_best, cached_where = s.cache_write([best, where], "local")
    assert (cached_best.value_index, cached_best.dtype) == (1, "float32")
    assert s[cached_best] is s[cached_where]
    outer, inner = s[where].split(s[where].op.axis[0], factor=4)
    s[cached_where].compute_at(s[where], outer)
    s[cached_where].split(k, factor=5)
    s[where].parallel(outer)
    s[where].unroll(inner)
    return Case(s, args, meaning)


def laid_out() -> Case:
    """A stage inside a loop of its reader, and one before it, stored in tiles."""
    n = 12
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, n), lambda i, j: b[j, i] + b[i, j], name="C")
    d = te.compute((n, n), lambda i, j: c[i, j] + 1.0, name="D")
    s = te.create_schedule(d.op)
    outer, _ = s[d].split(d.op.axis[0], factor=6)
    s[c].compute_at(s[d], outer)
    s[c].split(c.op.axis[0], factor=3)
    s[c].vectorize(c.op.axis[1])
    s[c].transform_layout(lambda i, j: (i // 2, j, i % 2))
    s[b].transform_layout(lambda i, j: (i // 4, j // 3, i % 4, j % 3))
    s[b].transform_layout(lambda i, j, ii, jj: (j, i, jj, ii))
    return Case(s, [a, d], lambda x: 2 * (x + x.T) + 1)


def blur() -> Case:
    """Two windows, the first recomputed where tiles of the second overlap; compute_at before the
    split of the producer."""
    n = 23
    a = te.placeholder((n, n), name="A")
    x = te.compute((n, n - 2), lambda i, j: a[i, j] + a[i, j + 1] + a[i, j + 2], name="bx")
    y = te.compute((n - 2, n - 2), lambda i, j: x[i, j] + x[i + 1, j] + x[i + 2, j], name="by")
    s = te.create_schedule(y.op)
    io, jo, ii, ji = s[y].tile(*y.op.axis, 8, 8)
    s[x].compute_at(s[y], jo)
    _, xi = s[x].split(x.op.axis[1], factor=4)
    s[x].vectorize(xi)
    s[y].vectorize(ji)
    s[y].unroll(ii)
    s[y].parallel(io)

    def meaning(image: Array) -> Array:
        rows = image[:, :-2] + image[:, 1:-1] + image[:, 2:]
        return rows[:-2] + rows[1:-1] + rows[2:]

    return Case(s, [a, y], meaning)


def chain() -> Case:
    """Elementwise stages inlined, one kept inside a loop, the loops fused and cut."""
    n, m = 6, 11
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    d = te.compute((n, m), lambda i, j: te.max(c[i, j], b[i, j]), name="D")
    e = te.compute((n, m), lambda i, j: d[i, j] - a[i, j], name="E")
    s = te.create_schedule(e.op)
    s[b].compute_inline()
    s[c].compute_inline()
    outer, inner = s[e].split(s[e].fuse(*e.op.axis), factor=16)
    s[d].compute_at(s[e], outer)
    s[e].parallel(outer)
    s[e].vectorize(inner)
    return Case(s, [a, e], lambda x: np.maximum(x * 2 + 1, x * 2) - x)


def shared_copy() -> Case:
    """Two outputs that read one copy; parameters in another order."""
    n = 9
    a = te.placeholder((n, n), name="A")
    b = te.compute((n, n), lambda i, j: a[j, i] + 1.0, name="B")
    c = te.compute((n, n), lambda i, j: a[i, j] * 3.0, name="C")
    s = te.create_schedule([b.op, c.op])
    copy = s.cache_read(a, "global", [b, c])
    s[copy].parallel(s[copy].op.axis[0])
    _, inner = s[b].split(b.op.axis[1], factor=4)
    s[b].vectorize(inner)
    return Case(s, [a, c, b], lambda x: (x * 3, x.T + 1))


def cached_intermediate() -> Case:
    """A stage that is neither input nor output written and read through copies."""
    n = 12
    a = te.placeholder((n, n), name="A")
    k = te.reduce_axis((0, n), "k")
    b = te.compute((n, n), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k), name="B")
    c = te.compute((n, n), lambda i, j: b[i, j] + b[j, i], name="C")
    s = te.create_schedule(c.op)
    bl = s.cache_write(b, "local")
    bc = s.cache_read(b, "global", c)
    io, _ = s[b].split(b.op.axis[0], factor=5)
    s[bl].compute_at(s[b], io)
    ko, _ = s[bl].split(k, factor=4)
    s[bl].reorder(ko, *s[bl].op.axis)
    s[bc].reorder(s[bc].op.axis[1], s[bc].op.axis[0])
    return Case(s, [a, c], lambda x: x @ x + (x @ x).T)


def depthwise_pool() -> Case:
    """Windows over rows: the first computed inside a loop of the second, strided."""
    h, w, ch = 11, 9, 5
    a = te.placeholder((h, w, ch), name="A")
    f = te.placeholder((3, 3, ch), name="F")
    ry, rx = te.reduce_axis((0, 3), "ry"), te.reduce_axis((0, 3), "rx")
    conv = te.compute(
        (h - 2, w - 2, ch),
        lambda y, x, c: te.sum(a[y + ry, x + rx, c] * f[ry, rx, c], axis=[ry, rx]),
        name="conv",
    )
    py, px = te.reduce_axis((0, 2), "py"), te.reduce_axis((0, 2), "px")
    pool = te.compute(
        ((h - 2) // 2, (w - 2) // 2, ch),
        lambda y, x, c: te.max(conv[2 * y + py, 2 * x + px, c], axis=[py, px]),
        name="pool",
    )
    s = te.create_schedule(pool.op)
    y, x, c = s[pool].op.axis
    s[conv].compute_at(s[pool], x)
    s[conv].reorder(ry, rx, *conv.op.axis)
    s[conv].vectorize(conv.op.axis[2])
    s[pool].reorder(y, x, py, px, c)
    s[pool].vectorize(c)
    s[pool].parallel(y)

    def meaning(image: Array, kernel: Array) -> Array:
        total = sum(
            image[r : r + h - 2, q : q + w - 2] * kernel[r, q] for r in range(3) for q in range(3)
        )
        even = total[: (h - 2) // 2 * 2, : (w - 2) // 2 * 2]
        return even.reshape((h - 2) // 2, 2, (w - 2) // 2, 2, ch).max((1, 3))

    return Case(s, [a, f, pool], meaning)


def all_sum() -> Case:
    """A result of rank 0, its partial sums in parallel."""
    a = te.placeholder((50,), name="A")
    k = te.reduce_axis((0, 50), "k")
    b = te.compute((), lambda: te.sum(a[k], axis=k), name="B")
    s = te.create_schedule(b.op)
    ko, _ki = s[b].split(k, nparts=5)
    bf = s.rfactor(b, ko)
    s[bf].parallel(s[bf].op.axis[0])
    return Case(s, [a, b], lambda x: x.sum())


def example() -> SimpleNamespace:
    """A matrix product of padded rows and a stage after it, with a fresh schedule."""
    a = te.placeholder((8, 12), name="A")
    p = te.compute((8, 12), lambda i, j: a[i, j] + 1.0, name="P")
    k = te.reduce_axis((0, 12), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(p[i, k] * p[j, k], axis=k), name="C")
    d = te.compute((8, 8), lambda x, y: c[x, y] * 2.0, name="D")
    s = te.create_schedule(d.op)
    return SimpleNamespace(a=a, p=p, k=k, c=c, d=d, s=s, args=[a, d])


CASES = (
    blocked_matmul,
    uneven_matmul,
    packed_matmul,
    staged_operands,
    padded_conv,
    softmax,
    factored_sum,
    factored_fused_sum,
    factored_argmax,
    cached_argmax,
    laid_out,
    blur,
    chain,
    shared_copy,
    cached_intermediate,
    depthwise_pool,
    all_sum,
)
