"""The baseline: the order of memory, and the same result in every bit."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import ops, te
from autosched.runtime.function import Function
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from measure.local.build import build
from measure.verify.baseline import memory_order


def loops(func: PrimFunc) -> list[list[str]]:
    from autosched.tir.nodes import sites

    scheduled = memory_order(func).apply(func).func
    return [[loop.var.name for loop in site.loops] for site in sites(scheduled)]


def program(name: str) -> PrimFunc:
    if name == "matmul":
        return te.create_prim_func(ops.matmul(12, 9, 20))
    if name == "softmax":
        return te.create_prim_func(ops.softmax(6, 33))
    if name == "conv2d":
        return te.create_prim_func(ops.conv2d(8, 8, 3, 16, 3, 1, 1))
    a = te.placeholder((7, 11), name="a")
    return te.create_prim_func([a, te.compute((11, 7), lambda i, j: a[j, i] * 2.0, name="o")])


def test_baseline_order_of_a_matmul() -> None:
    ((i, k, j),) = loops(program("matmul"))
    assert (i[0], k[0], j[0]) == ("i", "k", "j")


def test_baseline_in_vectors_only_where_a_block_is_much_work() -> None:
    target = Target("llvm")
    small, large = (te.create_prim_func(ops.matmul(n, n, n)) for n in (256, 1024))
    assert memory_order(small, target) == memory_order(small)
    assert "vectorize" in [step.op for step in memory_order(large, target).steps]


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("name", ["matmul", "softmax", "conv2d", "transpose"])
def test_baseline_is_the_program_bit_for_bit(
    name: str, vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    func, target = program(name), Target("llvm")
    monkeypatch.setattr("measure.verify.baseline.SCALAR_WORK", 0)
    monkeypatch.setattr("measure.verify.baseline.VECTORS", 1)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.shape).astype(b.dtype) for b in func.params]
    results = []
    for trace in (None, memory_order(func, target if vectors else None)):
        made = Function(build(func, trace, target, "full"), threads=1)
        given = [a.copy() for a in arrays]
        made(*given)
        results.append(given)
    for one, other in zip(*results, strict=True):
        assert (one.view(np.uint8) == other.view(np.uint8)).all()
