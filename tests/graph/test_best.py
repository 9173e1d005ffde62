"""The best elements along an axis, against a stable sort of all."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.graph.ops.best import PARTS, best

DTYPES = ["f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "?"]


def sorted_first(x, n, largest):
    size = x.shape[-1]
    order = np.argsort(x[..., ::-1] if largest else x, -1, kind="stable")
    index = (size - 1 - order[..., ::-1] if largest else order)[..., :n]
    return np.take_along_axis(x, index, -1), index


def check(x, n, largest):
    for found, want in zip(best(x, n, largest), sorted_first(x, n, largest), strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found, want)


def drawn(rng, dtype, shape, spread):
    x = rng.standard_normal(shape) * spread
    if dtype in ("f2", "f4", "f8"):
        x[rng.random(shape) < 0.1] = rng.choice([np.inf, -np.inf, 0.0, -0.0])
    return (np.abs(x) if dtype.startswith("u") else np.clip(x, -120, 120)).astype(dtype)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_number_of_any_dtype(rng, dtype, largest):
    """With many equal elements, and with few."""
    for spread in (1.0, 100.0):
        for _ in range(20):
            shape = tuple(rng.integers(1, 9, rng.integers(1, 4)))
            x = drawn(rng, dtype, shape, spread)
            check(x, int(rng.integers(0, shape[-1] + 1)), largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [8 * PARTS, 20 * PARTS + 7, 3000])
def test_few_of_many(rng, dtype, size, largest):
    """The best of parts are looked at first; 3000 bytes have equal ones among them."""
    for n in (1, 2, 5):
        check(drawn(rng, dtype, (3, size), 1000.0), n, largest)


@pytest.mark.parametrize("n", [1, 3, 200])
def test_what_is_no_number_is_largest(rng, n):
    x = rng.standard_normal((2, 3000)).astype("f4")
    x[0, [5, 70, 700]] = np.nan
    check(x, n, True)
    check(x, n, False)


def test_the_ends_of_the_whole_numbers():
    for dtype in ("i4", "u4"):
        ends = np.iinfo(dtype)
        x = np.array([0, ends.max, ends.min, 1, ends.max - 1, ends.min + 1], dtype)
        check(x, 6, True)
        check(x, 6, False)
