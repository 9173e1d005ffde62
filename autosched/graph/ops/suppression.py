"""NonMaxSuppression, which NumPy computes between kernels: data decide how many boxes are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.ops.registry import host_operator

Array = npt.NDArray[Any]


@host_operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """(batch, class, box) of the boxes kept: best scores first, none that overlaps a better one
    by more than a share of their union."""
    limit = 0 if most is None else int(most.reshape(-1)[0])
    share = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    bound = None if least is None else float(least.reshape(-1)[0])
    if center_point_box:
        half = boxes[..., 2:] / 2
        low, high = boxes[..., :2] - half, boxes[..., :2] + half
    else:
        low = np.minimum(boxes[..., :2], boxes[..., 2:])
        high = np.maximum(boxes[..., :2], boxes[..., 2:])
    area = np.prod(high - low, axis=-1, keepdims=True)
    rows = np.ascontiguousarray(np.concatenate([low, high, area], -1).swapaxes(1, 2))
    out: list[tuple[int, int, int]] = []
    for b, c in np.ndindex(scores.shape[:2]):
        own = scores[b, c]
        given = np.arange(len(own)) if bound is None else np.flatnonzero(own > bound)
        out += [(b, c, k) for k in _kept(rows[b], own, given, share, limit)]
    return np.array(out, np.int64).reshape(-1, 3)


BLOCKS = 32, 128
"""Boxes that are compared with each other at once: of the first block, and at most."""
PAIRS = 65536
"""Pairs of boxes that are compared at once. Larger arrays get new pages from the system every
time."""


FEW = 4
"""Times as many boxes as may be kept, which most often have so many that are apart."""


def _kept(boxes: Array, scores: Array, given: Array, share: float, limit: int) -> list[int]:
    """`_apart` of all boxes, or of those with the best scores where these are enough."""
    if 0 < limit * FEW < len(given):
        few = np.sort(given[_best(scores[given], limit * FEW)])
        kept = _apart(boxes, scores, few, share, limit)
        if len(kept) == limit:
            return kept
    return _apart(boxes, scores, given, share, limit)


def _apart(boxes: Array, scores: Array, left: Array, share: float, limit: int) -> list[int]:
    """Of the numbers of boxes (low, high, area) in columns, best scores first, those that overlap
    none before them which is kept. What a block keeps is compared with all boxes left."""
    kept: list[int] = []
    size = BLOCKS[0]
    while len(left) and len(kept) < limit:
        best = _best(scores[left], size)
        block, left = left[best], np.delete(left, best)
        inner = boxes.take(block, 1)
        new = block[_first(len(block), *_overlaps(inner, inner, share))]
        kept += new.tolist()
        if len(left) and len(kept) < limit:
            better, gone = boxes.take(new, 1), np.zeros(len(left), bool)
            step = PAIRS // len(new)
            for begin in range(0, len(left), step):
                others = boxes.take(left[begin : begin + step], 1)
                gone[begin + _overlaps(better, others, share)[1]] = True
            left = left[~gone]
        size = min(2 * size, BLOCKS[1])
    return kept[:limit]


def _best(scores: Array, size: int) -> Array:
    """Where the best scores are, best first; equal ones keep their order."""
    near = np.arange(len(scores))
    if len(scores) > size:
        least = np.partition(scores, -size)[-size]
        near = near if np.isnan(least) else np.flatnonzero(scores >= least)
    return near[np.argsort(-scores[near], kind="stable")][:size]


def _first(count: int, rows: Array, columns: Array) -> list[int]:
    """Those of a block that none before them which is kept overlaps, given the pairs that do, in
    the order of the first."""
    gone = [False] * count
    for n, other in zip(rows.tolist(), columns.tolist(), strict=True):
        if n < other and not gone[n]:
            gone[other] = True
    return [n for n in range(count) if not gone[n]]


def _overlaps(a: Array, b: Array, share: float) -> tuple[Array, Array]:
    """The pairs, by number, of boxes that overlap by more than a share of their union. The
    arithmetic is onnxruntime's: ties at the bound are common."""
    first = a[:, :, None]
    high = np.minimum(first[2], b[2])
    high -= np.maximum(first[0], b[0])
    wide = np.minimum(first[3], b[3])
    wide -= np.maximum(first[1], b[1])
    # Few pairs meet; all else is asked of these alone.
    at = np.flatnonzero((high > 0) & (wide > 0))
    rows, columns = np.divmod(at, b.shape[1])
    both = high.reshape(-1)[at] * wide.reshape(-1)[at]
    own, other = a[4][rows], b[4][columns]
    union = own + other - both
    real = (both > 0) & (own > 0) & (other > 0) & (union > 0)
    real &= both / union > np.asarray(share, b.dtype)
    return rows[real], columns[real]
