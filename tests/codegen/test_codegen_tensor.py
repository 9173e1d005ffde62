"""Tensor intrinsics in compiled code: exact for bytes, near for bfloat16, with tails of rows."""

from __future__ import annotations

import numpy as np
import pytest
import schedule_fuzz
from guarded import HOST, check, compiled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensor_programs import dot_matmul, tile

from autosched.codegen.intrinsics import BF16, VNNI
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.tir import dtypes
from autosched.tir.intrin import TensorIntrin

NUMBERS = st.integers(0, 999)


def need(intrin: str) -> None:
    lacks = TensorIntrin.get(intrin).features - HOST.features
    if lacks:
        pytest.skip(f"this machine lacks {', '.join(lacks)}")


@pytest.mark.parametrize("rows", [1, 3, 4, 14])
def test_bytes(rows: int) -> None:
    """All extremes of both signs, in every lane; 14 rows end in the middle of a tile."""
    need(VNNI)
    func = dot_matmul(VNNI, 14, 64, 16)
    rng = np.random.default_rng(rows)
    a = rng.choice(np.array([0, 1, 127, 128, 254, 255], np.uint8), (14, 16))
    b = rng.choice(np.array([-128, -127, -1, 0, 1, 127], np.int8), (16, 64))
    schedule = Schedule(func)
    tile(schedule, VNNI, rows=rows)
    (c,) = check(schedule, func, [a, b])
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))


def test_bytes_wrap() -> None:
    """Sums wrap as int32 does: no saturation, not within an instruction and not after."""
    need(VNNI)
    k = 1 << 17
    func = dot_matmul(VNNI, 1, 16, k)
    schedule = Schedule(func)
    tile(schedule, VNNI, rows=1, panels=1)
    arrays = [np.full((1, k), 255, np.uint8), np.full((k, 16), -128, np.int8)]
    *_, c = compiled(schedule, [*arrays, np.zeros((1, 16), np.int32)])
    wanted = np.int64(k) * 255 * -128
    assert wanted < np.iinfo(np.int32).min
    np.testing.assert_array_equal(c, wanted.astype(np.int32))


def test_one_nest_without_registers() -> None:
    """The reduction's loop outside a loop of the tile: accumulated in memory."""
    need(VNNI)
    func = dot_matmul(VNNI, 3, 32, 16)
    schedule = Schedule(func)
    c = schedule.get_block("C")
    i, j, k = schedule.get_loops(c)
    j0, j1 = schedule.split(j, [None, 16])
    k0, k1 = schedule.split(k, [None, 4])
    schedule.reorder(k0, i, j0, j1, k1)
    schedule.cache_read(c, "B", "global", [[1, 16], [0, 4], [1, 1, 16], [0, 1, 4]])
    schedule.tensorize(c, VNNI)
    check(schedule, func, seed=1)


@pytest.mark.parametrize("decomposed", [False, True])
def test_bfloat16(decomposed: bool) -> None:
    """Whole numbers are exact; others are within what float32 sums lose."""
    need(BF16)
    func = dot_matmul(BF16, 7, 32, 24)
    schedule = Schedule(func)
    tile(schedule, BF16)
    if decomposed:
        c = schedule.get_block("C")
        schedule.decompose_reduction(c, schedule.get_loops(c)[2])
    check(schedule, func, seed=2)
    rng = np.random.default_rng(3)
    a, b = (dtypes.from_float32(rng.standard_normal(s)) for s in ((7, 24), (24, 32)))
    *_, c = compiled(schedule, [a, b, np.zeros((7, 32), np.float32)])
    wide = dtypes.to_float32(a).astype(np.float64) @ dtypes.to_float32(b)
    np.testing.assert_allclose(c, wide, rtol=1e-5, atol=1e-5)


@settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    st.lists(NUMBERS, min_size=40, max_size=40),
    st.lists(NUMBERS, min_size=12, max_size=12),
    st.lists(NUMBERS, min_size=0, max_size=48),
)
def test_random_programs(program: list[int], first: list[int], trace: list[int]) -> None:
    """A portable intrinsic, and random steps after it that leave it what it is."""
    f = schedule_fuzz
    stages = (f._matmul, f._matmul, f._pointwise, f._transpose)
    func = f.random_program(program, extents=(4, 6, 8, 2), stages=stages)
    schedule = Schedule(func)
    for numbers in (first, *(trace[n : n + 6] for n in range(0, len(trace), 6))):
        action = f._tensorize if numbers is first else f.ACTIONS[numbers[0] % len(f.ACTIONS)]
        try:
            action(schedule, f.Choices(numbers[numbers is not first :]))
        except ScheduleError:
            if numbers is first:
                return
    check(schedule, func)
