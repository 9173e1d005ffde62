"""Functions beyond those of `math`: errors against long double, special values, te's own forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from guarded import need_halves

import autosched as at
from autosched import te
from autosched.codegen.llvm.math.elementary import MAX_ULP, OPERATIONS
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.target import Target
from autosched.tir import interp

Array = npt.NDArray[Any]
HOST = Target("llvm")
RNG = np.random.default_rng(11)
LONG = np.longdouble
ORACLE: dict[str, Callable[..., Array]] = {
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "expm1": np.expm1,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "trunc": np.trunc,
    "nextafter": np.nextafter,
}
BITS = {"float16": (10, -24), "float32": (23, -149), "float64": (52, -1074)}
INTS = {"float16": "int16", "float32": "int32", "float64": "int64"}


def samples(dtype: str) -> Array:
    """Special values, every size of number, ordinary ones, and those between -1 and 1."""
    info = np.finfo(dtype)
    edges = [0, 1, 0.5, 2, 3, 10, info.max, info.tiny, info.smallest_subnormal, np.inf]
    patterns = RNG.integers(-(1 << 62), 1 << 62, 1 << 10).astype(INTS[dtype]).view(dtype)
    parts = [np.array([*edges, *(-x for x in edges), np.nan]), RNG.normal(size=1 << 11) * 20]
    parts += [RNG.uniform(-1, 1, 1 << 11), RNG.uniform(-300, 300, 1 << 10)]
    return np.concatenate([*(p.astype(dtype) for p in parts), patterns])


def run(name: str, dtype: str, given: list[Array]) -> list[Array]:
    """What `te`'s function gives, in vectors and one element at a time."""
    n = given[0].size
    inputs = [te.placeholder((n,), dtype, f"x{k}") for k in range(len(given))]
    outs = [
        te.compute((n,), lambda i: getattr(te, name)(*(x[i] for x in inputs)), name=form)
        for form in ("scalar", "vector")
    ]
    func = te.create_prim_func([*inputs, *outs])
    assert parse_func(func.script()).script() == func.script()
    sch = Schedule(func)
    _, inner = sch.split(sch.get_loops(sch.get_block("vector"))[0], factors=[None, 16])
    sch.vectorize(inner)
    found = [np.zeros(n, dtype) for _ in outs]
    at.build(sch)(*given, *found)
    return found


@pytest.mark.skipif(
    not HOST.has_fma or np.finfo(LONG).nmant < 63, reason="what is measured needs both"
)
@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(t, marks=pytest.mark.long) for t in ("float64", "float16"))]
)
def test_error(dtype: str) -> None:
    need_halves("llvm", dtype)
    assert set(ORACLE) == OPERATIONS
    x = samples(dtype)
    for name, oracle in ORACLE.items():
        binary = name in ("atan2", "hypot", "fmod", "copysign", "nextafter")
        given = [x, RNG.permutation(x)] if binary else [x]
        exact_only = name in ("fmod", "copysign", "trunc", "nextafter")
        with np.errstate(all="ignore"):
            wide = given if exact_only else [g.astype(LONG) for g in given]
            exact = oracle(*wide)
        limit = 0.0 if exact_only else MAX_ULP.get(dtype, {}).get(name, 0.51)
        if dtype == "float64" and not exact_only:
            limit = MAX_ULP["float64"].get(name, 2.0)  # or the C library's
        for found in run(name, dtype, given):
            error = ulps(found, exact, dtype)
            worst = int(error.argmax())
            at_worst = [float(g[worst]) for g in given]
            assert error[worst] <= limit, (name, at_worst, found[worst], exact[worst])
            number = ~np.isnan(found)
            signs = np.signbit(found[number]) == np.signbit(exact[number])
            assert signs.all(), (name, [g[number][~signs][0] for g in given])


