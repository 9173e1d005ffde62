"""Elements of a table of 256 bytes, numbered by bytes: out of registers where a target can."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import arguments, compiled

from autosched import te
from autosched.codegen.build import generate_ir
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

PERMUTES = "llvm -mcpu=icelake-server"
NONE = "llvm -mcpu=skylake-avx512"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def program(count: int, dtype: str, pad: int = 0, table: int = 256) -> PrimFunc:
    """out[i] = t[q[i]], with `pad` zeros before it."""
    q = te.placeholder((count,), name="q", dtype="uint8")
    t = te.placeholder((table,), name="t", dtype=dtype)

    def element(i):
        number = te.cast(q[i - pad], "int32")
        found = t[number] if table == 256 else t[te.min(number, table - 1)]
        return te.if_then_else(i >= pad, found, te.const(0, dtype)) if pad else found

    return te.create_prim_func([q, t, te.compute((count + pad,), element, name="out")])


def vectors(func: PrimFunc, lanes: int) -> Schedule:
    schedule = Schedule(func)
    (loop,) = schedule.get_loops(schedule.get_block("out"))
    _, inner = schedule.split(loop, [None, lanes])
    schedule.vectorize(inner)
    return schedule


@pytest.mark.parametrize("lanes", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("pad", [0, 5])
def test_bytes_of_a_table(lanes, dtype, pad, rng):
    """Whole vectors, the last lanes masked, and lanes under a condition."""
    for count in (256, 203):
        q = rng.integers(0, 256, count).astype(np.uint8)
        t = rng.integers(0, 256, 256).astype(np.uint8).view(dtype)
        func = program(count, dtype, pad)
        found = compiled(vectors(func, lanes), arguments(func, [q, t]), "llvm")[2]
        np.testing.assert_array_equal(found, np.concatenate([np.zeros(pad, dtype), t[q]]))


def test_other_tables_are_gathered(rng):
    """Fewer elements than bytes have numbers."""
    q = rng.integers(0, 256, 192).astype(np.uint8)
    t = rng.integers(0, 256, 100).astype(np.uint8)
    func = program(192, "uint8", table=100)
    found = compiled(vectors(func, 64), arguments(func, [q, t]), "llvm")[2]
    np.testing.assert_array_equal(found, t[np.minimum(q, 99)])


def test_registers_hold_the_table():
    """Two permutes a vector where the target has them."""
    schedule = vectors(program(256, "uint8"), 64)
    ir = generate_ir(schedule.func, Target(PERMUTES)).ir
    assert "vpermi2var.qi.512(<64 x i8> %" in ir
    assert "masked.gather" not in ir
    assert "vpermi2var" not in generate_ir(schedule.func, Target(NONE)).ir
    fewer = vectors(program(256, "uint8", table=100), 64)
    assert "vpermi2var" not in generate_ir(fewer.func, Target(PERMUTES)).ir


def test_a_table_that_the_kernel_makes(rng):
    """What has just been stored is looked up."""
    q = te.placeholder((128,), name="q", dtype="uint8")
    a = te.placeholder((256,), name="a", dtype="uint8")
    t = te.compute((256,), lambda i: a[i] ^ te.const(85, "uint8"), name="t")
    out = te.compute((128,), lambda i: t[te.cast(q[i], "int32")], name="out")
    func = te.create_prim_func([q, a, out])
    numbers = [rng.integers(0, 256, n).astype(np.uint8) for n in (128, 256)]
    found = compiled(vectors(func, 32), arguments(func, numbers), "llvm")[2]
    np.testing.assert_array_equal(found, numbers[1][numbers[0]] ^ 85)
