"""Constants that unrolled loops decide: matrices of selects, and what their zeros remove."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autosched import te
from autosched.codegen.build import build_artifact, generate_ir
from autosched.runtime.function import Function
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir.expr import Expr
from autosched.tir.nodes import CONSTANT_AXES, PrimFunc

TARGET = Target("llvm -mcpu=x86-64-v3") if Target("llvm").arch == "x86_64" else Target("llvm")
MATRIX = ((1, 0, -0.5, 0), (0, 3, 0, 1), (0, 0, 0, 0))


def transform(hinted: bool, by_index: bool = False, n: int = 8) -> PrimFunc:
    """R[i, c] = sum over k of D[k, c] * M[i, k], M written as selects."""
    d = te.placeholder((4, n), name="D")
    k = te.reduce_axis((0, 4), name="k")

    def element(i: Expr, j: Expr) -> Expr:
        if by_index:
            return te.cast(i * 4 - j, "float32")
        value: Expr = te.const(0, "float32")
        for r, row in enumerate(MATRIX):
            for c, v in enumerate(row):
                if v:
                    value = te.select(te.all(i == r, j == c), te.const(v, "float32"), value)
        return value

    attrs = {CONSTANT_AXES: ("i", "k")} if hinted else {}
    out = te.compute(
        (3, n), lambda i, c: te.sum(d[k, c] * element(i, k), axis=k), name="R", attrs=attrs
    )
    return te.create_prim_func([d, out])


def unrolled(func: PrimFunc) -> PrimFunc:
    s = Schedule(func)
    i, c, k = s.get_loops(s.get_block("R"))
    s.reorder(i, k, c)
    s.unroll(i)
    s.unroll(k)
    s.vectorize(c)
    return s.func


def operations(func: PrimFunc) -> tuple[int, int, int, int]:
    """Of vectors: fma, fadd, fsub, fmul."""
    text = generate_ir(func, TARGET).ir
    plain = (len(re.findall(rf"= {op} [^=]*<8 x float>", text)) for op in ("fadd", "fsub", "fmul"))
    fused = text.count("= call <8 x float> @llvm.fma")
    return fused, *plain


def run(func: PrimFunc, data: np.ndarray) -> np.ndarray:
    out = np.full((3, data.shape[1]), np.nan, dtype=np.float32)
    Function(build_artifact(func, TARGET))(data, out)
    return out


@pytest.fixture
def data() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)


@pytest.mark.parametrize("hinted", [False, True])
def test_no_select_is_left_and_the_values_are_right(hinted: bool, data: np.ndarray) -> None:
    func = unrolled(transform(hinted))
    text = generate_ir(func, TARGET).ir
    assert " select " not in text
    assert " icmp eq " not in text
    np.testing.assert_allclose(run(func, data), np.array(MATRIX) @ data, rtol=1e-6)


def test_zeros_are_left_out_only_where_the_program_allows_it(data: np.ndarray) -> None:
    if not TARGET.has_fma:
        pytest.skip("counts fused operations")
    # Rows D0 - D2 / 2 and 3 D1 + D3: a factor 1 costs nothing, and the third row is 0.
    assert operations(unrolled(transform(True))) == (2, 0, 0, 0)
    # 3 rows of 4 terms, each in a sum of its own, and 3 additions of these in each row.
    assert operations(unrolled(transform(False))) == (12, 9, 0, 0)
    data[3] = np.nan  # times a 0 in rows 0 and 2
    kept = run(unrolled(transform(False)), data)
    assert np.isnan(kept).all()
    assert np.isnan(run(unrolled(transform(True)), data)).all(axis=1).tolist() == [0, 1, 0]


def test_a_loop_that_is_not_unrolled_computes_the_same(data: np.ndarray) -> None:
    np.testing.assert_array_equal(run(transform(True), data), run(transform(False), data))
    s = Schedule(transform(True))
    i, c, k = s.get_loops(s.get_block("R"))
    s.reorder(i, k, c)
    s.vectorize(c)
    np.testing.assert_allclose(run(s.func, data), np.array(MATRIX) @ data, rtol=1e-6)


def test_any_expression_of_axes_is_a_constant_not_just_a_select(data: np.ndarray) -> None:
    func = unrolled(transform(True, by_index=True))
    assert "sitofp" not in generate_ir(func, TARGET).ir
    matrix = np.arange(3)[:, None] * 4 - np.arange(4)
    np.testing.assert_allclose(run(func, data), matrix @ data, rtol=1e-5, atol=1e-6)


def test_lanes_are_no_constants() -> None:
    """A vectorised axis has no single value, nor has one that a loop runs over."""
    data = np.random.default_rng(1).standard_normal((4, 11), dtype=np.float32)
    d = te.placeholder((4, 11), name="D")
    k = te.reduce_axis((0, 4), name="k")
    out = te.compute(
        (3, 11),
        lambda i, c: te.sum(d[k, c] * te.cast(c - i * k, "float32"), axis=k),
        name="R",
        attrs={CONSTANT_AXES: ("i", "k")},
    )
    func = te.create_prim_func([d, out])
    c, i, k_ = np.arange(11), np.arange(3)[:, None, None], np.arange(4)[:, None]
    want = (data * (c - i * k_)).sum(axis=1)
    np.testing.assert_allclose(run(unrolled(func), data), want, rtol=1e-5, atol=1e-5)
