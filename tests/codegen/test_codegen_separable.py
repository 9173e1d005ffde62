"""Sums of products with constant matrices, one matrix after the other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autosched as at
from autosched import te
from autosched.codegen.llvm.blocks.separable import Sums, Terms
from autosched.ops.winograd import DATA, OUTPUT
from autosched.tir.expr import Expr
from autosched.tir.nodes import CONSTANT_AXES

numbers = st.integers(-4, 4)


def matrices(rows: int, columns: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(
        st.lists(numbers, min_size=columns, max_size=columns), min_size=rows, max_size=rows
    )


def operations(sums: Sums) -> int:
    """Additions and multiply-adds of all forms."""
    return sum(max(len(terms) - 1, 0) for terms in (*sums.shared, *sums.rows))


@given(st.integers(1, 6).flatmap(lambda n: st.integers(1, 6).flatmap(lambda m: matrices(n, m))))
def test_shared_sums_are_the_matrix(rows: list[list[int]]) -> None:
    sums = Sums.of([[Fraction(v) for v in row] for row in rows])
    x = [Fraction(3**n + n) for n in range(len(rows[0]))]

    def value(terms: Terms) -> Fraction:
        return sum((c * x[n] for n, c in terms), Fraction(0))

    for terms in sums.shared:
        x.append(value(terms))
    assert [value(terms) for terms in sums.rows] == [
        sum(v * e for v, e in zip(row, x, strict=False)) for row in rows
    ]
    assert operations(sums) <= sum(max(sum(map(bool, row)) - 1, 0) for row in rows)


def test_the_transforms_of_winograd_share_pairs() -> None:
    assert operations(Sums.of([[Fraction(v) for v in row] for row in DATA])) == 12
    assert operations(Sums.of([[Fraction(v) for v in row] for row in OUTPUT])) == 10


def transformed(
    first: list[list[int]], second: list[list[int]], dtype: str, lanes: int, pad: int
) -> at.Schedule:
    """first x second' of each channel, x with zeros around it, scheduled as the rule does."""
    rows, columns = len(first[0]), len(second[0])
    data = te.placeholder((rows - pad, columns, lanes), name="data", dtype=dtype)

    def chosen(m: list[list[int]], i: Expr, k: Expr) -> Expr:
        e: Expr = te.const(0, dtype)
        for r, row in enumerate(m):
            for c, v in enumerate(row):
                if v:
                    e = te.select(te.all(i == r, k == c), te.const(v, dtype), e)
        return e

    k, m = te.reduce_axis((0, rows), name="k"), te.reduce_axis((0, columns), name="m")
    out = te.compute(
        (len(first), len(second), lanes),
        lambda i, j, c: te.sum(
            te.if_then_else(k >= pad, data[k - pad, m, c], te.const(0, dtype))
            * (chosen(first, i, k) * chosen(second, j, m)),
            axis=[k, m],
        ),
        name="out",
        attrs={CONSTANT_AXES: ("i", "j", "k", "m")},
    )
    s = at.Schedule(te.create_prim_func([data, out]))
    i, j, c, k_, m_ = s.get_loops("out")
    around, lane = s.split(c, [None, 16])
    s.reorder(around, i, j, k_, m_, lane)
    for loop in (i, j, k_, m_):
        s.unroll(loop)
    s.vectorize(lane)
    return s


SIZES = st.tuples(*[st.integers(1, 5)] * 4)


@settings(max_examples=25, deadline=None)
@given(
    SIZES.flatmap(lambda n: st.tuples(matrices(n[0], n[1]), matrices(n[2], n[3]))),
    st.sampled_from(["float32", "float64", "int16", "int32", "uint8"]),
    st.sampled_from([16, 32, 41]),
    st.integers(0, 1),
)
def test_equal_to_numpy(
    given_: tuple[list[list[int]], list[list[int]]], dtype: str, lanes: int, pad: int
) -> None:
    first, second = given_
    pad = min(pad, len(first[0]) - 1)
    if dtype.startswith("u"):
        first, second = ([[abs(v) for v in row] for row in m] for m in (first, second))
    x = np.random.default_rng(0).integers(-9, 10, (len(first[0]) - pad, len(second[0]), lanes))
    f = at.build(transformed(first, second, dtype, lanes, pad))
    out = np.zeros((len(first), len(second), lanes), dtype)
    f(x.astype(dtype), out)
    padded = np.pad(x, ((pad, 0), (0, 0), (0, 0)))
    want = np.einsum("ik,klc,jl->ijc", np.array(first), padded, np.array(second))
    np.testing.assert_array_equal(out, want.astype(dtype))


FACTORS = {
    "not folded": lambda i, k: te.exp(te.cast(i * k, "float32") / 8),
    "no number": lambda i, k: te.cast(i, "float32") / te.cast(k, "float32"),
    "infinite": lambda i, k: te.select(te.all(i == 1, k == 1), te.const(np.inf, "float32"), 1.0),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_that_are_no_finite_constants_are_computed(name: str) -> None:
    """The annotation is a user's to set."""
    data, k = te.placeholder((3, 16), name="data"), te.reduce_axis((0, 3), name="k")
    out = te.compute(
        (2, 16),
        lambda i, c: te.sum(data[k, c] * FACTORS[name](i, k), axis=k),
        name="out",
        attrs={CONSTANT_AXES: ("i", "k")},
    )
    s = at.Schedule(te.create_prim_func([data, out]))
    i, c, k_ = s.get_loops("out")
    s.reorder(i, k_, c)
    for loop in (i, k_):
        s.unroll(loop)
    s.vectorize(c)
    x = np.random.default_rng(0).uniform(1, 2, (3, 16)).astype("float32")
    y, want = np.zeros((2, 16), "float32"), np.zeros((2, 16), "float32")
    at.build(s)(x, y)
    at.build(te.create_prim_func([data, out]))(x, want)
    np.testing.assert_allclose(y, want, rtol=1e-5)


@pytest.mark.parametrize("order", ["ijkm", "kmij", "ikjm"])
def test_loops_in_any_order(order: str) -> None:
    """The tile begins at loops over results or over terms."""
    first, second = [list(map(int, row)) for row in OUTPUT], [[1, -1, 2], [0, 3, 1]]
    s = transformed(first, second, "int32", 16, 0)
    names = dict(zip("ijkm", s.get_loops("out")[1:5], strict=True))
    s.reorder(*(names[n] for n in order))
    x = np.arange(6 * 3 * 16, dtype="int32").reshape(6, 3, 16)
    out = np.full((4, 2, 16), 7, "int32")
    at.build(s)(x, out)
    np.testing.assert_array_equal(out, np.einsum("ik,klc,jl->ijc", first, x, second))
