"""The free integers of a variant, and how columns of them are drawn, repaired and enumerated.

Two kinds: the tile factors of one axis (`TileSpec`) and one of a few values (`ChoiceSpec`). All
functions work on int64 columns of shape (N,) or (N, levels): one number a candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal, Union

import numpy as np
import numpy.typing as npt

from autosched.tir.affine import IntArray

Mask = npt.NDArray[np.bool_]
Role = Literal[
    "vector",
    "rows",
    "reduce",
    "outer",
    "tile",
    "steps",
    "threads",
    "lanes",
    "warps",
    "groups",
    "terms",
]
DRAWS = 6
"""Factors drawn for one place, of which one with little waste is kept."""
WASTE_SCALE = 0.04
"""Share of padded work at which a factor is e times less likely."""
WIDTHS = (1, 2, 3, 4, 6, 8)
WIDTH_WEIGHTS = (0.10, 0.38, 0.12, 0.28, 0.06, 0.06)
"""How many vectors the vector axis of a register tile takes: two to four win (Kazushige Goto's
argument: enough independent multiply-adds for one load of each operand)."""


COPIES = (1, 2, 4, 8)
COPY_WEIGHTS = (0.55, 0.2, 0.15, 0.1)
"""Copies of a reduction in the register tile; a short one is often written out whole."""
MAX_TAPS = 8
"""Extent up to which a reduction counts as short."""
CODE_VECTORS = 224
"""Vector instructions in one register tile that samples keep to."""
MOST_INNER = {"rows": 16, "reduce": MAX_TAPS, "tile": 16, "steps": MAX_TAPS}
MOST_INNER |= {"lanes": 8, "warps": 16, "groups": 32, "terms": 8}
"""Of innermost factors that mutations draw, by role; the extent for others."""


@dataclass(frozen=True)
class TileSpec:
    """Tile factors of one axis of `block`, outermost level derived.

    `names` are the decisions from the outer to the inner level; the level outside of them has
    `ceil(extent / product)` iterations. `role` says what the innermost level becomes: "vector" (in
    lanes of `lanes` elements), "rows" (unrolled), "reduce" (copies of the reduction, unrolled),
    "outer" (serial). On GPUs: "tile" (elements of a thread, unrolled; the level before the last but
    one is its threads), "steps" (terms of a reduction, unrolled), "threads", "lanes" (a vector);
    on tensor cores: "warps" or "groups" (of four warps; then products of one), "terms" (of a fetch,
    unrolled).
    Vector and row levels of one block share its registers: `registers` of their own, such as those
    of tiles, or else the target's vector registers. `default` is what the default schedule takes.
    """

    block: str
    axis: str
    names: tuple[str, ...]
    extent: int
    role: Role
    lanes: int = 1
    default: tuple[int, ...] = ()
    registers: int | None = None

    def repair(self, factors: IntArray) -> IntArray:
        """Columns (N, levels) made canonical: within the extent, and no larger than the trip
        counts need.

        Shrinking a factor to `ceil(rest / ceil(rest / factor))` keeps the number of iterations
        outside and lessens the overhang; the vector level stays a multiple of its lanes if it was.
        """
        out = np.empty_like(factors)
        rest = np.full(len(factors), self.extent, dtype=np.int64)
        inside = np.ones_like(rest)
        for level in range(len(self.names) - 1, -1, -1):
            f = np.clip(factors[:, level], 1, rest)
            if self.role in ("warps", "groups"):  # no warp has a part in what is not there alone
                f = np.minimum(f, np.maximum(self.extent // inside, 1))
            trips = -(-rest // f)
            tight = -(-rest // trips)
            if self.role == "vector" and level == len(self.names) - 1:
                whole = -(-tight // self.lanes) * self.lanes
                tight = np.where((factors[:, level] % self.lanes == 0) & (whole <= f), whole, tight)
            out[:, level] = tight
            inside = inside * tight
            rest = -(-rest // tight)
        return out

    def sample_inner(self, rng: np.random.Generator, cap: IntArray) -> IntArray:
        """Innermost factors, at most `cap` each (shape (N,), at least 1)."""
        n = len(cap)
        if self.role == "vector":
            wide = rng.choice(WIDTHS, size=n, p=WIDTH_WEIGHTS) * self.lanes
            odd = rng.integers(1, 4 * self.lanes + 1, size=n)
            return np.minimum(np.where(rng.random(n) < 0.05, odd, wide), self.extent)
        if self.role == "reduce":
            few: IntArray = rng.choice(COPIES, size=n, p=COPY_WEIGHTS)
            if self.extent <= MAX_TAPS:
                few = np.where(rng.random(n) < 0.6, self.extent, few)
            found: IntArray = np.minimum(few, np.minimum(cap, self.extent))
            return found
        return draw_factor(rng, np.full(n, self.extent), np.minimum(cap, self.extent))

    def sample_outer(self, rng: np.random.Generator, inner: IntArray) -> IntArray:
        """All levels (N, levels) around the innermost factors `inner`."""
        n, levels = len(inner), len(self.names)
        out = np.ones((n, levels), dtype=np.int64)
        out[:, -1] = inner
        rest = -(-self.extent // inner)
        for level in range(levels - 2, -1, -1):
            f = draw_factor(rng, rest, rest)
            if self.role == "reduce":  # often all of it: a cut costs a store and a load
                whole = rng.random(n) < (0.6 if self.extent <= 16 else 0.35)
                f = np.where(whole, rest, f)
            else:
                f = np.where(rng.random(n) < 0.25, 1, f)
            out[:, level] = f
            rest = -(-rest // f)
        return out

    def enumerate(self, limit: int) -> IntArray | None:
        """Every canonical choice, shape (M, levels), or None if there are more than `limit`."""
        partial: list[tuple[int, ...]] = [()]
        for level in range(len(self.names) - 1, -1, -1):
            longer: set[tuple[int, ...]] = set()
            for inner in partial:
                rest = self.extent
                for f in reversed(inner):
                    rest = -(-rest // f)
                options = np.ones((rest, len(self.names)), dtype=np.int64)
                options[:, level] = np.arange(1, rest + 1)
                options[:, level + 1 :] = inner
                longer |= {tuple(row) for row in self.repair(options)[:, level:].tolist()}
                if len(longer) > limit:
                    return None
            partial = sorted(longer)
        return np.array(partial, dtype=np.int64).reshape(-1, len(self.names))


@dataclass(frozen=True)
class ChoiceSpec:
    """One integer of `values`, drawn with equal probability; the first is the default."""

    block: str
    name: str
    values: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The one decision."""
        return (self.name,)

    @property
    def default(self) -> tuple[int, ...]:
        """The first value."""
        return self.values[:1]

    def repair(self, factors: IntArray) -> IntArray:
        """Columns (N, 1) moved to the nearest value allowed."""
        allowed = np.array(self.values, dtype=np.int64)
        nearest = np.abs(factors[:, :1] - allowed[None, :]).argmin(axis=1)
        repaired: IntArray = allowed[nearest][:, None]
        return repaired

    def enumerate(self, limit: int) -> IntArray | None:
        """Every value, shape (M, 1)."""
        if len(self.values) > limit:
            return None
        return np.array(self.values, dtype=np.int64)[:, None]


