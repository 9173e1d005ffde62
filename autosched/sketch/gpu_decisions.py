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
WARPS = (1, 2, 4, 8, 16)
WARP_WEIGHTS = (0.05, 0.1, 0.4, 0.35, 0.1)
WARP_RESULTS = (2, 4, 8, 16, 32, 64)
WARP_RESULT_WEIGHTS = (0.05, 0.1, 0.2, 0.25, 0.35, 0.05)
"""Products of a warp: 32 have 128 registers of results."""
GROUP_COLUMNS = (4, 8, 12, 16, 24, 32)
GROUP_COLUMN_WEIGHTS = (0.05, 0.15, 0.1, 0.3, 0.15, 0.25)
"""Columns by 8 of a warpgroup: 32 have 128 registers of results."""
FETCHED = (1, 2, 4, 8)
FETCHED_WEIGHTS = (0.15, 0.35, 0.4, 0.1)
"""Products' terms that are fetched together."""
MAX_COPIES = 256
"""Elements of a thread times unrolled terms that samples keep to."""


def sample_gpu_block(
    specs: Sequence[DecisionSpec], rng: np.random.Generator, n: int, limits: Limits
) -> dict[str, IntArray]:
    """Columns of shape (n,) for all decisions of one block."""
    columns: dict[str, IntArray] = {}
    tiles = [s for s in specs if isinstance(s, TileSpec)]
    if any(s.role in ("warps", "groups") for s in tiles):
        return _sample_warps(specs, rng, n)
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


def _sample_warps(
    specs: Sequence[DecisionSpec], rng: np.random.Generator, n: int
) -> dict[str, IntArray]:
    """Columns of shape (n,) for a block on tensor cores: the results of a warp first, then warps,
    then the steps of a fetch."""
    columns: dict[str, IntArray] = {}
    for choice in specs:
        if isinstance(choice, ChoiceSpec):
            # The first value is nearly always the best.
            chance = np.where(np.arange(len(choice.values)) == 0, 2.0, 1.0)
            values = np.array(choice.values, dtype=np.int64)
            columns[choice.name] = rng.choice(values, size=n, p=chance / chance.sum())
    tiles = [s for s in specs if isinstance(s, TileSpec)]
    results = _draw(rng, n, WARP_RESULTS, WARP_RESULT_WEIGHTS)
    warps = _draw(rng, n, WARPS, WARP_WEIGHTS)
    terms = _draw(rng, n, FETCHED, FETCHED_WEIGHTS)
    for s in tiles:
        if s.role == "outer":  # rows that lie elsewhere: instead of some of the products
            own = np.where(rng.random(n) < 0.6, 1, np.minimum(2 ** rng.integers(1, 4, n), s.extent))
            results = np.maximum(results // own, 1)
            columns[s.names[0]] = s.repair(own[:, None])[:, 0]
        elif s.role == "terms":
            grouped = any(x.role == "groups" for x in tiles)
            taken = np.minimum(np.maximum(terms // 4, 1) if grouped else terms, s.extent)
            terms = np.maximum(terms // taken, 1)
            columns[s.names[0]] = s.repair(taken[:, None])[:, 0]
    both = [s for s in tiles if s.role in ("warps", "groups")]
    inner = _halved(rng, results, [s.extent for s in both])
    if both[0].role == "groups":
        # Few tall products, each of many columns.
        tall = np.minimum(_draw(rng, n, (1, 2, 4), (0.6, 0.35, 0.05)), both[0].extent)
        wide = _draw(rng, n, GROUP_COLUMNS, GROUP_COLUMN_WEIGHTS)
        unit = both[1].lanes
        inner = tall, np.minimum(np.maximum(wide // (tall * unit), 1), both[1].extent)
        warps = _draw(rng, n, (1, 2, 4), (0.35, 0.55, 0.1))
    across_both = _halved(rng, warps, [s.extent for s in both])
    for s, mine, across in zip(both, inner, across_both, strict=True):
        levels = s.repair(np.stack([across, mine], axis=1))
        columns.update({name: levels[:, k] for k, name in enumerate(s.names)})
    return columns


def _halved(
    rng: np.random.Generator, total: IntArray, extents: Sequence[int]
) -> tuple[IntArray, IntArray]:
    """`total`, powers of two, as a product of two factors about as large, the second one larger
    more often: products have twice as many rows as columns."""
    power = np.round(np.log2(total)).astype(np.int64)
    first = np.clip(power // 2 + rng.integers(-1, 2, size=len(total)), 0, power)
    one = np.minimum(2**first, extents[0])
    other = np.minimum(total // np.minimum(2**first, total), extents[1])
    return one, np.maximum(other, 1)


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
