"""Features of stores: the table, hand-computed values, and what they ignore."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autosched.schedule import Schedule
from autosched.search.analysis import analyse
from autosched.target import Target
from autosched.workloads import prim_func_of
from cost_model.feature_table import FEATURES, markdown
from cost_model.features import NAMES, WIDTH, store_features

TARGET = Target("llvm -mcpu=znver4 -num-cores=2")


def features(schedule: Schedule, block: str) -> dict[str, float]:
    """Features of one block by name."""
    analysis = analyse(schedule.func, TARGET)
    place = list(analysis.blocks).index(block)
    return {n: float(v) for n, v in zip(NAMES, store_features(analysis)[place], strict=True)}


def tiled() -> Schedule:
    """The 512-cubed matmul in tiles: i 8 x 64, j 16 x 32, k 64 x 8, the innermost j in vectors."""
    sch = Schedule(prim_func_of("matmul", (512, 512, 512)))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 64])
    j0, j1 = sch.split(j, [None, 32])
    k0, k1 = sch.split(k, [None, 8])
    sch.reorder(i0, j0, k0, i1, k1, j1)
    sch.parallel(i0)
    sch.vectorize(j1)
    return sch


def test_the_table_has_the_five_groups_and_ours() -> None:
    assert len(set(NAMES)) == WIDTH == len(FEATURES)
    sizes = [sum(f.group == g for f in FEATURES) for g in range(1, 8)]
    assert sizes[:5] == [57, 90, 10, 4, 3]
    assert all(f.unit and f.formula for f in FEATURES)


def test_the_table_is_documented() -> None:
    """Written by: python -c 'import cost_model.feature_table as f; print(f.markdown(), end="")'"""
    file = Path(__file__).parents[2] / "docs" / "features.md"
    assert file.read_text(encoding="utf-8") == markdown()


def test_a_tiled_matmul_by_hand() -> None:
    f = features(tiled(), "C")
    points = 512.0**3
    assert f["float_mad"] == points
    assert f["float_mul"] == f["float_addsub"] == 0
    assert (f["vec_num"], f["vec_prod"], f["vec_len"]) == (1, 32, 32)
    assert f["vec_type_inner_spatial"] == f["parallel_type_outer_spatial"] == 1
    assert (f["parallel_len"], f["unroll_num"]) == (8, 0)
    assert f["unroll_type_none"] == 1
    # C, then A and B: B is the third buffer.
    assert f["B0_acc_read_write"] == f["B1_acc_read"] == f["B2_acc_read"] == 1
    assert f["B0_bytes"] == f["B2_bytes"] == 4 * points
    assert f["B2_unique_bytes"] == 512 * 512 * 4
    assert f["B2_unique_lines"] == 512 * 512 * 4 / 64
    # C is reused over k1, with j1 inside; A over j1; B over i1, with k1 and j1 inside.
    assert (f["B0_reuse_ct"], f["B0_reuse_dis_iter"]) == (8, 32)
    assert (f["B1_reuse_ct"], f["B1_reuse_dis_iter"]) == (32, 1)
    assert (f["B2_reuse_ct"], f["B2_reuse_dis_iter"]) == (64, 8 * 32)
    assert f["B2_reuse_dis_bytes"] == 4 * (32 + 8 + 8 * 32)
    assert f["B2_bytes_d_reuse_ct"] == 4 * points / 64
    assert (f["B0_stride"], f["B1_stride"], f["B2_stride"]) == (1, 1, 1)
    assert f["B1_reuse_loop"] == 1
    assert f["B3_bytes"] == f["B4_acc_read"] == 0
    assert f["arith_intensity_0"] == 2 / (3 * 4)
    assert f["arith_intensity_9"] == pytest.approx(2 * 2.0**27 / (3 * 2.0**20))
    assert f["alloc_size"] == 512 * 512 * 4
    assert (f["outer_prod"], f["num_loops"]) == (points, 6)
    assert f["waste"] == 1
    assert f["lanes"] == 16


def test_strides_are_those_of_padded_rows() -> None:
    func = prim_func_of("two_matmuls", (16, 16, 16, 16))
    sch = Schedule(func)
    first, second = sch.get_blocks()
    i, j, k = sch.get_loops(second)
    sch.reorder(j, k, i)
    dense = features(sch, "E")["B1_stride"]
    sch.storage_align(first, 0, 0, 32, 1)
    assert (dense, features(sch, "E")["B1_stride"]) == (16, 33)


def test_overhanging_tiles_cost_points() -> None:
    sch = tiled()
    whole = features(sch, "C")
    odd = Schedule(prim_func_of("matmul", (512, 512, 512)))
    _, j, k = odd.get_loops(odd.get_block("C"))
    j0, j1 = odd.split(j, [None, 48])
    odd.reorder(j0, k, j1)
    odd.vectorize(j1)
    f = features(odd, "C")
    assert f["waste"] == pytest.approx(528 / 512)
    assert f["float_mad"] == pytest.approx(whole["float_mad"] * 528 / 512)


def test_unit_loops_count_nowhere() -> None:
    sch = tiled()
    more = tiled()
    loops = more.get_loops(more.get_block("C"))
    more.split(loops[3], [None, 1])
    assert features(sch, "C") == features(more, "C")


def test_operations_are_filed_by_class() -> None:
    sch = Schedule(prim_func_of("softmax", (64, 128)))
    analysis = analyse(sch.func, TARGET)
    found = [dict(zip(NAMES, map(float, row), strict=True)) for row in store_features(analysis)]
    points = 64.0 * 128
    assert sum(f["float_mathfunc"] for f in found) == points
    assert sum(f["float_divmod"] for f in found) == points
    assert sum(f["float_cmp"] for f in found) == points
    assert not any(f["int_addsub"] for f in found)
    assert np.isfinite([list(f.values()) for f in found]).all()
