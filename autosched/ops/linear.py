"""Matrix products."""

from __future__ import annotations

from autosched import te
from autosched.ops.registry import operator, require, wider
from autosched.te import Tensor


@operator
def matmul(N: int, L: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """C = A @ B; A (N, L), B (L, M), C (N, M). B's layout is free."""
    require("matmul", 1, N=N, L=L, M=M)
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    return [A, B, product(A, B, "C")]


@operator
def matmul_add(N: int, L: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """out = A @ B + C; A (N, L), B (L, M), C and out (N, M). B's layout is free."""
    require("matmul_add", 1, N=N, L=L, M=M)
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)
    matmul = product(A, B, "matmul")
    out = te.compute((N, M), lambda i, j: matmul[i, j] + C[i, j], name="out")
    return [A, B, C, out]


def product(A: Tensor, B: Tensor, name: str, total: str | None = None) -> Tensor:
    """A @ B of shapes (N, L) and (L, M), B's layout being free; `total`: the dtype of its sums."""
    (n, depth), m = A.shape, B.shape[1]
    k = te.reduce_axis((0, depth), name="k")
    result: Tensor = te.compute(
        (n, m),
        lambda i, j: te.sum(wider(A[i, k], total) * wider(B[k, j], total), axis=k),
        name=name,
        attrs={"layout_free_placeholders": [B]},
    )
    return result


@operator
def two_matmuls(N: int, L: int, M: int, K: int, dtype: str = "float32") -> list[Tensor]:
    """E = (A @ B) @ D; A (N, L), B (L, M), D (M, K), E (N, K). B's and D's layouts are free."""
    require("two_matmuls", 1, N=N, L=L, M=M, K=K)
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    D = te.placeholder((M, K), name="D", dtype=dtype)
    return [A, B, D, product(product(A, B, "C"), D, "E")]


@operator
def batch_matmul(B: int, N: int, L: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """Z[b] = X[b] @ Y[b]; X (B, N, L), Y (B, L, M), Z (B, N, M)."""
    require("batch_matmul", 1, B=B, N=N, L=L, M=M)
    X = te.placeholder((B, N, L), name="X", dtype=dtype)
    Y = te.placeholder((B, L, M), name="Y", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    Z = te.compute((B, N, M), lambda b, i, j: te.sum(X[b, i, k] * Y[b, k, j], axis=k), name="Z")
    return [X, Y, Z]


@operator
def matmul_bias_gelu(N: int, L: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """out = gelu(A @ B + bias); A (N, L), B (L, M), bias (M,), out (N, M). B's layout is free.

    gelu(x) = x * (1 + erf(x / sqrt(2))) / 2, the exact form (Hendrycks and Gimpel, 2016).
    """
    require("matmul_bias_gelu", 1, N=N, L=L, M=M)
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    bias = te.placeholder((M,), name="bias", dtype=dtype)
    matmul = product(A, B, "matmul")
    biased = te.compute((N, M), lambda i, j: matmul[i, j] + bias[j], name="biased")
    out = te.compute(
        (N, M),
        lambda i, j: biased[i, j] * (te.erf(biased[i, j] * 0.5**0.5) + 1.0) * 0.5,
        name="out",
    )
    return [A, B, bias, out]


@operator
def transpose_batch_matmul(SEQ: int, HEADS: int, DIM: int, dtype: str = "float32") -> list[Tensor]:
    """scores[h, i, j] = sum over d of query[i, h, d] * key[j, h, d]: the product of an attention.

    query and key (SEQ, HEADS, DIM) are transposed to heads first, scores is (HEADS, SEQ, SEQ).
    """
    require("transpose_batch_matmul", 1, SEQ=SEQ, HEADS=HEADS, DIM=DIM)
    return list(_attention_scores(SEQ, HEADS, DIM, dtype))


@operator
def transpose_batch_matmul_softmax(
    SEQ: int, HEADS: int, DIM: int, dtype: str = "float32"
) -> list[Tensor]:
    """The weights of an attention: the scores of `transpose_batch_matmul`, each row through a
    softmax over the keys."""
    require("transpose_batch_matmul_softmax", 1, SEQ=SEQ, HEADS=HEADS, DIM=DIM)
    query, key, scores = _attention_scores(SEQ, HEADS, DIM, dtype)
    k1 = te.reduce_axis((0, SEQ), name="k1")
    k2 = te.reduce_axis((0, SEQ), name="k2")
    rows = (HEADS, SEQ)
    maxelem = te.compute(rows, lambda h, i: te.max(scores[h, i, k1], axis=k1), name="maxelem")
    exp = te.compute(
        scores.shape, lambda h, i, j: te.exp(scores[h, i, j] - maxelem[h, i]), name="exp"
    )
    expsum = te.compute(rows, lambda h, i: te.sum(exp[h, i, k2], axis=k2), name="expsum")
    out = te.compute(
        scores.shape, lambda h, i, j: exp[h, i, j] * (1.0 / expsum[h, i]), name="softmax"
    )
    return [query, key, out]


def _attention_scores(SEQ: int, HEADS: int, DIM: int, dtype: str) -> tuple[Tensor, Tensor, Tensor]:
    """query and key, and the products of all their rows, by head."""
    query = te.placeholder((SEQ, HEADS, DIM), name="query", dtype=dtype)
    key = te.placeholder((SEQ, HEADS, DIM), name="key", dtype=dtype)
    query_t = te.compute((HEADS, SEQ, DIM), lambda h, i, d: query[i, h, d], name="query_t")
    key_t = te.compute((HEADS, DIM, SEQ), lambda h, d, j: key[j, h, d], name="key_t")
    k = te.reduce_axis((0, DIM), name="k")
    scores = te.compute(
        (HEADS, SEQ, SEQ),
        lambda h, i, j: te.sum(query_t[h, i, k] * key_t[h, k, j], axis=k),
        name="scores",
    )
    return query, key, scores
