"""Elementary functions against float64 references: errors in ulp, edge cases, every form."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vector_code import (
    BITS,
    EXACT,
    FORMS,
    HOST,
    POLYNOMIAL,
    POLYNOMIAL_64,
    REFERENCE,
    Array,
    _erf,
    compiled,
    sample,
    source,
    ulps,
)

from autosched.codegen.llvm.assemble import assembly
from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.math.core import MAX_ULP, emit
from autosched.errors import CodegenError
from autosched.target import Target

EDGES = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 1.1754942e-38, 1.17549435e-38]
    + [3.4028235e38, -3.4028235e38, 88.72283, 88.72284, -87.33654, -87.33655, -103.97207]
    + [-103.97208, -104, -150, 150, 0.34657359, -0.34657359, 0.875, 0.87499994, 4, 10, 0.70710677],
    dtype=np.float32,
)


@pytest.mark.parametrize(("target", "lanes"), FORMS)
@pytest.mark.parametrize("op", [*POLYNOMIAL, "sqrt", "rsqrt"])
def test_float32_error(op: str, target: str, lanes: int) -> None:
    count = 1 << 20 if (target, lanes) == ("llvm", 16) and op != "erf" else 1 << 15
    x = np.concatenate([EDGES, sample(count, seed=len(op) + lanes)])
    with np.errstate(all="ignore"):
        exact = REFERENCE[op](x.astype(np.float64))
        error = ulps(compiled(op, "float32", lanes, target)(x), exact, "float32")
    worst = int(error.argmax())
    assert error[worst] <= MAX_ULP["float32"][op], f"{op}({x[worst]!r}): {error[worst]} ulp"


def test_exp_of_every_subnormal_result() -> None:
    x = np.linspace(-103.98, -87.33, 1 << 18, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    for target, lanes in FORMS:
        found = compiled("exp", "float32", lanes, target)(x)
        assert ulps(found, exact, "float32").max() <= 1
        assert (found[exact > 2.0**-149] > 0).all(), "a subnormal result was flushed"


def test_exp_is_within_one_of_the_correctly_rounded() -> None:
    x = np.concatenate([EDGES, sample(1 << 20, seed=1)])
    found = compiled("exp", "float32", 16, "llvm")(x)
    with np.errstate(all="ignore"):
        rounded = np.exp(x.astype(np.float64)).astype(np.float32)
    number = ~np.isnan(x)
    assert np.array_equal(np.isnan(found), np.isnan(rounded))
    # Results are positive, so neighbouring floats have neighbouring bits.
    steps = found[number].view(np.int32).astype(np.int64) - rounded[number].view(np.int32)
    assert np.abs(steps).max() <= 1


@pytest.mark.parametrize(("target", "lanes"), FORMS)
@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("exp", [0, -0.0, np.inf, -np.inf, 89, -104], [1, 1, np.inf, 0, np.inf, 0]),
        ("log", [1, 0, -0.0, np.inf, -1, -np.inf], [0, -np.inf, -np.inf, np.inf, np.nan, np.nan]),
        ("tanh", [0, -0.0, np.inf, -np.inf, 20, -20], [0, -0.0, 1, -1, 1, -1]),
        ("erf", [0, -0.0, np.inf, -np.inf, 5, -5], [0, -0.0, 1, -1, 1, -1]),
        ("sigmoid", [0, -0.0, np.inf, -np.inf, 100, -110], [0.5, 0.5, 1, 0, 1, 0]),
        (
            "sin",
            [0, -0.0, np.inf, -np.inf, 1e-45, -1e-45],
            [0, -0.0, np.nan, np.nan, 1e-45, -1e-45],
        ),
        ("cos", [0, -0.0, np.inf, -np.inf, 1e-45, -1e-45], [1, 1, np.nan, np.nan, 1, 1]),
        ("rsqrt", [1, 4, np.inf, 0, -1, 0.25], [1, 0.5, 0, np.inf, np.nan, 2]),
    ],
)
def test_special_values(
    op: str, x: list[float], expected: list[float], target: str, lanes: int
) -> None:
    found = compiled(op, "float32", lanes, target)(np.array([*x, np.nan], np.float32))
    wanted = np.array([*expected, np.nan], np.float32)
    np.testing.assert_array_equal(found, wanted)
    number = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(found[number]), np.signbit(wanted[number]))


@settings(deadline=None)  # the first example compiles
@given(st.floats(width=32, allow_nan=False, allow_subnormal=False, min_value=-80, max_value=80))
def test_symmetries(x: float) -> None:
    both = np.array([x, -x], np.float32)
    for op in ("tanh", "erf"):
        plus, minus = compiled(op, "float32", 16, "llvm")(both)
        assert plus == -minus
    plus, minus = compiled("exp", "float32", 16, "llvm")(both).astype(np.float64)
    assert abs(plus * minus - 1) < 4e-7


@pytest.mark.parametrize("op", POLYNOMIAL)
def test_every_form_gives_the_same_number(op: str) -> None:
    x = np.concatenate([EDGES, sample(1 << 12, seed=9)])
    forms = [compiled(op, "float32", lanes, target)(x) for target, lanes in FORMS]
    for other in forms[1:]:
        np.testing.assert_array_equal(forms[0], other)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("op", list(EXACT))
def test_exact_functions(op: str, dtype: str, lanes: int) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -0.0, 0, np.inf, -np.inf, np.nan, 1e3, -3.7], dtype)
    found = compiled(op, dtype, lanes, "llvm")(x)
    np.testing.assert_array_equal(found, EXACT[op](x))
    number = ~np.isnan(x)
    assert np.array_equal(np.signbit(found[number]), np.signbit(EXACT[op](x)[number]))


@pytest.mark.parametrize("op", [op for op in REFERENCE if op != "pow"])
def test_float16_error(op: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        exact = REFERENCE[op](x.astype(np.float64))
        error = ulps(compiled(op, "float16", 16, "llvm")(x), exact, "float16")
    worst = int(error.argmax())
    assert error[worst] <= MAX_ULP["float16"][op], f"{op}({x[worst]!r}): {error[worst]} ulp"


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("op", [op for op in REFERENCE if op != "pow"])
def test_float64_of_ordinary_size(op: str, lanes: int) -> None:
    x = np.append(np.random.default_rng(3).standard_normal(999) * 5, [0.0])
    x = np.abs(x) if op in ("log", "sqrt", "rsqrt") else x
    with np.errstate(all="ignore"):
        exact = REFERENCE[op](x.astype(np.longdouble)) if op != "erf" else _erf(x)
    assert ulps(compiled(op, "float64", lanes, "llvm")(x), exact, "float64").max() <= 3


EDGES_64 = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 5e-324, -5e-324, 2.225073858507201e-308]
    + [2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308, 1.0 + 2.0**-52]
    + [709.782712893384, 709.7827128933841, 710, 711, -708.3964185322641, -745.1332191019411]
    + [-745.1332191019412, -746, -800, 800, 0.34657359027997264, 0.7071067811865476, 19.1, 20, 1e5]
)


def sample_64(count: int) -> Array:
    """Random float64 bit patterns, ordinary numbers, those near 1, and all of which exp is
    finite and not zero."""
    rng = np.random.default_rng(7)
    parts = [rng.standard_normal(count) * scale for scale in (1, 20)]
    parts += [rng.uniform(low, high, count) for low, high in ((0.5, 2.0), (-745.2, 709.8))]
    patterns = rng.integers(0, 1 << 64, count, np.uint64).view(np.float64)
    return np.concatenate([EDGES_64, patterns, *parts])


@pytest.mark.skipif(
    not HOST.has_fma or np.finfo(np.longdouble).nmant < 63,
    reason="polynomials need fused multiply-adds, and the test a longer type",
)
@pytest.mark.parametrize("op", POLYNOMIAL_64)
def test_float64_error(op: str) -> None:
    """Against the long double functions; the same number in every form, nothing flushed."""
    x = sample_64(1 << 15)
    forms = [(target, max(1, lanes // 2)) for target, lanes in FORMS]
    found = [compiled(op, "float64", lanes, target)(x) for target, lanes in forms]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    with np.errstate(all="ignore"):
        exact = REFERENCE[op](x.astype(np.longdouble))
        finite = np.isfinite(exact) & (exact != 0)
        exponent = np.floor(np.log2(np.abs(np.where(finite, exact, 1))))
        ulp = np.ldexp(np.longdouble(1), np.maximum(exponent - 52, -1074).astype(int))
        error = np.abs(found[0] - exact) / ulp
        # Where the nearest number is infinite or not a number, that is what stands there.
        rounded = exact.astype(np.float64)
    same = (rounded == found[0]) | (np.isnan(rounded) & np.isnan(found[0]))
    error = np.where(same & ~finite, 0, np.where(same & np.isinf(rounded), 0, error))
    error = np.where(np.isnan(error), np.inf, error)
    worst = int(error.argmax())
    assert error[worst] <= MAX_ULP["float64"][op], f"{op}({x[worst]!r}): {error[worst]} ulp"


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("op", POLYNOMIAL_64)
def test_float64_special_values(op: str, lanes: int) -> None:
    """Signed zeros and non-numbers, also where libm is called (no fused multiply-add)."""
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan])
    wanted = {
        "exp": [1, 1, np.inf, 0, np.nan],
        "log": [-np.inf, -np.inf, np.inf, np.nan, np.nan],
        "tanh": [0, -0.0, 1, -1, np.nan],
        "sigmoid": [0.5, 0.5, 1, 0, np.nan],
        "sin": [0, -0.0, np.nan, np.nan, np.nan],
        "cos": [1, 1, np.nan, np.nan, np.nan],
    }[op]
    for target in ("llvm", "llvm -mcpu=x86-64") if HOST.arch == "x86_64" else ("llvm",):
        found = compiled(op, "float64", lanes, target)(x)
        np.testing.assert_array_equal(found, wanted)
        number = ~np.isnan(found)
        assert np.array_equal(np.signbit(found[number]), np.signbit(np.array(wanted)[number]))


def test_float64_vectors_call_nothing() -> None:
    """One lane after the other would go to libm, which takes several times as long."""
    target = Target("llvm -mcpu=znver5 -mtriple=x86_64-unknown-linux-gnu")
    for op in POLYNOMIAL_64:
        loop = assembly(source(op, "float64", 8, target, 1), target, "full").split("\nf:")[1]
        calls = re.findall(r"call\w*\s+(\S+)", loop.split(".Lfunc_end")[0])
        # Only large arguments of these have a call, of one function, at the loop's side.
        assert calls == ([f"autosched.{op}.8xdouble.far"] if op in ("sin", "cos") else [])


@pytest.mark.parametrize("op", ["sin", "cos"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trigonometry_near_multiples_of_half_pi(op: str, dtype: str) -> None:
    """Where one of both is nearly nothing, up to the largest reduced argument."""
    limit, wide = (18, np.float64) if dtype == "float32" else (40, np.longdouble)
    if np.finfo(wide).nmant == np.finfo(dtype).nmant:
        pytest.skip("the reference needs a longer type")
    last = int(2.0**limit * 2 / math.pi)
    n = np.concatenate([np.arange(1, 1 << 12), np.arange(last - 500, last + 500)])
    n = np.append(n, np.random.default_rng(6).integers(1, last, 1 << 15))
    x = (n * (math.pi / 2)).astype(dtype)
    x = np.concatenate([x, np.nextafter(x, np.asarray(0, dtype)), -x])
    exact = REFERENCE[op](x.astype(wide))
    found = compiled(op, dtype, 8, "llvm")(x)
    ulp = np.ldexp(wide(1), np.floor(np.log2(np.abs(exact))).astype(int) - BITS[dtype])
    error = np.where(exact == found, 0, np.abs(found - exact) / ulp)
    assert error.max() <= 0.6


def test_large_arguments_leave_their_neighbours_alone() -> None:
    x = np.random.default_rng(5).uniform(-9, 9, 64).astype(np.float32)
    alone = compiled("sin", "float32", 16, "llvm")(x)
    x[::7] = 1e30
    found = compiled("sin", "float32", 16, "llvm")(x)
    assert np.delete(found, np.s_[::7]).tobytes() == np.delete(alone, np.s_[::7]).tobytes()
    np.testing.assert_array_equal(
        found[::7], np.sin(np.float64(np.float32(1e30))).astype("float32")
    )


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 16), ("float32", 1), ("float64", 4)])
def test_two_argument_power(dtype: str, lanes: int) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.uniform(0.1, 9, 500).astype(dtype), rng.uniform(-5, 5, 500).astype(dtype)
    exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert ulps(compiled("pow", dtype, lanes, "llvm", 2)(x, y), exact, dtype).max() <= 1


@pytest.mark.parametrize(("target", "lanes"), FORMS)
def test_float32_power_error(target: str, lanes: int) -> None:
    """Any two bit patterns, and bases near 1 to large powers."""
    rng = np.random.default_rng(8)
    x, y = rng.integers(0, 1 << 32, (2, 1 << 15), np.uint32).view(np.float32)
    near = (1 + rng.standard_normal(1 << 14) * 1e-3).astype(np.float32)
    x = np.concatenate([x, near, rng.uniform(-9, 9, 1 << 14).astype(np.float32)])
    y = np.append(y, (rng.standard_normal(1 << 14) * 3e4).astype(np.float32))
    y = np.append(y, rng.integers(-40, 41, 1 << 14).astype(np.float32))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        error = ulps(compiled("pow", "float32", lanes, target, 2)(x, y), exact, "float32")
    worst = int(error.argmax())
    assert error[worst] <= 0.55, f"pow({x[worst]!r}, {y[worst]!r}): {error[worst]} ulp"


POWERS = [0, 0.5, 1, 1.5, 2, 3, 1e-45, 3.4028235e38, 16777216, 8388607.5, np.inf]
SPECIAL = np.array([*POWERS, *(-v for v in POWERS), np.nan], np.float32)


def same_power(found: Array, x: Array, y: Array, bound: float) -> None:
    """`found` is x to the power of y, with the signs and non-numbers of C99."""
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        rounded = exact.astype(np.float32)
        assert ulps(found, exact, "float32").max() <= bound
    number = ~np.isnan(rounded)
    assert np.array_equal(np.isnan(found), ~number)
    assert np.array_equal(np.signbit(found[number]), np.signbit(rounded[number]))


@pytest.mark.parametrize(("target", "lanes"), FORMS)
def test_special_values_of_power(target: str, lanes: int) -> None:
    x, y = (m.ravel() for m in np.meshgrid(SPECIAL, SPECIAL))
    same_power(compiled("pow", "float32", lanes, target, 2)(x, y), x, y, 0.55)


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("y", [2.0, 3.0, -1.0, 0.5, -0.5])
def test_power_of_a_constant_calls_nothing(y: float, lanes: int) -> None:
    x = np.append(SPECIAL, sample(1 << 12, seed=2))
    for dtype in ("float32", "float64"):
        text = source("pow", dtype, lanes, HOST, 1, y)
        assert "@pow" not in text
        assert "double" not in text or dtype == "float64"
    found = compiled("pow", "float32", lanes, "llvm", 1, y)(x)
    same_power(found, x, np.full_like(x, y), MAX_ULP["float32"]["pow"])


@pytest.mark.parametrize(("dtype", "lanes"), [("int8", 16), ("int32", 8), ("int32", 1)])
def test_integer_abs(dtype: str, lanes: int) -> None:
    x = np.array([0, 1, -1, 100, -100, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    np.testing.assert_array_equal(compiled("abs", dtype, lanes, "llvm")(x), np.abs(x))


def test_exp_is_fifteen_instructions_with_avx512() -> None:
    target = Target("llvm -mcpu=znver5 -mtriple=x86_64-unknown-linux-gnu")
    text = assembly(source("exp", "float32", 16, target, 1), target)
    lines = [line for line in text.splitlines() if "zmm" in line]
    work = [line for line in lines if "broadcast" not in line and "vmov" not in line]
    assert 12 <= len(work) <= 15
    assert "call" not in text


@pytest.mark.parametrize("op", [*POLYNOMIAL, "pow"])
def test_arm_compiles(op: str) -> None:
    target = Target("llvm -mtriple=aarch64-unknown-linux-gnu")
    arity = 2 if op == "pow" else 1
    text = assembly(source(op, "float32", 4, target, arity), target)
    assert "fmla" in text


@pytest.mark.parametrize(
    ("op", "dtype", "message"),
    [
        ("gamma", "float32", "no code for gamma on float32; there is code for abs, ceil, cos"),
        ("exp", "int32", "exp is not defined on int32"),
    ],
)
def test_refusals(op: str, dtype: str, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        emit(Builder({}), op, ["%x"], dtype, 4, HOST)
