"""C source of scheduled programs: it compiles alone, without warnings, and computes the same."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bounded import Budget
from hypothesis import given, note, settings
from opaque_programs import prefix
from schedule_fuzz import random_program, random_schedule
from schedule_outcome import outputs
from test_schedule_property import PROGRAMS, QUICK, TRACES

import autosched as at
from autosched import ops, te
from autosched.codegen import c
from autosched.codegen.c_names import HELPERS
from autosched.errors import ArgumentError, CodegenError
from autosched.script import parse, parse_func
from autosched.tir.interp import run
from autosched.tir.nodes import PrimFunc, inputs_of

RANDOM = Budget(12)
ALIGNMENT = 64


def compiled(text: str, name: str, folder: Path) -> Callable[..., None]:
    """The function `name` of a C source, which compiles by itself and without a warning."""
    file, library = folder / f"{name}.c", folder / f"{name}.so"
    file.write_text(text)
    strict = ["-std=c11", "-O1", "-Wall", "-Wno-unused-function", "-Werror", "-ffp-contract=off"]
    subprocess.run(["cc", *strict, "-shared", "-fPIC", str(file), "-o", str(library), "-lm"],
                   check=True)  # fmt: skip
    function = ctypes.CDLL(str(library))[name]
    size = next(int(x.split()[2]) for x in text.splitlines() if x.startswith("#define "))
    memory = np.full(size + ALIGNMENT, 0xA5, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT

    def call(*arrays: np.ndarray) -> None:
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        function(*pointers, ctypes.c_void_p(memory.ctypes.data + start))
        assert (memory[start + size :] == 0xA5).all(), "written beyond the workspace"

    return call


def check(program: list[int], trace: list[int], folder: Path) -> None:
    func = random_program(program)
    schedule = random_schedule(func, trace)
    text = at.c_source(schedule)
    note(f"{schedule.func.script()}\n{text}")
    rng = np.random.default_rng(len(trace))
    inputs = {b.name for b in inputs_of(func)}
    arrays = []
    for b in func.params:
        shape = tuple(int(n) for n in b.shape)
        full = rng.integers(-4, 5, shape) if b.name in inputs else np.full(shape, 10**15)
        arrays.append(np.ascontiguousarray(full.astype(b.dtype)))
    place = folder / str(len(list(folder.iterdir())))
    place.mkdir()
    compiled(text, "kernel", place)(*arrays)
    found = [x for x, b in zip(arrays, func.params, strict=True) if b.name not in inputs]
    for x, y in zip(found, outputs(func, func, len(trace)), strict=True):
        assert np.array_equal(x, y), "the results differ"


def test_random_schedules(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("c")

    @settings(QUICK, max_examples=60)
    @given(PROGRAMS, TRACES)
    def every(program: list[int], trace: list[int]) -> None:
        RANDOM.run(check, program, trace, folder)

    every()


def test_a_schedule_of_the_stage_view(tmp_path: Path) -> None:
    a, b = te.placeholder((20, 30), name="A"), te.placeholder((30, 40), name="B")
    k = te.reduce_axis((0, 30), name="k")
    c = te.compute((20, 40), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((20, 40), lambda i, j: te.exp(c[i, j] * 0.1), name="D")
    s = te.create_schedule(d)
    x, y = d.op.axis
    xo, xi = s[d].split(x, factor=3)
    yo, yi = s[d].split(y, factor=16)
    s[d].reorder(xo, yo, xi, yi)
    s[d].parallel(xo)
    s[d].vectorize(yi)
    s[c].compute_at(s[d], yo)
    text = at.c_source(s, [a, b, d], name="product")
    assert "p2: D, float32[20, 40], written" in text
    assert "#pragma" not in text
    rng = np.random.default_rng(0)
    given_a, given_b = rng.random((20, 30), np.float32), rng.random((30, 40), np.float32)
    out, expected = np.empty((2, 20, 40), np.float32)
    compiled(text, "product", tmp_path)(given_a, given_b, out)
    at.build(s, [a, b, d], "llvm")(given_a, given_b, expected)
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
)
def test_dtypes(dtype: str, tmp_path: Path) -> None:
    a = te.placeholder((50,), dtype, "a")
    b = te.compute((50,), lambda i: a[i] * 3 - 1, name="b")
    func = te.create_prim_func([a, b], name=f"of_{dtype}")
    x = (np.arange(50) - 20).astype(dtype)
    y, expected = np.empty((2, 50), dtype)
    compiled(at.c_source(func), func.name, tmp_path)(x, y)
    run(func, [x, expected])
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_floats_that_no_integer_holds(dtype: str, source: str, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    ends = [float(end) + d for end in (info.min, info.max + 1) for d in (-1, -0.5, 0, 0.5)]
    with np.errstate(over="ignore"):
        x = np.array([*ends, 1e30, -1e30, np.inf, -np.inf, np.nan, 3.7, -3.7]).astype(source)
    a = te.placeholder(x.shape, source, "a")
    b = te.compute(x.shape, lambda i: te.cast(a[i], dtype), name="b")
    limited = te.compute(
        x.shape, lambda i: te.cast(te.max(te.min(a[i], 100.0), 0.0), dtype), name="limited"
    )
    func = te.create_prim_func([a, b, limited], name="casts")
    found, expected = np.empty((2, 2, len(x)), dtype)
    compiled(at.c_source(func), func.name, tmp_path)(x, *found)
    run(func, [x, *expected])
    np.testing.assert_array_equal(found, expected)
    assert expected[1][np.isnan(x)].tolist() == [0]


def plain(dtype: str = "float32", name: str = "f") -> PrimFunc:
    return parse_func(f"""
