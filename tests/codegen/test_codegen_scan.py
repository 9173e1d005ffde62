"""Generated code of recurrences: the same elements as NumPy computes, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scan_programs import PROGRAMS
from schedule_fuzz import random_schedule

from autosched.schedule import Schedule
from autosched.workloads import prim_func_of

NUMBERS = st.integers(0, 999)


@settings(
    max_examples=40, deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(
    st.sampled_from(PROGRAMS),
    st.tuples(st.integers(2, 6), st.sampled_from((1, 3, 8, 17))),
    st.lists(NUMBERS, min_size=30, max_size=72),
    st.sampled_from(("int64", "int32")),
)
def test_random_schedules(program, size, trace, dtype):
    func = program(*size, dtype)
    check(random_schedule(func, trace), func)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_cells_in_register_tiles(name: str, threads: int) -> None:
    """A register tile reads the row before the one that it writes; its columns are divided over
    the threads in every step."""
    func = prim_func_of(name, (5, 2, 9, 21))
    s = Schedule(func)
    product = s.get_block("recurrent")
    weight = s.cache_read(product, 1, "global", [[1], [0]])
    _, b, g, h, r = s.get_loops(product)
    outer, lanes = s.split(h, [None, 8])
    s.reorder(outer, r, b, g, lanes)
    for loop in (b, g):
        s.unroll(loop)
    s.vectorize(lanes)
    s.parallel(outer)
    s.vectorize(s.get_loops(weight)[1])
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, p.shape).astype(p.dtype) for p in func.params[:-1]]
    check(s, func, inputs, threads=threads, rtol=1e-5, atol=1e-6)
