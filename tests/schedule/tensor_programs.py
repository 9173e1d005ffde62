"""Matrix products for tensor intrinsics, and how they are scheduled."""

from __future__ import annotations

from autosched import te
from autosched.codegen.intrinsics import BF16, VNNI
from autosched.schedule import Schedule
from autosched.tir.nodes import PrimFunc

KINDS = {VNNI: ("uint8", "int8", "int32", 4), BF16: ("bfloat16", "bfloat16", "float32", 2)}
"""Intrinsic -> dtypes of A, B and C, and how many products it adds."""


def dot_matmul(intrin: str, n: int, m: int, k: int) -> PrimFunc:
    """C = A @ B in the dtypes of an intrinsic."""
    left, right, total, _ = KINDS[intrin]
    a = te.placeholder((n, k), name="A", dtype=left)
    b = te.placeholder((k, m), name="B", dtype=right)
    r = te.reduce_axis((0, k), name="k")
    c = te.compute(
        (n, m),
        lambda i, j: te.sum(a[i, r].astype(total) * b[r, j].astype(total), axis=r),
        name="C",
    )
    return te.create_prim_func([a, b, c])


def tile(sch: Schedule, intrin: str, rows: int = 4, panels: int = 2) -> None:
    """A register tile of `rows` times `panels` results of the intrinsic, B packed for it."""
    group = KINDS[intrin][3]
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, rows])
    j0, j1, j2 = sch.split(j, [None, panels, 16])
    k0, k1 = sch.split(k, [None, group])
    sch.reorder(j0, i0, k0, i1, j1, j2, k1)
    sch.cache_read(c, "B", "global", [[1, 16], [0, group], [1, 1, 16], [0, 1, group]])
    sch.unroll(i1)
    sch.unroll(j1)
    sch.tensorize(j2, intrin)
    sch.parallel(j0)
