"""Tensor intrinsics on tile registers: results, refusals, and the system's permission."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from guarded import HOST, compiled

import autosched as at
from autosched import te
from autosched.codegen.build import build_artifact
from autosched.codegen.tile_intrinsics import made, name_of
from autosched.errors import CodegenError, ScheduleError, TargetError
from autosched.runtime.function import Function
from autosched.schedule import Schedule
from autosched.target import Target, amx
from autosched.tir import dtypes
from autosched.tir.intrin import TensorIntrin

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
SERVER = "llvm -mcpu=sapphirerapids -mtriple=x86_64-unknown-linux-gnu"
TYPES = {
    "u8s8s32": ("uint8", "int8", "int32", 4),
    "bf16bf16f32": ("bfloat16", "bfloat16", "float32", 2),
}


def need(kind: str) -> None:
    lacks = TensorIntrin.get(name_of(kind)).features - HOST.features
    if lacks:
        pytest.skip(f"this machine lacks {', '.join(lacks)}")


def scheduled(kind: str, rows: int, outside: bool = False) -> Schedule:
    """A product of 2 * `rows` by 128 by 32; `outside`: sums stay in memory between terms."""
    left, right, total, near = TYPES[kind]
    a = te.placeholder((2 * rows, 128), name="A", dtype=left)
    b = te.placeholder((128 // near, 32, near), name="B", dtype=right)
    r = te.reduce_axis((0, 128), name="k")

    def value(i, j):
        x, y = a[i, r], b[r // near, j, r % near]
        return te.sum(x.astype(total) * y.astype(total), axis=r)

    c = te.compute((2 * rows, 32), value, name="C")
    sch = Schedule(te.create_prim_func([a, b, c]))
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, 16])
    k0, k1, k2 = sch.split(k, [None, 16, near])
    sch.reorder(*((k0, i0, j0) if outside else (i0, j0, k0)), i1, j1, k1, k2)
    sch.tensorize(i1, name_of(kind, rows))
    return sch


@pytest.mark.parametrize("outside", [False, True])
def test_bytes_whose_rows_lie_apart(outside: bool) -> None:
    need("u8s8s32")
    rng = np.random.default_rng(0)
    a = rng.choice(np.array([0, 1, 127, 128, 255], np.uint8), (10, 128))
    b = rng.choice(np.array([-128, -1, 0, 127], np.int8), (32, 32, 4))
    sch = scheduled("u8s8s32", 5, outside)
    *_, c = compiled(sch, [a, b, np.full((10, 32), 7, np.int32)])
    plain = b.transpose(0, 2, 1).reshape(128, 32)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ plain.astype(np.int32))


def test_bfloat16() -> None:
    need("bf16bf16f32")
    rng = np.random.default_rng(3)
    a, b = (dtypes.from_float32(rng.standard_normal(s)) for s in ((32, 128), (64, 32, 2)))
    *_, c = compiled(scheduled("bf16bf16f32", 16), [a, b, np.zeros((32, 32), np.float32)])
    plain = dtypes.to_float32(b).transpose(0, 2, 1).reshape(128, 32).astype(np.float64)
    np.testing.assert_allclose(c, dtypes.to_float32(a) @ plain, rtol=1e-5, atol=1e-4)


def test_targets_without_tiles_refuse_them() -> None:
    without = Target(f"{SERVER} -mattr=-amx-tile")
    assert {"amx-tile", "amx-int8", "amx-bf16"} <= Target(SERVER).features
    with pytest.raises(CodegenError, match="needs amx-int8, amx-tile; sapphirerapids lacks it"):
        build_artifact(scheduled("u8s8s32", 16).func, without, "search")


def test_a_system_without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the processor has and the system does not give is missing."""
    need("u8s8s32")
    monkeypatch.setattr(amx, "permitted", lambda: False)
    assert HOST.missing_here() == ("amx-bf16", "amx-int8", "amx-tile")
    with pytest.raises(TargetError, match="this machine lacks amx-bf16, amx-int8, amx-tile"):
        Function(build_artifact(scheduled("u8s8s32", 16).func, HOST, "search"))


@pytest.mark.skipif(CC is None, reason="no C compiler (cc, gcc, clang) on the PATH")
def test_a_process_that_knows_nothing_of_tiles(tmp_path: Path) -> None:
    """An exported kernel asks the system itself."""
    need("u8s8s32")
    done = at.build(scheduled("u8s8s32", 16), target=HOST).export(tmp_path / "kernels")
    library = tmp_path / "libkernels.so"
    command = [str(CC), "-shared", str(done.object), "-o", str(library), "-lpthread", "-lm"]
    subprocess.run(command, check=True)
    code = (
        "import ctypes\n"
        f"f = ctypes.CDLL({str(library)!r}).kernels\n"
        "a, b = ((ctypes.c_uint8 * 4096)(*[1] * 4096) for _ in range(2))\n"
        "c, space = (ctypes.c_int32 * 1024)(), (ctypes.c_uint8 * (1 << 20))()\n"
        "f(a, b, c, space, 1)\n"
        "print(set(c))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "{128}\n"), run.stderr


MEANING = """
@T.prim_func
def copy(A: T.Buffer((17, 4), "int32"), C: T.Buffer((17, 4), "int32")):
    for i, j in T.grid(17, 4):
        with T.block("copy"):
            vi = T.axis.spatial(17, i)
            vj = T.axis.spatial(4, j)
            C[vi, vj] = A[vi, vj]
"""
CODE = "define x86_amx @f(x86_amx %A) {\n ret x86_amx %A\n}"


def test_what_is_no_tile() -> None:
    assert TensorIntrin.get(name_of("u8s8s32", 7)) is made("dot_7x16x64_u8s8s32_amx")
    assert made("dot_17x16x64_u8s8s32_amx") is None
    with pytest.raises(ScheduleError, match=r"A is no tile: expected 1 to 16 rows .* 17 of 16"):
        TensorIntrin.register("copy_17", MEANING, CODE)
    with pytest.raises(ScheduleError, match="either all operands and the result are x86_amx"):
        TensorIntrin.register("copy_16", MEANING, CODE.replace("(x86_amx", "(i32"))
