"""What the generated code looks like: machine shape of register tiles, golden IR, other processors,
and that the same program always gives the same code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import codegen_fuzz as fuzz
import numpy as np
import pytest
from test_codegen_ops import CASES

from autosched import ops, te
from autosched.codegen.build import Level, build_artifact, generate_ir
from autosched.codegen.llvm.assemble import assembly, compile_ir
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.nodes import PrimFunc

AVX512 = Target("llvm -mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu -num-cores=2")
AVX2 = Target("llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu -num-cores=2")
NEON = Target("llvm -mtriple=aarch64-linux-gnu -num-cores=2")
LEVELS: tuple[Level, ...] = ("search", "full")


def matmul_tile(
    rows: int, cols: int, size: tuple[int, int, int], *, pack: bool = True, threads: bool = True
) -> PrimFunc:
    """A matmul of `size` (rows, terms, columns) in register tiles of `rows` x `cols`."""
    sch = Schedule(te.create_prim_func(ops.matmul(*size)))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, cols])
    sch.reorder(j0, i0, k, i1, j1)
    if pack:
        panel = sch.cache_read(block, "B", "local", [[1, cols], [0], [1, 1, cols]])
        sch.compute_at(panel, j0)
        sch.vectorize(sch.get_loops(panel)[-1])
    sch.unroll(i1)
    sch.vectorize(j1)
    if threads:
        sch.parallel(j0)
    return sch.func


def inner_loops(text: str) -> list[list[str]]:
    """The instructions of every loop without a loop inside: from a label to the jump back to it."""
    lines = [x.split("#")[0].split("//")[0].strip() for x in text.splitlines()]
    found, label, start = [], "", 0
    for n, line in enumerate(lines):
        if re.fullmatch(r"\.L\w+:", line):
            label, start = line[:-1], n + 1
        elif label and re.search(rf"{re.escape(label)}$", line):
            found.append([x for x in lines[start : n + 1] if x and not x.startswith(".")])
            label = ""
    return found


def kernels(text: str, instruction: str) -> list[list[str]]:
    """The innermost loops that hold an instruction."""
    return [x for x in inner_loops(text) if any(line.startswith(instruction) for line in x)]


SPILL = re.compile(r",\s*-?\d*\(%rsp|\(%rsp.*mm\d|^st[rp]\b.*\[sp|^ld[rp]\s+q.*\[sp")
"""A store to the stack, or a vector read from it. (An address may come from there.)"""

TILES = [
    (AVX512, "vfmadd", 8, 32, 16),
    (AVX512, "vfmadd", 6, 64, 24),
    (AVX512, "vfmadd", 14, 32, 28),
    (AVX2, "vfmadd", 6, 16, 12),
    (AVX2, "vfmadd", 4, 24, 12),
    (NEON, "fmla", 8, 12, 24),
    (NEON, "fmla", 6, 16, 24),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("target", "fma", "rows", "cols", "expected"), TILES)
def test_register_tiles(
    target: Target, fma: str, rows: int, cols: int, expected: int, level: Level
) -> None:
    """The loop over the terms holds one fused multiply-add a vector, the loads, and no spill; also
    where rows and columns overhang."""
    for size in ((rows * 4, 64, cols * 3), (rows * 4 + 1, 67, cols * 3 + 5)):
        text = assembly(generate_ir(matmul_tile(rows, cols, size), target).ir, target, level)
        found = kernels(text, fma)
        assert found, text
        for loop in found:
            assert sum(line.startswith(fma) for line in loop) == expected
            assert not [line for line in loop if SPILL.search(line)]
            assert not [line for line in loop if line.startswith(("call", "bl "))]


def test_no_more_than_operands_and_counters() -> None:
    """8 x 32: 16 multiply-adds, 2 loads of B, 8 broadcasts of A (may fold), 4 for the loop."""
    text = assembly(generate_ir(matmul_tile(8, 32, (64, 64, 96)), AVX512).ir, AVX512, "full")
    (loop,) = kernels(text, "vfmadd")
    assert len(loop) <= 16 + 2 + 8 + 4
    assert all("zmm" in line for line in loop if line.startswith("vfmadd"))


@pytest.mark.parametrize("level", LEVELS)
def test_vectorised_sum_keeps_several_accumulators(level: Level) -> None:
    """A row sum in lanes: eight vectors in flight, no horizontal work inside the loop."""
    a = te.placeholder((16, 4096), name="a")
    k = te.reduce_axis((0, 4096), name="k")
    func = te.create_prim_func([a, te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="s")])
    sch = Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("s"))[1])
    text = assembly(generate_ir(sch.func, AVX512).ir, AVX512, level)
    (loop,) = kernels(text, "vaddps")
    assert sum(line.startswith("vaddps") for line in loop) == 8
    assert not [line for line in loop if "perm" in line or "extract" in line or "shuf" in line]


def test_no_library_calls_without_fused_operations() -> None:
    target = Target("llvm -mcpu=x86-64 -mtriple=x86_64-linux-gnu")
    text = assembly(generate_ir(matmul_tile(4, 8, (16, 16, 16)), target).ir, target)
    assert "mulps" in text
    assert "fma" not in text


def test_streaming_stores_are_used() -> None:
    a = te.placeholder((64, 1024), name="a")
    func = te.create_prim_func([a, te.compute((64, 1024), lambda i, j: a[i, j] + 1, name="b")])
    sch = Schedule(func)
    block = sch.get_block("b")
    i, j = sch.get_loops(block)
    sch.vectorize(j)
    sch.parallel(i)
    sch.annotate(block, "streaming", True)
    text = assembly(generate_ir(sch.func, AVX512).ir, AVX512, "full")
    assert "vmovntps" in text
    assert "sfence" in text


# Golden text


@pytest.mark.parametrize(
    ("name", "size"), [("matmul_tile", (8, 16, 64)), ("matmul_tile_tails", (7, 5, 27))]
)
def test_golden_ir(
    name: str, size: tuple[int, int, int], golden: Callable[[str, str], None]
) -> None:
    """The whole module of a matmul in tiles of 4 x 32, without and with tails."""
    golden(name, generate_ir(matmul_tile(4, 32, size), AVX512).ir)


# Determinism

PROGRAM = """
import hashlib, sys
from autosched import ops, te
from autosched.codegen.build import build_artifact, generate_ir
from test_codegen_shape import AVX512, samples
for func in samples():
    ir = generate_ir(func, AVX512).ir
    code = build_artifact(func, AVX512).code
    print(hashlib.sha256(ir.encode()).hexdigest(), hashlib.sha256(code).hexdigest())
