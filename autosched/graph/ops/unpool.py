"""Windows put back into images: MaxUnpool and Col2Im, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.ops.host import inside
from autosched.graph.ops.registry import Known, Results, host_operator

Array = npt.NDArray[Any]


def unpooled(
    x: Sequence[int],
    kernel: Sequence[int],
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> list[int]:
    """The shape of what was pooled to the shape `x`, without padding, as its attributes imply."""
    rank = len(kernel)
    by, around = strides or [1] * rank, pads or [0] * (2 * rank)
    return [*x[:2], *(
        (n - 1) * s + k - around[d] - around[d + rank]
        for d, (n, s, k) in enumerate(zip(x[2:], by, kernel, strict=True))
    )]  # fmt: skip


def _max_unpool(
    x: Known, indices: Known, shape: Known | None = None, *, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Results | None:  # fmt: skip
    if shape is None:
        return [(unpooled(x.shape, kernel_shape, pads, strides), x.dtype)]
    return None if shape.value is None else [(shape.value.tolist(), x.dtype)]


@host_operator("MaxUnpool", _max_unpool)
def max_unpool(
    x: Array,
    indices: Array,
    shape: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Elements at the places from which a max pool took them, 0 elsewhere."""
    natural = unpooled(x.shape, kernel_shape, pads, strides)
    small = np.zeros(int(np.prod(natural)), x.dtype)
    small[inside(indices.reshape(-1), small.size)] = x.reshape(-1)
    made = small.reshape(natural)
    if shape is None or list(shape) == list(made.shape):
        return made
    out = np.zeros([int(n) for n in shape], x.dtype)
    out[tuple(slice(0, n) for n in made.shape)] = made
    return out


def blocks(
    image: Array,
    block: Array,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[list[int], ...]:
    """Of the blocks of an image: dilations, strides, pads, the sizes with these, and how many there
    are along each axis."""
    rank = len(image)
    far, by = list(dilations or [1] * rank), list(strides or [1] * rank)
    around = list(pads or [0] * (2 * rank))
    full = [int(n) + around[d] + around[d + rank] for d, n in enumerate(image)]
    steps = [
        (f - d * (int(k) - 1) - 1) // s + 1 for f, d, k, s in zip(full, far, block, by, strict=True)
    ]
    return far, by, around, full, steps


def _col2im(x: Known, image: Known, block: Known, **_: Any) -> Results | None:
    if image.value is None or block.value is None:
        return None
    return [((x.shape[0], x.shape[1] // int(np.prod(block.value)), *image.value), x.dtype)]


@host_operator("Col2Im", _col2im)
def col2im(
    x: Array,
    image: Array,
    block: Array,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Columns of blocks added up to images: the inverse of taking them."""
    far, by, around, full, steps = blocks(image, block, dilations, pads, strides)
    sizes, kernel = image.tolist(), block.tolist()
    parts = x.reshape(x.shape[0], -1, *kernel, *steps)
    out = np.zeros((*parts.shape[:2], *full), x.dtype)
    for at in np.ndindex(*kernel):
        where = tuple(
            slice(k * d, k * d + s * n, s) for k, d, s, n in zip(at, far, by, steps, strict=True)
        )
        out[(slice(None), slice(None), *where)] += parts[(slice(None), slice(None), *at)]
    inner = tuple(slice(around[d], around[d] + n) for d, n in enumerate(sizes))
    return out[(slice(None), slice(None), *inner)]