def ulps(found: Array, exact: Array, dtype: str) -> Array:
    """|found - exact| in units in the last place; 0 where both are the same non-number."""
    fraction, least = BITS[dtype]
    with np.errstate(all="ignore"):
        ordinary = np.isfinite(exact) & (exact != 0)
        exponent = np.floor(np.log2(np.abs(np.where(ordinary, exact, 1)).astype(LONG)))
        ulp = np.ldexp(LONG(1), np.maximum(exponent - fraction, least).astype(int))
        error = np.abs(found.astype(LONG) - exact) / ulp
        rounded = exact.astype(dtype)
    same = (rounded == found) | (np.isnan(rounded) & np.isnan(found))
    error = np.where(same & (~ordinary | np.isinf(rounded)), 0, error)
    return np.where(np.isnan(error), np.inf, error).astype(float)


def test_integer_and_composed_functions() -> None:
    """Against Python's integers and NumPy, compiled and interpreted."""
    a = np.array([-128, -127, -7, -1, 0, 1, 2, 6, 100, 127, 33, -33], "int8")
    b = np.array([3, -1, 2, -7, 5, 3, -2, 4, 7, 1, -4, 8], "int8")
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    A, B = te.placeholder(a.shape, "int8", "A"), te.placeholder(a.shape, "int8", "B")
    f = np.array([1.5, -2.25, np.inf, -np.inf, np.nan, 0, -0.0, 1e-30, 3e30, 7, -1, 0.1], "float32")
    F = te.placeholder(f.shape, "float32", "F")
    with np.errstate(over="ignore"):
        scaled, far = np.ldexp(f, b), np.ldexp(f, 140)
    cases = [
        (te.popcount(A), [bin(x & 255).count("1") for x, _ in pairs]),
        (te.clz(A), [8 - (x & 255).bit_length() for x, _ in pairs]),
        (te.truncdiv(A, B), [math.trunc(x / y) for x, y in pairs]),
        (te.truncmod(A, B), [int(math.fmod(x, y)) for x, y in pairs]),
        (te.div(A, B), [math.trunc(x / y) for x, y in pairs]),
        (te.ceildiv(A.astype("int32"), 5), [-(-x // 5) for x, _ in pairs]),
        (te.isnan(F), np.isnan(f)),
        (te.isinf(F), np.isinf(f)),
        (te.isfinite(F), np.isfinite(f)),
        (te.ldexp(F, B), scaled),
        (te.ldexp(F, 140), far),
        (te.nearbyint(F), np.rint(f)),
        (te.fabs(F), np.abs(f)),
        (
            te.q_multiply_shift(A.astype("int32") * 1000, 1 << 30, 31, 1),
            [x * 1000 for x, _ in pairs],
        ),
    ]
    given = {A: a, B: b, F: f}
    outs = [out for out, _ in cases]
    func = te.create_prim_func([*given, *outs])
    for execute in (at.build(func), lambda *arrays: interp.run(func, list(arrays))):
        found = [np.zeros(out.shape, out.dtype) for out in outs]
        with np.errstate(all="ignore"):
            execute(*given.values(), *found)
        for value, (out, wanted) in zip(found, cases, strict=True):
            np.testing.assert_array_equal(value, wanted, err_msg=out.name)


def test_c_sources_name_functions_that_exist() -> None:
    """GPU dialects print them by C's names; of integers by a helper."""
    A, N = te.placeholder((64,), name="A"), te.placeholder((64,), "int16", "N")
    outs = [te.tan(A), te.exp10(A), te.atan2(A, A), te.popcount(N), te.clz(N)]
    func = te.create_prim_func([A, N, *outs])
    sch = Schedule(func)
    for block in sch.get_blocks():
        sch.bind(sch.get_loops(block)[0], "threadIdx.x")
    for target, words in (
        ("cuda -arch=sm_80", ("tanf(", "exp10f(", "atan2f(", "__popcll(", "__clzll(")),
        ("opencl", ("tan(", "exp10(", "atan2(", "popcount(", "clz(")),
    ):
        text = at.build(sch, target=Target(target), compile_only=True).source
        for word in words:
            assert word in text, (target, word)
