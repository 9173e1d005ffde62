"""RoiAlign and its adjoint: boxes of images that data name, in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.ops.host_adjoint import adjoint_of
from autosched.graph.ops.registry import host_operator
from autosched.graph.ops.taps import Array, Tap, add_at

SAMPLES = 1 << 26
"""Samples of one box of RoiAlign, in all channels: data say how large a box is."""


class Samples(NamedTuple):
    """The places of a box of RoiAlign along one axis: taps, how many there are in a bin, and the
    derivatives of the places by the two ends of the box."""

    taps: tuple[Tap, Tap]
    each: int
    by_ends: tuple[Array, Array]


@host_operator(
    "RoiAlign",
    lambda x, rois, batch, *, output_height=1, output_width=1, **_: [
        ((rois.shape[0], x.shape[1], output_height, output_width), x.dtype)
    ],
)
def roi_align(
    x: Array,
    rois: Array,
    batch: Array,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Boxes of images, each divided into bins whose samples are averaged, or their largest."""
    sizes = output_height, output_width
    out = np.zeros((len(rois), x.shape[1], *sizes), np.float64)
    averaged = _averaged(mode)
    half = coordinate_transformation_mode
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if averaged else x
    for r, both in enumerate(_boxes(x, rois, sizes, half, sampling_ratio, spatial_scale)):
        image = last[int(batch[r])]
        if averaged:
            out[r] = _means(image, both, sizes)
        else:
            out[r] = _parts(image, both, sizes).max((0, 3, 5))
    return np.asarray(out, x.dtype)


@adjoint_of("RoiAlign")
def roi_align_adjoint(
    wrt: int,
    above: Array,
    x: Array,
    rois: Array,
    batch: Array,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    **_: int,
) -> Array:
    """To x: each element gets the weights with which it was read; to the boxes: the slopes of the
    weights. Of several that are the largest of a bin, each has an equal part."""
    half, sizes = coordinate_transformation_mode, above.shape[2:]
    out = np.zeros((x, rois)[wrt].shape, np.float64)
    for r, both in enumerate(_boxes(x, rois, sizes, half, sampling_ratio, spatial_scale)):
        image, (rows, columns) = x[int(batch[r])].astype(np.float64), both
        given = above[r].astype(np.float64)[:, :, None, :, None]
        if mode == "avg":
            parts = np.broadcast_to(
                given / (rows.each * columns.each),
                (4, x.shape[1], sizes[0], rows.each, sizes[1], columns.each),
            )
        else:
            read = _parts(x[int(batch[r])], both, sizes)
            largest = read == read.max((0, 3, 5), keepdims=True)
            parts = given * largest / largest.sum((0, 3, 5), keepdims=True)
        for (i, j), part in zip(itertools.product(rows.taps, columns.taps), parts, strict=True):
            share = part.reshape(x.shape[1], len(i.at), len(j.at))
            at = (slice(None), i.at[:, None], j.at[None])
            if wrt == 0:
                add_at(out[int(batch[r])], at, share * i.weight[:, None] * j.weight)
                continue
            read = (share * image[at]).sum(0)
            slopes = [i.slope * (read @ j.weight), j.slope * (i.weight @ read)]
            for d, samples in enumerate(both):
                for end, by_end in enumerate(samples.by_ends):
                    out[r, 1 - d + 2 * end] += spatial_scale * np.dot(slopes[d], by_end)
    return out


def _averaged(mode: str) -> bool:
    """Whether RoiAlign takes the mean of the samples of a bin."""
    if mode not in ("avg", "max"):
        raise Unsupported(f"attribute mode is {mode!r}; expected avg or max")
    return mode == "avg"


def _boxes(
    x: Array, rois: Array, sizes: tuple[int, int], mode: str | None, ratio: int, scale: float
) -> Iterator[tuple[Samples, Samples]]:
    """The samples of each box along both axes; `mode`: of the coordinates."""
    half = (mode or "half_pixel") == "half_pixel"
    for r, box in enumerate(rois):
        yield _box(r, box, x.shape, sizes, half, ratio, scale)


def _box(
    r: int,
    box: Array,
    shape: Sequence[int],
    sizes: tuple[int, int],
    half: bool,
    ratio: int,
    scale: float,
) -> tuple[Samples, Samples]:
    """The samples of box number `r` along both axes."""
    x0, y0, x1, y1 = box.astype(np.float64) * scale - (0.5 if half else 0.0)
    found, taken = [], shape[1] * sizes[0] * sizes[1]
    for n, bins, begin, end in zip(shape[2:], sizes, (y0, x0), (y1, x1), strict=True):
        moves = half or end - begin > 1
        wide = end - begin if moves else 1.0
        count = ratio if ratio > 0 else max(int(np.ceil(wide / bins)), 1)
        taken *= count
        found.append((n, bins * count, begin, wide, moves, count))
    if taken > SAMPLES:
        raise Unsupported(
            f"box {r}, {box.tolist()}, takes {taken} samples; at most {SAMPLES} are "
            "taken: cut boxes to their image, or set the attribute sampling_ratio"
        )
    made = []
    for n, steps, begin, wide, moves, count in found:
        part = (np.arange(steps) + 0.5) / steps
        ends = (1 - part, part) if moves else (np.ones(steps), np.zeros(steps))
        made.append(Samples(_neighbours(begin + part * wide, n), count, ends))
    return made[0], made[1]


def _parts(image: Array, both: tuple[Samples, Samples], sizes: tuple[int, int]) -> Array:
    """The four weighted elements beside each sample: (4, channel, bin, sample, bin, sample)."""
    rows, columns = both
    parts = [
        image[:, i.at[:, None], j.at[None]].astype(np.float64) * (i.weight[:, None] * j.weight)
        for i, j in itertools.product(rows.taps, columns.taps)
    ]
    return np.reshape(parts, (4, len(image), sizes[0], rows.each, sizes[1], columns.each))


def _means(image: Array, both: tuple[Samples, Samples], sizes: tuple[int, int]) -> Array:
    """The means of the samples of each bin (channel, bin, bin) of an image with its channels last:
    along the rows, then along the columns."""
    rows, columns = both
    reach = [t.at for t in columns.taps]
    first, end = int(reach[0].min()), int(reach[1].max()) + 1
    lines = _along(image[:, first:end], rows, sizes[0])
    moved = [t._replace(at=t.at - first) for t in columns.taps]
    found = _along(lines.swapaxes(0, 1), columns._replace(taps=(moved[0], moved[1])), sizes[1])
    return found.T


def _along(image: Array, samples: Samples, bins: int) -> Array:
    """The means along the first axis of the samples of each bin."""
    near, far = (image[t.at] * t.weight.reshape(-1, *[1] * (image.ndim - 1)) for t in samples.taps)
    near += far
    return np.asarray(near.reshape(bins, samples.each, *image.shape[1:]).mean(1))


def _neighbours(p: Array, n: int) -> tuple[Tap, Tap]:
    """The two elements around each place; their weights are 0 far outside."""
    inside = (p >= -1) & (p <= n)
    at = np.clip(p, 0, n - 1)
    low = np.floor(at).astype(np.int64)
    part, slope = at - low, ((p > 0) & (p < n - 1)).astype(np.float64)
    return (
        Tap(low, (1 - part) * inside, -slope),
        Tap(np.minimum(low + 1, n - 1), part * inside, slope),
    )
