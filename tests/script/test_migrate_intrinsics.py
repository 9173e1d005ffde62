"""Descriptions of tensor intrinsics in TVMScript: what `TensorIntrin.register` takes."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched.schedule import Schedule
from autosched.script.migrate import migrate
from autosched.tir.intrin import TensorIntrin
from autosched.workloads import prim_func_of

TEXT = """
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (4, 4), "float32", align=64, offset_factor=1)
    B = T.match_buffer(b, (4, 4), "float32", align=64, offset_factor=1)
    C = T.match_buffer(c, (4, 4), "float32", align=64, offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:4], A[0:4, 0:4], B[0:4, 0:4])
        T.writes(C[0:4, 0:4])
        for i, j, k in T.grid(4, 4, 4):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_a_description_is_registered_and_used() -> None:
    (found,) = migrate(TEXT).functions
    assert found.is_routine
    name = "test_migrated_4x4"
    TensorIntrin.register(name, found.description, found.description)
    before = prim_func_of("matmul", (16, 8, 12))
    sch = Schedule(before)
    sch.auto_tensorize("C", name)
    rng = np.random.default_rng(0)
    given = [rng.random(b.shape, dtype=np.float32) for b in before.params]
    at.build(sch.func, target="llvm")(*given)
    np.testing.assert_allclose(given[2], given[0] @ given[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("C[vi, vj] = C[vi, vj] + A[vi, vk]", "C[vi, vj] = C[vi, vj] * 2.0 - A[vi, vk]"),
        ("C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]", "A[vi, vj] = A[vi, vk] * B[vk, vj]"),
        ("T.grid(4, 4, 4)", "T.grid(4, 4, 5)"),
    ],
)
def test_other_routines_have_no_description(old: str, new: str) -> None:
    assert old in TEXT
    (found,) = migrate(TEXT.replace(old, new)).functions
    assert not found.description
