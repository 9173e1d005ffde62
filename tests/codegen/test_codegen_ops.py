"""Every operation on every dtype, one element at a time and in vectors, against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from guarded import MANY, TARGETS, arguments, check, compiled, need_halves

from autosched import te
from autosched.codegen.build import generate_ir
from autosched.codegen.llvm.math import elementary
from autosched.codegen.llvm.math.core import MAX_ULP
from autosched.errors import CodegenError
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir import dtypes, interp, whole
from autosched.tir import expr as ex
from autosched.tir.nodes import PrimFunc
from autosched.tir.operations import OPS

Array = npt.NDArray[Any]
FORMS = ("scalar", "vector")
BOOL_OPS = ("add", "mul", "min", "max", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")
ELEMENTARY = elementary.OPERATIONS
"""Whose errors are measured in test_elementary.py."""
FLOAT_ONLY = [name for name, row in OPS.items() if row.result == "float"]


def edge_values(dtype: str) -> Array:
    """Zeros, limits, infinities, NaN, subnormals, halves and ordinary numbers."""
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_float(dtype):
        info = np.finfo(dtype)
        numbers = [0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 100.0, info.max, info.tiny]
        numbers += [info.smallest_subnormal, np.inf]
        return np.array([*numbers, *(-x for x in numbers), np.nan], dtype)
    info = np.iinfo(dtype)
    numbers = [0, 1, 2, 3, 5, 7, 10, 100, info.max, info.max - 1, info.min, info.min + 1]
    signed = [-1, -2, -3, -7, -100] if dtype in dtypes.SIGNED else []
    return np.array([*numbers, *signed], dtype)


def pairs(values: Array) -> tuple[Array, Array]:
    """Every value with every other."""
    a, b = zip(*itertools.product(values, values), strict=True)
    return np.array(a, values.dtype), np.array(b, values.dtype)


def both(func: PrimFunc) -> Schedule:
    """Blocks whose name begins with v run in vectors, the others one element at a time."""
    sch = Schedule(func)
    for block in sch.get_blocks():
        if sch.get(block).name.startswith("v"):
            sch.vectorize(sch.get_loops(block)[-1])
    return sch


def elementwise(function: Any, inputs: list[Array], target: str, **tolerance: Any) -> None:
    """Compare `function` of placeholders over `inputs` of one length, in scalars and vectors."""
    (n,) = inputs[0].shape
    given = [te.placeholder((n,), name=f"a{k}", dtype=x.dtype.name) for k, x in enumerate(inputs)]
    outs = [te.compute((n,), lambda i: function(*(p[i] for p in given)), name=x) for x in FORMS]
    func = te.create_prim_func([*given, *outs])
    check(both(func), func, inputs, target=target, **tolerance)


def tolerance_of(op: str, dtype: str) -> dict[str, float]:
    """What the vector mathematics promise, plus what NumPy's own may be off."""
    if OPS[op].cost != "math" or op in ("floor", "ceil", "round", "trunc"):
        return {}
    ulp, info = MAX_ULP.get(dtype, {}).get(op, 2.0) + 4, np.finfo(dtype)
    # NumPy's sigmoid overflows in exp(-x) before its own value does.
    small = info.tiny if op == "sigmoid" else ulp * info.smallest_subnormal
    return {"rtol": float(ulp * info.eps), "atol": float(small)}


def dtypes_of(names: Any) -> list[Any]:
    """Parameters; what is as another width of it is for the long suite."""
    wide = ("uint16", "uint32", "uint64")
    return [pytest.param(n, marks=[pytest.mark.long] if n in wide else []) for n in names]


CASES = [
    pytest.param(
        op,
        dtype,
        marks=[pytest.mark.long] if dtype in dtypes.UNSIGNED[1:] or op in ELEMENTARY else [],
    )
    for op in OPS
    for dtype in dtypes.ARITHMETIC
    if op not in ("cast", "reinterpret", "select", "if_then_else")
    and not (op in FLOAT_ONLY and not dtypes.is_float(dtype))
    and not (OPS[op].result == "int" and not dtypes.is_int(dtype))
    and not (dtype == "bool" and op not in BOOL_OPS)
    and not (op in ("and", "or", "not") and dtype != "bool")
]


