"""Loops cut where comparisons of lanes change: joined tensors, padding, pools of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autosched as at
from autosched import te
from autosched.codegen.build import generate_ir
from autosched.graph.ops.conv import pad_operator
from autosched.graph.ops.pool import max_pool
from autosched.sketch.default import default_schedule
from autosched.target import Target

TARGETS = ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"]
MODES = ["constant", "edge", "reflect", "wrap"]


def joined(widths: list[int]):
    """The tensors of these widths beside each other, as one."""
    parts = [te.placeholder((3, n), name=f"p{k}") for k, n in enumerate(widths)]

    def element(i, j):
        found, begin = None, sum(widths)
        for part, n in reversed(list(zip(parts, widths, strict=True))):
            begin -= n
            here = part[i, j - begin]
            found = here if found is None else te.if_then_else(j < begin + n, here, found)
        return found

    return te.create_prim_func([*parts, te.compute((3, sum(widths)), element, name="out")])


def run(func, *inputs, target="llvm"):
    out = np.empty([int(n) for n in func.params[-1].shape], func.params[-1].dtype)
    built = at.build(default_schedule(func, Target(target)), target=target)
    built(*inputs, out)
    return out


def text_of(func, target):
    """The code of the default schedule as LLVM IR."""
    return generate_ir(default_schedule(func, Target(target)).func, Target(target)).ir


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 90), min_size=2, max_size=6), st.integers(0, 9))
def test_joined_rows_are_those_of_numpy(widths, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((3, n)).astype("f4") for n in widths]
    np.testing.assert_array_equal(run(joined(widths), *parts), np.concatenate(parts, 1))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MODES),
    st.integers(1, 150),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 3),
)
def test_padded_rows_are_those_of_numpy(mode, width, before, after, above):
    if mode == "reflect":
        before, after, above = (min(p, width - 1, 9) for p in (before, after, min(above, 4)))
    x = np.random.default_rng(0).standard_normal((5, width)).astype("f4")
    p = te.placeholder(x.shape, name="x")
    pads = (above, before, above, after)
    if not any(pads):
        return  # nothing is computed
    out = pad_operator(p, pads=pads, mode=mode)
    found = run(te.create_prim_func([p, out]), x)
    np.testing.assert_array_equal(found, np.pad(x, ((above, above), (before, after)), mode))


def pooled(x, kernel, stride, pad):
    """The largest of each window of rows, by NumPy."""
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad)), constant_values=-np.inf)
    rows = np.lib.stride_tricks.sliding_window_view(wide, kernel, 2)[:, :, ::stride]
    return rows.max(-1)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(8, 700),
    st.integers(1, 9),
    st.integers(1, 6),
    st.integers(0, 4),
    st.sampled_from(["float32", "int8", "float64"]),
)
def test_pools_of_rows_are_those_of_numpy(width, kernel, stride, pad, dtype):
    """Windows that overlap or do not, at any stride, with an edge and a tail."""
    pad = min(pad, kernel // 2)
    x = np.random.default_rng(1).integers(-100, 100, (1, 3, width)).astype(dtype)
    p = te.placeholder(x.shape, name="x", dtype=dtype)
    out = max_pool(p, kernel_shape=(kernel,), strides=(stride,), pads=(pad, pad))
    found = run(te.create_prim_func([p, out]), x)
    np.testing.assert_array_equal(found, pooled(x.astype("f8"), kernel, stride, pad).astype(dtype))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [20, 56, 112, 500, 517])
def test_pools_read_no_lane_by_itself(target, width):
    """Nor one element beyond the rows: whole vectors that end with the last real lane."""
    p = te.placeholder((1, 2, width), name="x")
    out = max_pool(p, kernel_shape=(3,), strides=(2,), pads=(1, 1))
    text = text_of(te.create_prim_func([p, out]), target)
    assert "gather" not in text


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_the_inside_of_padded_rows_is_read_in_vectors(mode):
    """Only the vectors at both ends take their elements one by one."""
    p = te.placeholder((8, 512), name="x")
    func = te.create_prim_func([p, pad_operator(p, pads=(0, 3, 0, 3), mode=mode)])
    text = text_of(func, "llvm -mcpu=skylake-avx512")
    assert text.count("call <16 x float> @llvm.masked.gather") <= 3
