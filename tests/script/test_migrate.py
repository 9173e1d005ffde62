"""TVMScript rewritten: what is made of a program computes what the program does."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tvmscript_fuzz import survey
from tvmscript_oracle import execute
from tvmscript_programs import ACCEPTED, HEAD, REFUSED
from tvmscript_routines import REFUSED_THREADS, ROUTINES

import autosched as at
from autosched.errors import ScriptError
from autosched.script import parse, parse_func
from autosched.script.migrate import migrate
from autosched.tir import interp
from autosched.tir.extern import register
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc, loops_of
from autosched.tir.routine import Routine
from autosched.tir.run_routine import run_routine


def arguments(func: PrimFunc | Routine, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.random(b.shape).astype(b.dtype)
        if b.dtype.startswith("float")
        else rng.integers(0, 9, b.shape).astype(b.dtype)
        for b in func.params
    ]


def test_each_form_computes_what_it_does_there() -> None:
    for n, (name, text) in enumerate(ACCEPTED.items()):
        found = migrate(HEAD + text)
        assert not found.refused, f"{name}: {found.refused[0].error}\n{found.refused[0].text}"
        func = found.program()
        assert parse_func(func.script()).same(func), name
        given = arguments(func, n)
        expected, ours, built = ([a.copy() for a in given] for _ in range(3))
        execute(HEAD + text, expected)
        interp.run(func, ours)
        pairs = [(ours, "interpreter")]
        if not any(x.kind == "thread" for x in loops_of(func)):
            at.build(func, target="llvm")(*built)
            pairs.append((built, "llvm"))
        for results, where in pairs:
            for a, b in zip(results, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6, err_msg=f"{name}: {where}")


def test_each_form_of_routines_computes_what_it_does_there() -> None:
    for n, (name, text) in enumerate(ROUTINES.items()):
        (found,) = migrate(HEAD + text).functions
        assert found.error is None, f"{name}: {found.error}\n{found.text}"
        is_direct = found.is_routine or "T.opaque" in found.text
        assert is_direct or "threads" in name or "memory" in name, f"{name}:\n{found.text}"
        func = parse(found.text)
        assert parse(func.script()).same(func), name
        given = arguments(func, n)
        if name == "ranges read from memory":
            given[0][:] = [0, 3, 3, 10, 20, 30, 31, 50, 64]
        if name == "while":
            given[0].sort()
        if name == "scalars, let, attributes":
            given[0][()] = 13
        expected, ours, built = ([a.copy() for a in given] for _ in range(3))
        execute(HEAD + text, expected, zeros=is_direct)
        for run, results, where in (
            (run_routine if isinstance(func, Routine) else interp.run, ours, "interpreter"),
            (lambda f, arrays: at.build(f, target="llvm")(*arrays), built, "llvm"),
        ):
            if where == "llvm" and found.text.count("thread="):
                continue
            run(func, results)
            for a, b in zip(results, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6, err_msg=f"{name}: {where}")


def test_what_has_no_counterpart_says_why() -> None:
    for name, (text, reason) in {**REFUSED, **REFUSED_THREADS}.items():
        (found,) = migrate(HEAD + text).functions
        assert found.error is not None, f"{name}:\n{found.text}"
        assert reason in str(found.error), f"{name}: {found.error}"


def test_a_file_is_rewritten_function_by_function(tmp_path: Path) -> None:
    file = tmp_path / "programs.py"
    good, (bad, _) = ACCEPTED["triangles"], REFUSED["strides"]
    file.write_text(HEAD + good + bad.replace("def main", "def other"))
    run = [sys.executable, "-m", "autosched.script.migrate", str(file), "-o", str(tmp_path / "out")]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "main (line 8): rewritten" in done.stderr
    assert "other" in done.stderr
    assert "refused" in done.stderr
    func = parse_func((tmp_path / "out").read_text())
    assert [b.name for b in func.params] == ["A", "B"]


def test_constants_are_given_from_outside() -> None:
    text = HEAD + REFUSED["a name that nothing defines"][0]
    func = migrate(text, constants={"scale": 2.5}).program()
    given = [np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)]
    interp.run(func, given)
    assert (given[1] == 2.5).all()
    with pytest.raises(ScriptError, match="expected a number, a dtype or a tuple"):
        migrate(text, constants={"scale": {1}})  # type: ignore[dict-item]


def test_c_functions_that_are_registered_are_called() -> None:
    text = (
        HEAD
        + """
