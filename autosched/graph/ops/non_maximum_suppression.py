"""NonMaxSuppression as a routine: all boxes that it may keep, and how many it keeps.

Threads share the classes of all batches. Each puts its boxes into a heap, takes the best one after
the other, and compares it with those that are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import host_operator
from autosched.graph.ops.routines import fixed, number, routine
from autosched.graph.ops.suppression import non_max_suppression
from autosched.graph.ops.tensors import TensorLike

Array = npt.NDArray[Any]
NAME = "autosched.NonMaxSuppression"
MOST_ROWS = 1 << 20
"""Rows that have room, at most: a bound that a file gives may be any number."""


def non_max_suppression_kernel(
    boxes: TensorLike,
    scores: TensorLike,
    most: TensorLike | None = None,
    overlap: TensorLike | None = None,
    least: TensorLike | None = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """(rows, count): rows from count on are 0."""
    batches, classes, many = fixed(scores.shape)
    pairs, limit = batches * classes, _limit(number(most, 0), many)
    if fixed(boxes.shape) != (batches, many, 4) or {boxes.dtype, scores.dtype} != {"float32"}:
        raise Unsupported("boxes are expected to be float32, of the shape (batches, boxes, 4)")
    if limit < 1 or pairs * limit > MOST_ROWS:
        raise Unsupported("no boxes, or too many, may be kept")
    share, bound = np.float32(number(overlap, 0)), None if least is None else number(least, 0)
    if not np.isfinite(share) or (bound is not None and not np.isfinite(np.float32(bound))):
        raise Unsupported("a bound of NonMaxSuppression is infinite")
    taken = "j >= 0"
    if bound is not None:
        taken = f"scores[b, c, j] > T.float32({float(np.float32(bound))!r})"
    corners = _CENTRE if center_point_box else _CORNERS
    sift = _indented(_SIFT.replace("{many}", str(many)), 8)
    text = _TEXT.strip("\n").format(
        pairs=pairs, classes=classes, many=many, limit=limit, share=repr(float(share)),
        taken=taken, corners=_indented(corners, 8), sift=sift,
    )  # fmt: skip
    outputs = {"rows": ((pairs * limit, 3), "int64"), "count": ((1,), "int64")}
    return routine("non_max_suppression", {"boxes": boxes, "scores": scores}, outputs, text)


def _limit(most: float, many: int) -> int:
    """Boxes that may be kept of one class."""
    return max(min(int(most), many), 0)


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.strip("\n").splitlines())


_CORNERS = """
low0 = T.min(boxes[b, j, 0], boxes[b, j, 2])
low1 = T.min(boxes[b, j, 1], boxes[b, j, 3])
high0 = T.max(boxes[b, j, 0], boxes[b, j, 2])
high1 = T.max(boxes[b, j, 1], boxes[b, j, 3])
"""
_CENTRE = """
low0 = boxes[b, j, 0] - boxes[b, j, 2] / T.float32(2)
low1 = boxes[b, j, 1] - boxes[b, j, 3] / T.float32(2)
high0 = boxes[b, j, 0] + boxes[b, j, 2] / T.float32(2)
high1 = boxes[b, j, 1] + boxes[b, j, 3] / T.float32(2)
"""
# The best of the heap is its first element. One that is NaN is worse than all numbers; its place in
# `at` is that of its box, plus the number of boxes.
_SIFT = """
while node[()] * 2 + 1 < n[()]:
    up = T.clamp_index(node[()], {many})
    left = T.clamp_index(up * 2 + 1, {many})
    right = T.clamp_index(T.min(up * 2 + 2, n[()] - 1), {many})
    first = s[right] > s[left] or s[right] == s[left] and at[right] < at[left]
    child = T.select(first, right, left)
    if s[child] > s[up] or s[child] == s[up] and at[child] < at[up]:
        score = s[up]
        place = at[up]
        s[up] = s[child]
        at[up] = at[child]
        s[child] = score
        at[child] = place
        node[()] = child
    else:
        node[()] = n[()]
"""
_TEXT = """
found = T.alloc_buffer(({pairs}, {limit}), "int64")
counts = T.alloc_buffer(({pairs},), "int64")
for pair in T.parallel({pairs}):
    b = pair // {classes}
    c = pair % {classes}
    s = T.alloc_buffer(({many},))
    at = T.alloc_buffer(({many},), "int64")
    kept = T.alloc_buffer((5, {limit}))
    n = T.alloc_buffer((), "int64")
    node = T.alloc_buffer((), "int64")
    k = T.alloc_buffer((), "int64")
    apart = T.alloc_buffer((), "bool")
    q = T.alloc_buffer((), "int64")
    for j in T.serial({many}):
        if {taken}:
            place = T.clamp_index(n[()], {many})
            score = scores[b, c, j]
            is_number = score == score
            s[place] = T.select(is_number, score, T.float32("-inf"))
            at[place] = T.select(is_number, j, j + {many})
            n[()] = n[()] + 1
    for h in T.serial(n[()] // 2):
        node[()] = n[()] // 2 - 1 - h
{sift}
    while n[()] > 0 and k[()] < {limit}:
        j = at[0] % {many}
        n[()] = n[()] - 1
        last = T.clamp_index(n[()], {many})
        s[0] = s[last]
        at[0] = at[last]
        node[()] = 0
{sift}
{corners}
        area = (high0 - low0) * (high1 - low1)
        apart[()] = True
        q[()] = 0
        while apart[()] and q[()] < k[()]:
            o = T.clamp_index(q[()], {limit})
            q[()] = q[()] + 1
            tall = T.min(kept[2, o], high0) - T.max(kept[0, o], low0)
            wide = T.min(kept[3, o], high1) - T.max(kept[1, o], low1)
            if tall > 0.0 and wide > 0.0:
                both = tall * wide
                union = kept[4, o] + area - both
                real = both > 0.0 and kept[4, o] > 0.0 and area > 0.0 and union > 0.0
                apart[()] = not (real and both / union > T.float32({share}))
        if apart[()]:
            o = T.clamp_index(k[()], {limit})
            kept[0, o] = low0
            kept[1, o] = low1
            kept[2, o] = high0
            kept[3, o] = high1
            kept[4, o] = area
            found[pair, o] = j
            k[()] = k[()] + 1
    counts[pair] = k[()]
count[0] = 0
for pair in T.serial({pairs}):
    for o in T.serial(T.min(counts[pair], {limit})):
        row = T.clamp_index(count[0], {pairs} * {limit})
        rows[row, 0] = pair // {classes}
        rows[row, 1] = pair % {classes}
        rows[row, 2] = found[pair, T.clamp_index(o, {limit})]
        count[0] = count[0] + 1
for row in T.serial(count[0], {pairs} * {limit}):
    for d in range(3):
        rows[row, d] = 0
"""


@host_operator(NAME, kernel=non_max_suppression_kernel)
def non_max_suppression_rows(
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
    *,
    center_point_box: int = 0,
) -> tuple[Array, Array]:
    """The rows of NonMaxSuppression, then rows of 0 up to as many as may be kept; and how many
    the first are."""
    found = non_max_suppression(
        boxes, scores, most, overlap, least, center_point_box=center_point_box
    )
    batches, classes, many = scores.shape
    limit = 0 if most is None else _limit(most.reshape(-1)[0], many)
    rows = np.zeros((batches * classes * limit, 3), np.int64)
    rows[: len(found)] = found
    return rows, np.array([len(found)])


@host_operator("autosched.FirstRows")
def first_rows(rows: Array, count: Array) -> Array:
    """As many rows as data say."""
    return rows[: int(count[0])].copy()
