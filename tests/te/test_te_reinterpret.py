"""Bits of values as another dtype: the interpreter, generated code and C against NumPy's views."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import CodegenError, TensorExprError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.script.migrate import migrate
from autosched.tir import dtypes, interp

PAIRS = [
    (a, b)
    for a, b in itertools.permutations(dtypes.DTYPES, 2)
    if "bool" not in (a, b) and dtypes.itemsize(a) == dtypes.itemsize(b)
]


def patterns(dtype: str, n: int = 64) -> np.ndarray:
    """Random bits."""
    size = n * dtypes.itemsize(dtype)
    raw = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    return raw.view(dtypes.array_dtype(dtype))


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Bit by bit; what is NaN may have another quiet bit."""
    if np.issubdtype(a.dtype, np.floating):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        a, b = np.where(np.isnan(a), 0, a), np.where(np.isnan(b), 0, b)
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("source", "dtype"), PAIRS)
def test_bits_are_those_of_the_value(source: str, dtype: str) -> None:
    A = te.placeholder((64,), source, "A")
    B = te.compute((64,), lambda i: te.reinterpret(dtype, A[i]), name="B")
    func = te.create_prim_func([A, B])
    assert parse_func(func.script()).same(func)
    given = patterns(source)
    expected = given.view(dtypes.array_dtype(dtype))
    vectors = Schedule(func)
    vectors.vectorize(vectors.get_loops("B")[0])
    ours, built, wide = (np.zeros_like(expected) for _ in range(3))
    interp.run(func, [given, ours])
    at.build(func, target="llvm")(given, built)
    at.build(vectors.func, target="llvm")(given, wide)
    for found in (ours, built, wide):
        same(found, expected)


def test_bfloat16_by_hand() -> None:
    """What programs do that were made for processors without bfloat16."""
    A = te.placeholder((64,), "uint16", "A")
    B = te.compute((64,), lambda i: te.reinterpret("float32", A[i].astype("uint32") << 16))
    bits = patterns("uint16")
    result = np.zeros(64, np.float32)
    at.build(te.create_prim_func([A, B]), target="llvm")(bits, result)
    same(result, bits.view(ml_dtypes.bfloat16).astype(np.float32))


def test_it_is_no_conversion_of_the_value() -> None:
    """A reinterpreted index is any number, and a constant keeps its bits."""
    A = te.placeholder((8,), "float32", "A")
    read = te.compute((8,), lambda i: A[te.reinterpret("int64", i.astype("float64"))])
    with pytest.raises(at.AutoschedError, match="not provably in"):
        te.create_prim_func([A, read])
    one = te.compute((1,), lambda i: te.reinterpret("int32", te.const(1.0, "float32")))
    result = np.zeros(1, np.int32)
    at.build(te.create_prim_func([one]), target="llvm")(result)
    assert result[0] == 0x3F800000


def test_other_types_are_refused() -> None:
    A = te.placeholder((4,), "float32", "A")
    for dtype in ("int64", "float16", "bool"):
        with pytest.raises(TensorExprError, match=f"the bits of float32 are none of {dtype}"):
            te.reinterpret(dtype, A)
    assert te.reinterpret("float32", A[0]).same_leaf(A[0])


def test_sources_of_c() -> None:
    for source, dtype in (("float32", "uint32"), ("int64", "float64"), ("uint8", "int8")):
        A = te.placeholder((4,), source, "A")
        B = te.compute((4,), lambda i, A=A, to=dtype: te.reinterpret(to, A[i]), name="B")
        text = at.c_source(te.create_prim_func([A, B]))
        assert ("union" in text) == ("float" in source + dtype)
    A = te.placeholder((4,), "float16", "A")
    B = te.compute((4,), lambda i: te.reinterpret("int16", A[i]), name="B")
    with pytest.raises(CodegenError, match="reinterpret of float16 has no code"):
        at.c_source(te.create_prim_func([A, B]))


@pytest.mark.parametrize(
    "call",
    [
        'T.reinterpret("int32", A[vi])',
        'T.reinterpret(A[vi], dtype="int32")',
        'T.reinterpret("int32", T.reinterpret("uint32", A[vi]) ^ T.uint32(0))',
        "T.reinterpret(d, A[vi])",
    ],
)
def test_it_is_migrated(call: str) -> None:
    found = migrate(
        f"""
d = "int32"

@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "int32")):
    for i in range(64):
        with T.block("B"):
            vi = T.axis.S(64, i)
            B[vi] = {call}
"""
    )
    assert found.report() == "main (line 5): rewritten\n", found.report()
    given, result = patterns("float32"), np.zeros(64, np.int32)
    interp.run(found.program(), [given, result])  # type: ignore[arg-type]
    assert result.tobytes() == given.tobytes()
