"""What `storage_align` is for: a transposition through an intermediate whose rows lie a power of
two apart, so that a column falls into one set of the first-level cache, and the same with rows a
line longer.

    python benchmarks/storage_align.py
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np

import autosched as at
from autosched import te
from autosched.runtime.arrays import empty
from autosched.tir.nodes import PrimFunc

SIZE, PANEL = 1024, 32
LINE = 16
"""Elements in a line of the cache."""
TURNS = 20


def program() -> PrimFunc:
    """out[j, i] = A[i, j] * 2 + 1, by way of an intermediate in the order of A."""
    a = te.placeholder((SIZE, SIZE), name="A")
    rows = te.compute((SIZE, SIZE), lambda i, j: a[i, j] * 2 + 1, name="rows")
    out = te.compute((SIZE, SIZE), lambda j, i: rows[i, j], name="out")
    return te.create_prim_func([a, out])


def schedule(align: bool) -> at.Schedule:
    """A panel of rows at a time: written along the rows, read down the columns."""
    sch = at.Schedule(program())
    rows, out = sch.get_block("rows"), sch.get_block("out")
    j, i = sch.get_loops(out)
    i0, i1 = sch.split(i, [None, PANEL])
    sch.reorder(i0, j, i1)
    sch.compute_at(rows, i0)
    sch.vectorize(sch.get_loops(rows)[-1])
    sch.vectorize(i1)
    if align:
        sch.storage_align(rows, 0, 0, 2 * LINE, LINE)
    return sch


def main() -> None:
    a = empty((SIZE, SIZE), "float32")
    a[:] = np.random.default_rng(0).standard_normal(a.shape)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    timers: dict[bool, Any] = {}
    for align in seconds:
        out = empty((SIZE, SIZE), "float32")
        built = at.build(schedule(align), target=at.Target("llvm -num-cores=1"))
        built(a, out)
        np.testing.assert_array_equal(out, (a * 2 + 1).T)
        timers[align] = (built.time_evaluator(number=5), (a, out))
    for _ in range(TURNS):
        for align, (evaluate, arrays) in timers.items():
            seconds[align].append(evaluate(*arrays).min)
    dense, aligned = min(seconds[False]), min(seconds[True])
    case = f"transposition {SIZE}x{SIZE} in panels of {PANEL} rows"
    print(f"{case}: dense {dense * 1e3:.3f} ms, aligned {aligned * 1e3:.3f} ms")
    ratio = dense / aligned
    row = common.bar(case, ">= 1.5 of dense", f"{ratio:.2f}", ratio >= 1.5)
    common.finish("storage_align", {"dense_s": dense, "aligned_s": aligned, "bars": [row]})


if __name__ == "__main__":
    main()
