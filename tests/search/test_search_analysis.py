"""Batched analysis == analysis of one candidate == analysis of its lowered program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched.lowering.lower import lower
from autosched.search.analysis import Analysis, analyse
from autosched.search.evaluate import Evaluator, evaluate_columns
from autosched.search.footprint import Floats
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.workloads import prim_func_of
from cost_model.features import NAMES, store_features

TARGET = Target("llvm -mcpu=znver5 -num-cores=2")
WORKLOADS = [
    ("matmul_add", (1024, 1024, 1024)),
    pytest.param("matmul_add", (97, 131, 50), marks=pytest.mark.long),
    ("matmul_add", (16, 7, 1)),
    ("matmul", (1, 64, 100)),
    pytest.param("conv2d", (56, 56, 64, 64, 3, 1, 1), marks=pytest.mark.long),
    pytest.param("conv2d", (13, 17, 3, 20, 3, 2, 1), marks=pytest.mark.long),
    ("conv2d", (14, 13, 42, 42, 3, 1, 1, 1, 7)),
    ("softmax", (4096, 1024)),
    ("softmax", (7, 19)),
    ("cumsum", (200, 300)),
    pytest.param("gru", (9, 4, 30, 40), marks=pytest.mark.long),
    ("matmul_add", (300, 70, 3)),
    ("argmax", (64, 1000)),
    ("argmax", (3, 100_003)),
]
ROWS = 125
ALONE = 25
"""Rows of each that are also replayed one by one."""


def everything(analysis: Analysis) -> tuple[list[Floats], list[Floats]]:
    """Every figure and every feature, as results and as elements of a row."""
    figures = list(analysis.figures().values())
    return figures, [x for store in store_features(analysis) for x in store]


def names(analysis: Analysis) -> list[str]:
    """Names of the row's elements."""
    return [f"{block}/{name}" for block in analysis.blocks for name in NAMES]


def same(keys: list[str], mine: Floats, theirs: Any, exact: bool, where: str) -> None:
    """Values are equal: to the bit, or up to the order of floating-point operations."""
    tolerance = 0.0 if exact else 1e-9 if mine.dtype == np.float64 else 2e-7
    for key, x, y in zip(keys, mine.tolist(), np.asarray(theirs).tolist(), strict=True):
        assert abs(x - y) <= tolerance * abs(y), f"{key}: {x} is not {y} in {where}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "args"), WORKLOADS)
def test_tape_equals_batch_equals_one_by_one_equals_lowered(
    name: str, args: tuple[int, ...]
) -> None:
    """Thirteen workloads of 125 rows: divisor and non-divisor tiles, 189 features a block: the
    tape's columns are the array program's; for 325 of them, those of the candidate alone
    and those read off its lowered program too."""
    space = generate_space(prim_func_of(name, args), TARGET)
    population = space.sample(np.random.default_rng(1), ROWS)
    seen = 0
    for part in Evaluator(space, everything).parts(population):
        columns = space.decisions(part.variant, population, part.rows)
        trace = space.variants[part.variant].trace
        for rows, results, table in evaluate_columns(
            space.func, TARGET, trace, columns, len(part.rows), everything
        ):
            np.testing.assert_array_equal(part.results[:, rows], results)
            np.testing.assert_array_equal(part.table[rows], table)
        seen += len(part.rows)
        for k, row in enumerate(part.rows.tolist()):
            if row >= ALONE:
                continue
            variant, values = space.candidate(population, row)
            func = space.schedule(variant, values).func
            alone, lowered = analyse(func, TARGET), analyse(lower(func), TARGET)
            for found, exact in ((alone, True), (lowered, False)):
                where = f"{space.variants[variant].name} {values}\n{lower(func)}"
                figures, features = everything(found)
                same(list(found.figures()), part.results[:, k], figures, exact, where)
                same(names(found), part.table[k], np.float32(features), exact, where)
    assert seen == ROWS


def gmm(rows: int, width: int, packed: str = "matmul.fused", **factors: int) -> dict[str, float]:
    """Figures of one hand-chosen candidate of the 1024-cubed matmul."""
    space = generate_space(prim_func_of("matmul_add", (1024, 1024, 1024)), TARGET)
    variant = next(n for n, v in enumerate(space.variants) if v.name == packed)
    values = {"matmul.vi.1": 1, "matmul.vi.2": 8, "matmul.vi.3": rows, "matmul.vj.1": 1}
    values |= {"matmul.vj.2": 4, "matmul.vj.3": width, "matmul.vk.1": 256, "matmul.vk.2": 1}
    values |= {f"matmul.v{k[0]}.{k[1]}": v for k, v in factors.items()}
    found = analyse(space.schedule(variant, values).func, TARGET).columns()
    return {k: float(v[0]) for k, v in found.items()}


def test_register_tile_of_8_by_2_vectors() -> None:
    f = gmm(8, 32)
    assert f["matmul/copies"] == f["matmul/accumulators"] == 16
    assert f["matmul/live"] == 16 + 2 + 1
    assert f["matmul/loads"] == 8 + 2  # a broadcast a row, and two vectors
    assert f["matmul/lanes"] == 16
    assert f["matmul/iterations"] == 128 * 32 * 1024
    assert f["matmul/entries"] == 128 * 32 * 4
    assert f["matmul/waste"] == 1.0


def test_tails_waste_only_within_the_register_tile() -> None:
    assert gmm(9, 32)["matmul/waste"] == pytest.approx(114 * 9 / 1024)
    assert gmm(8, 48)["matmul/waste"] == pytest.approx(22 * 48 / 1024)
    assert gmm(8, 32, k1=300)["matmul/waste"] == 1.0


def test_packing_costs_what_it_writes() -> None:
    assert gmm(8, 32)["packed_bytes"] == 0
    assert gmm(8, 32, "matmul.fused+B.root")["packed_bytes"] == 4 * 1024 * 1024
    assert gmm(8, 48, "matmul.fused+B.root")["scratch_bytes"] > 22 * 48 * 1024 * 4


def test_rows_a_page_apart_crowd_the_first_level_cache() -> None:
    """28 rows of A lie 4096 bytes apart: they share one set, which does not hold them."""
    few, many = gmm(8, 32), gmm(28, 16)
    assert many["l1_lines"] > 4 * few["l1_lines"]


def test_code_that_would_explode_is_not_valid() -> None:
    space = generate_space(prim_func_of("matmul_add", (1024, 1024, 1024)), TARGET)
    _, values = space.default()
    func = space.schedule(0, {**values, "matmul.vi.3": 64, "matmul.vj.3": 256}).func
    assert not analyse(func, TARGET).valid.any()
    assert analyse(space.schedule(0, values).func, TARGET).valid.all()
