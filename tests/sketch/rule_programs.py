"""Programs that show what the rules of sketches do, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import scan_programs

from autosched import te
from autosched.te import create_prim_func
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of


def column_sum(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, n), name="k")
    return create_prim_func([a, te.compute((m,), lambda j: te.sum(a[k, j], axis=k), name="S")])


def row_norms(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    s = te.compute((n,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="squares")
    return create_prim_func([a, te.compute((n,), lambda i: te.sqrt(s[i]), name="R")])


def scalar_norm(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, m), name="r")
    s = te.compute((), lambda: te.sum(a[k, r] * a[k, r], axis=[k, r]), name="S")
    return create_prim_func([a, te.compute((), lambda: te.sqrt(s[()]), name="R")])


def chain(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: te.exp(a[i, j]), name="B")
    return create_prim_func([a, te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")])


def two_results(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: te.exp(a[i, j]), name="B")
    return create_prim_func([a, b, te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")])


def transposed(n: int, m: int) -> PrimFunc:
    a = te.placeholder((n, m), name="A")
    return create_prim_func([a, te.compute((m, n), lambda i, j: a[j, i] * 2.0, name="T")])


def two_matmuls(a: int, b: int, c: int, d: int) -> PrimFunc:
    x, y, z = (te.placeholder(s, name=n) for s, n in (((a, b), "X"), ((b, c), "Y"), ((c, d), "Z")))
    k, r = te.reduce_axis((0, b), name="k"), te.reduce_axis((0, c), name="r")
    m = te.compute((a, c), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="M")
    o = te.compute((a, d), lambda i, j: te.sum(m[i, r] * z[r, j], axis=r), name="O")
    return create_prim_func([x, y, z, o])


def matmul_softmax(n: int, m: int, c: int) -> PrimFunc:
    a, b = te.placeholder((n, c), name="A"), te.placeholder((c, m), name="B")
    k, r, q = (te.reduce_axis((0, e), name=x) for e, x in ((c, "k"), (m, "r"), (m, "q")))
    p = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="P")
    top = te.compute((n,), lambda i: te.max(p[i, r], axis=r), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(p[i, j] - top[i]), name="E")
    s = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), name="S")
    return create_prim_func([a, b, te.compute((n, m), lambda i, j: e[i, j] / s[i], name="O")])


def gated(n: int, d: int, m: int) -> PrimFunc:
    """Two products of which one elementwise block makes the result, as in a gated layer."""
    x = te.placeholder((n, d), name="X")
    y, z = (te.placeholder((d, m), name=s) for s in "YZ")
    k, r = te.reduce_axis((0, d), name="k"), te.reduce_axis((0, d), name="r")
    p = te.compute((n, m), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="P")
    q = te.compute((n, m), lambda i, j: te.sum(x[i, r] * z[r, j], axis=r), name="Q")
    return create_prim_func(
        [x, y, z, te.compute((n, m), lambda i, j: p[i, j] * te.sigmoid(q[i, j]), name="O")]
    )


def scaled_rows(n: int, d: int, m: int) -> PrimFunc:
    """A product whose consumer waits for a later reduction, too."""
    x, y = te.placeholder((n, d), name="X"), te.placeholder((d, m), name="Y")
    k, r = te.reduce_axis((0, d), name="k"), te.reduce_axis((0, d), name="r")
    p = te.compute((n, m), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="P")
    s = te.compute((n,), lambda i: te.max(x[i, r], axis=r), name="S")
    return create_prim_func(
        [x, y, te.compute((n, m), lambda i, j: p[i, j] + te.exp(s[i]), name="O")]
    )


def scores(rows: int, heads: int, depth: int, by_head: bool) -> PrimFunc:
    """Products of two of three parts of a row, the first one scaled: parts of heads * depth
    elements, or of depth elements in the row of each head."""
    x = te.placeholder((rows, heads * 3 * depth), name="X")
    k = te.reduce_axis((0, depth), name="k")

    def part(i, h, d, n):
        return x[i, (h * 3 + n) * depth + d if by_head else (n * heads + h) * depth + d]

    q = te.compute((heads, rows, depth), lambda h, i, d: part(i, h, d, 0) * 0.125, name="Q")
    made = te.compute(
        (heads, rows, rows),
        lambda h, i, j: te.sum(q[h, i, k] * part(j, h, k, 1), axis=k),
        name="S",
    )
    return te.create_prim_func([x, made])


def library(name: str, *args: object) -> Callable[[], PrimFunc]:
    return lambda: prim_func_of(name, args)


def bodies(n: int, components: int = 3) -> PrimFunc:
    """The forces of `n` bodies on one another: few results a body, each of much arithmetic."""
    x, mass = te.placeholder((n, components), name="x"), te.placeholder((n,), name="mass")
    k = te.reduce_axis((0, n), name="k")

    def term(i: Any, c: Any) -> Any:
        square = sum((x[k, d] - x[i, d]) * (x[k, d] - x[i, d]) for d in range(components))
        return te.sum((x[k, c] - x[i, c]) * mass[k] * te.rsqrt(square + 1.0), axis=k)

    return create_prim_func([x, mass, te.compute((n, components), term, name="force")])


PROGRAMS: dict[str, Callable[[], PrimFunc]] = {
    "matmul": library("matmul", 33, 5, 70),
    "matmul prime": library("matmul", 127, 131, 13),
    "matmul float64": library("matmul", 20, 21, 22, "float64"),
    "matmul int32": library("matmul", 20, 21, 22, "int32"),
    "matmul_add": library("matmul_add", 40, 30, 100),
    "matmul_add of ones": library("matmul_add", 1, 1, 1),
    "matmul_add one row": library("matmul_add", 1, 64, 100),
    "conv2d": library("conv2d", 13, 11, 5, 19, 3, 2, 1),
    "conv2d dilated": library("conv2d", 12, 12, 4, 8, 3, 1, 2, 2),
    "conv2d grouped": library("conv2d", 8, 8, 8, 8, 3, 1, 1, 1, 2),
    "conv2d grouped wider": library("conv2d", 8, 8, 12, 36, 3, 2, 1, 1, 3),
    "few long rows": lambda: row_norms(3, 20_000),
    "norm of a matrix": library("norm", 300, 70),
    "a long product of little": library("matmul", 3, 9000, 5),
    "argmax": library("argmax", 7, 1000),
    "softmax": library("softmax", 5, 37),
    "softmax of a long row": library("softmax", 1, 50_000),
    "softmax of long rows": library("softmax", 5, 20_011),
    "layer_norm": library("layer_norm", 64, 100),
    "column sum": lambda: column_sum(100, 70),
    "norm": lambda: scalar_norm(20, 50),
    "chain": lambda: chain(100, 200),
    "two results": lambda: two_results(10, 20),
    "transposed": lambda: transposed(33, 65),
    "two matmuls": lambda: two_matmuls(20, 30, 40, 50),
    "matmul softmax": lambda: matmul_softmax(20, 33, 15),
    "gated": lambda: gated(19, 37, 29),
    "scaled rows": lambda: scaled_rows(19, 37, 29),
    "scores of parts": lambda: scores(37, 3, 8, False),
    "scores of parts by head": lambda: scores(37, 3, 8, True),
    "bodies": lambda: bodies(53),
    "cumsum": library("cumsum", 40, 1000),
    "ema": library("ema", 9, 37),
    "rnn": library("rnn", 30, 1, 40, 50),
    "rnn of a batch": library("rnn", 30, 6, 40, 50),
    "gru": library("gru", 9, 2, 20, 37),
    "lstm": library("lstm", 20, 4, 30, 40),
    **{program.__name__: program for program in scan_programs.PROGRAMS},
}
