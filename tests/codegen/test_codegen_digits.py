"""Quotients and remainders of the indices of lanes, of which few pass a multiple."""

from __future__ import annotations

import re

import pytest
from guarded import check
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched import te
from autosched.codegen.build import generate_ir
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

WIDTH, EXTENT = 16, 71


def program(step: int, const: int, div: int, mod: int) -> PrimFunc:
    """Y[r, i] = X[(step * i + r + const) // div % mod]: the first lane's index is not known."""
    x = te.placeholder((mod,), name="X")
    y = te.compute((3, EXTENT), lambda r, i: x[(i * step + r + const) // div % mod], name="Y")
    return te.create_prim_func([x, y])


def in_vectors(func: PrimFunc) -> Schedule:
    sch = Schedule(func)
    sch.vectorize(sch.split(sch.get_loops("Y")[1], [None, WIDTH])[1])
    return sch


@given(
    st.integers(-5, 5), st.integers(-150, 150), st.sampled_from([1, 2, 3, 8, 19, 45, 75, 90]),
    st.sampled_from([2, 3, 7, 16, 50, 75, 100]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_digits_of_lanes_are_those_of_numpy(step: int, const: int, div: int, mod: int) -> None:
    func = program(step, const, div, mod)
    check(in_vectors(func), func)


@pytest.mark.parametrize(
    ("step", "div", "mod", "apart"),
    [(1, 1, 50, False), (-3, 1, 50, False), (1, 19, 7, False), (-2, 45, 16, False)]
    + [(4, 1, 50, True), (1, 3, 7, True)],
)
def test_one_lane_is_divided_where_the_others_pass_one_multiple_at_most(
    step: int, div: int, mod: int, apart: bool
) -> None:
    """Processors divide vectors of 64 bits a lane at a time."""
    func = in_vectors(program(step, 0, div, mod)).func
    ir = generate_ir(func, Target("llvm -mcpu=x86-64-v4")).ir
    assert bool(re.search(r"(srem|sdiv) <\d+ x i64>", ir)) is apart
