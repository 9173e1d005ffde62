"""Convolutions by 3 x 3 windows at stride 1 as products of transformed tiles (Winograd 1980; Lavin
and Gray, arXiv 1509.09308), in floats and, exactly, in integers. Windows of a volume are 3 x 3
along its last two axes; along the first, depth, products are summed as in a direct convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched import te
from autosched.graph.ops.conv import Window
from autosched.graph.ops.tensors import TensorLike, parameter, stage
from autosched.ops.winograd import DATA, KERNEL, OUTPUT, constant_axes, constant_matrix

Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Transform:
    """F(n x n, 3 x 3): a tile of n x n results is
    `output` ((`kernel` g `kernel`') * (`data` d `data`')) `output`'."""

    data: Matrix
    kernel: Matrix
    output: Matrix

    @property
    def tile(self) -> int:
        """Results of one tile a dimension."""
        return len(self.output)

    @property
    def reach(self) -> int:
        """Elements that one tile reads, a dimension."""
        return len(self.data)

    def weights(self, weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A weight (CO, CI, ..., 3, 3) as products take it: (reach, reach, ..., CI, CO)."""
        return _transformed(np.array(self.kernel), weight).astype(weight.dtype)


F4 = Transform(DATA, KERNEL, OUTPUT)
F2 = Transform(
    ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    ((1, 1, 1, 0), (0, 1, -1, -1)),
)
"""The points 0, 1, -1 and infinity."""


def _transformed(g: npt.NDArray[Any], weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """g w g' in float64, which holds all products of a few small numbers: (reach, reach, ..., CI,
    CO) of w (CO, CI, ..., 3, 3)."""
    rank = weight.ndim
    turned = weight.transpose(rank - 2, rank - 1, *range(2, rank - 2), 1, 0)
    wide = np.kron(g, g) @ turned.reshape(9, -1).astype("float64")
    return np.asarray(wide.reshape(len(g), len(g), *turned.shape[2:]))


@dataclass(frozen=True)
class Whole:
    """A transform in integers: the rows of `kernel` times their denominators, those of `output`
    times what is left of the common one, so that a result comes `unit`^2 times as large.

    Sums are taken modulo 2^32. A result that comes back from unit^2 = odd * 2^shift times itself,
    by the inverse of the odd number modulo 2^32 and a shift, is right if it is less than
    2^(31 - shift), however often the sums went around.
    """

    transform: Transform

    @property
    def scales(self) -> list[int]:
        """The denominator of each row of `kernel`."""
        denominators = [
            [round(1 / abs(v)) if abs(v) < 1 else 1 for v in row if v]
            for row in self.transform.kernel
        ]
        return [lcm(*row) for row in denominators]

    @property
    def unit(self) -> int:
        return lcm(*self.scales)

    @property
    def shift(self) -> int:
        """Factors of 2 in unit^2."""
        return 2 * ((self.unit & -self.unit).bit_length() - 1)

    @property
    def inverse(self) -> int:
        """Of the odd factor of unit^2, modulo 2^32, as int32."""
        found = pow(self.unit**2 >> self.shift, -1, 1 << 32)
        return found - (1 << 32) if found >> 31 else found

    @property
    def most(self) -> int:
        """Results of at least so much, positive or negative, may come back wrong."""
        return 1 << (31 - self.shift)

    def weights(self, weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A weight (CO, CI, 3, 3) of int8 as products take it: (reach, reach, CI, CO) of int16."""
        whole = np.rint(np.array(self.transform.kernel) * np.array(self.scales)[:, None])
        return _transformed(whole, weight).astype(np.int16)

    @property
    def output(self) -> Matrix:
        t = self.transform.output
        return [[int(v) * (self.unit // s) for v, s in zip(row, self.scales, strict=True)]
                for row in t]  # fmt: skip


def tiled(
    x: TensorLike, w: TensorLike, window: Window, transform: Transform, fill: Any, dtype: str
) -> Any:
    """The tiles' products in `dtype`, summed over channels and depth: (reach, reach, N, tiles as
    `_arranged` has them, CO), of x (N, CI, ..., H, W) with `fill` around it and w (reach, reach,
    ..., CI, CO), transformed beforehand."""
    reach, tile = transform.reach, transform.tile
    (images, depth), filters = x.shape[:2], w.shape[-1]
    ty, tx = tiles_of(window, tile)
    *outer, h, wide = x.shape[2:]
    *_, py, px = window.before

    def element(n: Any, *at: Any) -> Any:
        *o, y, z, c = at
        inside = te.all(y >= py, y < h + py, z >= px, z < wide + px)
        e = te.if_then_else(inside, x(n, c, *o, y - py, z - px), fill)
        return e if e.dtype == w.dtype else te.cast(e, w.dtype)

    shape = (images, *outer, ty * tile + 2, tx * tile + 2, depth)
    pad = te.compute(shape, element, name="winograd_pad")
    bt = constant_matrix(transform.data, "bt", w.dtype)
    d = [te.reduce_axis((0, reach), name=n) for n in ("dy", "dx")]

    def packed(*at: Any) -> Any:
        eps, nu, n, *tiles, ci = at
        o, y, z = _apart(window, tiles)
        e = pad[(n, *o, y * tile + d[0], z * tile + d[1], ci)]
        return te.sum(e * (bt[eps, d[0]] * bt[nu, d[1]]), axis=d)

    pack = te.compute(
        (reach, reach, images, *_arranged(window, outer, ty, tx), depth),
        packed,
        name="data_pack",
        attrs=constant_axes("eps", "nu", d),
        varargs_names=_labels(window, "ci"),
    )
    weight = parameter(w)

    def product(*at: Any) -> Any:
        eps, nu, n, *tiles, co = at
        rc = te.reduce_axis((0, depth), name="rc")
        o, y, z = _apart(window, tiles)
        taps: list[Any] = []
        place: list[Any] = []
        inside: list[Any] = []
        for i, position in enumerate(o):
            k, before = window.kernel[i], window.before[i]
            taps.append(te.reduce_axis((0, k), name=f"r{i}") if k > 1 else 0)
            p = position * window.strides[i] + taps[i] * window.dilations[i] - before
            place.append(p)
            # What lies outside along depth is left out rather than transformed.
            if before:
                inside.append(p >= 0)
            last = (window.out[i] - 1) * window.strides[i] + window.reach(i) - 1 - before
            if last >= outer[i]:
                inside.append(p < outer[i])
        factors = pack[(eps, nu, n, *_arranged(window, place, y, z), rc)], w(eps, nu, *taps, rc, co)
        left, right = (e if e.dtype == dtype else te.cast(e, dtype) for e in factors)
        term = left * right
        if inside:
            term = te.if_then_else(te.all(*inside), term, te.const(0, dtype))
        return te.sum(term, axis=[*(t for t in taps if not isinstance(t, int)), rc])

    return te.compute(
        (reach, reach, images, *_arranged(window, window.out[:-2], ty, tx), filters),
        product,
        name="bgemm",
        attrs={} if weight is None else {"layout_free_placeholders": [weight]},
        varargs_names=_labels(window, "co"),
    )


def tiles_of(window: Window, tile: int) -> tuple[Any, Any]:
    """Tiles of the result, down and across."""
    down, across = (-(-n // tile) for n in window.out[-2:])
    return down, across


def _arranged(window: Window, outer: Sequence[Any], y: Any, z: Any) -> list[Any]:
    """What stands for the axes of tiles in their order: planes that no window connects, tiles down,
    depth, tiles across. A row of tiles then has all that its own products read."""
    pairs = list(zip(outer, window.kernel, strict=False))
    apart, deep = ([p for p, k in pairs if (k > 1) is other] for other in (False, True))
    return [*apart, y, *deep, z]


def _apart(window: Window, arranged: Sequence[Any]) -> tuple[list[Any], Any, Any]:
    """The inverse of `_arranged`: (outer, y, z)."""
    rank = len(window.kernel) - 2
    order = _arranged(window, range(rank), rank, rank + 1)
    *outer, y, z = (arranged[order.index(d)] for d in range(rank + 2))
    return outer, y, z


def _labels(window: Window, channel: str) -> list[str]:
    """Names of the axes of tiles and what stands around them."""
    depth = [f"d{i}" for i in range(len(window.kernel) - 2)]
    return ["eps", "nu", "n", *_arranged(window, depth, "y", "z"), channel]


def results(products: Any, window: Window, tile: int, output: Matrix, dtype: str) -> Any:
    """The convolution (N, CO, ..., H, W) from the tiles' products."""
    reach, _, images, *tiles, filters = products.shape
    at = constant_matrix(output, "at", dtype)
    m = [te.reduce_axis((0, reach), name=n) for n in ("my", "mx")]
    inverse = te.compute(
        (tile, tile, images, *tiles, filters),
        lambda *i: te.sum(
            products[(m[0], m[1], *i[2:])] * (at[i[0], m[0]] * at[i[1], m[1]]), axis=m
        ),
        name="inverse",
        attrs=constant_axes("vh", "vw", m),
        varargs_names=["vh", "vw", *_labels(window, "co")[2:]],
    )

    def result(n: Any, c: Any, *position: Any) -> Any:
        *outer, y, z = position
        place = _arranged(window, outer, y // tile, z // tile)
        return inverse[(y % tile, z % tile, n, *place, c)]

    return stage((images, filters, *window.out), result, "conv", axes=window.labels)


def whole_results(products: Any, window: Window, whole: Whole) -> Any:
    """The convolution (N, CO, ..., H, W) in int32 from the tiles' products in integers."""
    sums = results(products, window, whole.transform.tile, whole.output, "int32")
    scale, step = te.const(whole.inverse, "int32"), te.const(1 << whole.shift, "int32")

    def element(*at: Any) -> Any:
        e = sums(*at) if whole.inverse == 1 else sums(*at) * scale
        return te.floordiv(e, step)

    return stage(sums.shape, element, "whole", axes=window.labels)
