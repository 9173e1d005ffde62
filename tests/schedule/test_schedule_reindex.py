"""Copies whose indices are a map of the block's axes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc, buffers_of

READS: dict[str, Any] = {
    "turned": lambda i, j, p: (p, i),
    "cut": lambda i, j, p: (i // 2, p, i % 2),
    "fused": lambda i, j, p: (i * 3 + p,),
    "data": [2, [0, 3], [0, 1, 3]],
    "rotated": lambda i, j, p: ((i + p) % 4, p),
}


def rows() -> PrimFunc:
    """C[i, j] = sum over p of A[2 * i + p] * B[p, j]."""
    a, b = te.placeholder((9,), "int32", "A"), te.placeholder((3, 5), "int32", "B")
    p = te.reduce_axis((0, 3), "p")
    c = te.compute((4, 5), lambda i, j: te.sum(a[i * 2 + p] * b[p, j], axis=p), name="C")
    return te.create_prim_func([a, b, c])


@pytest.mark.parametrize("name", READS)
def test_a_copy_is_indexed_by_a_map_of_the_axes(name: str) -> None:
    sch = Schedule(rows())
    copy = sch.reindex_cache_read("C", "A", "local", READS[name])
    sch.compute_at(copy, sch.get_loops("C")[0])
    sch.reindex_cache_write("C", 0, "global", lambda i, j, p: (j, i // 2, i % 2))
    assert parse_func(sch.func.script()).same(sch.func)
    assert sch.trace.apply(rows()).func.same(sch.func)
    assert {b.scope for b in buffers_of(sch.func) if "reindex" in b.name} == {"local", "global"}
    a, b = np.arange(9, dtype="int32"), np.arange(15, dtype="int32").reshape(3, 5)
    found = np.zeros((4, 5), "int32")
    interp.run(sch.func, [a, b, found])
    windows = np.lib.stride_tricks.sliding_window_view(a, 3)[::2]
    np.testing.assert_array_equal(found, windows @ b)


@pytest.mark.parametrize(
    ("index_map", "message"),
    [
        (lambda i, j, p: (i, j, p), "expected a map to indices of axes 0 (vi), 2 (vp)"),
        (lambda i, j, p: (i,), "does not determine the index of dimension 1"),
        ([0, [7, 2]], "the access does not use axis 7 of the block"),
        (3, "a layout is a list of dimensions"),
    ],
)
def test_maps_that_are_refused(index_map: Any, message: str) -> None:
    sch = Schedule(rows())
    with pytest.raises(ScheduleError, match=re.escape(message)):
        sch.reindex_cache_read("C", 0, "local", index_map)
