"""Export ahead of time: C programs and shared libraries made from the object files."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.export.entries import arguments
from autosched.driver import BuiltModule
from autosched.errors import ArgumentError, BuildError
from autosched.script import parse_func
from autosched.sketch.default import default_schedule
from autosched.tir.nodes import PrimFunc

N, L, M, THREADS = 80, 17, 32, 3
HOST = at.Target("llvm")
TARGET = at.Target(str(HOST).replace(f"-num-cores={HOST.num_cores}", f"-num-cores={THREADS}"))
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
CXX = shutil.which("c++") or shutil.which("g++")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler (cc, gcc, clang) on the PATH")


def own() -> PrimFunc:
    """(x + 1)² * 2, with rows of an intermediate in every thread's own memory."""
    shape = (2, N * M // 2)  # long rows: short ones would stand on the stack
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda i, j: a[i, j] + 1, name="B")
    c = te.compute(shape, lambda i, j: b[i, j] * b[i, j] * 2, name="C")
    sch = at.Schedule(te.create_prim_func([a, c]))
    i, _ = sch.get_loops(sch.get_block("C"))
    sch.compute_at(sch.get_block("B"), i)
    sch.parallel(i)
    return sch.func


# A recurrence: a team of threads that wait for one another in every step.
STEPS = """
@T.prim_func
def steps(X: T.Buffer((9, 40), "float32"), S: T.Buffer((9, 40), "float32")):
    for j in T.serial(40):
        with T.block("init"):
            vj = T.axis.spatial(40, j)
            S[0, vj] = X[0, vj]
    for t in T.serial(8):
        for j in T.parallel(40):
            with T.block("update"):
                vt = T.axis.sequential(8, t)
                vj = T.axis.spatial(40, j)
                S[vt + 1, vj] = X[vt + 1, vj] + S[vt, 39 - vj] * 0.5
"""


@pytest.fixture(scope="module")
def built() -> BuiltModule:
    matmul = default_schedule(te.create_prim_func(at.ops.matmul_add(N, L, M)), TARGET)
    module = at.IRModule(
        {
            "matmul": matmul.func,
            "softmax": te.create_prim_func(at.ops.softmax(N, M)),
            "main": own(),
            "steps": parse_func(STEPS),
        }
    )
    found = at.build(module, target=TARGET)
    assert isinstance(found, BuiltModule)
    return found


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_a_module_is_called_by_name(built: BuiltModule) -> None:
    assert list(built) == ["matmul", "softmax", "main", "steps"]
    assert built["matmul"].artifact.info.parallel
    assert built["softmax"].artifact.info.workspace_bytes > 0
    assert built["main"].artifact.info.thread_bytes > 0
    a = np.ones(built["main"].args[0].shape, np.float32)
    out = np.empty_like(a)
    built["main"](a, out)
    assert np.all(out == 8)
    with pytest.raises(ArgumentError, match=r"call one of them: built\['matmul'\]"):
        built(a, out)
    with pytest.raises(ArgumentError, match="no function named 'x' in the module; it has matmul"):
        built["x"]
    with pytest.raises(ArgumentError, match="a module with several takes none"):
        at.build(at.IRModule({"a": own(), "b": own()}), args=[])
    assert isinstance(at.lower(at.IRModule({"a": own(), "b": own()})), at.IRModule)


@needs_cc
def test_a_c_program(built: BuiltModule, tmp_path: Path) -> None:
    done = built.export(tmp_path / "kernels", prefix="my_")
    assert done == (tmp_path / "kernels.o", tmp_path / "kernels.h")
    main = Path(__file__).parent / "export_main.c"
    program = tmp_path / "main"
    strict = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined")
    run(CC, *strict, f"-DTHREADS={THREADS}", f"-I{tmp_path}", main, done.object, "-o", program,
        "-lpthread", "-lm")  # fmt: skip
    assert run(program) == "all right\n"


