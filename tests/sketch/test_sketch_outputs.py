"""Rows of which several blocks are results: computed row by row, in the rows of the first block."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te
from autosched.codegen.build import build_artifact
from autosched.runtime.function import Function
from autosched.search.evaluate import legal
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Population
from autosched.target import Target

HOST = Target("llvm -num-cores=2")


def range_of_rows(n: int, m: int):
    """The largest element of each row, the row less it, and the sums of that."""
    a = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="r")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    less = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="less")
    total = te.compute((n,), lambda i: te.sum(less[i, r], axis=r), name="total")
    return te.create_prim_func([a, top, less, total])


def check(func, scheduled, rng) -> None:
    n, m = (int(x) for x in func.params[0].shape)
    a = rng.standard_normal((n, m)).astype("f4")
    out = [np.full(s, np.nan, "f4") for s in ((n,), (n, m), (n,))]
    Function(build_artifact(scheduled, HOST, "search"))(a, *out)
    want = np.exp(a - a.max(1, keepdims=True))
    for found, expected in zip(out, (a.max(1), want, want.sum(1)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(64, 384), (2, 5), (37, 9), (3, 1001)])
def test_one_loop_over_rows(sizes):
    func = range_of_rows(*sizes)
    schedule = default_schedule(func, HOST)
    rows = {schedule.get_loops(b)[0] for b in ("top", "less", "total")}
    assert len({schedule.get(loop).var for loop in rows}) == 1
    check(func, schedule.func, np.random.default_rng(0))


def test_random_candidates_compute_the_same():
    func = range_of_rows(33, 70)
    space = generate_space(func, HOST)
    assert any("top.rows" in v.name for v in space.variants)
    rng = np.random.default_rng(1)
    drawn = Population.concat([space.sample(rng, 64)])
    drawn = drawn.take(drawn.unique())
    drawn = drawn.take(np.flatnonzero(legal(space, drawn)))
    followed = [n for n, v in enumerate(drawn.variant) if "rows" in space.variants[v].name]
    assert len(followed) >= 4
    for n in followed[:4]:
        variant, values = space.candidate(drawn, n)
        check(func, space.schedule(variant, values).func, rng)


def test_two_first_blocks_are_apart():
    """Nothing follows both from one block, and few rows leave threads without any."""
    a = te.placeholder((64, 96), name="A")
    axes = [te.reduce_axis((0, 96), name=n) for n in ("k", "r")]
    low = te.compute((64,), lambda i: te.min(a[i, axes[0]], axis=axes[0]), name="low")
    high = te.compute((64,), lambda i: te.max(a[i, axes[1]], axis=axes[1]), name="high")
    span = te.compute((64,), lambda i: high[i] - low[i], name="span")
    func = te.create_prim_func([a, low, high, span])
    for case in (func, range_of_rows(1, 5000)):
        names = [v.name for v in generate_space(case, HOST).variants]
        assert not any(".rows" in name for name in names), names
