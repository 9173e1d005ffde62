"""Sketches for GPUs: which there are, and that what the analysis says of a candidate is what the
code generator then makes of it.

The predecessor's counts are those of `cuda` in the tests of TVM 0.12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from gpu_run import check, check_kernels
from sketch_workloads import (
    conv2d_bn_relu,
    double_matmul,
    matmul,
    max_pool2d,
    row_min,
    softmax,
    zero_rank,
)

import autosched as at
from autosched import te
from autosched.codegen.gpu.lower import kernels_of
from autosched.errors import CodegenError
from autosched.lowering.lower import lower
from autosched.ops import OPERATORS
from autosched.script.parser import parse
from autosched.search.analysis import analyse
from autosched.search.evaluate import legal
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Space
from autosched.target.gpu import limits_of
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of
from cost_model.evaluation import evaluator_of
from cost_model.features import store_features

CUDA, OPENCL = at.Target("cuda -arch=sm_90"), at.Target("opencl")
SMALL: dict[str, tuple[int | str, ...]] = {
    "matmul": (45, 37, 53),
    "matmul_add": (45, 37, 53),
    "batch_matmul": (2, 19, 24, 15),
    "matmul_bias_gelu": (15, 37, 23),
    "transpose_batch_matmul": (15, 2, 13),
    "transpose_batch_matmul_softmax": (14, 2, 13),
    "two_matmuls": (13, 14, 15, 12),
    "mul_add_relu": (40, 50),
    "conv1d": (29, 13, 14, 3, 2, 1),
    "conv2d": (9, 9, 8, 12, 3, 1, 1, 1, 2),
    "conv2d_bias_relu": (15, 16, 3, 8, 3, 1, 1, 1, 1),
    "conv2d_bn_relu": (15, 16, 3, 8, 3, 1, 1, 1, 1),
    "conv2d_capsule": (5, 4, 2, 3, 3, 2, 1, 2),
    "conv2d_transpose": (4, 3, 5, 6, 4, 2, 1),
    "conv3d": (3, 4, 5, 2, 3, 2, 1, 1),
    "depthwise_conv2d": (17, 16, 8, 3, 2, 1),
    "matmul_mixed": (45, 37, 53, "float16"),
    "conv2d_mixed": (5, 19, 34, 12, 3, 1, 1, 1, 1, "int8"),
    "max_pool2d": (17, 16, 8, 3, 2, 1),
    "winograd_conv2d": (8, 6, 3, 2, 1),
    "norm": (37, 19),
    "softmax": (13, 300),
    "layer_norm": (13, 300),
    "argmax": (13, 300),
    "cumsum": (5, 150),
    "ema": (6, 40),
    "rnn": (4, 2, 13, 15),
    "lstm": (4, 2, 3, 5),
    "gru": (4, 2, 3, 5),
}


@dataclass(frozen=True)
class Row:
    func: Callable[[], PrimFunc]
    theirs: int
    ours: list[str]
    why: str


ROWWISE = ["softmax.cross", "total.cross+top.cross", "total.cross", "top.cross", "default"]
AHEAD = "what a tile shares is fetched when it is needed, as theirs, or a step ahead"
TABLE = {
    "matmul 512": Row(lambda: matmul(512, 512, 512), 1, ["C", "C.ahead"], AHEAD),
    "matmul 8 x 8 x 1024": Row(lambda: matmul(8, 8, 1024), 2, ["C.cross", "C", "C.ahead"], AHEAD),
    "two matmuls 512": Row(
        lambda: double_matmul(512),
        1,
        ["E+D", "E+D.ahead", "E.ahead+D", "E.ahead+D.ahead"],
        AHEAD,
    ),
    "conv2d + bn + relu": Row(
        lambda: conv2d_bn_relu(1, 56, 512, 512, 3, 1), 1, ["conv", "conv.ahead"], AHEAD
    ),
    "max_pool2d": Row(lambda: max_pool2d(1, 56, 512, 1), 1, ["default"], "the same"),
    "min of 10 x 1024": Row(lambda: row_min(10, 1024), 2, ["B.cross", "default"], "the same"),
    "softmax 1 x 12 x 128 x 128": Row(
        lambda: softmax(1, 12, 128, 128),
        4,
        ROWWISE,
        "each of two reductions across threads or not, as theirs, and all of it in one kernel",
    ),
    "winograd nhwc": Row(
        lambda: prim_func_of("winograd_conv2d", (28, 28, 128, 128, 1)),
        1,
        [f"inverse.constant+{x}+data_pack.constant" for x in ("bgemm", "bgemm.ahead")],
        AHEAD,
    ),
    "zero rank 128": Row(lambda: zero_rank(128), 2, ["B.cross", "default"], "the same"),
}


@pytest.mark.parametrize("workload", TABLE)
def test_the_sketches_by_name(workload: str) -> None:
    row = TABLE[workload]
    found = [v.name for v in generate_space(row.func(), CUDA).variants]
    assert found == row.ours, f"the predecessor has {row.theirs}: {row.why}"


def space_of(name: str, target: at.Target) -> Space:
    return generate_space(prim_func_of(name, (*SMALL[name], "float32")), target)


def test_every_operator_has_sizes_here() -> None:
    assert set(SMALL) == set(OPERATORS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SMALL)
def test_defaults_and_random_candidates_are_what_the_analysis_says(name: str) -> None:
    space = space_of(name, OPENCL)
    assert check_kernels(space.schedule(*space.default()).func, OPENCL)
    drawn = space.sample(np.random.default_rng(0), 4)
    for k in range(len(drawn)):
        check_kernels(space.schedule(*space.candidate(drawn, k)).func, OPENCL)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_many_random_candidates_are_what_the_analysis_says(name: str) -> None:
    for target in (OPENCL, CUDA):
        space = space_of(name, target)
        drawn = space.sample(np.random.default_rng(1), 8)
        ok = [
            check_kernels(space.schedule(*space.candidate(drawn, k)).func, target)
            for k in range(len(drawn))
        ]
        assert sum(ok) >= len(ok) // 4


LARGE: dict[str, tuple[int | str, ...]] = {
    "matmul": (512, 512, 512),
    "conv2d": (56, 56, 64, 64, 3, 1, 1),
    "matmul_mixed": (512, 512, 512),
    "conv2d_mixed": (56, 56, 64, 64, 3, 1, 1, 1, 1, "int8", "int32"),
    "softmax": (4096, 1000),
    "mul_add_relu": (1000, 1000),
    "depthwise_conv2d": (56, 56, 64, 3, 1, 1),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("target", [OPENCL, CUDA], ids=["opencl", "cuda"])
def test_a_population_is_its_candidates(name: str, target: at.Target) -> None:
    space = generate_space(prim_func_of(name, (*LARGE[name],)), target)
    population = space.sample(np.random.default_rng(0), 12)
    ok = legal(space, population)
    for variant, rows in population.groups():
        columns = space.decisions(variant, population, rows)
        batch = analyse(space.replay(variant, columns), target, len(rows)).columns()
        for k, row in enumerate(rows):
            one = analyse(space.schedule(*space.candidate(population, int(row))).func, target)
            assert bool(one.valid) == ok[row]
            for key, value in one.columns().items():
                np.testing.assert_allclose(batch[key][k], value[0], rtol=1e-9, err_msg=key)


def products_of_one_operand(n: int, terms: int) -> PrimFunc:
    y, left, right = (te.placeholder(s, name=x) for s, x in (
        ((n, terms), "Y"), ((terms, 5), "V"), ((terms, 7), "W")
    ))  # fmt: skip
    k, r = te.reduce_axis((0, terms), name="k"), te.reduce_axis((0, terms), name="r")
    first = te.compute((n, 5), lambda i, j: te.sum(y[i, k] * left[k, j], axis=k), name="first")
    last = te.compute((n, 7), lambda i, j: te.sum(y[i, r] * right[r, j], axis=r), name="last")
    return te.create_prim_func([y, left, right, first, last])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", [CUDA, OPENCL], ids=str)
@pytest.mark.parametrize("sizes", [(4, 700), (45, 37)])
def test_products_share_an_operand(sizes: tuple[int, int], target: at.Target) -> None:
    # A product that is reduced across threads copies nothing, and one that is tiled does: which of
    # the two has the copy Y_shared differs between sketches.
    space = generate_space(products_of_one_operand(*sizes), target)
    names = [v.name for v in space.variants]
    assert ("last.cross+first" in names) == ("last+first.cross" in names) == (sizes[0] == 4)
    for spec in space.specs:
        assert all(n.startswith(f"{spec.block}.") for n in spec.names if "Y_shared" in n)
    population = space.sample(np.random.default_rng(0), 64)
    for k in np.flatnonzero(legal(space, population))[:6]:
        check_kernels(space.schedule(*space.candidate(population, int(k))).func, target)


def test_a_row_is_normalised_in_the_kernel_of_its_product_or_its_own() -> None:
    x, w = te.placeholder((1, 65), name="x"), te.placeholder((2, 65), name="w")
    k, r = te.reduce_axis((0, 65), name="k"), te.reduce_axis((0, 65), name="r")
    total = te.compute((1,), lambda i: te.sum(te.exp(x[i, k]), axis=k), name="total")
    row = te.compute((1, 65), lambda i, j: te.exp(x[i, j]) / total[i], name="row")
    out = te.compute((1, 2), lambda i, j: te.sum(row[i, r] * w[j, r], axis=r), name="out")
    space = generate_space(te.create_prim_func([x, w, out]), OPENCL)
    names = [v.name for v in space.variants]
    assert {"out.cross", "out+row.cross"} <= set(names)
    for k in (names.index("out.cross"), names.index("out+row.cross")):
        values = {
            n: v
            for s in space.variants[k].decisions
            for n, v in zip(s.names, s.default, strict=True)
        }
        check(space.schedule(k, values).func, space.func, nvrtc=False)


def test_rows_that_threads_read_across_may_be_padded() -> None:
    """Rows of A begin an odd number of vectors apart: lanes that meet in a bank no longer do; and
    a population of both kinds has the features of each."""
    space = generate_space(matmul(512, 512, 512), CUDA)
    aligned = [s.name for s in space.specs if s.names[0].endswith(".align")]
    assert aligned == ["A_shared.align"]  # rows of B are read one after the other
    tile = {"C.vi.2": 32, "C.vi.4": 1, "C.vj.2": 4, "C.vj.4": 8, "C.vk.1": 16}
    values = [{**space.default()[1], **tile, "A_shared.align": n} for n in (1, 8)]
    dense, padded = (analyse(space.schedule(0, v).func, CUDA) for v in values)
    (before,), (after,) = dense.kernels, padded.kernels
    assert float(after.shared_bytes - before.shared_bytes) == 4 * 32 * 4
    assert float(after.waves) < 0.7 * float(before.waves)
    assert "align=((0, 1, 0),)" in space.schedule(0, values[0]).func.script()  # dense
    columns = {n: np.array([v[n] for v in values]) for n in values[0]}
    batch = store_features(analyse(space.replay(0, columns), CUDA, 2))
    for k, one in enumerate((dense, padded)):
        for found, wanted in zip(batch, store_features(one), strict=True):
            of_one = [np.broadcast_to(x, 2)[k] for x in found]
            np.testing.assert_allclose(of_one, [float(x) for x in wanted], rtol=1e-9)


@pytest.mark.parametrize("name", ["matmul", "conv2d", "matmul_mixed", "softmax", "mul_add_relu"])
def test_populations_are_scored_by_a_tape(name: str) -> None:
    space = generate_space(prim_func_of(name, LARGE[name]), CUDA)
    evaluator = evaluator_of(space)
    population = space.sample(np.random.default_rng(0), 256)
    parts = evaluator.parts(population)
    assert sum(len(p.rows) for p in parts) == len(population)
    assert all(evaluator._tape(v) is not None for v in range(len(space.variants)))
    valid = np.concatenate([p.results[1] for p in parts])
    assert valid.mean() > 0.25


@pytest.mark.parametrize("step", ["mutate", "crossover"])
def test_steps_of_the_search_keep_candidates_canonical(step: str) -> None:
    space, rng = space_of("conv2d_bias_relu", CUDA), np.random.default_rng(3)
    a, b = space.sample(rng, 200), space.sample(rng, 200)
    found = space.mutate(a, rng, 0.2) if step == "mutate" else space.crossover(a, b, rng)
    for spec in space.specs:
        values = found.values[:, space.columns_of(spec)]
        assert (spec.repair(values) == values).all()
    assert sum(x != y for x, y in zip(a.keys(), found.keys(), strict=True)) > 50
    assert legal(space, found).mean() > 0.25


def test_what_exceeds_the_device_is_invalid_and_refused_when_built() -> None:
    space = generate_space(matmul(512, 512, 512), OPENCL)
    values = dict(space.default()[1])
    values.update({"C.vi.2": 32, "C.vj.2": 32})  # 1,024 threads, of 256 allowed
    schedule = space.schedule(0, values)
    assert not analyse(schedule.func, OPENCL).valid
    with pytest.raises(CodegenError, match="1024 threads a block"):
        kernels_of(lower(schedule.func), limits_of(OPENCL))
    values.update({"C.vi.2": 8, "C.vj.2": 8, "C.vi.4": 8, "C.vj.4": 8, "C.vk.1": 256})
    schedule = space.schedule(0, values)  # 2 x 64 x 256 floats in 32 KiB
    assert not analyse(schedule.func, OPENCL).valid
    with pytest.raises(CodegenError, match="bytes of shared memory"):
        kernels_of(lower(schedule.func), limits_of(OPENCL))


def test_a_task_has_a_space_and_its_candidates_print() -> None:
    task = at.SearchTask("matmul", (64, 64, 64), target="opencl")
    population = task.space.sample(np.random.default_rng(0), 2)
    variant, values = task.space.candidate(population, 0)
    trace = task.space.trace(variant, values)
    func = task.space.schedule(variant, values).func
    assert "threadIdx.x" in str(trace)
    assert "'cooperative'" in func.script()
    assert parse(func.script()).script() == func.script()
