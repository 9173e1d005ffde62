"""Every reducer on every dtype, in every form that a reduction is generated in, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from guarded import MANY, TARGETS, check, need_halves, random_array

from autosched import te
from autosched.ops.rows import first_largest
from autosched.schedule import Schedule
from autosched.tir import dtypes
from autosched.tir.nodes import PrimFunc

N, K = 5, 77

magnitude = te.comm_reducer(
    lambda x, y: te.select(x > y, x, y), lambda t: te.min_value(t), name="magnitude"
)
"""The largest, told by a comparison."""

gauss = te.comm_reducer(
    lambda x, y: (x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]),
    lambda re, im: (te.const(1, re), te.const(0, im)),
    name="gauss",
)
"""Product of complex numbers as pairs."""


def _welford(x: Any, y: Any) -> Any:
    total, apart = x[0] + y[0], y[1] - x[1]
    share = y[0] / te.select(total == 0.0, 1.0, total)
    return total, x[1] + apart * share, x[2] + y[2] + apart * apart * x[0] * share


welford = te.comm_reducer(_welford, lambda *types: [te.const(0, t) for t in types], name="welford")
"""Count, mean and sum of squared deviations of two parts."""


def plain(sch: Schedule, i: Any, k: Any) -> None:
    """A register tile of one accumulator."""


def copies(sch: Schedule, i: Any, k: Any) -> None:
    """Four accumulators for one element, and a remainder."""
    _, k1 = sch.split(k, [None, 4])
    sch.unroll(k1)


def rows(sch: Schedule, i: Any, k: Any) -> None:
    """Rows in registers, with one that overhangs."""
    i0, i1 = sch.split(i, [None, 3])
    sch.reorder(i0, k, i1)
    sch.unroll(i1)


def columns(sch: Schedule, i: Any, k: Any) -> None:
    """Elements as lanes."""
    sch.reorder(k, i)
    sch.vectorize(i)


def lanes(sch: Schedule, i: Any, k: Any) -> None:
    """Terms as lanes."""
    sch.vectorize(k)


def lanes_and_rows(sch: Schedule, i: Any, k: Any) -> None:
    """Terms as lanes, for several elements at once, in pieces."""
    i0, i1 = sch.split(i, [None, 2])
    k0, k1 = sch.split(k, [None, 24])
    sch.reorder(i0, k0, i1, k1)
    sch.unroll(i1)
    sch.vectorize(k1)


def lanes_around_rows(sch: Schedule, i: Any, k: Any) -> None:
    """The vectorised loop outside the unrolled one."""
    i0, i1 = sch.split(i, [None, 2])
    sch.reorder(i0, k, i1)
    sch.unroll(i1)
    sch.vectorize(k)


def in_memory(sch: Schedule, i: Any, k: Any) -> None:
    """The outer terms outermost: partial results wait in memory."""
    k0, _ = sch.split(k, [None, 16])
    sch.reorder(k0, i)


def lanes_in_memory(sch: Schedule, i: Any, k: Any) -> None:
    """Partial results in memory, added to the combined lanes."""
    k0, k1 = sch.split(k, [None, 20])
    sch.reorder(k0, i, k1)
    sch.vectorize(k1)


def decomposed(sch: Schedule, i: Any, k: Any) -> None:
    """Initialised by a block of its own."""
    sch.decompose_reduction(sch.get_block("out"), k)


def factored(sch: Schedule, i: Any, k: Any) -> None:
    """Partial results as a buffer of their own, in lanes."""
    _, k1 = sch.split(k, [None, 16])
    sch.rfactor(k1)
    sch.vectorize(k1)


def fused(sch: Schedule, i: Any, k: Any) -> None:
    """Elements and terms in one loop of lanes, which no vector instruction can do."""
    sch.vectorize(sch.fuse(i, k))


def threads(sch: Schedule, i: Any, k: Any) -> None:
    """Elements over threads, terms as lanes."""
    sch.parallel(i)
    sch.vectorize(k)


FORMS = [
    plain, copies, rows, columns, lanes, lanes_and_rows, lanes_around_rows, in_memory,
    lanes_in_memory, decomposed, factored, fused, threads,
]  # fmt: skip


def one(reducer: Callable[..., Any], dtype: str, n: int = N, k: int = K) -> PrimFunc:
    """out[i] = reducer of a[i, k]."""
    a = te.placeholder((n, k), name="a", dtype=dtype)
    axis = te.reduce_axis((0, k), name="k")
    out = te.compute((n,), lambda i: reducer(a[i, axis], axis=axis), name="out")
    return te.create_prim_func([a, out])


def pair(
    reducer: Callable[..., Any], first: Callable[..., Any], types: tuple[str, str]
) -> PrimFunc:
    """Two outputs of one reduction over pairs; `first` makes the first of each from axes."""
    a = te.placeholder((N, K), name="a", dtype=types[1])
    axis = te.reduce_axis((0, K), name="k")
    x, y = te.compute(
        (N,), lambda i: reducer((first(a, i, axis), a[i, axis]), axis=axis), name="out"
    )
    return te.create_prim_func([a, x, y])


def scheduled(func: PrimFunc, form: Callable[..., None]) -> Schedule:
    sch = Schedule(func)
    block = sch.get_blocks()[-1]
    i, k = sch.get_loops(block)
    form(sch, i, k)
    return sch


def values(dtype: str, reducer: str) -> np.ndarray[Any, Any]:
    """Whole numbers whose sums and products are exact."""
    rng = np.random.default_rng(1)
    if reducer in ("prod", "gauss") and dtypes.is_float(dtype):
        signs = rng.choice([-1.0, 1.0], (N, K))
        if reducer == "gauss":
            # As many of 1 + i as of (1 + i) / 2 in steps of any power of two, by the digits of
            # the place (Thue and Morse): float16 overflows else.
            signs[:, [k for k in range(K) if k.bit_count() % 2]] /= 2
        return signs.astype(dtype)
    return random_array(rng, (N, K), dtype)


COMBINATIONS = [
    (target, dtype)
    for target in TARGETS
    for dtype in dtypes.ARITHMETIC
    if (dtype not in dtypes.UNSIGNED[1:] if target == TARGETS[0] else dtype in ("float32", "int8"))
]
"""Every dtype here, but of the unsigned ones the narrowest; two of them on older processors."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("target", "dtype"), COMBINATIONS)
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_known_reducers(form: Callable[..., None], dtype: str, target: str) -> None:
    need_halves(target, dtype)
    for name in ("max", "min") if dtype == "bool" else ("sum", "prod", "max", "min"):
        func = one(getattr(te, name), dtype)
        check(scheduled(func, form), func, [values(dtype, name)], target=target)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_nan_and_infinity(form: Callable[..., None], target: str) -> None:
    a = values("float32", "sum")
    a[0, 3], a[1, 76], a[2, 0], a[2, 40], a[3, 20] = np.nan, np.inf, -np.inf, np.inf, -np.inf
    for reducer in (te.max, te.min, te.sum):
        func = one(reducer, "float32")
        check(scheduled(func, form), func, [a], target=target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_user_defined_reducers(form: Callable[..., None], dtype: str) -> None:
    func = one(lambda e, axis: magnitude(te.abs(e), axis), dtype)
    check(scheduled(func, form), func)
    if form not in (decomposed, factored):
        func = pair(gauss, lambda a, i, k: a[i, k], (dtype, dtype))
        check(scheduled(func, form), func, [values(dtype, "gauss")])


@pytest.mark.parametrize("k", [5, K])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_mean_and_deviation_in_one_pass(form: Callable[..., None], k: int) -> None:
    """Rows shorter than a vector too, whose other lanes combine identities."""
    if form in (decomposed, factored):
        pytest.skip("of blocks with one output")
    a = te.placeholder((N, k), name="a")
    axis = te.reduce_axis((0, k), name="k")
    out = te.compute(
        (N,), lambda i: welford((te.const(1.0), a[i, axis], te.const(0.0)), axis=axis), name="out"
    )
    func = te.create_prim_func([a, *out])
    rows = np.random.default_rng(1).standard_normal((N, k), dtype=np.float32)
    found = check(scheduled(func, form), func, [rows], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], rows.mean(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[2], rows.var(1) * k, rtol=1e-4, atol=1e-5)


@MANY
@pytest.mark.parametrize("types", [("int32", "float32"), ("int64", "float32"), ("int32", "int8")])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_argmax(form: Callable[..., None], types: tuple[str, str], target: str) -> None:
    """Ties on purpose: few different values in a row of 77."""
    func = pair(first_largest, lambda a, i, k: te.cast(k, types[0]), types)
    if form in (decomposed, factored):
        pytest.skip("of blocks with one output")
    check(scheduled(func, form), func, target=target)


@pytest.mark.parametrize("extent", [1, 2, 15, 16, 17, 127, 128, 129, 300, 1000])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
def test_extents_of_vectorised_reductions(dtype: str, extent: int) -> None:
    """Groups of vectors in a loop, whole vectors, part of a vector."""
    for reducer in (te.sum, te.max):
        func = one(reducer, dtype, 3, extent)
        check(scheduled(func, lanes), func)


def test_several_axes_of_reduction() -> None:
    a = te.placeholder((3, 4, 5, 6), name="a", dtype="int32")
    r, s, t = (te.reduce_axis((0, n), name=x) for n, x in ((4, "r"), (5, "s"), (6, "t")))
    out = te.compute(
        (3,), lambda i: te.sum(a[i, r, s, t] * a[i, 3 - r, s, 5 - t], axis=[r, s, t]), name="out"
    )
    func = te.create_prim_func([a, out])
    for form in range(4):
        sch = Schedule(func)
        i, r0, s0, t0 = sch.get_loops(sch.get_block("out"))
        if form == 0:
            sch.vectorize(t0)
        elif form == 1:
            sch.reorder(s0, i, t0, r0)
            sch.unroll(r0)
        elif form == 2:
            sch.vectorize(sch.fuse(s0, t0))
        else:
            whole = sch.fuse(r0, s0, t0)
            _, inner = sch.split(whole, [None, 7])
            sch.unroll(inner)
        check(sch, func)