@needs_cc
def test_a_shared_library_computes_the_same_bits(built: BuiltModule, tmp_path: Path) -> None:
    done = built.export(tmp_path / "kernels.o")
    library = tmp_path / "libkernels.so"
    run(CC, "-shared", "-Wl,-z,nodelete,-z,defs", done.object, "-o", library, "-lpthread", "-lm")
    loaded = ctypes.CDLL(str(library))
    rng = np.random.default_rng(0)
    for name, symbol in (
        ("matmul", "matmul"),
        ("softmax", "softmax"),
        ("main", "kernels"),
        ("steps", "steps"),
    ):
        function = built[name]
        found, expected = (
            [rng.standard_normal(p.shape).astype(p.dtype) for p in function.args] for _ in range(2)
        )
        for x, y, p in zip(found, expected, function.args, strict=True):
            if not p.written:
                x[...] = y
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in found]
        assert getattr(loaded, symbol)(*pointers, None, 0) == 0
        function(*expected)
        for x, y in zip(found, expected, strict=True):
            assert np.array_equal(x, y)


@needs_cc
def test_only_the_functions_are_global(built: BuiltModule, tmp_path: Path) -> None:
    """Two objects, each with its own runtime, link into one program."""
    first = built["matmul"].export(tmp_path / "one")
    second = built["main"].export(tmp_path / "two")
    library = tmp_path / "both.so"
    run(CC, "-shared", "-Wl,-z,nodelete", first.object, second.object, "-o", library)
    loaded = ctypes.CDLL(str(library))
    assert loaded.matmul
    assert loaded.two
    with pytest.raises(AttributeError):
        _ = loaded.autosched_parallel_for


@pytest.mark.skipif(CXX is None, reason="no C++ compiler (c++, g++) on the PATH")
def test_the_header_is_c_plus_plus_too(built: BuiltModule, tmp_path: Path) -> None:
    header = built.export(tmp_path / "kernels").header
    run(CXX, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", header)


def test_the_header_tells_a_caller_everything(
    tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    target = "llvm -mcpu=x86-64-v3 -mtriple=x86_64-unknown-linux-gnu -num-cores=4"
    function = at.build(own(), target=target, compile_only=True)
    text = function.export(tmp_path / "twice").header.read_text()
    golden("export_header", text.replace(text.split("made by ")[1].split(". Link")[0], "VERSION"))


def test_export_for_another_machine(tmp_path: Path) -> None:
    target = at.Target("llvm -mcpu=neoverse-n1 -mtriple=aarch64-unknown-linux-gnu -num-cores=4")
    function = at.build(own(), target=target, compile_only=True)
    code = function.export(tmp_path / "arm").object.read_bytes()
    assert code[:5] == b"\x7fELF\x02"
    assert code[18] == 183, "the machine is not aarch64"


def test_what_cannot_be_exported(built: BuiltModule, tmp_path: Path) -> None:
    one = built["softmax"]
    with pytest.raises(ArgumentError, match=r"an object file and a header, not \.so: name 'x' or"):
        one.export(tmp_path / "x.so")
    with pytest.raises(ArgumentError, match=r"main would be 'double' in C.* give a prefix"):
        built["main"].export(tmp_path / "double")
    with pytest.raises(ArgumentError, match="'autosched_softmax' is a name of the runtime"):
        one.export(tmp_path / "x", prefix="autosched_")
    with pytest.raises(ArgumentError, match="two functions would be 'softmax' in C"):
        built.export(tmp_path / "softmax")
    with pytest.raises(BuildError, match=r"cannot write .*nowhere"):
        one.export(tmp_path / "nowhere" / "x")


def test_names_of_arguments() -> None:
    names = ["A", "A", "workspace", "int", "größe", "2nd", "_x"]
    info = KernelInfo("k", tuple(Param(n, (1,), "int8", False) for n in names))
    found = [a.name for a in arguments(info)]
    assert found == ["A", "A_1", "workspace_1", "int_1", "gr__e", "p2nd", "p_x"]


@needs_cc
def test_the_example(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "export.py"
    assert "largest error: " in run(sys.executable, example, tmp_path)
    assert (tmp_path / "export").exists()
