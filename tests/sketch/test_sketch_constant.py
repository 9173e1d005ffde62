"""The rule for products with constant matrices, on Winograd convolutions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autosched import te
from autosched.codegen.build import build_artifact, generate_ir
from autosched.ops.winograd import DATA, OUTPUT, winograd_weight
from autosched.runtime.function import Function
from autosched.search.evaluate import legal
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir.expr import Expr
from autosched.tir.nodes import CONSTANT_AXES, PrimFunc, site_of
from autosched.workloads import prim_func_of

TARGET = Target("llvm -num-cores=2")


def nonzero(matrix: tuple[tuple[int, ...], ...]) -> int:
    return int(np.count_nonzero(np.array(matrix)))


def left_multiplied(named: tuple[str, ...], n: int = 20) -> PrimFunc:
    """One product with a matrix, its factors in the order of TVM's own Winograd convolution."""
    d = te.placeholder((4, n), name="D")
    k = te.reduce_axis((0, 4), name="k")

    def element(i: Expr, j: Expr) -> Expr:
        return te.select(i == j, te.const(2, "float32"), te.const(0, "float32"))

    m = te.compute((3, 4), element, name="M")
    out = te.compute(
        (3, n),
        lambda i, c: te.sum(d[k, c] * m[i, k] * m[2, k], axis=k),
        name="R",
        attrs={CONSTANT_AXES: named},
    )
    return te.create_prim_func([d, te.compute((3, n), lambda i, c: out[i, c] + 1.0, name="O")])


def test_winograd_sketches_unroll_the_transforms() -> None:
    space = generate_space(prim_func_of("winograd_conv2d", (14, 14, 32, 32, 1)), TARGET)
    assert len(space.variants) == 24
    for variant in space.variants:
        assert variant.name.startswith("inverse.constant+bgemm")
        assert "+data_pack.constant+pad." in variant.name
    func = default_schedule(space.func, TARGET).func
    for block, count in (("data_pack", 6**4), ("inverse", 4**2 * 6**2)):
        loops = site_of(func, block).loops
        assert loops[0].kind == "parallel"
        assert loops[-1].kind == "vectorized"
        copies = [int(x.extent) for x in loops if x.kind == "unrolled"]
        assert np.prod(copies) == count
    sample = space.sample(np.random.default_rng(0), 48)
    assert legal(space, sample).all()


def test_the_code_has_what_rows_share_once_and_no_selects() -> None:
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
    space = generate_space(prim_func_of("winograd_conv2d", (8, 8, 8, 8, 1)), target)
    by_name = {v.name: n for n, v in enumerate(space.variants)}
    index = by_name["inverse.constant+bgemm+data_pack.constant+pad.root"]
    names = space.variants[index].decision_names
    func = space.schedule(index, {**space.default()[1], **dict.fromkeys(names, 1)}).func
    text = generate_ir(func, target).ir
    fused = len(re.findall(r"= call <8 x float> @llvm\.fma", text))
    plain = [len(re.findall(rf"= {op} [^=]*<8 x float>", text)) for op in ("fadd", "fsub", "fmul")]
    # A column or row of the data: d4 - 5 d2 + 4 d0 and d5 - 5 d3 + 4 d1 are 2 fma each; a ± b of
    # a = d4 - 4 d2, b = d3 - 4 d1 are 2 fma, fadd, fsub; a ± 2 b of a = d4 - d2, b = d3 - d1 are
    # 2 fsub, 2 fma. So 8 fma, 1 fadd, 3 fsub, for 6 columns and then 6 rows.
    # Of the output, from s, t = m1 ± m2 and u, v = m3 ± m4 (2 fadd, 2 fsub): m0 + s + u (2 fadd),
    # t + 2 v, s + 4 u (fma), t + 8 v + m5 (fma, fadd). So 3 fma, 5 fadd, 2 fsub, for 6 and then 4.
    data, output = np.array((8, 1, 3, 0)) * (6 + 6), np.array((3, 5, 2, 0)) * (6 + 4)
    assert [fused, *plain] == list(data + output)
    assert sum(data + output) < (nonzero(DATA) ** 2 + nonzero(OUTPUT) ** 2) // 2
    chosen = [x for x in text.splitlines() if " select " in x]
    assert all(", ptr " in x for x in chosen)  # padding reads zeros instead of nothing


