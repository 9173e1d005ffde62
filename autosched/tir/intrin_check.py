"""Whether an implementation of an intrinsic that is a function computes its meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from autosched.errors import ScheduleError, VerifyError
from autosched.tir import dtypes, interp
from autosched.tir.nodes import Block, Buffer, PrimFunc, replace_node

TRIALS = 3
"""Random arguments on which an implementation that is a function is compared with its meaning."""


def compare(meaning: PrimFunc, block: Block, made: PrimFunc, what: str) -> None:
    """Raise ScheduleError unless a meaning, whose one block is `block`, and its implementation
    compute the same on random arguments: integers exactly, floats within what another order of a
    sum may change."""
    mine, theirs = ([(b.shape, b.dtype) for b in f.params] for f in (meaning, made))
    if mine != theirs:
        raise ScheduleError(
            f"{what}: the implementation has parameters {theirs}; its meaning has {mine}"
        )
    if made.sizes:
        raise ScheduleError(f"{what}: an implementation has no symbolic sizes")
    model = replace_node(meaning, block, (replace(block, init=False),))
    rng = np.random.default_rng(0)
    for _ in range(TRIALS):
        given = [_random(rng, b) for b in meaning.params]
        expected, found = ([a.copy() for a in given] for _ in range(2))
        try:
            interp.run(model, expected)
            interp.run(made, found)
        except VerifyError as e:
            raise ScheduleError(f"{what}: {e}") from e
        for b, x, y in zip(meaning.params, expected, found, strict=True):
            if b.dtype.startswith("float"):
                same = np.allclose(x, y, rtol=1e-2 if b.dtype == "float16" else 1e-5, atol=1e-5)
            else:
                same = np.array_equal(x, y)
            if not same:
                reduces = "" if block.reducer is None else ", which accumulates in what is there"
                raise ScheduleError(
                    f"{what}: the implementation computes another {b.name} than its meaning"
                    f"{reduces}"
                )


def _random(rng: Any, b: Buffer) -> Any:
    kind = dtypes.array_dtype(b.dtype)
    if b.dtype == "bfloat16":
        return dtypes.from_float32(rng.random(b.shape, "float32"))
    if dtypes.is_float(b.dtype):
        return rng.random(b.shape).astype(kind)
    return rng.integers(0, 2 if b.dtype == "bool" else 100, b.shape).astype(kind)
