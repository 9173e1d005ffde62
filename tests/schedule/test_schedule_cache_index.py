"""Indices that are computed beforehand give the same elements."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func


def resize(mode: str) -> str:
    """An image of 5 by 6 resized to twice its size."""
    row, column = {
        "affine": ("(vi // 4 + vj // 4) % 5", "vj // 2"),
        "float": (
            "T.clamp_index(T.int64(T.floor((T.float32(vi) + 0.5) * 0.5 - 0.5)), 5)",
            "T.min(vj // 2 + 1, 5)",
        ),
    }[mode]
    return f"""
@T.prim_func
def resize(A: T.Buffer((3, 5, 6), "float32"), B: T.Buffer((3, 10, 12), "float32")):
    for c0, i0, j0 in T.grid(3, 10, 12):
        with T.block("B"):
            c, vi, vj = T.axis.remap("SSS", [c0, i0, j0])
            B[c, vi, vj] = A[c, {row}, {column}] + A[c, {row}, vj // 2] * 2.0
"""


def outcome(func, rng):
    arrays = [rng.standard_normal([int(n) for n in p.shape]).astype(p.dtype) for p in func.params]
    at.build(func)(*arrays)
    return arrays[-1]


@pytest.mark.parametrize("mode", ["affine", "float"])
def test_a_resized_image_is_the_same(mode):
    func = parse_func(resize(mode))
    sch = Schedule(func)
    stages = sch.cache_index("B")
    assert len(stages) == (2 if mode == "affine" else 3)  # equal indices share a stage
    assert [sch.get(b).writes[0].buffer.dtype for b in stages] == ["int64"] * len(stages)
    _, _, j = sch.get_loops("B")
    sch.vectorize(j)
    assert parse_func(sch.func.script()).script() == sch.func.script()
    found, want = (outcome(f, np.random.default_rng(1)) for f in (sch.func, func))
    np.testing.assert_array_equal(found, want)


def test_symbolic_sizes():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((n,), lambda i: a[i // 2], name="B")]))
    (stage,) = sch.cache_index("B")
    x = np.arange(7, dtype="f4")
    out = np.zeros(7, "f4")
    at.build(sch.func)(x, out)
    np.testing.assert_array_equal(out, x[np.arange(7) // 2])
    sch.parallel(sch.get_loops(stage)[0])


def test_a_reduction_may_index_by_its_reduced_axis():
    a, w = te.placeholder((9,), name="A"), te.placeholder((3,), name="W")
    r = te.reduce_axis((0, 3), name="r")
    out = te.compute((4,), lambda i: te.sum(a[i * 2 + r] * w[r], axis=r), name="C")
    func = te.create_prim_func([a, w, out])
    sch = Schedule(func)
    sch.cache_index("C")
    found, want = (outcome(f, np.random.default_rng(1)) for f in (sch.func, func))
    np.testing.assert_allclose(found, want, rtol=1e-6)


def chain():
    """B reads A as it lies, C reads B by halves."""
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    return te.create_prim_func([a, te.compute((8,), lambda i: b[i // 2], name="C")])


def test_what_it_refuses():
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="each index of its reads is an axis, a number"):
        sch.cache_index("B")
    with pytest.raises(ScheduleError, match="no scope 'registers'"):
        sch.cache_index("C", "registers")
    sch.compute_at("B", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="what writes B stands in the same loops"):
        sch.cache_index("C")


def test_an_index_that_is_read_stays_and_what_it_reads_is_cached():
    rows = te.placeholder((8,), dtype="int64", name="rows")
    a = te.placeholder((5,), name="A")
    out = te.compute((8,), lambda i: a[te.clamp_index(rows[7 - i], 5)], name="B")
    func = te.create_prim_func([rows, a, out])
    sch = Schedule(func)
    (stage,) = sch.cache_index("B")
    assert sch.get(stage).name == "B_index"
    data = np.array([3, 9, -4, 0, 1, 2, 4, 4]), np.arange(5, dtype="f4"), np.zeros(8, "f4")
    at.build(sch.func)(*data)
    np.testing.assert_array_equal(data[2], data[1][np.clip(data[0][::-1], 0, 4)])
