"""pad_einsum: what it copies, and what it leaves to others."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import ScheduleError
from autosched.script import parse_func

ROW = np.arange(1, 6, dtype="f4")

SHARED = """
@T.prim_func
def shared(A: T.Buffer((3, 3), "float32"), s: T.Buffer((6,), "float32")):
    for j in T.serial(3):
        with T.block("rest"):
            vj = T.axis.spatial(3, j)
            s[vj + 3] = 7.0
    for j, k in T.grid(3, 3):
        with T.block("s"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                s[vj] = 0.0
            s[vj] += A[vj, vk]
"""


def part_of_a_row():
    """The sum of the first three of five elements, twice."""
    a, k = te.placeholder((5,), name="A"), te.reduce_axis((0, 3), name="k")
    return te.create_prim_func([a, te.compute((2,), lambda j: te.sum(a[k], axis=k), name="s")])


@pytest.mark.parametrize("padding", [[2, 2], [1, 4], [1, 7]], ids=str)
def test_elements_beyond_the_axis_are_no_part_of_it(padding: list[int]) -> None:
    schedule = at.Schedule(part_of_a_row())
    schedule.pad_einsum(schedule.get_block("s"), padding)
    out = np.zeros(2, "f4")
    at.build(schedule)(ROW, out)
    np.testing.assert_array_equal(out, [6, 6])


@pytest.mark.parametrize("padding", [[4, 1], [1, 1], [2, 2]], ids=str)
def test_what_another_block_wrote_stays(padding: list[int]) -> None:
    schedule = at.Schedule(parse_func(SHARED))
    schedule.pad_einsum(schedule.get_block("s"), padding)
    out = np.zeros(6, "f4")
    at.build(schedule)(np.arange(9, dtype="f4").reshape(3, 3), out)
    np.testing.assert_array_equal(out, [3, 12, 21, 7, 7, 7])


@pytest.mark.parametrize("form", ["quotient", "exponential", "infinite"])
def test_factors_that_may_not_be_finite_are_refused(form: str) -> None:
    a, k = te.placeholder((3,), name="A"), te.reduce_axis((0, 3), name="k")
    factor = {
        "quotient": lambda: te.const(1.0) / (3 - k).astype("float32"),
        "exponential": lambda: te.exp(k.astype("float32") * 40.0),
        "infinite": lambda: te.const(float("inf")),
    }[form]
    made = te.compute((2,), lambda j: te.sum(a[k] * factor(), axis=k), name="s")
    schedule = at.Schedule(te.create_prim_func([a, made]))
    with pytest.raises(ScheduleError, match="may not be finite"):
        schedule.pad_einsum(schedule.get_block("s"), [1, 4])
    schedule.pad_einsum(schedule.get_block("s"), [4, 1])  # nothing is multiplied by 0
    out, given = np.zeros(2, "f4"), np.arange(1, 4, dtype="f4")
    at.build(schedule)(given, out)
    plain = np.zeros(2, "f4")
    at.build(te.create_prim_func([a, made]))(given, plain)
    np.testing.assert_allclose(out, plain, rtol=1e-6)
