"""Elements between elements, at places that data name, and transforms: in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import Known, Results, host_operator
from autosched.graph.ops.tensors import normal_axis

Array = npt.NDArray[Any]


@host_operator("GridSample", lambda x, grid, **_: [((*x.shape[:2], *grid.shape[1:-1]), x.dtype)])
def grid_sample(
    x: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """x (N, C, spatial) at places (N, positions, rank) in [-1, 1], the last axis first."""
    rank = x.ndim - 2
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if kind not in ("linear", "cubic", "nearest") or (kind == "cubic" and rank != 2):
        raise Unsupported(f"attribute mode is {mode!r} over {rank} axes")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise Unsupported(f"attribute padding_mode is {padding_mode!r}")
    places = []
    for d in range(rank):
        n, g = x.shape[2 + d], grid[..., rank - 1 - d].astype(np.float64)
        p: Array = (g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2
        if padding_mode == "border" and kind != "cubic":
            p = np.clip(p, 0, n - 1)
        elif padding_mode == "reflection" and kind != "cubic":
            p = _reflected(p, n, bool(align_corners))
        places.append(p)
    taps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[kind]
    lows = [np.rint(p) if kind == "nearest" else np.floor(p) for p in places]
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]), np.float64)
    for at in np.ndindex(*[len(taps)] * rank):
        index, weight = [], np.ones(grid.shape[:-1])
        for d, k in enumerate(at):
            n, i = x.shape[2 + d], lows[d] + taps[k]
            weight = weight * _weight(kind, np.abs(places[d] - i))
            if padding_mode == "zeros":
                weight = weight * ((i >= 0) & (i < n))
            elif padding_mode == "reflection" and kind == "cubic":
                i = _reflected(i, n, bool(align_corners))
            index.append(np.clip(i, 0, n - 1).astype(np.int64))
        for b in range(x.shape[0]):
            out[b] += x[b][(slice(None), *(i[b] for i in index))] * weight[b]
    return np.asarray(out, x.dtype)


def _weight(kind: str, distance: Array) -> Array:
    if kind == "nearest":
        return np.ones(distance.shape)
    if kind == "linear":
        return np.asarray(np.maximum(1 - distance, 0))
    d, a = distance, -0.75
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, far))


def _reflected(p: Array, n: int, align_corners: bool) -> Array:
    low, high = (0.0, n - 1.0) if align_corners else (-0.5, n - 0.5)
    wide = high - low
    if wide == 0:
        return np.zeros_like(p)
    turned = np.mod(p - low, 2 * wide)
    return np.minimum(turned, 2 * wide - turned) + low


@host_operator("DFT")
def dft(
    x: Array,
    length: Array | None = None,
    which: Array | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    """The discrete Fourier transform along an axis; the last axis is (real, imaginary), or real."""
    along = normal_axis(axis if which is None else int(which.reshape(-1)[0]), x.ndim)
    whole = 2 * (x.shape[along] - 1) if inverse and onesided else x.shape[along]
    n = whole if length is None else int(length.reshape(-1)[0])
    values = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    if inverse and onesided:
        return np.fft.irfft(values, n, axis=along)[..., None].astype(x.dtype)
    made = (np.fft.ifft if inverse else np.fft.fft)(values, n, axis=along)
    if onesided:
        made = made.take(range(n // 2 + 1), along)
    return np.stack([made.real, made.imag], axis=-1).astype(x.dtype)


def _stft(
    x: Known, step: Known, window: Known | None = None, length: Known | None = None, *,
    onesided: int = 1,
) -> Results | None:  # fmt: skip
    if step.value is None or (length is not None and length.value is None):
        return None
    given = window.shape[0] if window is not None else 0
    n = given if length is None else int(length.value.reshape(-1)[0])
    frames = (x.shape[1] - n) // int(step.value.reshape(-1)[0]) + 1
    return [((x.shape[0], frames, n // 2 + 1 if onesided else n, 2), x.dtype)]


@host_operator("STFT", _stft)
def stft(
    x: Array,
    step: Array,
    window: Array | None = None,
    length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
    """Fourier transforms of pieces of a signal (B, T) or (B, T, 1), each times the window."""
    by = int(step.reshape(-1)[0])
    if length is None and window is None:
        raise Unsupported("neither window nor frame_length is given")
    n = len(window) if length is None else int(length.reshape(-1)[0])  # type: ignore[arg-type]
    x = x[..., None] if x.ndim == 2 else x
    values = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    frames = np.stack([values[:, i : i + n] for i in range(0, values.shape[1] - n + 1, by)], axis=1)
    if window is not None:
        before = (n - len(window)) // 2
        frames = frames * np.pad(window, (before, n - len(window) - before))
    made = np.fft.fft(frames, axis=-1)
    if onesided:
        made = made[..., : n // 2 + 1]
    return np.stack([made.real, made.imag], axis=-1).astype(x.dtype)


SAMPLES = 1 << 26
"""Samples of one box of RoiAlign, in all channels: data say how large a box is."""


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
    if mode not in ("avg", "max"):
        raise Unsupported(f"attribute mode is {mode!r}; expected avg or max")
    half = (coordinate_transformation_mode or "half_pixel") == "half_pixel"
    out = np.zeros((len(rois), x.shape[1], output_height, output_width), np.float64)
    for r, (box, b) in enumerate(zip(rois, batch, strict=True)):
        x0, y0, x1, y1 = box.astype(np.float64) * spatial_scale - (0.5 if half else 0.0)
        sizes = [y1 - y0, x1 - x0] if half else [max(y1 - y0, 1.0), max(x1 - x0, 1.0)]
        bins = [sizes[0] / output_height, sizes[1] / output_width]
        counts = [sampling_ratio if sampling_ratio > 0 else max(int(np.ceil(s)), 1) for s in bins]
        samples_taken = out[r].size * counts[0] * counts[1]
        if samples_taken > SAMPLES:
            raise Unsupported(
                f"box {r}, {box.tolist()}, takes {samples_taken} samples; at most {SAMPLES} are "
                "taken: cut boxes to their image, or set the attribute sampling_ratio"
            )
        ys = y0 + (np.arange(output_height * counts[0]) + 0.5) * bins[0] / counts[0]
        xs = x0 + (np.arange(output_width * counts[1]) + 0.5) * bins[1] / counts[1]
        weights, places = zip(*(_neighbours(p, n) for p, n in ((ys, x.shape[2]), (xs, x.shape[3]))),
                              strict=True)  # fmt: skip
        image = x[int(b)].astype(np.float64)
        parts = [
            image[:, places[0][i][:, None], places[1][j][None]]
            * (weights[0][i][:, None] * weights[1][j][None])
            for i in range(2)
            for j in range(2)
        ]
        samples = (sum(parts) if mode == "avg" else np.max(parts, axis=0)).reshape(
            x.shape[1], output_height, counts[0], output_width, counts[1]
        )
        out[r] = samples.mean((2, 4)) if mode == "avg" else samples.max((2, 4))
    return np.asarray(out, x.dtype)


def _neighbours(p: Array, n: int) -> tuple[list[Array], list[Array]]:
    """Weights and indices of the two elements around each place; 0 far outside."""
    inside = (p >= -1) & (p <= n)
    at = np.clip(p, 0, n - 1)
    low = np.floor(at).astype(np.int64)
    part = at - low
    return [(1 - part) * inside, part * inside], [low, np.minimum(low + 1, n - 1)]


@host_operator(
    "DeformConv",
    lambda x, w, offset, *_, **__: [((x.shape[0], w.shape[0], *offset.shape[2:]), x.dtype)],
)
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    b: Array | None = None,
    mask: Array | None = None,
    *,
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    offset_group: int = 1,
    pads: Any = None,
    strides: Any = None,
) -> Array:
    """A convolution over two axes whose windows read where the offsets move them."""
    if x.ndim != 4:
        raise Unsupported(f"the input has the shape {x.shape}; two spatial axes are supported")
    far, by, around = dilations or (1, 1), strides or (1, 1), pads or (0, 0, 0, 0)
    n, c, height, width = x.shape
    kh, kw = w.shape[2:]
    oh, ow = offset.shape[2:]
    moves = offset.reshape(n, offset_group, kh, kw, 2, oh, ow).astype(np.float64)
    columns = np.zeros((n, c, kh, kw, oh, ow))
    each = c // offset_group
    for i, g, ky, kx in np.ndindex(n, offset_group, kh, kw):
        ys = np.arange(oh)[:, None] * by[0] - around[0] + ky * far[0] + moves[i, g, ky, kx, 0]
        xs = np.arange(ow)[None] * by[1] - around[1] + kx * far[1] + moves[i, g, ky, kx, 1]
        y0, x0 = np.floor(ys).astype(np.int64), np.floor(xs).astype(np.int64)
        total: Array = np.zeros((each, oh, ow))
        for dy, dx in np.ndindex(2, 2):
            yi, xi = y0 + dy, x0 + dx
            inside = (yi >= 0) & (yi < height) & (xi >= 0) & (xi < width)
            weight = (1 - np.abs(ys - yi)) * (1 - np.abs(xs - xi)) * inside
            read = x[i, g * each : (g + 1) * each][
                :, np.clip(yi, 0, height - 1), np.clip(xi, 0, width - 1)
            ]
            total = total + read * weight
        if mask is not None:
            total = total * mask.reshape(n, offset_group, kh, kw, oh, ow)[i, g, ky, kx]
        columns[i, g * each : (g + 1) * each, ky, kx] = total
    parts = columns.reshape(n, group, c // group, kh, kw, oh, ow)
    filters = w.reshape(group, -1, c // group, kh, kw)
    out = np.einsum("ngcklyx,gmckl->ngmyx", parts, filters).reshape(n, -1, oh, ow)
    if b is not None:
        out = out + b[:, None, None]
    return np.asarray(out, x.dtype)
