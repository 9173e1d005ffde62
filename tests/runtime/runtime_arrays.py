"""Arguments of the kernel `mix`, and what it makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def arguments(shape: tuple[int, ...] = (2, 3), seed: int = 0) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    return (*inputs, np.full(shape, np.nan, np.float32))


def expected(arrays: tuple[Array, ...]) -> Array:
    return np.asarray((arrays[0] + arrays[1]) * arrays[2])
