"""Convolution with fewer multiplications (Winograd 1980; Lavin and Gray, arXiv 1509.09308)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched import te
from autosched.ops.registry import operator, out_extent, require
from autosched.te import IterVar, Tensor
from autosched.tir.expr import Expr
from autosched.tir.nodes import CONSTANT_AXES

TILE = 4
"""Outputs of one tile a dimension: F(4x4, 3x3), 36 products in place of 144."""
REACH = TILE + 2
"""Elements that one tile reads, a dimension."""

DATA = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
KERNEL = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
OUTPUT = (
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)
"""The transforms for the points 0, 1, -1, 2, -2 and infinity: with them one tile is
OUTPUT ((KERNEL g KERNEL') * (DATA d DATA')) OUTPUT'."""


def winograd_weight(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Weights (3, 3, CI, CO) as `winograd_conv2d` takes them: (6, 6, CI, CO), same dtype."""
    g = np.array(KERNEL)
    wide: npt.NDArray[Any] = np.einsum("er,nq,rqio->enio", g, g, weight.astype("float64"))
    return wide.astype(weight.dtype, copy=False)


@operator
def winograd_conv2d(
    H: int, W: int, CI: int, CO: int, P: int, dtype: str = "float32"
) -> list[Tensor]:
    """Convolution by 3 x 3 windows at stride 1, as products of transformed 6 x 6 tiles.

    data (H, W, CI), weight (6, 6, CI, CO) transformed by `winograd_weight`, which is done once;
    padding P; out (H + 2 P - 2, W + 2 P - 2, CO). The tiles are two axes, so that everything but
    the last copy is affine. The stages of the transforms say by the attribute
    `auto_scheduler_simplify_const_tensor_indices` which axes index constant matrices: unrolled
    along those, most terms vanish.
    """
    require("winograd_conv2d", 1, H=H, W=W, CI=CI, CO=CO)
    require("winograd_conv2d", 0, P=P)
    HO, WO = (out_extent("winograd_conv2d", x, n, 3, 1, P) for x, n in (("H", H), ("W", W)))
    TY, TX = -(-HO // TILE), -(-WO // TILE)
    data = te.placeholder((H, W, CI), name="data", dtype=dtype)
    weight = te.placeholder((REACH, REACH, CI, CO), name="weight", dtype=dtype)
    pad = te.compute(
        (TY * TILE + 2, TX * TILE + 2, CI),
        lambda y, x, c: te.if_then_else(
            te.all(y >= P, y < H + P, x >= P, x < W + P), data[y - P, x - P, c], te.const(0, dtype)
        ),
        name="pad",
    )
    bt = constant_matrix(DATA, "bt", dtype)
    at = constant_matrix(OUTPUT, "at", dtype)
    d = [te.reduce_axis((0, REACH), name=n) for n in ("dy", "dx")]
    data_pack = te.compute(
        (REACH, REACH, TY, TX, CI),
        lambda eps, nu, ty, tx, ci: te.sum(
            pad[ty * TILE + d[0], tx * TILE + d[1], ci] * (bt[eps, d[0]] * bt[nu, d[1]]), axis=d
        ),
        name="data_pack",
        attrs=constant_axes("eps", "nu", d),
    )
    rc = te.reduce_axis((0, CI), name="rc")
    products = te.compute(
        (REACH, REACH, TY, TX, CO),
        lambda eps, nu, ty, tx, co: te.sum(
            data_pack[eps, nu, ty, tx, rc] * weight[eps, nu, rc, co], axis=rc
        ),
        name="bgemm",
        attrs={"layout_free_placeholders": [weight]},
    )
    m = [te.reduce_axis((0, REACH), name=n) for n in ("my", "mx")]
    inverse = te.compute(
        (TILE, TILE, TY, TX, CO),
        lambda vh, vw, ty, tx, co: te.sum(
            products[m[0], m[1], ty, tx, co] * (at[vh, m[0]] * at[vw, m[1]]), axis=m
        ),
        name="inverse",
        attrs=constant_axes("vh", "vw", m),
    )
    out = te.compute(
        (HO, WO, CO),
        lambda y, x, co: inverse[y % TILE, x % TILE, y // TILE, x // TILE, co],
        name="winograd_conv2d",
    )
    return [data, weight, out]


def constant_axes(first: str, second: str, axes: Sequence[IterVar]) -> dict[str, Any]:
    """The attribute of a stage that says which of its axes index constant matrices."""
    names = (first, second, *(a.name for a in axes))
    return {CONSTANT_AXES: names}


def constant_matrix(rows: Sequence[Sequence[float]], name: str, dtype: str) -> Tensor:
    """A constant matrix as a stage: its element is chosen by its indices."""

    def element(i: Expr, j: Expr) -> Expr:
        value: Expr = te.const(0, dtype)
        for r, row in enumerate(rows):
            for c, v in enumerate(row):
                if v:
                    value = te.select(te.all(i == r, j == c), te.const(v, dtype), value)
        return value

    result: Tensor = te.compute((len(rows), len(rows[0])), element, name=name)
    return result
