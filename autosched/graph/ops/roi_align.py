"""RoiAlign, its adjoint, and MaxRoiPool: boxes of images that data name, in NumPy."""

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
AT_ONCE = 1 << 18
"""Elements that are read for several boxes before they are added up: the second cache has them."""


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
    half, ratio = coordinate_transformation_mode, sampling_ratio
    if _averaged(mode):
        return _means(x, rois, batch, sizes, half, ratio, spatial_scale)
    out = np.zeros((len(rois), x.shape[1], *sizes), np.float64)
    for r, both in enumerate(_boxes(x, rois, sizes, half, ratio, spatial_scale)):
        out[r] = _parts(x[int(batch[r])], both, sizes).max((0, 3, 5))
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


@host_operator(
    "MaxRoiPool",
    lambda x, rois, *, pooled_shape, **_: [((rois.shape[0], x.shape[1], *pooled_shape), x.dtype)],
)
def max_roi_pool(
    x: Array, rois: Array, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Array:
    """The largest element of each bin of boxes (image, x0, y0, x1, y1), their ends included; 0 in a
    bin that is outside of the image."""
    out = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
    ends = rois[:, 1:].astype(np.float32) * np.float32(spatial_scale)
    # Halves are rounded away from 0.
    ends = np.trunc(ends + np.copysign(np.float32(0.5), ends)).astype(np.int64)
    for r, (x0, y0, x1, y1) in enumerate(ends):
        bins = [
            _bins(begin, max(end - begin + 1, 1), count, extent)
            for begin, end, count, extent in zip(
                (y0, x0), (y1, x1), pooled_shape, x.shape[2:], strict=True
            )
        ]
        for (i, rows), (j, columns) in itertools.product(*map(enumerate, bins)):
            part = x[int(rois[r, 0]), :, rows, columns]
            if part.size:
                out[r, :, i, j] = part.max((1, 2))
    return out


def _bins(begin: int, wide: int, count: int, extent: int) -> list[slice]:
    """The bins of a box along one axis, those beside each other with an element in common."""
    steps = np.arange(count + 1, dtype=np.float32) * (np.float32(wide) / np.float32(count))
    low, high = np.floor(steps[:-1]) + begin, np.ceil(steps[1:]) + begin
    return [slice(int(a), int(b)) for a, b in zip(*np.clip((low, high), 0, extent), strict=True)]


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


def _means(
    x: Array,
    rois: Array,
    batch: Array,
    sizes: tuple[int, int],
    mode: str | None,
    ratio: int,
    scale: float,
) -> Array:
    """The means of the samples of each bin: boxes that take as many samples are read at once, and
    added up along the rows, then along the columns."""
    half = (mode or "half_pixel") == "half_pixel"
    dtype = np.result_type(x.dtype, np.float32)
    images = np.ascontiguousarray(np.moveaxis(x, 1, -1), dtype).reshape(-1, x.shape[1])
    out = np.empty((len(rois), *sizes, x.shape[1]), dtype)
    begin = rois[:, 1::-1].astype(np.float64) * scale - (0.5 if half else 0.0)  # rows, columns
    wide = rois[:, :1:-1].astype(np.float64) * scale - (0.5 if half else 0.0) - begin
    wide = wide if half else np.maximum(wide, 1.0)
    counts = np.full_like(wide, ratio) if ratio > 0 else np.maximum(np.ceil(wide / sizes), 1.0)
    taken = counts.prod(1) * out[:1].size
    for r in np.flatnonzero(~(taken <= SAMPLES)):
        _box(int(r), rois[r], x.shape, sizes, half, ratio, scale)  # which refuses it
    for each in np.unique(counts, axis=0):
        which = np.flatnonzero((counts == each).all(1))
        step = max(1, AT_ONCE // int(4 * each.prod() * out[:1].size))
        for some in np.split(which, range(step, len(which), step)):
            axes = [
                _reads(begin[some, d], wide[some, d], int(each[d]), sizes[d], x.shape[2 + d])
                for d in range(2)
            ]
            first = np.asarray(batch[some], np.int64)[:, None, None] * (x.shape[2] * x.shape[3])
            out[some] = _added(images, first, axes[0], axes[1], x.shape[3])
    return np.ascontiguousarray(np.moveaxis(out, -1, 1), x.dtype)


def _reads(begin: Array, wide: Array, each: int, bins: int, extent: int) -> tuple[Array, Array]:
    """What the bins of boxes read along one axis, and with which weights: (box, bin, read)."""
    part = (np.arange(bins * each) + 0.5) / (bins * each)
    taps = _neighbours(begin[:, None] + wide[:, None] * part, extent)
    shape = len(begin), bins, each
    at, weights = (
        np.concatenate([made.reshape(shape) for made in both], 2)
        for both in ([t.at for t in taps], [t.weight / each for t in taps])
    )
    return at, weights


def _added(
    images: Array,
    first: Array,
    rows: tuple[Array, Array],
    columns: tuple[Array, Array],
    width: int,
) -> Array:
    """(box, bin, bin, channel) of images (position, channel) that begin at `first`."""
    (boxes, high, down), (_, wide, across) = rows[0].shape, columns[0].shape
    at = rows[0].reshape(boxes, -1, 1) * width + columns[0].reshape(boxes, 1, -1) + first
    read = images.take(at, 0).reshape(boxes, high, down, -1)
    lines = rows[1].astype(images.dtype)[:, :, None] @ read
    lines = lines.reshape(boxes, high, wide, across, -1)
    weights = columns[1].astype(images.dtype)[:, None, :, None]
    found: Array = (weights @ lines)[..., 0, :]
    return found


def _neighbours(p: Array, n: int) -> tuple[Tap, Tap]:
    """The two elements around each place; their weights are 0 far outside."""
    inside = (p >= -1) & (p <= n)
    at = np.clip(np.nan_to_num(p), 0, n - 1)
    low = np.floor(at).astype(np.int64)
    part, slope = at - low, ((p > 0) & (p < n - 1)).astype(np.float64)
    return (
        Tap(low, (1 - part) * inside, -slope),
        Tap(np.minimum(low + 1, n - 1), part * inside, slope),
    )
