"""Convolutions of each channel by itself with long windows: copies of taps share what rows read."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.sketch.default import default_schedule
from autosched.tir.nodes import PrimFunc

WIDE = at.Target("llvm -mcpu=skylake-avx512 -num-cores=1")
NARROW = at.Target("llvm -mcpu=haswell -num-cores=1")


def filtered(n: int, taps: int, dilation: int = 1, stride: int = 1, channels: int = 40) -> PrimFunc:
    """A row of `n` positions, with padding that keeps its length at stride 1."""
    pad = dilation * (taps - 1) // 2
    x, w = te.placeholder((n, channels), name="x"), te.placeholder((taps, channels), name="w")
    r = te.reduce_axis((0, taps), name="r")

    def term(i: te.Expr, c: te.Expr) -> te.Expr:
        place = i * stride + r * dilation
        inside = te.all(place >= pad, place < n + pad)
        return te.sum(te.if_then_else(inside, x[place - pad, c], 0.0) * w[r, c], axis=r)

    y = te.compute((-(-n // stride), channels), term, name="y")
    return te.create_prim_func([x, w, y])


def shape_of(func: PrimFunc, target: at.Target) -> tuple[int, int, int]:
    """Copies of taps, rows and lanes of the default register tile."""
    schedule = default_schedule(func, target)
    loops = [schedule.get(x) for x in schedule.get_loops(schedule.get_block("y"))]
    copies, rows, lanes = loops[-3:]
    assert [x.kind for x in loops[-3:]] == ["unrolled", "unrolled", "vectorized"]
    return int(copies.extent), int(rows.extent), int(lanes.extent)


@pytest.mark.parametrize(
    ("size", "target", "shape"),
    [
        ((28, 31), WIDE, (8, 14, 16)),
        ((28, 31), NARROW, (8, 6, 8)),
        ((56, 7), WIDE, (7, 14, 16)),
        ((7, 7), WIDE, (7, 7, 32)),  # few rows: two vectors
        ((64, 13, 3), WIDE, (7, 13, 16)),
        ((56, 6, 1, 2), WIDE, (6, 14, 16)),
        ((56, 5), WIDE, (5, 8, 40)),  # short: as before
        ((56, 9, 1, 2), WIDE, (5, 14, 16)),
        ((56, 9, 2, 3), WIDE, (1, 7, 40)),  # neighbours share nothing
    ],
    ids=str,
)
def test_default_tiles(
    size: tuple[int, ...], target: at.Target, shape: tuple[int, int, int]
) -> None:
    assert shape_of(filtered(*size), target) == shape


@pytest.mark.sampled(3)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize(("n", "taps"), [(28, 31), (5, 7), (40, 9), (33, 13), (17, 6)])
def test_results(n: int, taps: int, dilation: int, stride: int) -> None:
    func = filtered(n, taps, dilation, stride)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 40), np.float32)
    w = rng.standard_normal((taps, 40), np.float32)
    out = np.zeros((-(-n // stride), 40), np.float32)
    target = at.Target("llvm -num-cores=1")
    at.build(default_schedule(func, target), target=target)(x, w, out)
    pad = dilation * (taps - 1) // 2
    wide = np.zeros((n + 2 * dilation * taps, 40), np.float32)
    wide[pad : pad + n] = x
    expected = sum(
        wide[k * dilation :][: n + stride][::stride][: len(out)] * w[k] for k in range(taps)
    )
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
