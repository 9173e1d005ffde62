"""Every operation on every dtype in generated OpenCL against NumPy; the same as CUDA."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_host import CXX, run_on_host
from gpu_run import cuda, ordered, poisoned, run, source

from autosched import te
from autosched.codegen.cuda import compile_cuda
from autosched.schedule import Schedule
from autosched.tir import dtypes, interp
from autosched.tir import expr as ex
from autosched.tir.nodes import PrimFunc
from autosched.tir.operations import OPS

Array = np.ndarray[Any, Any]
BOOL_OPS = ("add", "mul", "min", "max", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")


def values(dtype: str) -> Array:
    """Zeros, limits, infinities, NaN, halves and ordinary numbers."""
    if dtype == "bool":
        return np.array([False, True])
    if dtypes.is_float(dtype):
        info = np.finfo(dtype)
        numbers = [0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 100.0, info.max, np.inf]
        return np.array([*numbers, *(-x for x in numbers), np.nan], dtype)
    info = np.iinfo(dtype)
    numbers = [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, info.min + 1]
    return np.array([*numbers, *([-1, -2, -7] if dtype in dtypes.SIGNED else [])], dtype)


def defined(op: str, dtype: str) -> bool:
    row = OPS[op]
    if op in ("cast", "reinterpret", "select", "if_then_else"):
        return False
    if dtype == "bool":
        return op in BOOL_OPS
    if op in ("and", "or", "not"):
        return False
    if row.result == "int":
        return dtypes.is_int(dtype)
    return row.result != "float" or dtypes.is_float(dtype)


def bound(outs: Any, params: list[te.Tensor]) -> PrimFunc:
    """One kernel with a thread an element."""
    sch = Schedule(te.create_prim_func([*params, *outs]))
    (block,) = sch.get_blocks()
    outer, inner = sch.split(sch.get_loops(block)[0], [None, 32])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    return sch.func


def compared(func: PrimFunc, inputs: list[Array], what: list[str], exact: list[bool]) -> None:
    wanted = poisoned(func)
    interp.run(func, ordered(func, inputs, wanted))
    found = run(func, inputs)
    for name, is_exact, x, y in zip(what, exact, found, wanted, strict=True):
        if is_exact or not np.issubdtype(y.dtype, np.floating):
            np.testing.assert_array_equal(x, y, err_msg=name)
        else:
            eps = float(np.finfo(y.dtype).eps)
            np.testing.assert_allclose(x, y, rtol=16 * eps, atol=16 * eps, err_msg=name)
    assert compile_cuda(source(func, cuda()), "sm_90")


QUICK = ("float32", "int8", "int64", "uint8", "bool")
"""The other dtypes have the same code, or take compilers long."""
DTYPES = [d if d in QUICK else pytest.param(d, marks=pytest.mark.long) for d in dtypes.ARITHMETIC]


@pytest.mark.parametrize("dtype", DTYPES)
def test_operations(dtype: str) -> None:
    # Of float16 GPUs have no nextafter; it is refused by name.
    ops = [op for op in OPS if defined(op, dtype) and (op, dtype) != ("nextafter", "float16")]
    a, b = (
        np.array(x, dtype) for x in zip(*itertools.product(values(dtype), repeat=2), strict=True)
    )
    arrays = [a, b]
    if dtypes.is_float(dtype):  # what sin makes of huge arguments, and pow of NaN, is the device's
        arrays += [np.where(np.isfinite(x) & (abs(x) < 1000), x, x.dtype.type(2)) for x in (a, b)]
    p = [te.placeholder(a.shape, name=f"a{n}", dtype=dtype) for n in range(len(arrays))]

    def element(i: Any) -> Any:
        args = [x(i) for x in p]
        return tuple(
            ex.call(op, *args[2 if op in ("sin", "cos", "pow") else 0 :][: OPS[op].arity])
            for op in ops
        )

    exact = [OPS[op].cost != "math" or op in ("floor", "ceil", "round") for op in ops]
    compared(bound(te.compute(a.shape, element, name="out"), p), arrays, ops, exact)


@pytest.mark.parametrize(
    ("source", "dtype"),
    [("float32", "int32"), ("uint32", "float32"), ("float64", "uint64"), ("int8", "uint8")]
    + [("uint16", "int16"), ("int64", "float64")],
)
def test_bits(source: str, dtype: str) -> None:
    a = np.random.default_rng(0).integers(1, 100, 64, dtype=np.int64).astype(source)
    p = te.placeholder(a.shape, name="a", dtype=source)
    made = te.compute(a.shape, lambda i: (te.reinterpret(dtype, p[i]),), name="out")
    compared(bound(made, [p]), [a], ["bits"], [True])


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_and_constants(dtype: str) -> None:
    a, b = (
        np.array(x, dtype) for x in zip(*itertools.product(values(dtype), repeat=2), strict=True)
    )
    p = [te.placeholder(a.shape, name=n, dtype=dtype) for n in "ab"]
    numbers = [te.const(x, dtype) for x in values(dtype)[::3].tolist()]
    ops = [op for op in ("add", "mul", "max", "floordiv", "floormod") if defined(op, dtype)]

    def element(i: Any) -> Any:
        x, y = (t(i) for t in p)
        choices = [ex.call(op, x < y, y, x) for op in ("select", "if_then_else")]
        return (*choices, *(ex.call(op, x, c) for op in ops for c in numbers))

    names = ["select", "if_then_else", *(f"{op} {c!r}" for op in ops for c in numbers)]
    compared(bound(te.compute(a.shape, element, name="out"), p), [a, b], names, [True] * len(names))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source_dtype", [*dtypes.ARITHMETIC, "bfloat16"])
def test_casts(source_dtype: str) -> None:
    """Of values that every integer holds; float16 and bfloat16 round."""
    numbers = np.array([0, 1, 2, 3, 100, 0.5, 1.25, 3.1415926, 17.03125, 99.9])
    if source_dtype == "bool":
        numbers = np.array([0, 1])
    bits = (
        dtypes.from_float32(numbers) if source_dtype == "bfloat16" else numbers.astype(source_dtype)
    )
    p = te.placeholder(bits.shape, name="a", dtype=source_dtype)
    if source_dtype == "bfloat16":
        targets = ["float32", "bfloat16"]
    else:
        targets = [*dtypes.ARITHMETIC, *(["bfloat16"] if source_dtype == "float32" else [])]

    def element(i: Any) -> Any:
        return tuple(ex.cast(p(i), t) for t in targets)

    func = bound(te.compute(bits.shape, element, name="out"), [p])
    compared(func, [bits], targets, [True] * len(targets))


@pytest.mark.parametrize("source_dtype", ["float32", "float16", "float64"])
def test_floats_that_no_integer_holds(source_dtype: str, tmp_path: Path) -> None:
    """They are the least or the largest integer, and NaN is 0; so in C++ too."""
    with np.errstate(over="ignore"):
        ends = [float(dtypes.maximum(d)) + 1 for d in (*dtypes.SIGNED, *dtypes.UNSIGNED)]
        near = [x + d for x in ends for d in (-1, -0.5, 0, 0.5)]
        numbers = np.array([*near, *(-x for x in near), np.inf, -np.inf, np.nan, -0.0])
        given = numbers.astype(source_dtype)
    p = te.placeholder(given.shape, name="a", dtype=source_dtype)
    targets = [*dtypes.SIGNED, *dtypes.UNSIGNED]

    def element(i: Any) -> Any:
        limited = te.max(te.min(p(i), te.const(100, source_dtype)), te.const(0, source_dtype))
        return tuple(ex.cast(x, t) for x in (p(i), limited) for t in targets)

    func = bound(te.compute(given.shape, element, name="out"), [p])
    compared(func, [given], 2 * targets, [True] * 2 * len(targets))
    wanted = poisoned(func)
    interp.run(func, ordered(func, [given], wanted))
    for name, values in zip(targets, wanted[: len(targets)], strict=True):
        low, high = int(dtypes.minimum(name)), int(dtypes.maximum(name))
        limited = [0 if x != x else int(min(max(x, low), high)) for x in given.tolist()]
        assert values.tolist() == limited, name
    if CXX is not None:
        for outputs in run_on_host(func, [given], tmp_path):
            for name, x, y in zip(2 * targets, outputs, wanted, strict=True):
                np.testing.assert_array_equal(x, y, err_msg=name)


def test_integer_indices_as_values() -> None:
    """Products of indices need more than 32 bits; sums and quotients of them do not."""
    n = 300000

    def element(i: Any) -> Any:
        return (
            i * i,
            (i - 7) // 5,
            (i - 7) % 5,
            te.cast(i, "float32"),
            te.if_then_else(i * i > 9, i, -i),
        )

    func = bound(te.compute((n,), element, name="out"), [])
    i = np.arange(n)
    wanted = [i * i, (i - 7) // 5, (i - 7) % 5, i.astype("float32"), np.where(i * i > 9, i, -i)]
    for found, w in zip(run(func, []), wanted, strict=True):
        np.testing.assert_array_equal(found, w)