@MANY
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_operation(op: str, dtype: str, target: str) -> None:
    need_halves(target, dtype)
    values = edge_values(dtype)
    inputs = list(pairs(values)) if OPS[op].arity == 2 else [values]
    if op in ("sin", "cos", "tan"):  # libm reduces huge arguments, NumPy its own way
        inputs = [np.where(np.abs(values) < 1000, values, values.dtype.type(1))]
    elementwise(lambda *x: ex.call(op, *x), inputs, target, **tolerance_of(op, dtype))


@MANY
@pytest.mark.parametrize("dtype", dtypes_of(dtypes.ARITHMETIC))
@pytest.mark.parametrize("op", ["select", "if_then_else"])
def test_choice(op: str, dtype: str, target: str) -> None:
    need_halves(target, dtype)
    a, b = pairs(edge_values(dtype))
    elementwise(lambda x, y: ex.call(op, x < y, y, x), [a, b], target)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", dtypes_of(dtypes.ARITHMETIC))
@pytest.mark.parametrize("op", ["floordiv", "floormod", "min", "max", "mul", "lt", "add"])
def test_with_a_constant(op: str, dtype: str) -> None:
    """Constants fold into other instructions."""
    if dtype == "bool" and op in ("floordiv", "floormod"):
        pytest.skip("not defined on bool")
    values = edge_values(dtype)
    a = te.placeholder(values.shape, name="a", dtype=dtype)
    outs = []
    for n, c in enumerate(te.const(x, dtype) for x in values.tolist()):
        outs += [
            te.compute(values.shape, lambda i, c=c: ex.call(op, c, a[i]), name=f"v_left{n}"),
            te.compute(values.shape, lambda i, c=c: ex.call(op, a[i], c), name=f"v_right{n}"),
        ]
    func = te.create_prim_func([a, *outs])
    check(both(func), func, [values])


def convertible(source: str, dtype: str) -> Array:
    """Values whose conversion NumPy defines: in range, fractions allowed."""
    values = edge_values(source)
    rng = np.random.default_rng(0)
    if dtypes.is_float(source):
        more = rng.normal(size=200) * 10.0 ** rng.integers(-8, 5, 200)
        values = np.concatenate([values, more.astype(source)])
    elif source != "bool":
        info = np.iinfo(source)
        values = np.concatenate([values, rng.integers(info.min, info.max, 300, dtype=source)])
    if dtypes.is_float(source) and dtypes.is_int(dtype):
        info = np.iinfo(dtype)
        with np.errstate(invalid="ignore"):
            whole = np.trunc(values.astype("float64"))
        values = values[(whole >= info.min) & (whole <= info.max) & (np.abs(whole) < 2**62)]
    return values


@MANY
@pytest.mark.parametrize("dtype", dtypes_of(dtypes.ARITHMETIC))
@pytest.mark.parametrize("source", dtypes_of(dtypes.ARITHMETIC))
def test_cast(source: str, dtype: str, target: str) -> None:
    need_halves(target, source, dtype)
    elementwise(lambda x: te.cast(x, dtype), [convertible(source, dtype)], target)


@pytest.mark.parametrize("dtype", dtypes_of([*dtypes.SIGNED, *dtypes.UNSIGNED]))
@pytest.mark.parametrize("source", dtypes.FLOATS)
def test_floats_saturate_to_integers(source: str, dtype: str) -> None:
    """Where NumPy leaves it open: the nearest integer there is, and 0 for NaN. The interpreter has
    it so too."""
    values = edge_values(source)
    a = te.placeholder(values.shape, name="a", dtype=source)
    outs = [te.compute(values.shape, lambda i: te.cast(a[i], dtype), name=x) for x in FORMS]
    func = te.create_prim_func([a, *outs])
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    wanted = [0 if np.isnan(v) else min(max(v, low), high) for v in values.tolist()]
    for found in compiled(both(func), arguments(func, [values]))[1:]:
        assert found.tolist() == [int(v) for v in wanted]
    for evaluate in (interp.run, whole.reference):
        arrays = arguments(func, [values])
        evaluate(func, arrays)
        assert arrays[1].tolist() == [int(v) for v in wanted], evaluate


