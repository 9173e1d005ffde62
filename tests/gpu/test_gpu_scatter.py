"""Reductions whose written element moves while they reduce, on GPUs: one thread an element, or a
refusal where threads may meet in one."""

from __future__ import annotations

from pathlib import Path

import cuda_on_host
import numpy as np
import pytest
from cuda_on_host import run_on_host
from gpu_run import here, opencl
from scatter_programs import PROGRAMS, Scatter

import autosched
from autosched.errors import CodegenError, ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.tir.nodes import PrimFunc


def check(program: Scatter, func: PrimFunc) -> None:
    """PoCL gives what NumPy gives."""
    arrays = program.arrays()
    autosched.build(func, target=here())(*arrays)
    np.testing.assert_array_equal(arrays[-1], program.oracle(*program.arrays()))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_default_schedule_and_sketches(name: str) -> None:
    program = PROGRAMS[name]
    check(program, default_schedule(program.func(), opencl()).func)
    space = generate_space(program.func(), opencl())
    population = space.sample(np.random.default_rng(2), 3)
    for row in range(len(population)):
        check(program, space.schedule(*space.candidate(population, row)).func)


@pytest.mark.skipif(cuda_on_host.CXX is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize("name", ["histogram", "batch", "rows", "col2im", "pairs", "latest"])
def test_cuda(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    func = default_schedule(program.func(), autosched.Target("cuda -arch=sm_90")).func
    arrays = program.arrays()
    written = 2 if name == "latest" else 1
    for outputs in run_on_host(func, arrays[:-written], tmp_path):
        np.testing.assert_array_equal(outputs[-1], program.oracle(*program.arrays()))


def bound(program: Scatter, axis: int, thread: str) -> PrimFunc:
    """The scattering loop bound to threads."""
    schedule = Schedule(program.func())
    loops = schedule.get_loops(schedule.get_block(program.block))
    schedule.bind(loops[axis], thread)
    return schedule.func


@pytest.mark.parametrize("thread", ["blockIdx.x", "threadIdx.x"])
def test_threads_with_elements_of_their_own(thread: str) -> None:
    for name, axis in (("batch", 0), ("rows", 1), ("pairs", 0), ("columns", 1)):
        check(PROGRAMS[name], bound(PROGRAMS[name], axis, thread))


@pytest.mark.parametrize("thread", ["blockIdx.x", "threadIdx.x"])
@pytest.mark.parametrize(("name", "axis"), [("histogram", 0), ("rows", 0), ("pairs", 1)])
def test_threads_that_may_meet_are_refused(name: str, axis: int, thread: str) -> None:
    with pytest.raises(ScheduleError, match="may combine into the same element"):
        bound(PROGRAMS[name], axis, thread)
    loop = {"histogram": "v in T.serial(40)", "rows": "v, j in T.grid(12, 20)"}.get(name)
    if loop is None:
        return
    extent = 40 if name == "histogram" else 12
    head = f'v in T.thread_binding({extent}, thread="{thread}")'
    text = PROGRAMS[name].text
    before, after = text.rsplit(f"for {loop}:\n", 1)
    if name == "rows":
        after = "        for j in T.serial(20):\n" + after.replace("        ", "            ")
    func = parse_func(f"{before}for {head}:\n{after}", check=False)
    with pytest.raises(CodegenError):
        autosched.build(func, target=opencl())
