"""Loops bound to one axis together, and copies that threads share out."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_programs import plain_matmul
from gpu_run import check, opencl, program, source

from autosched import te
from autosched.errors import CodegenError, ScheduleError
from autosched.schedule import Schedule
from autosched.tir.nodes import PrimFunc


def matmul() -> PrimFunc:
    return te.create_prim_func([*plain_matmul(20, 24, 16)])


def bound(axis: str, factors: tuple[int, int]) -> tuple[PrimFunc, Schedule]:
    func = matmul()
    sch = Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, factors[0]])
    j0, j1 = sch.split(j, [None, factors[1]])
    sch.reorder(i0, j0, i1, j1, k)
    for loop in (i0, j0):
        sch.bind(loop, "blockIdx.x")
    for loop in (i1, j1):
        sch.bind(loop, axis)
    return func, sch


@pytest.mark.parametrize("factors", [(4, 8), (3, 7), (1, 16)], ids=str)
def test_nested_loops_bound_to_one_axis_are_one_iteration_space(factors: tuple[int, int]) -> None:
    func, sch = bound("threadIdx.x", factors)
    check(sch.func, func)
    (kernel,) = program(sch.func).kernels
    assert kernel.block == (factors[0] * factors[1], 1, 1)
    assert kernel.grid == (-(-20 // factors[0]) * -(-24 // factors[1]), 1, 1)


def test_nested_virtual_threads() -> None:
    func, sch = bound("vthread.x", (2, 4))
    check(sch.func, func)
    assert program(sch.func).kernels[0].block == (1, 1, 1)


def test_loops_with_something_between_are_no_iteration_space() -> None:
    sch = Schedule(matmul())
    i, j, _ = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, 4])
    sch.bind(i0, "threadIdx.x")
    with pytest.raises(ScheduleError, match=r"is bound to threadIdx\.x already, and C uses it"):
        sch.bind(j, "threadIdx.x")
    sch.bind(i1, "threadIdx.x")
    assert program(sch.func).kernels[0].block == (20, 1, 1)


@pytest.mark.parametrize("lanes", [1, 3, 4])
def test_a_cooperative_copy_is_dealt_out(lanes: int) -> None:
    func, sch = bound("threadIdx.x", (4, 8))
    block = sch.get_block("C")
    copy = sch.cache_read(block, 1, "shared")
    sch.compute_at(copy, sch.get_loops(block)[3])
    sch.annotate(copy, "cooperative", lanes)
    text = check(sch.func, func)
    # 16 rows of 8: vectors stay inside of a row.
    assert ("vstore4" in text or "float4" in text) == (lanes == 4)
    assert source(sch.func).count("barrier(CLK") == 1


def test_what_cannot_be_dealt_out_is_refused() -> None:
    _, sch = bound("threadIdx.x", (4, 8))
    sch.annotate(sch.get_block("C"), "cooperative", 4)
    with pytest.raises(CodegenError, match="its iterations depend on each other"):
        source(sch.func)
    _, sch = bound("threadIdx.x", (4, 8))
    block = sch.get_block("C")
    copy = sch.cache_read(block, 1, "shared")
    sch.compute_at(copy, sch.get_loops(block)[3])
    sch.annotate(copy, "cooperative", 4)
    sch.unroll(sch.get_loops(copy)[-1])
    with pytest.raises(CodegenError, match="is not serial"):
        source(sch.func, opencl())
    with pytest.raises(ScheduleError, match="the elements that a thread copies at once"):
        sch.annotate(copy, "cooperative", 0)
    assert np.prod(program(bound("threadIdx.x", (4, 8))[1].func).kernels[0].block) == 32
