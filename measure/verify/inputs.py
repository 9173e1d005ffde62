"""Inputs of a verification: random, fixed by workload and seed, and meaningful.

A recipe gives floats and integers a range. The first whose reference result is finite and not
constant is taken: standard normal floats do for nearly everything; positive ones for logarithms,
roots, divisions and long products; small ones where values would overflow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autosched.codegen.artifact import Param
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Slot, walk
from autosched.tir.nodes import PrimFunc, sites
from measure.verify.verification import Array


@dataclass(frozen=True)
class Recipe:
    """Floats: normal with deviation `scale`, or uniform in [0.5, 1.5). Integers: in [low, high]."""

    name: str
    normal: bool
    scale: float
    low: int
    high: int


RECIPES = (
    Recipe("normal", True, 1.0, -4, 4),
    Recipe("positive", False, 1.0, 1, 5),
    Recipe("small", True, 2.0**-6, -1, 1),
)


def recipes_of(func: PrimFunc) -> tuple[Recipe, ...]:
    """The recipes in the order in which to try them.

    A recurrence that feeds products of its state back makes errors of rounding grow from step to
    step, unless what it multiplies with is small: there small inputs come first.
    """
    feeds_back = any(
        s.block.reducer is not None and any(it.kind == "sequential" for it in s.block.iters)
        for s in sites(func)
    )
    return RECIPES[::-1] if feeds_back else RECIPES


@dataclass(frozen=True)
class InputSpec:
    """What an input may hold. `limit`: it holds indices, in [0, limit). `given`: what is there."""

    param: Param
    limit: int | None = None
    given: bool = False


def input_specs(func: PrimFunc, params: Sequence[Param]) -> tuple[InputSpec, ...]:
    """What the inputs may hold, in the order of `params`; integers used as indices are bounded."""
    limits: dict[int, int] = {}
    for site in sites(func):
        for access in (*site.block.reads, *site.block.writes):
            for n, index in enumerate(access.indices):
                if isinstance(index, Affine):
                    continue
                bound = int(access.buffer.shape[n])
                for e in walk(index):
                    if isinstance(e, Slot):  # of a buffer whose elements take part in the index
                        source = id(site.block.reads[e.index].buffer)
                        limits[source] = min(bound, limits.get(source, bound))
    return tuple(
        InputSpec(param, limits.get(id(buffer)))
        for param, buffer in zip(params, func.params, strict=True)
        if not param.written
    )


def fill(array: Array, spec: InputSpec, recipe: Recipe, key: str, seed: int, place: int) -> None:
    """Write the values of input number `place` of the workload `key` into `array`."""
    digest = hashlib.sha256(f"{key}/{seed}/{place}".encode()).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    dtype = spec.param.dtype
    if spec.limit is not None:
        array[...] = rng.integers(0, spec.limit, array.shape)
    elif dtypes.is_float(dtype):
        wide = np.float64 if dtype == "float64" else np.float32
        if recipe.normal:
            values = rng.standard_normal(array.shape, dtype=wide) * wide(recipe.scale)
        else:
            values = rng.random(array.shape, dtype=wide) + wide(0.5)
        array[...] = dtypes.from_float32(values) if dtype == "bfloat16" else values
    elif dtype == "bool":
        array[...] = rng.integers(0, 2, array.shape, dtype=np.int8)
    else:
        low = max(recipe.low, int(dtypes.minimum(dtype)))
        high = recipe.high if low == recipe.low else recipe.high - recipe.low
        array[...] = rng.integers(low, high + 1, array.shape, dtype=np.int8)


def quality(outputs: Sequence[Array]) -> tuple[float, float]:
    """(share of finite elements, share of outputs that are not constant): (1, 1) is best."""
    finite = [
        float(np.isfinite(a).mean()) if a.dtype.kind == "f" and a.size else 1.0 for a in outputs
    ]
    varied = [a.size < 2 or bool((a != a.flat[0]).any()) for a in outputs]
    if not outputs:
        return 1.0, 1.0
    return min(finite), sum(varied) / len(varied)
