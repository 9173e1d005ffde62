"""Reductions whose written element moves while they reduce: histograms, scatter-add, col2im."""

from __future__ import annotations

import numpy as np
import pytest
from scatter_programs import HISTOGRAM, PROGRAMS, Scatter

import autosched
from autosched.errors import ScheduleError, VerifyError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.sketch.reference import reference_schedule
from autosched.target import Target
from autosched.tir import interp, whole
from autosched.tir.nodes import PrimFunc
from autosched.tir.verify import verify
from measure.verify.baseline import memory_order

TARGETS = ("llvm", "llvm -mcpu=nehalem")


def check(program: Scatter, func: PrimFunc, target: str = "llvm") -> None:
    """Built code and the interpreter give what NumPy gives."""
    wanted = program.oracle(*program.arrays())
    arrays = program.arrays()
    autosched.build(func, target=target)(*arrays)
    np.testing.assert_array_equal(arrays[-1], wanted)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_agrees_with_numpy(name):
    program = PROGRAMS[name]
    arrays = program.arrays()
    interp.run(program.func(), arrays)
    np.testing.assert_array_equal(arrays[-1], program.oracle(*program.arrays()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_by_whole_arrays_agrees_with_numpy(name):
    program = PROGRAMS[name]
    arrays = program.arrays()
    whole.reference(program.func(), arrays)
    np.testing.assert_array_equal(arrays[-1], program.oracle(*program.arrays()))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_written(name, target):
    check(PROGRAMS[name], PROGRAMS[name].func(), target)


@pytest.mark.parametrize("name", PROGRAMS)
def test_schedules_of_the_project(name):
    program, target = PROGRAMS[name], Target("llvm")
    func = program.func()
    check(program, default_schedule(func, target).func)
    check(program, reference_schedule(func, target).func)
    check(program, memory_order(func).apply(func).func)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sketches(name):
    program = PROGRAMS[name]
    space = generate_space(program.func(), Target("llvm"))
    population = space.sample(np.random.default_rng(1), 6)
    for row in range(len(population)):
        check(program, space.schedule(*space.candidate(population, row)).func)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_legal_schedules(name, seed):
    program, rng = PROGRAMS[name], np.random.default_rng(seed)
    schedule = Schedule(program.func())
    made = 0
    for _ in range(7):
        loops = schedule.get_loops(schedule.get_block(program.block))
        pick = loops[int(rng.integers(len(loops)))]
        step = ("split", "reorder", "fuse", "vectorize", "unroll", "parallel")[int(rng.integers(6))]
        trial = schedule.copy()
        try:
            if step == "split":
                trial.split(pick, [None, int(rng.choice([2, 3, 4, 8, 16]))])
            elif step == "reorder":
                trial.reorder(*(loops[n] for n in rng.permutation(len(loops))))
            elif step == "fuse":
                trial.fuse(*loops[:2])
            else:
                getattr(trial, step)(pick)
        except ScheduleError:
            continue
        schedule, made = trial, made + 1
    assert made
    verify(schedule.func)
    check(program, schedule.func)


def test_loops_that_may_meet_in_an_element_do_not_run_at_once():
    schedule = Schedule(HISTOGRAM.func())
    (loop,) = schedule.get_loops(schedule.get_block("count"))
    with pytest.raises(ScheduleError, match="may combine into the same element of H in count"):
        schedule.parallel(loop)
    with pytest.raises(ScheduleError, match="may combine into the same element of H in count"):
        schedule.bind(loop, "threadIdx.x")
    text = HISTOGRAM.text.replace("T.serial(40)", "T.parallel(40)")
    with pytest.raises(VerifyError, match="may write the same element of H"):
        parse_func(text)


def test_a_loop_that_provably_moves_the_element_runs_in_parallel():
    program = PROGRAMS["columns"]
    schedule = Schedule(program.func())
    _, k = schedule.get_loops(schedule.get_block("add"))
    schedule.parallel(k)
    verify(schedule.func)
    check(program, schedule.func)
    text = schedule.func.script()
    assert parse_func(text).same(schedule.func)


def test_an_init_that_sets_one_of_many_elements_is_refused():
    text = HISTOGRAM.text.replace(
        "            H[T.max",
        "            with T.init():\n"
        "                H[T.max(T.min(A[vv], 4), 0)] = 0\n"
        "            H[T.max",
    )
    with pytest.raises(VerifyError, match="moves with its reduction axis vv") as error:
        parse_func(text)
    assert "set all of H in a block before it" in str(error.value)


def test_an_axis_of_one_point_moves_nothing():
    func = parse_func("""
@T.prim_func
def main(A: T.Buffer((6, 1)), B: T.Buffer((6, 1))):
    for i, k in T.grid(6, 1):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi, vk] = 0.0
            B[vi, vk] += A[vi, vk]
""")
    a, b = np.arange(6, dtype="float32").reshape(6, 1), np.empty((6, 1), "float32")
    autosched.build(func, target="llvm")(a, b)
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("primitive", ["rfactor", "decompose_reduction", "cache_write"])
def test_primitives_that_need_an_element_that_stands_still(primitive):
    schedule = Schedule(PROGRAMS["pairs"].func())
    block = schedule.get_block("add")
    loop = schedule.get_loops(block)[-1]
    arguments = {
        "rfactor": (loop, 0),
        "decompose_reduction": (block, loop),
        "cache_write": (block, 0, "local"),
    }[primitive]
    with pytest.raises(ScheduleError, match=r"spatial axes|moves with its reduction axis"):
        getattr(schedule, primitive)(*arguments)


def test_a_producer_of_the_place_is_computed_in_its_reader():
    program = PROGRAMS["through"]
    inlined = Schedule(program.func())
    inlined.compute_inline(inlined.get_block("C"))
    check(program, inlined.func)
    inside = Schedule(program.func())
    (loop,) = inside.get_loops(inside.get_block("count"))
    inside.compute_at(inside.get_block("C"), loop)
    check(program, inside.func)
    copied = Schedule(program.func())
    copied.cache_read(copied.get_block("count"), 0, "local")
    check(program, copied.func)


def test_places_of_a_register_tile_that_may_be_one_element():
    """Rows that add to one element: each place of a tile would store what it has itself."""
    func = parse_func(
        """
@T.prim_func
def main(X: T.Buffer((8, 6)), Y: T.Buffer((3,))):
    for i in T.serial(3):
        with T.block("zero"):
            vi = T.axis.spatial(3, i)
            Y[vi] = 0.0
    for k in T.serial(6):
        for i in T.unroll(8):
            with T.block("add"):
                vi, vk = T.axis.remap("SR", [i, k])
                Y[vi % 3] += X[vi, vk]
"""
    )
    x = np.random.default_rng(0).integers(-4, 5, (8, 6)).astype("float32")
    y, wanted = np.empty(3, "float32"), np.empty(3, "float32")
    interp.run(func, [x, wanted])
    autosched.build(func, target="llvm")(x, y)
    np.testing.assert_array_equal(y, wanted)
