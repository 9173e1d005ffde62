"""Blocks that take their axes apart: inlined before that where they only move elements."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te
from autosched.codegen.build import build_artifact
from autosched.runtime.arrays import empty
from autosched.runtime.function import Function
from autosched.schedule import Schedule
from autosched.sketch.default import default_schedule
from autosched.sketch.digits import separate_digits
from autosched.target import Target
from autosched.te import Tensor
from autosched.tir.expr import Expr
from autosched.tir.nodes import PrimFunc, sites

HOST = Target("llvm -num-cores=2")


def rows_in_turns(after: int) -> PrimFunc:
    """Rows of A taken from two places in turn, then elementwise blocks."""
    a = te.placeholder((2, 6, 40), name="A")
    value: Tensor = te.compute((12, 40), lambda i, j: a[i % 2, i // 2, j], name="moved")
    for n in range(after):
        before = value
        value = te.compute((12, 40), lambda i, j, x=before: te.tanh(x[i, j]) * 2.0, name=f"e{n}")
    return te.create_prim_func([a, value])


def columns_in_turns() -> PrimFunc:
    """The same along the axis that runs in vectors."""
    a = te.placeholder((3, 100), name="A")
    moved = te.compute((300,), lambda i: a[i % 3, i // 3], name="moved")
    return te.create_prim_func([a, te.compute((300,), lambda i: te.exp(moved[i]), name="e0")])


def names(func: PrimFunc) -> list[str]:
    return [s.block.name for s in sites(default_schedule(func, HOST).func)]


@pytest.mark.parametrize("after", [1, 3])
def test_moved_rows_are_read_where_they_lie(after: int) -> None:
    func = rows_in_turns(after)
    assert names(func) == [f"e{after - 1}"]
    data = np.random.default_rng(0).standard_normal((2, 6, 40)).astype("float32")
    out = empty((12, 40))
    Function(build_artifact(default_schedule(func, HOST).func, HOST))(data, out)
    want = data.transpose(1, 0, 2).reshape(12, 40)
    for _ in range(after):
        want = np.tanh(want) * 2
    np.testing.assert_allclose(out, want, rtol=1e-5)


def test_vectors_stay_long_behind_moved_columns() -> None:
    """Three lanes of each would compute exp."""
    assert names(columns_in_turns()) == ["moved", "e0"]


@pytest.mark.parametrize(
    ("extent", "by", "dtype", "whole"),
    [
        (64, 2, "float32", True),
        (37, 2, "float32", True),
        (20, 4, "float32", True),
        (5, 2, "float64", True),
        (33, 2, "int8", True),
        (21, 3, "float32", False),  # three neighbours fill no vector
    ],
)
def test_neighbours_that_read_one_element_share_a_vector(
    extent: int, by: int, dtype: str, whole: bool
) -> None:
    """The last axis of a nearest resize stays one."""
    a = te.placeholder((5, extent), dtype, name="A")
    b = te.placeholder((10, extent * by), dtype, name="B")
    made = te.compute((10, extent * by), lambda i, j: a[i // 2, j // by] + b[i, j], name="near")
    func = te.create_prim_func([a, b, made])
    scheduled = default_schedule(func, HOST).func
    (site,) = sites(scheduled)
    assert (int(site.block.iters[-1].extent) == extent * by) == whole
    rng = np.random.default_rng(0)
    data, more = (rng.integers(-60, 60, s).astype(dtype) for s in ((5, extent), (10, extent * by)))
    out = empty((10, extent * by), dtype)
    Function(build_artifact(scheduled, HOST))(data, more, out)
    np.testing.assert_array_equal(out, data.repeat(2, 0).repeat(by, 1) + more)


def repeated(times: int) -> PrimFunc:
    """Every byte of A for some results beside each other."""
    a = te.placeholder((12, 40), "uint8", name="A")

    def part(i: te.IterVar, j: te.IterVar) -> Expr:
        return te.cast(a[i, j // times] >> te.cast(j % times, "uint8"), "int8")

    return te.create_prim_func([a, te.compute((12, 40 * times), part, name="parts")])


@pytest.mark.parametrize(("times", "whole"), [(2, True), (4, True), (8, True), (3, False)])
def test_vectors_run_over_the_parts_of_several_elements(times: int, whole: bool) -> None:
    """Lanes know their elements where each is for a power of two; else copies are as fast."""
    func = repeated(times)
    schedule = default_schedule(func, HOST).func
    (block,) = (s.block for s in sites(schedule))
    assert (len(block.iters) == 2) is whole
    data = np.random.default_rng(0).integers(0, 256, (12, 40)).astype("uint8")
    out = empty((12, 40 * times), "int8")
    Function(build_artifact(schedule, HOST))(data, out)
    want = (data[:, :, None] >> np.arange(times, dtype="uint8")).astype("int8")
    np.testing.assert_array_equal(out, want.reshape(12, -1))


@pytest.mark.parametrize(("vector_bytes", "axes"), [(0, 3), (4, 3), (8, 2), (32, 2)])
def test_neighbours_stay_beside_each_other_for_vectors_alone(vector_bytes: int, axes: int) -> None:
    """Sketches of GPUs have none, and take the axis apart."""
    a = te.placeholder((5, 8), name="A")
    func = te.create_prim_func([a, te.compute((5, 16), lambda i, j: a[i, j // 2], name="near")])
    schedule = Schedule(func)
    separate_digits(schedule, vector_bytes)
    (site,) = sites(schedule.func)
    assert len(site.block.iters) == axes
