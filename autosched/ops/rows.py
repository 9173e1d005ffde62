"""Operators that reduce along the rows of a matrix: softmax, norms, argmax."""

from __future__ import annotations

from autosched import te
from autosched.ops.registry import operator, require
from autosched.te import Tensor
from autosched.tir.expr import Expr


@operator
def softmax(N: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """softmax[i, j] = exp(data[i, j] - max of row i) / sum of these over the row; both (N, M).

    A row is multiplied by the reciprocal of its sum, which lies between 1 and M: one division a row
    instead of one an element, for an error of 1.5 ulp instead of 0.5.
    """
    require("softmax", 1, N=N, M=M)
    data = te.placeholder((N, M), name="data", dtype=dtype)
    k1 = te.reduce_axis((0, M), name="k1")
    k2 = te.reduce_axis((0, M), name="k2")
    maxelem = te.compute((N,), lambda i: te.max(data[i, k1], axis=k1), name="maxelem")
    exp = te.compute((N, M), lambda i, j: te.exp(data[i, j] - maxelem[i]), name="exp")
    expsum = te.compute((N,), lambda i: te.sum(exp[i, k2], axis=k2), name="expsum")
    out = te.compute((N, M), lambda i, j: exp[i, j] * (1.0 / expsum[i]), name="softmax")
    return [data, out]


@operator
def layer_norm(N: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """Each row of data (N, M) brought to mean 0 and variance 1, then times gamma plus beta (M,).

    The variance comes from the squared distances to the mean, in a second pass: the mean of the
    squares less the square of the mean cancels when the mean is large. Its epsilon is 1e-5.
    """
    require("layer_norm", 1, N=N, M=M)
    data = te.placeholder((N, M), name="data", dtype=dtype)
    gamma = te.placeholder((M,), name="gamma", dtype=dtype)
    beta = te.placeholder((M,), name="beta", dtype=dtype)
    k1 = te.reduce_axis((0, M), name="k1")
    k2 = te.reduce_axis((0, M), name="k2")
    total: Tensor = te.compute((N,), lambda i: te.sum(data[i, k1], axis=k1), name="total")

    def centred(i: Expr, j: Expr) -> Expr:
        centre: Expr = data[i, j] - total[i] * (1.0 / M)
        return centre

    squares = te.compute(
        (N,), lambda i: te.sum(centred(i, k2) * centred(i, k2), axis=k2), name="squares"
    )
    out = te.compute(
        (N, M),
        lambda i, j: centred(i, j) * te.rsqrt(squares[i] * (1.0 / M) + 1e-5) * gamma[j] + beta[j],
        name="layer_norm",
    )
    return [data, gamma, beta, out]


@operator
def norm(N: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """norm[0] = Euclidean norm of all of data (N, M)."""
    require("norm", 1, N=N, M=M)
    data = te.placeholder((N, M), name="data", dtype=dtype)
    i, j = te.reduce_axis((0, N), name="i"), te.reduce_axis((0, M), name="j")
    squares = te.compute(
        (1,), lambda o: te.sum(data[i, j] * data[i, j], axis=[i, j]), name="squares"
    )
    out = te.compute((1,), lambda o: te.sqrt(squares[o]), name="norm")
    return [data, out]


@operator
def argmax(N: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """index[i] (int32) and value[i] of the largest element of row i of data (N, M).

    The first of equals is taken in whatever order the row is visited; what is found in a row with a
    NaN depends on that order.
    """
    require("argmax", 1, N=N, M=M)
    data = te.placeholder((N, M), name="data", dtype=dtype)
    k = te.reduce_axis((0, M), name="k")
    index, value = te.compute(
        (N,), lambda i: first_largest((te.cast(k, "int32"), data[i, k]), axis=k), name="argmax"
    )
    return [data, index, value]


def _larger(x: tuple[Expr, Expr], y: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    # On a tie the lower index wins, which makes the combination commutative.
    keep = te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] < y[0]))
    return te.select(keep, x[0], y[0]), te.select(keep, x[1], y[1])


first_largest = te.comm_reducer(
    _larger, lambda index, value: (te.max_value(index), te.min_value(value)), name="argmax"
)
"""Reducer of pairs (index, value) to the largest value and its lowest index."""
