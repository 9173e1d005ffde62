"""Drawing decisions for GPUs: threads of a block first, then what a thread has for itself.

As in `decisions.py` all functions work on int64 columns of shape (N,): one number a candidate. What
they draw keeps to the limits in most cases and is forbidden nothing: what exceeds them is found
invalid by the analysis of the population.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.codegen.gpu.kernel import Limits
from autosched.sketch.decisions import ChoiceSpec, DecisionSpec, TileSpec, draw_factor
from autosched.tir.affine import IntArray

THREADS = (32, 64, 128, 256, 512, 1024)
THREAD_WEIGHTS = (0.1, 0.2, 0.3, 0.28, 0.09, 0.03)
TILES = (1, 2, 4, 8, 16, 32, 64)
TILE_WEIGHTS = (0.05, 0.05, 0.12, 0.2, 0.25, 0.2, 0.13)
"""Elements of a thread: sixteen to sixty-four multiply-adds for each pair of rows it loads."""
STEPS = (2, 4, 8, 16, 32, 64)
STEP_WEIGHTS = (0.08, 0.17, 0.3, 0.25, 0.14, 0.06)
"""Terms of a reduction that are fetched together."""
VIRTUAL = (1, 2, 4, 8)
VIRTUAL_WEIGHTS = (0.5, 0.25, 0.18, 0.07)
LANES = (1, 2, 4, 8)
LANE_WEIGHTS = (0.25, 0.2, 0.45, 0.1)
MAX_COPIES = 256
"""Elements of a thread times unrolled terms that samples keep to."""


def sample_gpu_block(
    specs: Sequence[DecisionSpec], rng: np.random.Generator, n: int, limits: Limits
) -> dict[str, IntArray]:
    """Columns of shape (n,) for all decisions of one block."""
    columns: dict[str, IntArray] = {}
    tiles = [s for s in specs if isinstance(s, TileSpec)]
    spatial = [s for s in tiles if s.role != "steps"]
    steps = [s for s in tiles if s.role == "steps"]
    for choice in specs:
        if isinstance(choice, ChoiceSpec):
            columns[choice.name] = rng.choice(np.array(choice.values, dtype=np.int64), size=n)
    threads = _draw(rng, n, THREADS, THREAD_WEIGHTS, limits.max_threads)
    tile = _draw(rng, n, TILES, TILE_WEIGHTS)
    virtual = np.minimum(_draw(rng, n, VIRTUAL, VIRTUAL_WEIGHTS), tile)
    lanes = _draw(rng, n, LANES, LANE_WEIGHTS)
    # A thread's elements first, those of the last axis of a flat kernel being a vector.
    room = [s.extent for s in spatial]
    own = _shared(rng, np.maximum(tile // virtual, 1), room)
    copies = np.ones(n, dtype=np.int64)
    inner: list[IntArray] = []
    for s, mine in zip(spatial, own, strict=True):
        if s.role == "tile":
            inner.append(mine)
            copies = copies * mine
        elif s.role == "lanes":
            inner.append(np.minimum(np.where(s.extent % lanes == 0, lanes, 1), s.extent))
        else:
            inner.append(np.ones(n, dtype=np.int64))
    rest = [-(-s.extent // x) for s, x in zip(spatial, inner, strict=True)]
    across = _shared(rng, threads, rest)
    rest = [-(-r // x) for r, x in zip(rest, across, strict=True)]
    apart = _shared(rng, virtual, rest)
    for s, x, t, v in zip(spatial, inner, across, apart, strict=True):
        if s.role == "tile":
            between = np.where(rng.random(n) < 0.25, draw_factor(rng, x, x), 1)
            levels = np.stack([v, t, between, -(-x // between)], axis=1)
        elif s.role == "lanes":
            levels = np.stack([t, x], axis=1)
        else:
            levels = t[:, None]
        levels = s.repair(levels)
        columns.update({name: levels[:, k] for k, name in enumerate(s.names)})
    together = _draw(rng, n, STEPS, STEP_WEIGHTS)
    for s, count in zip(steps, _shared(rng, together, [s.extent for s in steps]), strict=True):
        most = np.clip(MAX_COPIES // np.maximum(copies, 1), 1, count)
        unrolled = np.where(rng.random(n) < 0.5, 1, draw_factor(rng, count, np.minimum(most, 8)))
        copies = copies * unrolled
        levels = s.repair(np.stack([-(-count // unrolled), unrolled], axis=1))
        columns.update({name: levels[:, k] for k, name in enumerate(s.names)})
    return columns


def _draw(
    rng: np.random.Generator,
    n: int,
    values: Sequence[int],
    weights: Sequence[float],
    most: int | None = None,
) -> IntArray:
    """One of `values` for each candidate, none above `most`."""
    fits = [v for v in values if most is None or v <= most]
    allowed = np.array(fits or [min(values)], dtype=np.int64)
    chances = np.array(weights[: len(allowed)])
    drawn: IntArray = rng.choice(allowed, size=n, p=chances / chances.sum())
    return drawn


def _shared(
    rng: np.random.Generator, total: IntArray, extents: Sequence[int | IntArray]
) -> list[IntArray]:
    """`total` as a product of factors, one an extent and at most that: its logarithm cut at random,
    and what one axis cannot take left to the next, the last axis first."""
    n, count = len(total), len(extents)
    if not count:
        return []
    shares = rng.dirichlet(np.full(count, 0.6), size=n)
    wide = rng.random(n) < 0.35  # all of it along neighbouring elements
    shares[wide] = 0.0
    shares[wide, -1] = 1.0
    out = [np.ones(n, dtype=np.int64) for _ in extents]
    left = total.astype(np.int64)
    for turn in range(2):  # the second time each axis takes what is left
        for k in range(count - 1, -1, -1):
            extent = np.broadcast_to(np.asarray(extents[k], dtype=np.int64), (n,))
            room = np.maximum(extent // out[k], 1)
            wanted = left if turn else 2 ** np.round(np.log2(total) * shares[:, k]).astype(np.int64)
            f = np.minimum(np.minimum(wanted, left), room)
            out[k] = out[k] * np.maximum(f, 1)
            left = np.maximum(left // np.maximum(f, 1), 1)
    return out