@pytest.mark.parametrize(("h", "w", "ci", "co"), [(8, 6, 3, 2), (9, 11, 17, 33)])
def test_every_variant_convolves(h: int, w: int, ci: int, co: int) -> None:
    func = prim_func_of("winograd_conv2d", (h, w, ci, co, 1))
    rng = np.random.default_rng(0)
    data = rng.standard_normal((h, w, ci), dtype=np.float32)
    weight = rng.standard_normal((3, 3, ci, co), dtype=np.float32)
    padded = np.pad(data, ((1, 1), (1, 1), (0, 0)))
    want = sum(padded[y : y + h, x : x + w] @ weight[y, x] for y in range(3) for x in range(3))
    space = generate_space(func, TARGET)
    drawn = space.sample(rng, 64)
    rows = [int(np.flatnonzero(drawn.variant == v)[0]) for v, _ in drawn.groups()][::8]
    for row in rows:
        schedule = space.schedule(*space.candidate(drawn, row))
        out = np.full((h, w, co), np.nan, dtype=np.float32)
        Function(build_artifact(schedule.func, TARGET))(data, winograd_weight(weight), out)
        np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3, err_msg=str(schedule.trace))


@pytest.mark.parametrize(("h", "w", "ci", "co"), [(96, 64, 16, 24), (84, 92, 20, 16)])
def test_rows_of_tiles_beside_the_cache(h: int, w: int, ci: int, co: int) -> None:
    """All stages in one nest, so that a row's intermediates are small; the same results."""
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
    space = generate_space(prim_func_of("winograd_conv2d", (h, w, ci, co, 1)), target)
    fused = [n for n, v in enumerate(space.variants) if v.name.startswith("bgemm.rows")]
    assert fused[0] == 0
    assert len(fused) < len(space.variants)  # the stages by themselves are there too
    rng = np.random.default_rng(0)
    data = rng.standard_normal((h, w, ci), dtype=np.float32)
    weight = rng.standard_normal((3, 3, ci, co), dtype=np.float32)
    padded = np.pad(data, ((1, 1), (1, 1), (0, 0)))
    want = sum(padded[y : y + h, x : x + w] @ weight[y, x] for y in range(3) for x in range(3))
    drawn = space.sample(rng, 200)
    rows = [int(np.flatnonzero(drawn.variant == v)[0]) for v in fused if (drawn.variant == v).any()]
    schedules = [space.schedule(*space.candidate(drawn, row)) for row in rows]
    for schedule in (default_schedule(space.func, target), *schedules):
        root = site_of(schedule.func, "bgemm").loops[0]
        assert all(site_of(schedule.func, b).loops[0] is root for b in ("data_pack", "inverse"))
        out = np.full((h, w, co), np.nan, dtype=np.float32)
        Function(build_artifact(schedule.func, target))(data, winograd_weight(weight), out)
        np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3, err_msg=str(schedule.trace))


def test_factors_in_any_order() -> None:
    func = left_multiplied(("i", "k"))
    (variant,) = generate_space(func, TARGET).variants
    assert variant.name == "R.constant"
    data = np.random.default_rng(0).standard_normal((4, 20), dtype=np.float32)
    out = np.full((3, 20), np.nan, dtype=np.float32)
    Function(build_artifact(default_schedule(func, TARGET).func, TARGET))(data, out)
    want = np.ones_like(out)
    want[2] += 4 * data[2]
    np.testing.assert_allclose(out, want, rtol=1e-6)


@pytest.mark.parametrize("named", [(), ("i",), ("i", "c"), ("i", "k", "c"), ("i", "nothing")])
def test_a_hint_that_does_not_fit_is_none(named: tuple[str, ...]) -> None:
    names = [v.name for v in generate_space(left_multiplied(named), TARGET).variants]
    assert not any("constant" in n for n in names)
