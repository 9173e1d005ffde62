"""Search spaces: variants (structures) and populations of candidates (integers).

A population is one frozen, shape-checked struct: a variant index and a row of decisions a
candidate, over the union of all variants' decisions. Decisions are mapped between variants by
name, so sampling, mutation and crossover are NumPy over the whole matrix; only replaying groups
rows by variant.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import TuningError
from autosched.sketch.decisions import (
    DecisionSpec,
    Mask,
    TileSpec,
    cross_product,
    mutate_tile,
    sample_block,
)
from autosched.sketch.gpu_decisions import sample_gpu_block
from autosched.target import Target
from autosched.target.gpu import limits_of
from autosched.tir.affine import Int, IntArray
from autosched.tir.nodes import PrimFunc

if TYPE_CHECKING:
    from autosched.schedule import Schedule, Trace

Candidate = tuple[int, dict[str, int]]
"""A variant's index and its decisions by name."""


@dataclass(frozen=True)
class Variant:
    """A sketch with its structural choices made: a trace in which some integers are decisions."""

    name: str
    trace: Trace
    decisions: tuple[DecisionSpec, ...]

    @property
    def decision_names(self) -> tuple[str, ...]:
        """Names of all decisions, in order."""
        return tuple(n for spec in self.decisions for n in spec.names)


@dataclass(frozen=True, eq=False)
class Population:
    """N candidates of one space: `variant` (N,) and `values` (N, D), D the space's decisions.

    Decisions that a row's variant does not have are 0, so equal candidates are equal rows.
    """

    names: tuple[str, ...]
    variant: IntArray
    values: IntArray

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.variant), len(self.names)):
            raise TuningError(
                f"a population of {len(self.variant)} candidates with {len(self.names)} decisions "
                f"needs values of that shape, found {self.values.shape}"
            )
        for column in (self.variant, self.values):
            if column.dtype != np.int64:
                raise TuningError(f"a population holds int64, found {column.dtype}")
            column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.variant)

    def take(self, rows: IntArray | Mask) -> Population:
        """The candidates at `rows` (indices or a mask)."""
        return Population(self.names, self.variant[rows], self.values[rows])

    @staticmethod
    def concat(parts: Sequence[Population]) -> Population:
        """The candidates of all parts, in order."""
        return Population(
            parts[0].names,
            np.concatenate([p.variant for p in parts]),
            np.concatenate([p.values for p in parts]),
        )

    def groups(self) -> Iterator[tuple[int, IntArray]]:
        """(variant index, rows) for each variant that occurs."""
        for v in np.unique(self.variant).tolist():
            yield v, np.flatnonzero(self.variant == v)

    def keys(self) -> list[bytes]:
        """One hashable key a candidate; equal for equal candidates."""
        table = np.concatenate([self.variant[:, None], self.values], axis=1)
        return [row.tobytes() for row in table]

    def unique(self) -> IntArray:
        """Rows of the first of each candidate, in order."""
        table = np.ascontiguousarray(np.concatenate([self.variant[:, None], self.values], axis=1))
        view = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
        return np.sort(np.unique(view, return_index=True)[1])


