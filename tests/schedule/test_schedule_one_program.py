"""What the verifier shows for one program at a time: a population is NotBatchable, not refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from schedule_outcome import outputs

from autosched import te
from autosched.errors import NotBatchable
from autosched.schedule import Decision, Schedule
from autosched.script import parse_func
from autosched.tir.nodes import PrimFunc

Apply = Callable[[Schedule], object]


def flattened() -> PrimFunc:
    """C = (A + 1) * 2; B is stored in one dimension, so that C is written by `vf // 3, vf % 3`."""
    a = te.placeholder((3, 3), name="A", dtype="int64")
    b = te.compute((3, 3), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((3, 3), lambda i, j: b[i, j] * 2, name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    sch.transform_layout("B", ("write", 0), [[[0, 1]]], pad_value=0)
    return sch.func


def sums() -> PrimFunc:
    """D = A @ B + 1; zeros are written in a nest of their own."""
    a = te.placeholder((6, 5), name="A", dtype="int64")
    b = te.placeholder((5, 4), name="B", dtype="int64")
    k = te.reduce_axis((0, 5), name="k")
    c = te.compute((6, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((6, 4), lambda i, j: c[i, j] + 1, name="D")
    sch = Schedule(te.create_prim_func([a, b, d]))
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    return sch.func


def sums_with_reader() -> PrimFunc:
    """`sums`, whose D is computed row by row behind C."""
    sch = Schedule(sums())
    sch.reverse_compute_at("D", sch.get_loops("C")[0])
    return sch.func


def guarded() -> PrimFunc:
    """Padded rows; a predicate keeps the columns inside."""
    return parse_func("""
@T.prim_func
def main(A: T.Buffer((4, 8), "int64"), B: T.Buffer((4, 8), "int64")):
    for i, j in T.grid(4, 10):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(10, j)
            T.where(j < 8)
            B[vi, vj] = T.if_then_else(vi >= 1, A[vi - 1, vj], T.int64(0))
""")


CASES: dict[str, tuple[Callable[[], PrimFunc], str, Apply]] = {
    "reverse_compute_inline": (flattened, "B", lambda s: s.reverse_compute_inline("C")),
    "cache_inplace": (sums, "C", lambda s: s.cache_inplace("C", "C")),
    "cache_inplace elsewhere": (sums, "D", lambda s: s.cache_inplace("C", "C")),
    "cache_read": (sums_with_reader, "C_init", lambda s: s.cache_read("D", "C", "local")),
    "pad_read": (guarded, "B", lambda s: s.pad_read("B", "A")),
}


@pytest.mark.parametrize("name", CASES)
def test_candidates_are_taken_one_at_a_time(name: str) -> None:
    make, block, apply = CASES[name]
    func, factors = make(), np.array([4, 5])

    def scheduled(factor: int | np.ndarray) -> Schedule:
        sch = Schedule(func, {"d": factor})
        sch.split(sch.get_loops(block)[0], [None, Decision("d")])
        apply(sch)
        return sch

    with pytest.raises(NotBatchable):
        scheduled(factors)
    (wanted,) = outputs(func, func, 1)
    for factor in factors:
        (found,) = outputs(scheduled(int(factor)).func, func, 1)
        assert np.array_equal(found, wanted)
