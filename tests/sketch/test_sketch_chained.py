"""Two products with rows in between: one sketch computes blocks of rows through all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ops_references import Array, random_inputs
from test_sketch_operators import some

from autosched import te
from autosched.codegen.build import build_artifact
from autosched.runtime.function import Function
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_states, variants_of
from autosched.sketch.space import Space
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

TARGET = Target("llvm -num-cores=2")

# batch, heads, rows, columns, depth, width of a result
SHAPES = {
    "tails everywhere": (2, 3, 37, 45, 20, 19),
    "whole tiles": (1, 2, 64, 96, 32, 64),
    "one head": (1, 1, 50, 33, 7, 40),
    "two rows": (1, 2, 2, 70, 16, 16),
}


def rows_of(weights: Any, columns: int, form: str) -> Any:
    """Each row of (B, H, N, M) through a softmax, or divided by the sum of its magnitudes."""
    b, h, n, _ = (int(x) for x in weights.shape)

    def over(combine: Any, x: Any, name: str) -> Any:
        r = te.reduce_axis((0, columns), name=f"r_{name}")
        return te.compute((b, h, n), lambda *at: combine(x[(*at, r)], axis=r), name=name)

    if form == "softmax":
        top = over(te.max, weights, "top")
        made = te.compute(
            weights.shape, lambda *at: te.exp(weights[at] - top[at[:-1]]), name="made"
        )
    else:
        made = te.compute(weights.shape, lambda *at: te.abs(weights[at]), name="made")
    total = over(te.sum, made, "total")
    return te.compute(weights.shape, lambda *at: made[at] * (1.0 / total[at[:-1]]), name="shares")


def program(shape: tuple[int, ...], form: str = "softmax", masked: bool = False) -> PrimFunc:
    """Attention whose queries, keys and values are parts of the rows of one array, or, where their
    numbers differ, of two; `masked` adds an array that all heads share."""
    b, h, n, m, d, w = shape
    queries = te.placeholder((b, n, h * d), name="queries")
    others = te.placeholder((b, m, h * (d + w)), name="others")
    mask = te.placeholder((n, m), name="mask")
    k, j = te.reduce_axis((0, d), name="k"), te.reduce_axis((0, m), name="j")
    scores = te.compute(
        (b, h, n, m),
        lambda x, y, i, c: te.sum(queries[x, i, y * d + k] * others[x, c, y * d + k], axis=k),
        name="scores",
    )
    scaled = te.compute(
        (b, h, n, m),
        lambda x, y, i, c: scores[x, y, i, c] * 0.3 + (mask[i, c] if masked else 0.0),
        name="scaled",
    )
    shares = rows_of(scaled, m, form)
    out = te.compute(
        (b, h, n, w),
        lambda x, y, i, c: te.sum(shares[x, y, i, j] * others[x, j, h * d + y * w + c], axis=j),
        name="out",
    )
    inputs = [queries, others, mask] if masked else [queries, others]
    return te.create_prim_func([*inputs, out], "attention")


def reference(shape: tuple[int, ...], form: str, *inputs: Array) -> Array:
    b, h, n, m, d, w = shape
    queries, others, *mask = (x.astype("float64") for x in inputs)
    q = queries.reshape(b, n, h, d).transpose(0, 2, 1, 3)
    k = others[..., : h * d].reshape(b, m, h, d).transpose(0, 2, 3, 1)
    v = others[..., h * d :].reshape(b, m, h, w).transpose(0, 2, 1, 3)
    scores = q @ k * 0.3 + (mask[0] if mask else 0.0)
    made = np.exp(scores - scores.max(-1, keepdims=True)) if form == "softmax" else np.abs(scores)
    return np.asarray(made / made.sum(-1, keepdims=True) @ v)


def first_sketch(func: PrimFunc) -> Space:
    """A space of the first sketch, which is the default schedule's."""
    return Space(func, TARGET, variants_of(generate_states(func, TARGET, limit=1)))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", ["softmax", "shares"])
@pytest.mark.parametrize("masked", [False, True])
def test_random_candidates_of_blocks_of_rows(
    shape: tuple[int, ...], form: str, masked: bool
) -> None:
    func = program(shape, form, masked)
    space = first_sketch(func)
    assert space.variants[0].name == "out.rows"
    population = some(space, 3)
    assert len(population) == 3
    inputs = random_inputs(func)
    wanted = reference(shape, form, *inputs)
    schedules = [space.schedule(*space.candidate(population, row)).func for row in range(3)]
    for scheduled in (default_schedule(func, TARGET).func, *schedules):
        out = np.full(wanted.shape, np.nan, "float32")
        Function(build_artifact(scheduled, TARGET, "search"))(*inputs, out)
        np.testing.assert_allclose(out, wanted, rtol=2e-4, atol=2e-5)


def test_what_the_first_product_makes_is_never_there_as_a_whole() -> None:
    """512 x 512 scores of 12 heads are 12 MB; a block of rows for each of two threads is kept."""
    scheduled = default_schedule(program((1, 12, 512, 512, 64, 64)), TARGET).func
    info = build_artifact(scheduled, TARGET).info
    assert info.workspace_bytes + 2 * info.thread_bytes < 8 << 20


def test_a_result_that_something_else_reads_is_stored() -> None:
    """Scores that are an output too are computed where they are written."""
    a, b, c = (te.placeholder((64, 64), name=n) for n in "abc")
    k, j = te.reduce_axis((0, 64), name="k"), te.reduce_axis((0, 64), name="j")
    scores = te.compute((64, 64), lambda x, y: te.sum(a[x, k] * b[y, k], axis=k), name="scores")
    r = te.reduce_axis((0, 64), name="r")
    total = te.compute((64,), lambda x: te.sum(scores[x, r], axis=r), name="total")
    shares = te.compute((64, 64), lambda x, y: scores[x, y] / total[x], name="shares")
    out = te.compute((64, 64), lambda x, y: te.sum(shares[x, j] * c[j, y], axis=j), name="out")
    func = te.create_prim_func([a, b, c, scores, out], "kept")
    assert "out.rows" not in first_sketch(func).variants[0].name