def test_index_arithmetic_in_bodies() -> None:
    """Axes as values: conditions on them fold, digits of them are computed."""
    a = te.placeholder((41,), name="a", dtype="int64")

    def point(i: ex.Expr) -> ex.Expr:
        return te.select(te.any(i % 7 == 3, i // 5 > 6, i <= 2), a[i] * (i - 20), (20 - i) // 3)

    func = te.create_prim_func([a, *(te.compute((41,), point, name=x) for x in FORMS)])
    check(both(func), func)


@pytest.mark.parametrize("dtype", dtypes.FLOATS)
def test_constants_of_floats(dtype: str) -> None:
    """NaN of either sign, values beyond the dtype, the smallest: as NumPy rounds them."""
    values = edge_values(dtype)
    a = te.placeholder(values.shape, name="a", dtype=dtype)
    with np.errstate(over="ignore"):
        numbers = [*values.tolist(), -np.nan, 1e300, -1e300, 1e-300, 0.1, 65519.9, 65520.0]
    outs = [
        te.compute(
            values.shape,
            lambda i, x=x: te.max(a[i], te.const(x, dtype)) + te.const(x, dtype),
            name=f"out{n}",
        )
        for n, x in enumerate(numbers)
    ]
    func = te.create_prim_func([a, *outs])
    arrays = arguments(func, [values])
    found = compiled(func, arrays)[1:]
    with np.errstate(all="ignore"):
        for x, out in zip(numbers, found, strict=True):
            c = values.dtype.type(x)
            np.testing.assert_array_equal(out, np.maximum(values, c) + c)


@pytest.mark.parametrize("target", TARGETS)
def test_mixed_widths(target: str) -> None:
    """One expression over bytes, halves, words and long words."""
    need_halves(target, "float16")
    n = 75
    names = {"a": "int8", "b": "float16", "c": "bool", "d": "float64"}
    a, b, c, d = (te.placeholder((n,), name=x, dtype=t) for x, t in names.items())

    def chosen(i: ex.Expr) -> ex.Expr:
        half = te.cast(te.cast(b[i], "float32"), "float64")
        return te.select(c[i], te.cast(a[i], "float64") + d[i], half)

    def flag(i: ex.Expr) -> ex.Expr:
        return te.all(te.cast(a[i], "float64") < d[i], c[i])

    outs = [te.compute((n,), f, name=f"{x}{f.__name__}") for f in (chosen, flag) for x in "sv"]
    func = te.create_prim_func([a, b, c, d, *outs])
    check(both(func), func, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_one_half_for_all_lanes_is_widened_in_all_lanes(target: str) -> None:
    """The conversion of one lane would wait for that before it, whose register it inserts into."""
    need_halves(target, "float16")
    a, b = (te.placeholder((n,), name=x, dtype="float16") for n, x in ((8, "a"), (64, "b")))
    wide = te.compute(
        (8, 64), lambda i, j: te.cast(a[i], "float32") * te.cast(b[j], "float32"), name="v"
    )
    made = both(te.create_prim_func([a, b, wide]))
    check(made, made.func, target=target)
    assert " x half> poison, half %" in generate_ir(made.func, Target(target)).ir


def test_no_halves() -> None:
    a = te.placeholder((4,), name="a", dtype="float32")
    out = te.compute((4,), lambda i: te.cast(te.cast(a[i], "float16"), "float32"), name="out")
    func = te.create_prim_func([a, out])
    message = "block out computes with float16, which x86-64 cannot convert; use float32"
    with pytest.raises(CodegenError, match=message):
        generate_ir(func, Target("llvm -mcpu=x86-64 -mtriple=x86_64-linux-gnu"))


@pytest.mark.parametrize("size", [1, 64, 77])
@pytest.mark.parametrize("form", ["difference", "sum of a negation", "negation first"])
def test_a_difference_of_equal_products_is_zero(size: int, form: str) -> None:
    """Were one of them not rounded, half of the roots would be of a number below zero."""
    x, y = (te.placeholder((size,), name=n) for n in "xy")
    differences = {
        "difference": lambda a, b: a - b,
        "sum of a negation": lambda a, b: a + -b,
        "negation first": lambda a, b: -b + a,
    }
    root = te.compute(
        (size,), lambda i: te.sqrt(differences[form](x[i] * x[i], y[i] * y[i])), name="root"
    )
    schedule = Schedule(te.create_prim_func([x, y, root]))
    if size > 1:
        schedule.vectorize(schedule.get_loops("root")[-1])
    given, out = (
        np.random.default_rng(0).standard_normal(size).astype("f4"),
        np.full(size, np.nan, "f4"),
    )
    *_, found = compiled(schedule.func, [given, given.copy(), out])
    np.testing.assert_array_equal(found, np.zeros(size, "f4"))
