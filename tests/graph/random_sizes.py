"""Sizes that follow from lengths n and m, and the inputs of random models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Dim = int | tuple[Any, ...]
"""A fixed size, or a sum of lengths and a number: ("n", c), ("m", c), ("nm", c), with a third
number divided by that and rounded down; or a product of such, ("*", (…))."""
Dims = tuple[Dim, ...]

N: Dim = ("n", 0)
M: Dim = ("m", 0)
Inputs = dict[str, Dims]
INPUTS: Inputs = {"x": (2, N, 4), "y": (2, 3, N), "cache": (2, ("n", 1), 4), "ids": (N,)}
TWO: Inputs = {**INPUTS, "y": (M, 3, N), "cache": (2, M, 4), "both": (2, ("nm", 1), 4)}
BATCH: Inputs = {"x": (M, N, 4), "y": (M, 3, N), "cache": (M, ("n", 1), 4), "ids": (N,)}


def written(d: Dim) -> int | str | None:
    """As files have it."""
    if isinstance(d, int):
        return d
    if d[0] == "*" or by_of(d) > 1:
        return None
    return " + ".join([*d[0], *([str(d[1])] if d[1] else [])])


def by_of(d: Dim) -> int:
    """What a size is divided by."""
    return 1 if isinstance(d, int) or len(d) == 2 else d[2]


def parts_of(d: Dim) -> Dims:
    """The sizes of which one is the product."""
    return d[1] if not isinstance(d, int) and d[0] == "*" else (d,)


def is_flat(d: Dim) -> bool:
    """Whether a size is a product with a length."""
    return len(parts_of(d)) > 1


def product_of(parts: Dims) -> Dim:
    """The product of sizes."""
    fixed = [d for d in parts if isinstance(d, int)]
    if len(fixed) == len(parts):
        return math.prod(fixed)
    return parts[0] if len(parts) == 1 else ("*", parts)


def least_of(d: Dim) -> int:
    """A size at the least lengths, 3."""
    if not isinstance(d, int) and d[0] == "*":
        return math.prod(map(least_of, d[1]))
    return d if isinstance(d, int) else (3 * len(d[0]) + d[1]) // by_of(d)


def grown_by(d: Dim, more: int) -> Dim:
    """A size and a number."""
    if isinstance(d, int):
        return d + more
    return (d[0], d[1] + more * by_of(d), *d[2:])


def windows_of(d: Dim, reach: int, stride: int) -> Dim:
    """How many windows a size has."""
    if isinstance(d, int):
        return (d - reach) // stride + 1
    by = by_of(d)
    more = d[1] + by * (stride - reach)
    return (d[0], more, by * stride) if by * stride > 1 else (d[0], more)


def shapes(inputs: Inputs, *lengths: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs at n, or at n and m."""
    own = dict(zip("nm", lengths, strict=False))

    def size(d: Dim) -> int:
        return d if isinstance(d, int) else sum(own[c] for c in d[0]) + d[1]

    return {k: tuple(size(d) for d in v) for k, v in inputs.items()}


def arrays(inputs: Inputs, *lengths: int) -> dict[str, np.ndarray]:
    """Inputs without zeros."""
    rng = np.random.default_rng(lengths)
    return {
        k: rng.integers(1, 8, s) if k == "ids" else
        (rng.choice((-1, 1), s) * rng.uniform(0.3, 1.5, s)).astype(np.float32)
        for k, s in shapes(inputs, *lengths).items()
    }  # fmt: skip
