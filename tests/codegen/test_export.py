"""Export ahead of time: C programs and shared libraries made from the object files."""

from __future__ import annotations

import ctypes
import errno
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.building.build import BuiltModule
from autosched.codegen.artifact import KernelInfo, Param
from autosched.codegen.export.entries import arguments
from autosched.errors import ArgumentError, BuildError
from autosched.schedule import Schedule
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
    sch = apart(te.create_prim_func([a, c]), "C")
    i, _ = sch.get_loops(sch.get_block("C"))
    sch.compute_at(sch.get_block("B"), i)
    sch.parallel(i)
    return sch.func


def apart(func: PrimFunc, result: str) -> Schedule:
    """A schedule whose intermediates do not stand in the memory of the result, as that is stored
    past the caches."""
    schedule = Schedule(func)
    schedule.annotate(schedule.get_block(result), "streaming", True)
    return schedule


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
            "softmax": apart(te.create_prim_func(at.ops.softmax(N, M)), "softmax").func,
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


def test_what_cannot_be_exported(
    built: BuiltModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(BuildError, match=r"cannot write .*/x: the disk is full"):
        one.export(tmp_path / "x")


@pytest.mark.parametrize(
    "name", ["malloc", "exp", "printf", "size_t", "environ", "linux", "errno", "EINVAL", "_Bool"]
)
def test_names_of_c_are_refused(built: BuiltModule, tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"'{name}' in C.* give a prefix"):
        built["main"].export(tmp_path / name)
    assert not list(tmp_path.iterdir())
    built["main"].export(tmp_path / name, prefix="my_")


@pytest.mark.parametrize("path", ["", ".", 3])
def test_a_path_without_a_name_is_refused(built: BuiltModule, path: object) -> None:
    with pytest.raises(ArgumentError, match=r"expected the path of (the files|a file)"):
        built["softmax"].export(path)  # type: ignore[arg-type]


def test_arguments_are_not_called_as_macros() -> None:
    names = ["linux", "unix", "I", "errno", "EINVAL", "E", "NULL", "size_t", "exp"]
    info = KernelInfo("k", tuple(Param(n, (1,), "int8", False) for n in names))
    found = [a.name for a in arguments(info)]
    assert found[:5] == ["linux_1", "unix_1", "I_1", "errno_1", "EINVAL_1"]
    assert found[5:] == ["E", "NULL_1", "size_t_1", "exp"]


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


def symbolic() -> at.Schedule:
    """out = x + the row sums of x; rows of an intermediate in every thread's own memory, and one
    that all share."""
    n, m = te.var("n"), te.var("threads")
    x = te.placeholder((n, 2 * m), name="x")
    k = te.reduce_axis((0, 2 * m), name="k")
    e = te.compute((n, 2 * m), lambda i, j: x[i, j] * 2, name="e")
    s = te.compute((n,), lambda i: te.sum(e[i, k], axis=k), name="s")
    out = te.compute((n, 2 * m), lambda i, j: x[i, j] + s[i], name="out")
    sch = at.Schedule(te.create_prim_func([x, out]))
    i = sch.get_loops(sch.get_block("s"))[0]
    sch.compute_at(sch.get_block("e"), i)
    sch.parallel(i)
    return sch


SIZED_MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include "sized.h"
int main(void) {
    if (sized(NULL, NULL, 3, 2, NULL, 0) != 22) return 1;
    for (int64_t n = 1; n < 20; n++)
        for (int64_t m = 1; m < 40; m += 3) {
            float *x = malloc(n * 2 * m * 4), *out = malloc(n * 2 * m * 4);
            for (int64_t i = 0; i < n * 2 * m; i++) x[i] = (float)(i % 7);
            size_t bytes = sized_workspace_bytes(n, m, 2);
            void *space = aligned_alloc(64, bytes);
            if (sized(x, out, 0, m, NULL, 0) != 22 || sized(x, out, n, -1, NULL, 0) != 22) return 2;
            if (sized(x, out, n, m, n % 2 ? space : NULL, 2)) return 3;
            for (int64_t i = 0; i < n; i++) {
                float sum = 0;
                for (int64_t j = 0; j < 2 * m; j++) sum += 2 * x[i * 2 * m + j];
                for (int64_t j = 0; j < 2 * m; j++)
                    if (out[i * 2 * m + j] != x[i * 2 * m + j] + sum) return 4;
            }
            free(x); free(out); free(space);
        }
    puts("all right");
    return 0;
}
"""


@needs_cc
def test_symbolic_sizes(tmp_path: Path) -> None:
    """Sizes are arguments after the arrays, and the workspace is a function of them."""
    done = at.build(symbolic(), target=TARGET).export(tmp_path / "sized")
    header = done.header.read_text()
    assert "float *AUTOSCHED_RESTRICT out,\n    int64_t n, int64_t threads_1,\n" in header
    assert " *   x          float [n][threads_1 * 2], input\n" in header
    assert " *   threads_1  a size of at least 1\n" in header
    (tmp_path / "main.c").write_text(SIZED_MAIN)
    strict = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")
    run(CC, *strict, tmp_path / "main.c", done.object, "-o", tmp_path / "main", "-lpthread", "-lm")
    assert run(tmp_path / "main") == "all right\n"
