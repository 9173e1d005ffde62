"""Products with few rows: a matrix read once, row by row, in panels or along the reduction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rule_programs import library

from autosched import te
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.tir.nodes import PrimFunc, site_of
from autosched.workloads import prim_func_of

WIDE = Target("llvm -mcpu=x86-64-v4 -num-cores=2")


def matvec(n: int, m: int) -> PrimFunc:
    a, x = te.placeholder((n, m), name="A"), te.placeholder((m,), name="x")
    k = te.reduce_axis((0, m), name="k")
    return create_prim_func([a, x, te.compute((n,), lambda i: te.sum(a[i, k] * x[k], k), name="y")])


def against_rows(n: int, k: int, m: int) -> PrimFunc:
    """Rows of A times rows of B."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((m, k), name="B")
    r = te.reduce_axis((0, k), name="r")
    return create_prim_func(
        [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C")]
    )


FEW_RESULTS: dict[str, tuple[Callable[[], PrimFunc], str]] = {
    "vector": (lambda: matvec(200, 300), "y.lanes"),
    "one column": (library("matmul", 200, 300, 1), "C.lanes"),  # a column of one lies dense
    "columns": (library("matmul", 200, 300, 3), "C.lanes+B.root"),
    "fused": (library("matmul_add", 200, 300, 3), "matmul.lanes+B.root"),
    "one row against rows": (lambda: against_rows(1, 300, 200), "C.lanes"),
    "channels": (library("conv2d", 9, 8, 64, 3, 3, 1, 1), "conv2d.lanes+weight.root"),
}


@pytest.mark.parametrize("program", FEW_RESULTS)
def test_few_results_of_what_lies_along_the_reduction_have_lanes_there(program: str) -> None:
    make, name = FEW_RESULTS[program]
    found = generate_space(make(), WIDE).variants[0]
    assert found.name.split("+pad")[0] == name
    func = found.trace.apply(make(), values=dict(generate_space(make(), WIDE).default()[1])).func
    block = name.split(".")[0]
    loop = site_of(func, block).loops[-1]
    assert (loop.kind, loop.extent) == ("vectorized", 16)
    assert any(loop.var.name.startswith(n) for n in ("k", "rc", "r"))


@pytest.mark.parametrize(
    ("n", "k", "m"), [(200, 300, 8), (1, 300, 200), (200, 15, 3)], ids=["wide", "row", "short"]
)
def test_others_keep_vectors_over_the_result(n: int, k: int, m: int) -> None:
    space = generate_space(prim_func_of("matmul", (n, k, m)), WIDE)
    assert not any("lanes" in v.name for v in space.variants)
    assert not any(
        "lanes" in v.name for v in generate_space(against_rows(64, 300, 64), WIDE).variants
    )


@pytest.mark.parametrize(
    ("shape", "streams"),
    [((1, 2048, 2048), 16), ((8, 2048, 2048), 16), ((1, 128, 128), 1), ((64, 2048, 2048), 1)],
    ids=str,
)
def test_a_matrix_read_for_few_results_is_read_row_by_row(
    shape: tuple[int, int, int], streams: int
) -> None:
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=2")  # with caches of the usual size
    func = default_schedule(prim_func_of("matmul", shape), target).func
    *_, along, block, copies, _, vector = (int(x.extent) for x in site_of(func, "C").loops)
    assert copies == streams
    if streams > 1:
        # These rows for the whole part of the result that a thread has, then the next ones.
        assert block == 1
        assert along * vector * target.num_cores == shape[2]


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_a_constant_matrix_is_read_panel_by_panel(rows: int) -> None:
    """It is packed beforehand: results of a panel stay in registers, whichever way it lay."""
    for make in (lambda: prim_func_of("matmul", (rows, 2048, 2048)),
                 lambda: against_rows(rows, 2048, 2048)):  # fmt: skip
        given = make()
        attrs = (*given.attrs, ("layout_free", ("B",)), ("layout_rewrite", 2))
        free = replace(given, attrs=attrs)
        func = default_schedule(free, Target("llvm -mcpu=x86-64-v3 -num-cores=2")).func
        *_, height, vector = (x for x in site_of(func, "C").loops)
        assert vector.kind == "vectorized"
        assert vector.var.name.startswith("j")
        assert any(a.buffer.name.startswith("B_") for a in site_of(func, "C").block.reads)
        assert int(height.extent) == min(rows, 4)  # of sixteen registers


@pytest.mark.parametrize("rows", [2, 4, 7])
def test_rows_that_share_a_matrix_along_the_reduction_are_a_tile(rows: int) -> None:
    """It is read once, not once a row."""
    func = default_schedule(against_rows(rows, 512, 4096), WIDE).func
    found = {x.var.name: int(x.extent) for x in site_of(func, "C").loops}
    assert [n for name, n in found.items() if name.startswith("i")][-1] == rows


def test_windows_that_overlap_are_no_matrix_read_once() -> None:
    """The taps of a channelwise convolution stay beside its accumulators, whatever its size."""
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
    func = default_schedule(prim_func_of("depthwise_conv2d", (112, 112, 96, 3, 1, 1)), target).func
    block = site_of(func, "depthwise_conv2d").block
    assert np.prod([int(n) for n in block.reads[0].buffer.shape]) * 4 > target.l2_bytes
    loops = site_of(func, "depthwise_conv2d").loops
    taps = [v for it, v in zip(block.iters, block.bindings, strict=True) if it.kind == "reduce"]
    unrolled = [x for x in loops if x.kind == "unrolled" and any(t.uses([x.var]) for t in taps)]
    assert np.prod([int(x.extent) for x in unrolled]) == 9
