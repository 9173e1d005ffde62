"""Blocks that take their axes apart: inlined before that where they only move elements."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te
from autosched.codegen.build import build_artifact
from autosched.runtime.arrays import empty
from autosched.runtime.function import Function
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.te import Tensor
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