@T.prim_func
def main(A: T.Buffer((4,), "float64"), B: T.Buffer((8,), "uint8")):
    for i in range(4):
        with T.block("A"):
            v = T.axis.S(4, i)
            A[v] = T.call_extern("float64", "sinh", A[v] + 1)
            A[v] = A[v] + T.call_extern("sinh", 0.5, dtype="float64")
    T.evaluate(T.call_extern("memset", B.data, 7, 5, dtype="handle"))
"""
    )
    (before,) = migrate(text.replace("sinh", "unknown_function")).functions
    assert "register" in str(before.error)
    library = ctypes.util.find_library("m")
    assert library is not None
    register("sinh", "float64", ("float64",), library)
    register("memset", "int64", ("uint8*", "int32", "int64"), ctypes.util.find_library("c") or "")
    func = migrate(text).program()
    assert isinstance(func, Routine)
    a, b = np.arange(4.0), np.zeros(8, np.uint8)
    ours = [a.copy(), b.copy()]
    run_routine(func, ours)
    at.build(func, target="llvm")(a, b)
    for x, y in (ours, (a, b)):
        np.testing.assert_allclose(x, np.sinh(np.arange(4) + 1) + np.sinh(0.5))
        assert y.tolist() == [7] * 5 + [0] * 3


CALLS = (
    HEAD
    + """
@tvm.script.ir_module
class Mod:
    @T.prim_func
    def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((32,), "float32")):
        t = T.allocate([32], "float32", "global")
        for i in range(2):
            Mod.scale(A.data, t.data, T.int32(i) + 2)
            T.evaluate(T.call_extern("add", t.data, B.data, dtype="int32"))
        T.call_tir(Mod.add, A.data, B.data)
    @T.prim_func
    def scale(x: T.handle, y: T.handle, n: T.int32):
        T.func_attr({"global_symbol": "scale"})
        X = T.match_buffer(x, (32,), "float32")
        Y = T.match_buffer(y, (8, 4), "float32")
        for i, j in T.grid(8, 4):
            Y[i, j] = X[i * 4 + j] * T.cast(n, "float32")
    @T.prim_func
    def add(X: T.Buffer((32,), "float32"), Y: T.Buffer[32, "float32"]):
        t = T.alloc_buffer((32,), "float32")
        for i in range(32):
            t[i] = X[i] + 1.0
            Y[i] = Y[i] + t[i]
"""
)


def test_functions_of_a_text_call_each_other() -> None:
    found = migrate(CALLS)
    assert not found.refused, found.report()
    module = found.program()
    assert isinstance(module, IRModule)
    a, b = np.arange(32, dtype=np.float32).reshape(4, 8), np.ones(32, np.float32)
    expected = b + (a * 2 + 1).ravel() + (a * 3 + 1).ravel() + (a + 1).ravel()
    ours = [a.copy(), b.copy()]
    run_routine(module["main"], ours)
    built = at.build(module, target="llvm")
    built["main"](a, b)  # type: ignore[index]
    for result in (ours[1], b):
        np.testing.assert_array_equal(result, expected)
    for change, reason in (
        (("Mod.scale(A.data, t.data", "Mod.main(A.data"), "calls itself"),
        (("Mod.scale(A.data, t.data", "Mod.scale(A.data"), "3 parameters, found 2"),
        (("t.data, T.int32(i) + 2", "B[0], 2"), "memory of a whole buffer"),
        (('B: T.Buffer((32,), "float32")', 'B: T.Buffer((16,), "float32")'), "a view of 32"),
        (('B: T.Buffer((32,), "float32")', 'B: T.Buffer((32,), "int32")'), "of the same dtype"),
    ):
        first = migrate(CALLS.replace(*change)).functions[0]
        assert first.error is not None
        assert reason in str(first.error)


def test_text_that_is_no_python_is_refused() -> None:
    with pytest.raises(ScriptError, match="no Python syntax"):
        migrate("def f(:")


def test_random_programs_compute_the_same() -> None:
    counts = survey(15, 5)
    assert counts["the same"] >= 1
    assert counts["the same as a routine"] >= 1
    assert counts["the same with opaque blocks"] >= 8


@pytest.mark.long
def test_random_programs_compute_the_same_long() -> None:
    counts = survey(100, 11)
    assert counts["the same"] >= 6
    assert counts["the same as a routine"] >= 4
    assert counts["the same with opaque blocks"] >= 50