"""


def samples() -> list[PrimFunc]:
    """Programs with panels, threads, scratch and conditions."""
    out = [matmul_tile(4, 32, (13, 9, 70)), matmul_tile(4, 32, (13, 9, 70), pack=False)]
    rng = np.random.default_rng(7)
    for _ in range(8):
        func = fuzz.random_program(rng.integers(0, 1000, 24).tolist())
        out.append(fuzz.random_schedule(func, rng.integers(0, 1000, (5, fuzz.STEP)).tolist()).func)
    return out


@pytest.mark.long
def test_same_program_same_code() -> None:
    """Twice here, and in processes with other hash seeds."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent / "schedule")])
    printed = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        printed.add(run.stdout)
    assert len(printed) == 1
    for func in samples():
        assert generate_ir(func, AVX512).ir == generate_ir(func, AVX512).ir
        assert build_artifact(func, AVX512).code == build_artifact(func, AVX512).code


# Other processors

ELF_MACHINE = {"x86_64": 62, "aarch64": 183}


def compiles(func: PrimFunc, target: Target) -> None:
    code = compile_ir(generate_ir(func, target).ir, target, "search")
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == ELF_MACHINE[target.arch]


CPUS = ["", " -mcpu=cortex-a53", " -mcpu=neoverse-v2", " -mcpu=apple-m1"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cpu", CPUS)
def test_random_programs_compile_for_aarch64(cpu: str) -> None:
    target = Target(f"llvm -mtriple=aarch64-linux-gnu{cpu}")
    rng = np.random.default_rng(11)
    for _ in range(15):
        func = fuzz.random_program(rng.integers(0, 1000, 24).tolist())
        trace = rng.integers(0, 1000, (4, fuzz.STEP)).tolist()
        compiles(fuzz.random_schedule(func, trace).func, target)


@pytest.mark.parametrize("dtype", dtypes.ARITHMETIC)
def test_all_operations_compile_for_aarch64(dtype: str) -> None:
    """Every operation and cast of one dtype, in scalars and vectors."""
    a = te.placeholder((2, 21), name="a", dtype=dtype)
    outs = []
    for op, kind in (case.values for case in CASES):
        if kind == dtype:
            arity = ex.OPS[op].arity
            outs.append(
                te.compute(
                    (2, 21),
                    lambda i, j, op=op, arity=arity: ex.call(op, *[a[i, j], a[1 - i, j]][:arity]),
                    name=f"out_{op}",
                )
            )
    for other in dtypes.ARITHMETIC:
        if other != dtype:
            outs.append(
                te.compute((2, 21), lambda i, j, t=other: te.cast(a[i, j], t), name=f"to_{other}")
            )
    func = te.create_prim_func([a, *outs])
    compiles(func, NEON)
    sch = Schedule(func)
    for block in sch.get_blocks():
        sch.vectorize(sch.get_loops(block)[1])
    compiles(sch.func, NEON)


def test_wider_and_narrower_x86_compile() -> None:
    for cpu in ("x86-64", "nehalem", "haswell", "znver2", "skylake-avx512", "znver5"):
        target = Target(f"llvm -mcpu={cpu} -mtriple=x86_64-linux-gnu")
        compiles(matmul_tile(4, 32, (13, 9, 70)), target)
