"""Recurrences on a GPU: states in registers, and in chunks where they combine."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from gpu_run import barriers, check, cuda, opencl, program, random_inputs, run, source

from autosched import te
from autosched.codegen.cuda import compile_cuda
from autosched.sketch.default import default_schedule
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of


def cumsum(t: int, n: int) -> PrimFunc:
    return prim_func_of("cumsum", (t, n, "float32"))


@pytest.mark.parametrize(("t", "n"), [(257, 1), (1001, 3), (20011, 1), (601, 40)])
def test_long_ones_of_few_columns_go_in_chunks(t: int, n: int) -> None:
    func = cumsum(t, n)
    scheduled = default_schedule(func, opencl()).func
    assert len(program(scheduled).kernels) == (4 if t < 20000 else 6)
    assert barriers(check(scheduled, func, rtol=1e-3, atol=1e-2)) == 0


@pytest.mark.parametrize(("t", "n"), [(257, 1), (1001, 3), (601, 40), (300, 2000)])
def test_on_cuda_they_go_in_a_single_pass(t: int, n: int) -> None:
    func = cumsum(t, n)
    scheduled = default_schedule(func, cuda())
    _, reset, scan = program(scheduled.func, cuda()).kernels
    assert reset.name.endswith("_reset")
    assert scan.lookback is not None
    assert compile_cuda(source(scheduled.func, cuda()), "sm_90")
    check(scheduled.func, func, nvrtc=False, rtol=1e-3, atol=1e-2)


def test_all_threads_of_a_large_one_have_work() -> None:
    scheduled = default_schedule(cumsum(1 << 20, 1), cuda()).func
    widest = max(prod(k.grid) * prod(k.block) for k in program(scheduled, cuda()).kernels)
    assert widest >= 1 << 15
    steps = [k for k in source(scheduled, cuda()).split("\n") if "for (int t" in k]
    assert all(int(line.split("< ")[1].split(";")[0]) <= 256 for line in steps)


@pytest.mark.parametrize(("t", "n"), [(100, 8), (4096, 40000)])
def test_short_ones_and_those_of_many_columns_stay(t: int, n: int) -> None:
    assert len(program(default_schedule(cumsum(t, n), opencl()).func).kernels) == 2


def test_what_does_not_combine_stays() -> None:
    func = prim_func_of("ema", (300, 3, "float32"))
    assert len(program(default_schedule(func, opencl()).func).kernels) == 2


@pytest.mark.parametrize("dtype", ["int32", "float64", "int8"])
def test_maxima_of_any_dtype(dtype: str) -> None:
    t, n = 301, 2
    x, s = te.placeholder((t, n), dtype, "x"), te.placeholder((t, n), dtype, "s")
    first = te.compute((1, n), lambda i, j: x[i, j], name="first")
    step = te.compute((t, n), lambda i, j: te.max(s[i - 1, j], x[i, j]), name="step")
    func = te.create_prim_func([x, te.scan(first, step, s, inputs=[x], name="out")])
    scheduled = default_schedule(func, opencl()).func
    (values,) = random_inputs(func)
    (found,) = run(scheduled, [values])
    np.testing.assert_array_equal(found, np.maximum.accumulate(values, axis=0))


def test_the_state_is_in_a_register() -> None:
    """It is loaded once, not once a step."""
    func = cumsum(16, 200)
    text = check(default_schedule(func, opencl()).func, func)
    loop = text[text.index("for (int t") :]
    assert "= cumsum[" not in loop
    assert "state = state + data[" in loop


def test_a_state_behind_a_condition() -> None:
    """Of the last, short chunk: its steps end, and where it has none nothing is loaded."""
    func = cumsum(277, 1)
    text = check(default_schedule(func, opencl()).func, func, rtol=1e-3)
    kernel = text[text.index("main_kernel3") :]
    assert kernel.index("if (") < kernel.index("float state = ") < kernel.index("for (int t_1")
    assert "if (tx * 16 + t_1 < 276)" in kernel
