"""Elements behind the end of a padded copy are zeros, and others stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen.build import build_artifact
from autosched.codegen.llvm.generate import generate
from autosched.lowering.lower import lower
from autosched.runtime.function import Function
from autosched.script import parse_func
from autosched.target import Target

TARGET = Target("llvm -mcpu=haswell -num-cores=1")
HERE = Target("llvm -num-cores=1")

PADDED = """
@T.prim_func
def padded(A: T.Buffer((4, 13), "float32"), C: T.Buffer((4, 13), "float32")):
    B = T.alloc_buffer((2, 4, 8), "float32")
    for p, i in T.grid(2, 4):
        for j in T.vectorized(8):
            with T.block("B"):
                vp = T.axis.spatial(2, p)
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(8, j)
                T.where(p * 8 + j < 13)
                B[vp, vi, vj] = A[vi, vp * 8 + vj] * 3.0
    for i, j in T.grid(4, 13):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(13, j)
            C[vi, vj] = B[vj // 8, vi, vj % 8]
"""

AGAIN = """
@T.prim_func
def again(A: T.Buffer((8,), "float32"), C: T.Buffer((5,), "float32"), D: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for t in T.KIND(4):
        for j in T.vectorized(8):
            with T.block("B"):
                vt = T.axis.spatial(1, t)
                vj = T.axis.spatial(8, j)
                T.where(t * 5 + j < 5)
                B[vj] = A[vj] + 1.0
        for j in range(1):
            with T.block("D"):
                vt = T.axis.spatial(4, t)
                D[vt] = 1.0
    for j in range(5):
        with T.block("C"):
            vj = T.axis.spatial(5, j)
            C[vj] = B[vj] * 2.0
"""


def test_a_padded_copy_stores_zeros() -> None:
    func = parse_func(PADDED)
    assert "zeroinitializer" in generate(lower(func), TARGET).ir
    a, c = np.arange(52, dtype="f4").reshape(4, 13), np.full((4, 13), np.nan, "f4")
    Function(build_artifact(func, HERE))(a, c)
    np.testing.assert_array_equal(c, a * 3)


@pytest.mark.parametrize("kind", ["serial", "parallel", "unroll"])
def test_what_another_iteration_writes_stays(kind: str) -> None:
    """An axis of one point that the write does not name follows a loop of four: the iterations for
    which the predicate does not hold write the same elements."""
    func = parse_func(AGAIN.replace("KIND", kind))
    a, c, d = np.arange(8, dtype="f4"), np.zeros(5, "f4"), np.zeros(4, "f4")
    Function(build_artifact(func, HERE))(a, c, d)
    np.testing.assert_array_equal(c, 2 * (a[:5] + 1))