@T.prim_func
def {name}(x: T.Buffer((4,), "{dtype}"), y: T.Buffer((4,), "{dtype}")):
    for i in range(4):
        with T.block("b"):
            vi = T.axis.spatial(4, i)
            y[vi] = x[vi]
""")


def opaque() -> PrimFunc:
    a = te.placeholder((4, 4), "int64", "a")
    return te.create_prim_func([a, te.extern((4, 4), [a], prefix(4, 4), name="o")])


@pytest.mark.parametrize(
    ("program", "kind", "message"),
    [
        (lambda: plain(name="double_"), None, ""),
        (lambda: plain(name="printf"), ArgumentError, "cannot be a function's name"),
        (lambda: at.IRModule.of(plain(), plain(name="g")), ArgumentError, "the functions f, g"),
        (lambda: te.create_prim_func(_symbolic()), CodegenError, "has symbolic sizes"),
        (opaque, CodegenError, "C source has no form of it"),
        (lambda: parse("@T.routine\ndef r(x: T.Buffer((4,))):\n    pass\n"), ArgumentError, "is a"),
    ],
)
def test_what_has_no_c_source_says_why(
    program: Callable[[], Any], kind: type[Exception] | None, message: str
) -> None:
    if kind is None:
        assert "void double_(" in at.c_source(program())
        return
    with pytest.raises(kind, match=message):
        at.c_source(program())


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int16", "float32"])
def test_the_best_and_its_index(dtype: str, tmp_path: Path) -> None:
    """Two results of one reduction, whose condition has both "and" and "or"."""
    rng = np.random.default_rng(0)
    x = te.placeholder((5, 33), dtype, "x")
    func = te.create_prim_func([x, ops.argmax(x, axis=1, keepdims=0)], "best")
    given, out = rng.integers(0, 9, (5, 33)).astype(dtype), np.zeros(5, "i8")
    compiled(at.c_source(func), func.name, tmp_path)(given, out)
    np.testing.assert_array_equal(out, given.argmax(1))


def _symbolic() -> list[Any]:
    a = te.placeholder((te.var("n"),), name="a")
    return [a, te.compute(a.shape, lambda i: a[i] + 1.0, name="b")]


def test_a_gpu_schedule_has_none() -> None:
    sch = at.Schedule(plain())
    (i,) = sch.get_loops("b")
    sch.bind(i, "threadIdx.x")
    with pytest.raises(CodegenError, match=r"bound to threadIdx\.x, which C does not have"):
        at.c_source(sch)


TAKEN = """
NULL NAN INFINITY INT64_MAX UINT8_MAX SIZE_MAX INT_FAST8_MIN INT32_WIDTH FP_NAN M_PI M_SQRT1_2
HUGE_VAL MATH_ERRNO math_errhandling unix linux typeof asm nullptr constexpr uint8_t int64_t bool
expf sqrtf fabsf inverse_sqrtf bits_of f16_load f16_store signbit memcpy
"""


@pytest.mark.parametrize("standard", ["c11", "gnu17"])
def test_names_of_buffers_are_no_words_of_c(standard: str) -> None:
    inputs = [te.placeholder((4,), "float16", name) for name in TAKEN.split()]

    def body(i: Any) -> Any:
        values = [x[i].astype("float32") for x in inputs]
        return te.cast(sum(te.exp(v) + te.sqrt(te.abs(v)) * te.rsqrt(v) for v in values), "uint8")

    source = at.c_source(te.create_prim_func([*inputs, te.compute((4,), body, name="out")]))
    command = ["cc", f"-std={standard}", "-Wall", "-fsyntax-only", "-x", "c", "-"]
    done = subprocess.run(command, input=source, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["FP_NAN", "HUGE_VALF", "MATH_ERRNO", "isless", "bits_of"])
def test_names_of_functions_are_no_words_of_c(name: str) -> None:
    A = te.placeholder((4,), name="A")
    func = te.create_prim_func([A, te.compute((4,), lambda i: A[i] + 1, name="B")])
    with pytest.raises(ArgumentError, match="cannot be a function's name"):
        at.c_source(func, name=name)


def test_ordinary_names_of_buffers_stay() -> None:
    A, MAX_N, index = (te.placeholder((4,), name=n) for n in ("A", "MAX_N", "index"))
    S0 = te.compute((4,), lambda i: A[i] + MAX_N[i] + index[i], name="S0")
    source = at.c_source(te.create_prim_func([A, MAX_N, index, S0]))
    assert all(f"restrict {n}" in source for n in ("A", "MAX_N", "index", "S0"))


def test_every_helper_of_the_text_is_a_reserved_name() -> None:
    text = c._HELPERS + c._HALF
    assert set(re.findall(r"^static inline \w+ (\w+)\(", text, re.MULTILINE)) == HELPERS
