"""Sums of products evaluated as products of matrices, against the evaluation in program order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched import te
from autosched.tir import contract, interp, whole
from autosched.tir.nodes import PrimFunc

RNG = np.random.default_rng(11)
AXES = "bcmnxk"


def evaluated(func: PrimFunc, **how: Any) -> np.ndarray:
    """The result on drawn inputs, which are the same for all evaluations of a function."""
    rng = np.random.default_rng(7)
    arrays = [
        rng.integers(-8, 8, tuple(map(int, p.shape))).astype(p.dtype) for p in func.params[:-1]
    ]
    out = np.full(tuple(map(int, func.params[-1].shape)), 77, func.params[-1].dtype)
    if how.pop("in_order", False):
        interp.run(func, [*arrays, out])
    else:
        whole.reference(func, [*arrays, out], **how)
    return out


@pytest.fixture
def contracted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each block was evaluated as a product of matrices."""
    found: list[bool] = []

    def noted(*args: Any) -> bool:
        found.append(contract.contract(*args))
        return found[-1]

    monkeypatch.setattr(whole, "contract", noted)
    return found


@st.composite
def products(draw: st.DrawFn) -> PrimFunc:
    """A sum of products of tensors whose axes are drawn: indices shifted, strided, and added."""
    sizes = {a: draw(st.integers(1, 5)) for a in AXES}
    kinds = {a: draw(st.sampled_from(("out", "out", "sum"))) for a in AXES}
    kinds["b"] = "out"
    operands = [
        draw(st.lists(st.sampled_from(AXES), unique=True, min_size=1, max_size=4)) for _ in range(2)
    ]
    dtype = draw(st.sampled_from(("float32", "float16", "float64", "int32")))
    kept = [a for a in AXES if kinds[a] == "out" and any(a in o for o in operands)] or ["b"]
    steps = {a: draw(st.integers(1, 2)) for a in AXES}
    pair = draw(st.booleans())

    def indices(names: list[str], value: Any) -> list[Any]:
        found = [value(a) * steps[a] + steps[a] - 1 for a in names]
        return [found[0] + found[1], *found[2:]] if pair and len(found) > 1 else found

    shapes = [[e + 1 for e in indices(names, lambda a: sizes[a] - 1)] for names in operands]
    a, b = (te.placeholder(s, dtype, n) for s, n in zip(shapes, "AB", strict=True))
    summed = {
        k: te.reduce_axis((0, sizes[k]), name=k)
        for k in AXES
        if kinds[k] == "sum" and any(k in o for o in operands)
    }
    wide = "float32" if dtype == "float16" else dtype

    def body(*at: Any) -> Any:
        axes = dict(zip(kept, at, strict=True)) | summed
        one, two = (
            t[tuple(indices(names, axes.__getitem__))].astype(wide)
            for t, names in zip((a, b), operands, strict=True)
        )
        return te.sum(one * two, axis=list(summed.values())) if summed else one * two

    made = te.compute(tuple(sizes[k] for k in kept), body, name="C")
    return te.create_prim_func([a, b, made])


@settings(max_examples=150, deadline=None)
@given(products())
def test_equal_to_program_order(func: PrimFunc) -> None:
    """Exactly: the numbers are small integers."""
    want = evaluated(func, in_order=True)
    np.testing.assert_array_equal(evaluated(func, blas=True), want)
    np.testing.assert_array_equal(evaluated(func), want)


def product(m: int, n: int, k: int, dtype: str = "float32") -> PrimFunc:
    """C[i, j] = sum of A[i, k] * B[j, k]."""
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((n, k), dtype, "B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C")
    return te.create_prim_func([a, b, c])


def convolution() -> PrimFunc:
    """A strided and dilated one, in two groups."""
    x, w = te.placeholder((2, 2, 3, 11, 9), name="X"), te.placeholder((2, 4, 3, 3, 2), name="W")
    c, y, z = (te.reduce_axis((0, n), name=s) for n, s in ((3, "c"), (3, "y"), (2, "z")))
    made = te.compute(
        (2, 2, 4, 4, 4),
        lambda n, g, f, i, j: te.sum(
            x[n, g, c, i * 2 + y * 2, j * 2 + z] * w[g, f, c, y, z], axis=[c, y, z]
        ),
        name="C",
    )
    return te.create_prim_func([x, w, made])


@pytest.mark.parametrize("func", [product(40, 50, 60), convolution()], ids=["product", "windows"])
def test_products_and_windows_are_products_of_matrices(
    func: PrimFunc, contracted: list[bool]
) -> None:
    found = evaluated(func, blas=True)
    assert contracted == [True]
    np.testing.assert_array_equal(found, evaluated(func))


def test_what_stays_as_it_is(contracted: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers, operands that are too large, and those without `blas`."""
    evaluated(product(4, 5, 6))
    assert contracted == []
    evaluated(product(4, 5, 6, "int32"), blas=True)
    monkeypatch.setattr(contract, "LARGEST", 8 * 24 - 1)
    evaluated(product(4, 5, 6), blas=True)
    assert contracted == [False, False]