class Space:
    """All candidates of a workload on a target."""

    def __init__(self, func: PrimFunc, target: Target, variants: Sequence[Variant]) -> None:
        if not variants:
            raise TuningError(f"no sketch was found for {func.name}")
        self.func = func
        self.target = target
        self.variants = tuple(variants)
        specs: dict[tuple[str, ...], DecisionSpec] = {}
        for variant in self.variants:
            for spec in variant.decisions:
                if specs.setdefault(spec.names, spec) != spec:
                    raise TuningError(f"variants disagree on the decision {', '.join(spec.names)}")
        self.specs = tuple(specs.values())
        self.names = tuple(n for spec in self.specs for n in spec.names)
        if len(set(self.names)) != len(self.names):
            raise TuningError(f"two decisions of {func.name} share a name: {', '.join(self.names)}")
        self.column = {name: k for k, name in enumerate(self.names)}
        self.kept: dict[Hashable, Any] = {}
        """What others compute of the space and keep as long as it lives."""
        self.used: Mask = np.array(
            [[n in set(v.decision_names) for n in self.names] for v in self.variants],
            dtype=np.bool_,
        ).reshape(len(self.variants), len(self.names))

    @cached_property
    def choices(self) -> Mask:
        """Which structural choices each variant is made of, (variants, choices): parts of its name,
        such as `pad.inline`. Those that all variants share are left out."""
        made = [_choices(v.name) for v in self.variants]
        every = sorted(set[str]().union(*made) - set[str].intersection(*made))
        return np.array([[c in m for c in every] for m in made], np.bool_).reshape(len(made), -1)

    @property
    def space(self) -> Space:
        """Itself: where a task is asked for its space, a space will do."""
        return self

    def columns_of(self, spec: DecisionSpec) -> IntArray:
        """Column indices of a spec's decisions."""
        return np.array([self.column[n] for n in spec.names], dtype=np.int64)

    def decisions(
        self, variant: int, population: Population, rows: IntArray
    ) -> dict[str, IntArray]:
        """Columns, by name, of the decisions that `variant` has."""
        return {
            name: np.ascontiguousarray(population.values[rows, self.column[name]])
            for name in self.variants[variant].decision_names
        }

    def replay(self, variant: int, columns: Mapping[str, Int]) -> PrimFunc:
        """The scheduled program of a variant; a population's if the columns are arrays."""
        return self.variants[variant].trace.apply(self.func, values=dict(columns)).func

    def trace(self, variant: int, values: Mapping[str, int]) -> Trace:
        """One candidate's trace, its decisions filled in."""
        return self.variants[variant].trace.bind(dict(values))

    def schedule(self, variant: int, values: Mapping[str, int]) -> Schedule:
        """One candidate's schedule. Raises ScheduleError if a primitive refuses."""
        return self.trace(variant, values).apply(self.func)

    def candidate(self, population: Population, row: int) -> Candidate:
        """One row as (variant, decisions)."""
        v = int(population.variant[row])
        names = self.variants[v].decision_names
        return v, {n: int(population.values[row, self.column[n]]) for n in names}

    def population(self, candidates: Sequence[Candidate]) -> Population:
        """Candidates as a population. Raises TuningError on unknown variants or missing
        decisions."""
        variant = np.zeros(len(candidates), dtype=np.int64)
        values = np.zeros((len(candidates), len(self.names)), dtype=np.int64)
        for row, (v, decisions) in enumerate(candidates):
            if not 0 <= v < len(self.variants):
                raise TuningError(
                    f"variant {v} is not one of the {len(self.variants)} of this space"
                )
            variant[row] = v
            for name in self.variants[v].decision_names:
                if name not in decisions:
                    raise TuningError(
                        f"the decision {name} of variant {self.variants[v].name} is missing"
                    )
                values[row, self.column[name]] = decisions[name]
        return Population(self.names, variant, values)

    def holds(self, candidates: Sequence[tuple[int, Mapping[str, int]]]) -> Mask:
        """Which of them, shape (N,), are candidates: all decisions there, and ones that may be."""
        found: Mask = np.array(
            [set(self.variants[v].decision_names) <= set(d) for v, d in candidates], dtype=np.bool_
        )
        rows = np.flatnonzero(found)
        given = self.population([(candidates[n][0], dict(candidates[n][1])) for n in rows.tolist()])
        right = self.repaired(given.variant, given.values)
        found[rows] = (right.values == given.values).all(axis=1)
        return found

    def default(self) -> Candidate:
        """The first variant with every decision at its default."""
        first = self.variants[0]
        return 0, {n: x for s in first.decisions for n, x in zip(s.names, s.default, strict=True)}

    def sample(
        self, rng: np.random.Generator, n: int, variants: IntArray | None = None
    ) -> Population:
        """`n` candidates, variants drawn evenly (of `variants`, if given); may repeat in small
        spaces."""
        return self.repaired(self._some(rng, n, variants), self._draw(rng, n))

    def mutate(
        self,
        population: Population,
        rng: np.random.Generator,
        structural: float = 0.1,
        variants: IntArray | None = None,
    ) -> Population:
        """Each row moved one step: one decision changed, or (with probability `structural`) the
        row carried over to another variant (of `variants`, if given), its decisions mapped by
        name."""
        n = len(population)
        variant, values = population.variant.copy(), population.values.copy()
        fresh = self._draw(rng, n)
        jump = rng.random(n) < structural
        if len(self.variants) > 1:
            variant[jump] = self._some(rng, int(jump.sum()), variants)
        values = np.where(self.used[population.variant], values, fresh)
        # One spec a row, drawn from those that the row's variant has.
        has = (
            np.stack([self.used[:, self.columns_of(s)[0]] for s in self.specs], axis=1)
            if self.specs
            else None
        )
        if has is not None:
            noise = rng.random((n, len(self.specs)))
            weight = np.array([4.0 if isinstance(s, TileSpec) else 1.0 for s in self.specs])
            chosen = np.where(has[variant], noise ** (1.0 / weight), -1.0).argmax(axis=1)
            for k, spec in enumerate(self.specs):
                rows = np.flatnonzero((chosen == k) & ~jump)
                if not len(rows):
                    continue
                at = np.ix_(rows, self.columns_of(spec))
                values[at] = (
                    mutate_tile(spec, values[at], rng) if isinstance(spec, TileSpec) else fresh[at]
                )
        return self.repaired(variant, values)

    def crossover(self, a: Population, b: Population, rng: np.random.Generator) -> Population:
        """Children of `a[n]` and `b[n]`: the variant of `a`, each axis's decisions from either."""
        if len(a) != len(b):
            raise TuningError(f"crossover of {len(a)} candidates with {len(b)}: expected as many")
        values = a.values.copy()
        shared = self.used[a.variant] & self.used[b.variant]
        for spec in self.specs:
            columns = self.columns_of(spec)
            take = (rng.random(len(a)) < 0.5) & shared[:, columns].all(axis=1)
            values[np.ix_(take, columns)] = b.values[np.ix_(take, columns)]
        return self.repaired(a.variant.copy(), values)

    def neighbours(self, candidate: Candidate) -> Population:
        """Every candidate one step away: a factor doubled, halved, one up or down; a choice's other
        values; every other variant with the same decisions (defaults where it has more)."""
        v, decisions = candidate
        base = self.population([candidate])
        rows: list[tuple[int, IntArray]] = []
        for spec in self.variants[v].decisions:
            columns = self.columns_of(spec)
            if isinstance(spec, TileSpec):
                steps = [
                    (k, f)
                    for k in range(len(columns))
                    for f in _steps(int(base.values[0, columns[k]]), spec)
                ]
            else:
                steps = [(0, x) for x in spec.values]
            for k, value in steps:
                row = base.values[0].copy()
                row[columns[k]] = value
                rows.append((v, row))
        full = base.values[0].copy()
        for spec in self.specs:
            for name, value in zip(spec.names, spec.default, strict=True):
                if name not in decisions:
                    full[self.column[name]] = value
        rows += [(w, full) for w in range(len(self.variants)) if w != v]
        if not rows:
            return base.take(np.zeros(0, dtype=np.int64))
        found = self.repaired(
            np.array([w for w, _ in rows], dtype=np.int64), np.stack([r for _, r in rows])
        )
        found = found.take(found.unique())
        own, keys = base.keys()[0], found.keys()
        return found.take(np.array([k != own for k in keys], dtype=np.bool_))

    def enumerate(self, limit: int) -> Population | None:
        """The whole space if it has at most `limit` candidates, else None."""
        parts: list[Population] = []
        total = 0
        known = {s.names: s.enumerate(limit) for s in self.specs}
        for v, variant in enumerate(self.variants):
            tables = [known[s.names] for s in variant.decisions]
            if any(t is None for t in tables):
                return None
            solid = [t for t in tables if t is not None]
            total += math.prod(len(t) for t in solid)
            if total > limit:
                return None
            rows = cross_product(solid) if solid else np.zeros((1, 0), dtype=np.int64)
            values = np.zeros((len(rows), len(self.names)), dtype=np.int64)
            values[:, [self.column[n] for n in variant.decision_names]] = rows
            parts.append(self.repaired(np.full(len(rows), v, dtype=np.int64), values))
        whole = Population.concat(parts)
        return whole.take(whole.unique())

    def _some(self, rng: np.random.Generator, n: int, variants: IntArray | None) -> IntArray:
        """Variant indices of shape (n,), drawn evenly."""
        every = np.arange(len(self.variants)) if variants is None else variants
        return every[rng.integers(0, len(every), size=n)]

    def _draw(self, rng: np.random.Generator, n: int) -> IntArray:
        values = np.zeros((n, len(self.names)), dtype=np.int64)
        for block in dict.fromkeys(s.block for s in self.specs):
            mine = tuple(s for s in self.specs if s.block == block)
            if self.target.is_gpu:
                columns = sample_gpu_block(mine, rng, n, limits_of(self.target))
            else:
                columns = sample_block(mine, rng, n, self.target.vector_registers)
            for name, column in columns.items():
                values[:, self.column[name]] = column
        return values

    def repaired(self, variant: IntArray, values: IntArray) -> Population:
        """Candidates of shape (N,) and (N, D) made canonical; decisions not of the variant are
        0."""
        values = values.copy()
        for spec in self.specs:
            columns = self.columns_of(spec)
            values[:, columns] = spec.repair(values[:, columns])
        return Population(self.names, variant, np.where(self.used[variant], values, 0))


def _steps(value: int, spec: TileSpec) -> list[int]:
    unit = spec.lanes if spec.role == "vector" and value % spec.lanes == 0 else 1
    return [x for x in (value * 2, value // 2, value + unit, value - unit) if x >= 1 and x != value]


def _choices(name: str) -> set[str]:
    """`step.one.packed+pad.inline` is made of `step.one`, `step.packed` and `pad.inline`."""
    blocks = [part.partition(".") for part in name.split("+")]
    return {f"{block}.{word}" for block, _, words in blocks for word in words.split(".")}