DecisionSpec = Union[TileSpec, ChoiceSpec]


def draw_factor(rng: np.random.Generator, extent: IntArray, cap: IntArray) -> IntArray:
    """One factor in [1, cap] for each row, log-uniform, favouring those that waste little of
    `extent`."""
    n = len(extent)
    top = np.maximum(cap, 1).astype(np.float64)
    f = np.floor(np.exp(rng.random((DRAWS, n)) * np.log(top + 1.0))).astype(np.int64)
    f = np.clip(f, 1, np.maximum(cap, 1))
    trips = -(-extent // f)
    f = -(-extent // trips)
    waste = f * trips / np.maximum(extent, 1) - 1.0
    # Gumbel noise turns the arg max into a draw with weights exp(-waste / scale).
    score = rng.gumbel(size=(DRAWS, n)) - waste / WASTE_SCALE
    drawn: IntArray = f[score.argmax(axis=0), np.arange(n)]
    return drawn


def sample_block(
    specs: tuple[DecisionSpec, ...], rng: np.random.Generator, n: int, registers: int
) -> dict[str, IntArray]:
    """Columns of shape (n,) for all decisions of one block.

    The register tile is drawn first: its vector axis, then rows for what the `registers` leave
    (accumulators, one row of the streamed operand, one broadcast), larger tiles more often. A few
    candidates ignore the limit, so that nothing is forbidden. Takes one pass, whatever the extents.
    """
    columns: dict[str, IntArray] = {}
    vectors = np.ones(n, dtype=np.int64)
    tiles = [s for s in specs if isinstance(s, TileSpec)]
    inner: dict[str, IntArray] = {}
    for tile in tiles:
        if tile.role == "vector":
            inner[tile.axis] = tile.sample_inner(rng, np.full(n, tile.extent))
            vectors *= -(-inner[tile.axis] // tile.lanes)
    registers = min((s.registers for s in tiles if s.registers is not None), default=registers)
    room = np.maximum((registers - 1 - vectors) // vectors, 1)
    room = np.where(rng.random(n) < 0.04, 2 * room, room)
    budget = np.maximum(np.ceil(room * np.maximum(rng.random(n), rng.random(n))), 1).astype(
        np.int64
    )
    rows = [s for s in tiles if s.role == "rows"]
    # The innermost rows first, more often than not: their operands lie closer together.
    turn = rng.random(n) < 0.7
    filled = {s.axis: np.ones(n, dtype=np.int64) for s in rows}
    for order, chosen in ((rows[::-1], turn), (rows, ~turn)):
        left = budget.copy()
        for row in order:
            f = _near(rng, row.extent, left)
            filled[row.axis] = np.where(chosen, f, filled[row.axis])
            left = np.maximum(left // f, 1)
    inner.update(filled)
    code = CODE_VECTORS // vectors
    for f in filled.values():
        code = code // f
    for tile in reversed(tiles):
        if tile.role == "reduce":
            inner[tile.axis] = tile.sample_inner(rng, np.clip(code, 1, MAX_TAPS))
            code = code // inner[tile.axis]
    for spec in specs:
        if isinstance(spec, ChoiceSpec):
            columns[spec.name] = rng.choice(np.array(spec.values, dtype=np.int64), size=n)
            continue
        if spec.axis not in inner:
            inner[spec.axis] = spec.sample_inner(rng, np.full(n, spec.extent))
        levels = spec.repair(spec.sample_outer(rng, inner[spec.axis]))
        columns.update({name: levels[:, k] for k, name in enumerate(spec.names)})
    return columns


def _near(rng: np.random.Generator, extent: int, cap: IntArray) -> IntArray:
    """A factor of at most `cap`, most often close to it, favouring little waste."""
    n = len(cap)
    top = np.minimum(cap, extent)
    f = np.maximum(np.floor(top * (1.0 - 0.5 * rng.random((DRAWS, n)) ** 2)), 1).astype(np.int64)
    f[0] = np.maximum((top * rng.random(n)).astype(np.int64), 1)
    trips = -(-extent // f)
    f = -(-extent // trips)
    waste = f * trips / extent - 1.0
    score = rng.gumbel(size=(DRAWS, n)) - waste / WASTE_SCALE
    drawn: IntArray = f[score.argmax(axis=0), np.arange(n)]
    return drawn


def mutate_tile(spec: TileSpec, factors: IntArray, rng: np.random.Generator) -> IntArray:
    """Columns (N, levels), each row moved a step: a small factor passed from one level to another,
    a
    factor one up or down, or the whole axis drawn anew."""
    n, levels = factors.shape
    rows = np.arange(n)
    out = factors.copy()
    source = rng.integers(0, levels + 1, size=n)  # `levels` stands for the derived outermost level
    target = (source + rng.integers(1, levels + 1, size=n)) % (levels + 1)
    step = rng.choice([2, 2, 2, 3, 4, 8], size=n)
    moved = out.copy()
    has = source < levels
    at = np.minimum(source, levels - 1)
    moved[rows, at] = np.where(has, np.maximum(moved[rows, at] // step, 1), moved[rows, at])
    to = target < levels
    at = np.minimum(target, levels - 1)
    moved[rows, at] = np.where(to, moved[rows, at] * step, moved[rows, at])
    nudged = out.copy()
    unit = spec.lanes if spec.role == "vector" else 1
    level = rng.integers(0, levels, size=n)
    size = np.where(level == levels - 1, unit, 1) * rng.choice([-1, 1], size=n)
    nudged[rows, level] = np.maximum(nudged[rows, level] + size, 1)
    cap = np.full(n, MOST_INNER.get(spec.role, spec.extent))
    inner = np.where(rng.random(n) < 0.5, out[:, -1], spec.sample_inner(rng, cap))
    fresh = spec.sample_outer(rng, inner)
    kind: npt.NDArray[np.float64] = rng.random((n, 1))
    return spec.repair(np.where(kind < 0.55, moved, np.where(kind < 0.8, nudged, fresh)))


def cross_product(parts: list[IntArray]) -> IntArray:
    """Every combination of rows of the parts, side by side."""
    index = np.array(list(product(*(range(len(p)) for p in parts))), dtype=np.int64)
    return np.concatenate([p[index[:, k]] for k, p in enumerate(parts)], axis=1)
