"""Scans in a single pass: equal to NumPy for every update, dtype and shape; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from gpu_run import cuda, here, loaded, opencl, program, random_inputs, run, source

from autosched import te
from autosched.building.gpu import compile_kernels
from autosched.codegen.cuda import compile_cuda
from autosched.codegen.gpu.lookback import shared_bytes
from autosched.errors import CodegenError, ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.search.analysis import analyse
from autosched.sketch.generate import generate_space
from autosched.sketch.gpu_default import schedule_nest
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc, kind_vars, sites
from autosched.workloads import prim_func_of

UPDATES: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "sum": (lambda s, x: s + x, np.add),
    "product": (lambda s, x: x * s, np.multiply),
    "max": (te.max, np.maximum),
    "min": (te.min, np.minimum),
}


def scan(update: str, shape: tuple[int, ...], dtype: str) -> PrimFunc:
    """Along the first axis."""
    combine = UPDATES[update][0]
    x, s = te.placeholder(shape, dtype, "x"), te.placeholder(shape, dtype, "s")
    first = te.compute((1, *shape[1:]), lambda *i: x[i], name="first")
    step = te.compute(shape, lambda t, *i: combine(s[(t - 1, *i)], x[(t, *i)]), name="step")
    return te.create_prim_func([x, te.scan(first, step, s, inputs=[x], name="out")])


def single_pass(func: PrimFunc, rows: int, groups: int, columns: int) -> PrimFunc:
    """Scheduled so, the rest on threads."""
    sch = Schedule(func)
    (block,) = (b for b in sch.get_blocks() if kind_vars(sch.get(b), "sequential"))
    sch.single_pass_scan(block, rows, groups, columns)
    for root in sch.func.body:
        names = [s.block.name for s in sites(root)]
        if sch.get(block).name not in names:
            schedule_nest(sch, names, 64)
    return sch.func


def inputs(func: PrimFunc, seed: int = 0) -> np.ndarray[Any, Any]:
    """Values whose products and sums neither vanish nor overflow."""
    (x,) = random_inputs(func, seed)
    rng = np.random.default_rng(seed)
    floats = x.dtype.name.startswith("float")
    values = rng.uniform(0.9, 1.1, x.shape) if floats else rng.integers(-3, 4, x.shape)
    return np.asarray(values, x.dtype)


def agrees(func: PrimFunc, update: str, tiles: tuple[int, int, int], seed: int = 0) -> None:
    x = inputs(func, seed)
    (found,) = run(single_pass(func, *tiles), [x])
    wanted = UPDATES[update][1].accumulate(x, axis=0, dtype=x.dtype)
    exact = not x.dtype.name.startswith("float")
    tolerance = {"float64": 1e-12, "float32": 1e-4, "float16": 3e-2}.get(x.dtype.name, 0)
    np.testing.assert_allclose(found, wanted, rtol=0 if exact else tolerance, atol=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_every_update(update: str, dtype: str) -> None:
    """Values beside their marks, and values of 8 bytes."""
    agrees(scan(update, (157, 10), dtype), update, (3, 2, 8))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "int16", "int32"])
def test_every_dtype(dtype: str) -> None:
    agrees(scan("sum", (90, 5), dtype), "sum", (4, 2, 4))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shape", "tiles"),
    [
        ((101,), (4, 8, 1)),  # no other axis
        ((64, 3, 5), (2, 4, 4)),  # two others, the last one overhanging
        ((65, 16), (4, 4, 8)),  # whole tiles
        ((70, 4), (3, 1, 4)),  # threads by themselves
        ((70, 4), (1, 3, 2)),  # a row each
        ((20, 6), (8, 4, 8)),  # one tile, larger than all
        ((200, 1), (5, 1, 1)),  # one thread
        ((2, 7), (2, 2, 4)),  # one step
    ],
)
def test_every_shape(shape: tuple[int, ...], tiles: tuple[int, int, int]) -> None:
    agrees(scan("sum", shape, "int32"), "sum", tiles)


def test_again_and_again() -> None:
    """The workspace of one launch is that of the next."""
    func = scan("sum", (400, 6), "float64")
    call = loaded(compile_kernels(single_pass(func, 2, 2, 4), here()))
    for seed in range(30):
        x = inputs(func, seed)
        found = np.full_like(x, np.nan)
        call(x, found)
        np.testing.assert_allclose(found, np.cumsum(x, axis=0), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16"])
def test_cuda_compiles(dtype: str) -> None:
    scheduled = single_pass(scan("sum", (5000, 100), dtype), 16, 8, 32)
    text = source(scheduled, cuda())
    assert compile_cuda(text, "sm_90")
    assert "atomicAdd" in text
    assert ("__threadfence" in text) == (dtype == "float64")


def test_terms_are_read_once() -> None:
    """By one statement, where all rows exist, or by another one, where some do not."""
    kernels = program(single_pass(scan("sum", (5000, 100), "float32"), 16, 8, 32)).kernels
    assert [k.name for k in kernels] == ["main_kernel0", "main_kernel1_reset", "main_kernel1"]
    text = source(single_pass(scan("sum", (5000, 100), "float32"), 16, 8, 32))
    assert text[text.index("void main_kernel1(") :].count("x[") == 2


def test_the_analysis_knows_its_memory() -> None:
    """What blocks hand on is in global memory, and is no word read from shared memory."""
    scheduled = single_pass(scan("sum", (400, 6), "float32"), 2, 4, 4)
    *_, mine = analyse(scheduled, opencl()).kernels
    *_, real = program(scheduled).kernels
    assert real.lookback is not None
    assert float(mine.shared_bytes) == shared_bytes(real.lookback, prod(real.block))
    assert float(mine.tiles) == real.lookback.tiles == 50
    assert float(mine.shared_loads) == 0.0


def test_as_written_it_is_a_serial_program() -> None:
    func = scan("sum", (50, 6), "int32")
    scheduled = single_pass(func, 2, 3, 4)
    x, out = inputs(func), np.zeros((50, 6), "int32")
    interp.run(scheduled, [x, out])
    np.testing.assert_array_equal(out, np.cumsum(x, axis=0))
    again = parse(scheduled.script())
    assert isinstance(again, PrimFunc)
    assert again.same(scheduled)


def test_what_does_not_combine_is_refused() -> None:
    sch = Schedule(prim_func_of("ema", (60, 4, "float32")))
    (block,) = (b for b in sch.get_blocks() if kind_vars(sch.get(b), "sequential"))
    with pytest.raises(ScheduleError, match="no sum, product, maximum or minimum"):
        sch.single_pass_scan(block, 2, 2, 2)


def test_other_loops_than_its_own_are_refused() -> None:
    sch = Schedule(scan("sum", (64, 8), "int32"))
    (block,) = (b for b in sch.get_blocks() if kind_vars(sch.get(b), "sequential"))
    sch.annotate(block, "single_pass", True)
    steps, _ = sch.get_loops(block)
    sch.bind(steps, "threadIdx.x")
    with pytest.raises(CodegenError, match="single_pass_scan makes"):
        program(sch.func)


def test_only_what_is_scanned_may_have_its_steps_bound() -> None:
    sch = Schedule(scan("sum", (64, 8), "int32"))
    (block,) = (b for b in sch.get_blocks() if kind_vars(sch.get(b), "sequential"))
    with pytest.raises(ScheduleError, match="steps go in order"):
        sch.bind(sch.get_loops(block)[0], "threadIdx.x")


def test_the_space_has_it() -> None:
    names = [v.name for v in generate_space(prim_func_of("cumsum", (65536, 1024)), cuda()).variants]
    assert any("single_pass" in name for name in names)
    assert all(
        "single_pass" not in v.name
        for v in generate_space(prim_func_of("ema", (65536, 1024)), cuda()).variants
    )


@pytest.mark.long
def test_random_scans() -> None:
    rng = np.random.default_rng(7)
    for seed in range(20):
        update, dtype = rng.choice(list(UPDATES)), rng.choice(["float32", "int32", "int64"])
        rank = int(rng.integers(1, 4))
        shape = (int(rng.integers(2, 3000)), *(int(n) for n in rng.integers(1, 20, rank - 1)))
        columns = int(rng.integers(1, 20)) if rank > 1 else 1
        groups = int(rng.integers(1, max(2, 200 // columns)))
        func = scan(str(update), shape, str(dtype))
        if dtype == "float32" and update in ("sum", "product"):
            func = scan("max", shape, "float32")
            update = "max"
        agrees(func, str(update), (int(rng.integers(1, 12)), groups, columns), seed)


@pytest.mark.long
def test_a_large_one() -> None:
    func = prim_func_of("cumsum", (65536, 64, "float32"))
    (x,) = random_inputs(func)
    (found,) = run(single_pass(func, 16, 8, 32), [x])
    np.testing.assert_allclose(found, np.cumsum(x.astype("float64"), axis=0), atol=2e-2)
