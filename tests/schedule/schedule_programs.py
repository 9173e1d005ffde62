"""Small programs that the tests of schedules share."""

from __future__ import annotations

from typing import Any

from autosched import te
from autosched.schedule import Decision, Schedule
from autosched.tir.nodes import PrimFunc


def add_one(n: int = 16, dtype: str = "float32") -> PrimFunc:
    """B = A + 1; C = B * 2."""
    a = te.placeholder((n,), name="A", dtype=dtype)
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    c = te.compute((n,), lambda i: b[i] * 2, name="C")
    return te.create_prim_func([a, c])


def matmul(n: int = 16, m: int = 16, k: int = 16, dtype: str = "float32") -> PrimFunc:
    """C = A @ B."""
    a = te.placeholder((n, k), name="A", dtype=dtype)
    b = te.placeholder((k, m), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, c])


def matmul_add(n: int = 16, m: int = 16, k: int = 16, dtype: str = "float32") -> PrimFunc:
    """out = A @ B + C."""
    a = te.placeholder((n, k), name="A", dtype=dtype)
    b = te.placeholder((k, m), name="B", dtype=dtype)
    c = te.placeholder((n, m), name="C", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    mm = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="matmul")
    out = te.compute((n, m), lambda i, j: mm[i, j] + c[i, j], name="out")
    return te.create_prim_func([a, b, c, out])


def grouped(n: int = 5, groups: int = 2, m: int = 6, k: int = 4) -> PrimFunc:
    """C[:, j] = A[:, the columns of j's group] @ B, with consumer C + 1."""
    each = m // groups
    a = te.placeholder((n, groups * k), name="A")
    b = te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, j // each * k + r] * b[r, j], axis=r), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] + 1, name="D")
    return te.create_prim_func([a, b, d])


def row_sum(n: int = 8, m: int = 16, dtype: str = "float32") -> PrimFunc:
    """S = sum(A, axis=1)."""
    a = te.placeholder((n, m), name="A", dtype=dtype)
    k = te.reduce_axis((0, m), name="k")
    s = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="S")
    return te.create_prim_func([a, s])


def argmax(n: int = 5, m: int = 12) -> PrimFunc:
    """(index, value) of the largest element of each row."""
    a = te.placeholder((n, m), name="A", dtype="float32")
    k = te.reduce_axis((0, m), name="k")
    reducer = te.comm_reducer(
        lambda x, y: (
            te.select(x[1] >= y[1], x[0], y[0]),
            te.select(x[1] >= y[1], x[1], y[1]),
        ),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    best = te.compute((n,), lambda i: reducer((k, a[i, k]), axis=k), name="best")
    return te.create_prim_func([a, *best])


def softmax(n: int = 6, m: int = 20, dtype: str = "float32") -> PrimFunc:
    """Softmax of the rows, in four stages."""
    a = te.placeholder((n, m), name="A", dtype=dtype)
    k, r = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="r")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, r], axis=r), name="total")
    out = te.compute((n, m), lambda i, j: e[i, j] / total[i], name="out")
    return te.create_prim_func([a, out])


def padded_conv(h: int = 9, c: int = 3, f: int = 5, dtype: str = "float32") -> PrimFunc:
    """3-wide convolution over one dimension with padding 1, then relu."""
    x = te.placeholder((h, c), name="X", dtype=dtype)
    w = te.placeholder((3, c, f), name="W", dtype=dtype)
    pad = te.compute(
        (h + 2, c),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < h + 1), x[i - 1, j], te.const(0.0, dtype)),
        name="pad",
    )
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, c), name="q")
    conv = te.compute(
        (h, f), lambda i, j: te.sum(pad[i + r, q] * w[r, q, j], axis=[r, q]), name="conv"
    )
    relu = te.compute(
        (h, f),
        lambda i, j: te.select(conv[i, j] > 0, conv[i, j], te.const(0.0, dtype)),
        name="relu",
    )
    return te.create_prim_func([x, w, relu])


def windows(n: int = 5, window: int = 3, step: int = 2) -> PrimFunc:
    """C[i] = sum of A[i * step + k] * B[k]; D = C + 1."""
    a = te.placeholder(((n - 1) * step + window,), name="A")
    b = te.placeholder((window,), name="B")
    k = te.reduce_axis((0, window), name="k")
    c = te.compute((n,), lambda i: te.sum(a[i * step + k] * b[k], axis=k), name="C")
    return te.create_prim_func([a, b, te.compute((n,), lambda i: c[i] + 1.0, name="D")])


def reversed_rows(n: int = 6) -> PrimFunc:
    """C[i] = A[n - 1 - i] * 2; D = C + 1."""
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[n - 1 - i] * 2.0, name="C")
    return te.create_prim_func([a, te.compute((n,), lambda i: c[i] + 1.0, name="D")])


def padded_inside() -> PrimFunc:
    """Windows over a vector, padding written inside the sum."""
    a, w = te.placeholder((8,), name="A"), te.placeholder((3,), name="W")
    k = te.reduce_axis((0, 3), name="k")

    def term(i: te.IterVar) -> Any:
        inside = te.all(i + k >= 1, i + k < 9)
        return te.if_then_else(inside, a[i + k - 1], 0.0) * w[k]

    return te.create_prim_func(
        [a, w, te.compute((8,), lambda i: te.sum(term(i), axis=k), name="C")]
    )


MATMUL_DECISIONS = ("i1", "i2", "i3", "j1", "j2", "j3", "k1")


def outer_product() -> PrimFunc:
    """P = A + 1; O[i, j] = P[i] * P[j]."""
    a = te.placeholder((16,), name="A")
    p = te.compute((16,), lambda i: a[i] + 1, name="P")
    o = te.compute((16, 16), lambda i, j: p[i] * p[j], name="O")
    return te.create_prim_func([a, o])


def squared() -> PrimFunc:
    """P = A @ B; Q = P @ P: every row of Q reads all of P."""
    a, b = (te.placeholder((4, 4), name=name) for name in "AB")
    k, q = (te.reduce_axis((0, 4), name=name) for name in "kq")
    p = te.compute((4, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="P")
    c = te.compute((4, 4), lambda i, j: te.sum(p[i, q] * p[q, j], axis=q), name="Q")
    return te.create_prim_func([a, b, c])


def padded_after() -> PrimFunc:
    """B = A + 1; P = B with two zeros behind it."""
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1, name="B")
    p = te.compute(
        (18,), lambda i: te.if_then_else(i < 16, b[i], te.const(0.0, "float32")), name="P"
    )
    return te.create_prim_func([a, p])


def tile_matmul(sch: Schedule, decide: Any = Decision) -> None:
    """The sketch of `matmul_add`: three levels of tiles, B packed, the addition fused."""
    b, o = sch.get_block("matmul"), sch.get_block("out")
    i, j, k = sch.get_loops(b)
    i0, i1, i2, i3 = sch.split(i, [None, decide("i1"), decide("i2"), decide("i3")])
    j0, j1, j2, j3 = sch.split(j, [None, decide("j1"), decide("j2"), decide("j3")])
    k0, k1 = sch.split(k, [None, decide("k1")])
    sch.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    packed = sch.cache_read(b, "B", "global", [[1, decide("j3")], 0, [1, 1, decide("j3")]])
    sch.compute_at(packed, j0)
    sch.reverse_compute_at(o, j1)
    sch.parallel(i0)
    sch.parallel(j0)
    sch.unroll(i3)
    sch.vectorize(j3)
    sch.vectorize(sch.get_loops(o)[-1])
    sch.annotate(o, "streaming", True)
