"""Evolutionary search, ask/tell: what to measure next, given what has been measured.

Round r's proposals are a pure function of (seed, r, measurements of rounds <= r - 2 in slot
order), so
that proposing overlaps measuring, and resuming repeats nothing but the open round. The search
never sees a pool, a store or a clock.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from autosched.errors import TuningError
from autosched.integers import plain, settle
from autosched.search.model import CheckedModel, CostModel, Scores, Seconds
from autosched.sketch.space import Candidate, Population, Space
from autosched.tir.affine import IntArray

UNTOLD = frozenset({"cancelled", "device_lost"})
"""Statuses that say nothing of the candidate: nothing is learned from them."""


@dataclass(frozen=True)
class Measured:
    """One measurement as the search sees it. `seconds` is infinite unless `status` is "ok". What
    was not measured `here` is learned from, and may be proposed all the same."""

    round: int
    slot: int
    variant: int
    values: Mapping[str, int]
    status: str
    seconds: float
    here: bool = True


@dataclass(frozen=True)
class SearchParams:
    """How the search spends its time.

    `round_size` is the most candidates a round may have: all rounds but the last should have as
    many, since a round leaves out what the one before it may still be measuring.
    """

    round_size: int = 64
    population: int = 1024
    """Random candidates: drawn once for the seed, so that their figures are computed once."""
    offspring: int = 512
    """Candidates of each further generation."""
    generations: int = 3
    crossover: float = 0.3
    structural: float = 0.08
    fresh: float = 0.15
    measured_parents: int = 32
    eps_greedy: float = 0.05
    exhaustive_limit: int = 4096
    structures: int = 32
    """Variants drawn from at random: each costs a replay, however few rows it has."""
    survivors: int = 4
    """Variants, the best ones, that have offspring."""
    untried: float = 0.5
    """Share of a round that may go to variants that were not tried yet, one each: every second slot
    if it is a half."""
    untried_until: int = 32
    """Candidates after which no round has such ones any more."""
    crowd: float = 0.25
    """Share of a round that may have the same variant and register tile."""
    near: float = 0.1
    """Share of a round that goes to what is one or two decisions away from the best measured."""
    explore: float = 0.4
    """Share of a round that goes to what may be best: its score and `optimism` times its doubt."""
    optimism: float = 1.0
    """Standard deviations by which a candidate may be better than its score."""
    doubted: int = 512
    """Candidates, the best by their scores, of which that is asked."""
    doubted_each: int = 8
    """The best candidates of each variant, of which it is asked as well."""
    centres: int = 4
    """Candidates, the best measured, whose neighbourhood that is."""
    pairs: int = 256
    """Candidates two decisions away that are looked at."""

    def __post_init__(self) -> None:
        settle(self, TuningError, **_LEAST)
        for name in _SHARES:
            x = plain(getattr(self, name))
            if isinstance(x, bool) or not isinstance(x, (int, float)) or not 0 <= x <= 1:
                raise TuningError(f"{name} is {x!r}; expected a share from 0 to 1")
        if self.crossover + self.fresh > 1:
            raise TuningError(
                f"crossover and fresh are {self.crossover} and {self.fresh} of the offspring; "
                "expected no more than 1 together"
            )


_LEAST = {
    "round_size": 1,
    "population": 1,
    "offspring": 1,
    "generations": 1,
    "measured_parents": 0,
    "exhaustive_limit": 0,
    "structures": 1,
    "survivors": 1,
    "centres": 1,
    "pairs": 0,
    "doubted": 0,
    "doubted_each": 0,
    "untried_until": 0,
}
_SHARES = ("crossover", "structural", "fresh", "eps_greedy", "untried", "crowd", "near", "explore")


@dataclass(frozen=True)
class Pool:
    """Distinct legal candidates that a round is chosen from, best first, and their scores."""

    candidates: Population
    scores: Scores

    @staticmethod
    def of(population: Population, scores: Scores) -> Pool:
        """Those that are legal."""
        order = np.argsort(-scores, kind="stable")
        order = order[np.isfinite(scores[order])]
        return Pool(population.take(order), scores[order])

    def without(self, taken: set[bytes]) -> Pool:
        """The others."""
        keys = self.candidates.keys()
        free = np.array([n for n, k in enumerate(keys) if k not in taken], dtype=np.int64)
        return Pool(self.candidates.take(free), self.scores[free])


_log = logging.getLogger(__name__)

MEASURED = "the whole space has been measured"


class EvolutionarySearch:
    """Proposes candidates of `space` by `model`'s scores. `model` is left as it is: it is refitted
    from the history in every round."""

    def __init__(
        self,
        space: Space,
        model: CostModel | CheckedModel,
        seed: int = 0,
        params: SearchParams | None = None,
    ) -> None:
        self.space = space
        self.model = model if isinstance(model, CheckedModel) else CheckedModel(model)
        self.seed = seed
        self.params = params or SearchParams()
        self.why_none = MEASURED
        """What it means where there is nothing to propose."""
        self._whole = space.enumerate(self.params.exhaustive_limit)
        self._inner = _inner_columns(space)
        self._memo: dict[tuple[int, tuple[object, ...]], tuple[list[bytes], Population]] = {}

    def sample(self, n: int) -> Population:
        """`n` random candidates of the seed, without those that came up before."""
        lot = np.random.default_rng(np.random.SeedSequence([self.seed]))
        found = self.space.sample(lot, n)
        return found.take(found.unique())

    def propose(self, round: int, n: int, history: Sequence[Measured]) -> list[Candidate]:
        """The `n` candidates of a round, fewer if the space has no more; none was ever proposed
        before.

        Only measurements of rounds <= round - 2 are used; the rest may be there or not. Raises
        TuningError if n exceeds the round size.
        """
        if n > self.params.round_size:
            raise TuningError(
                f"round {round} asks for {n} candidates, more than the round size "
                f"{self.params.round_size}"
            )
        found = self._ranked(round, history)
        return [self.space.candidate(found, k) for k in range(min(n, len(found)))]

    def _ranked(self, round: int, history: Sequence[Measured]) -> Population:
        """The candidates of a full round. A smaller round is a prefix of it."""
        seen = sorted((h for h in history if h.round <= round - 2), key=lambda h: (h.round, h.slot))
        key = (round, tuple((h.round, h.slot, h.seconds) for h in seen))
        known = self._memo.get(key)
        if known is not None:
            return known[1]
        measured = self.space.population([(h.variant, dict(h.values)) for h in seen])
        taken = {k for k, h in zip(measured.keys(), seen, strict=True) if h.here}
        tried = measured.variant[[h.status not in UNTOLD for h in seen]]
        pending = measured.take(np.zeros(0, np.int64))
        if round >= 1:
            pending = self._proposed(round - 1, history)
            taken |= set(pending.keys())
            tried = np.union1d(tried, pending.variant)
        seconds = np.array(
            [h.seconds if h.status == "ok" else np.inf for h in seen], dtype=np.float64
        )
        told = np.flatnonzero([h.status not in UNTOLD for h in seen])
        model = self.model
        if len(told):
            model = model.fit(self.space, measured.take(told), seconds[told])
        rng = np.random.default_rng(np.random.SeedSequence([self.seed, round]))
        close = self._close(self._parents(measured, seconds), rng)
        pool = self._pool(model, measured, seconds, close, rng)
        self.why_none = MEASURED
        if not len(pool.candidates):
            self.why_none = (
                f"the cost model {model.name} gives minus infinity to every candidate, which says "
                "that none is worth building"
            )
            _log.warning("%s", self.why_none)
        late = round * self.params.round_size >= self.params.untried_until
        tried = np.arange(len(self.space.variants)) if late else tried
        pool = pool.without(taken)
        hopes = Hopes(self.space, model, pool, pending, self.params)
        found = self._choose(pool, hopes, set(close.keys()), tried, rng)
        abroad = measured.take(_best_abroad(seen, seconds))
        if not set(abroad.keys()) <= taken | set(found.keys()):
            # Whatever the model thinks of it: the best known elsewhere is a bar for what is here.
            found = Population.concat([abroad, found]).take(np.arange(len(found) or 1))
        self._memo = {k: v for k, v in self._memo.items() if k[0] >= round - 1}
        self._memo[key] = (found.keys(), found)
        return found

    def _proposed(self, round: int, history: Sequence[Measured]) -> Population:
        """The candidates of a round: those that were measured, where all of them were, so that a
        search that goes on after a thousand rounds does not make these again."""
        of_round = {h.slot: h for h in history if h.round == round and h.here}
        slots = range(self.params.round_size)
        if any(slot not in of_round for slot in slots):
            return self._ranked(round, history)
        in_order = (of_round[slot] for slot in slots)
        return self.space.population([(h.variant, dict(h.values)) for h in in_order])

    def _pool(
        self,
        model: CheckedModel,
        measured: Population,
        seconds: Seconds,
        close: Population,
        rng: np.random.Generator,
    ) -> Pool:
        """The whole space if it is small, else what evolved."""
        if self._whole is not None:
            return Pool.of(self._whole, model.predict(self.space, self._whole))
        p = self.params
        parents = self._parents(measured, seconds)
        current = self._first(parents, close, rng)
        archive: list[tuple[Population, Scores]] = []
        for generation in range(p.generations):
            current = current.take(current.unique())
            scores = model.predict(self.space, current)
            archive.append((current, scores))
            if generation == p.generations - 1:
                break
            current = self._offspring(current, scores, rng)
        everything = Population.concat([a for a, _ in archive])
        scores = np.concatenate([s for _, s in archive])
        first = everything.unique()
        return Pool.of(everything.take(first), scores[first])

    def _parents(self, measured: Population, seconds: Seconds) -> Population:
        order = np.argsort(seconds, kind="stable")[: self.params.measured_parents]
        return measured.take(order[np.isfinite(seconds[order])])

    def _close(self, parents: Population, rng: np.random.Generator) -> Population:
        """What is one decision away from the best measured, and some of what is two away."""
        p = self.params
        centres = parents.take(np.arange(min(p.centres, len(parents))))
        if not len(centres):
            return centres
        each = [self.space.candidate(centres, k) for k in range(len(centres))]
        one = Population.concat([self.space.neighbours(c) for c in each])
        one = one.take(np.isin(one.variant, centres.variant))
        if p.pairs and len(one):
            picks = one.take(rng.integers(0, len(one), p.pairs))
            one = Population.concat([one, self.space.mutate(picks, rng, 0.0)])
        return one.take(one.unique())

    def _first(
        self, parents: Population, close: Population, rng: np.random.Generator
    ) -> Population:
        """The seed's random candidates; mutants of the best measured, and what is close to the very
        best."""
        p = self.params
        lot = np.random.default_rng(np.random.SeedSequence([self.seed]))
        structures = lot.permutation(len(self.space.variants))[: p.structures]
        parts = [self.space.sample(lot, p.population, structures)]
        if len(parents):
            proven = np.unique(parents.variant[: p.measured_parents])[: p.survivors]
            parts.append(close)
            picks = rng.integers(0, len(parents), size=p.offspring)
            others = rng.integers(0, len(self.space.variants), size=1)
            variants = np.union1d(proven, others)
            parts.append(self.space.mutate(parents.take(picks), rng, p.structural, variants))
        return Population.concat(parts)

    def _offspring(
        self, current: Population, scores: Scores, rng: np.random.Generator
    ) -> Population:
        """The next generation: the elite's children by mutation and crossover, and fresh blood, all
        of the variants that have the best candidates."""
        p = self.params
        order = np.argsort(-scores, kind="stable")
        order = order[np.isfinite(scores[order])]
        if not len(order):
            return self.space.sample(rng, p.offspring)
        ranked = current.variant[order]
        _, first = np.unique(ranked, return_index=True)
        variants = ranked[np.sort(first)[: p.survivors]]
        order = order[np.isin(ranked, variants)]
        fresh = int(p.offspring * p.fresh)
        crossed = int(p.offspring * p.crossover)
        mutated = p.offspring - fresh - crossed
        chosen = order[_roulette(len(order), rng, mutated + 2 * crossed)]
        parts = [
            self.space.mutate(current.take(chosen[:mutated]), rng, p.structural, variants),
            self.space.crossover(
                current.take(chosen[mutated : mutated + crossed]),
                current.take(chosen[mutated + crossed :]),
                rng,
            ),
            self.space.sample(rng, fresh, variants),
        ]
        return Population.concat(parts)

    def _choose(
        self,
        pool: Pool,
        hopes: Hopes,
        close: set[bytes],
        tried: IntArray,
        rng: np.random.Generator,
    ) -> Population:
        """Slot by slot one that is new: the best of a variant that is not among `tried`, the best
        by its score, the best by what it may turn out to be, the best of what is `close` to the
        best measured, or any. The second and the third leave room for other kinds.

        A model that has seen nothing of a structure may be wrong about all of it."""
        p, free = self.params, len(pool.candidates)
        limit = max(1, int(p.round_size * p.crowd))
        near = [n for n, k in enumerate(pool.candidates.keys()) if k in close]
        variants, first = np.unique(pool.candidates.variant, return_index=True)
        firsts = np.sort(first[~np.isin(variants, tried)]).tolist()
        used: dict[int, None] = {}
        crowd: Counter[bytes] = Counter()

        def roomy(n: int) -> bool:
            return crowd.get(self._kind(pool.candidates, n), 0) < limit

        for slot, (kind, place) in enumerate(rng.random((min(p.round_size, free), 2)).tolist()):
            waiting = [n for n in firsts if n not in used]
            order: Iterable[int]
            if waiting and int((slot + 1) * p.untried) > int(slot * p.untried):
                order = waiting
            elif kind < p.eps_greedy:
                start = int(place * free)
                order = chain(range(start, free), range(start))
            elif kind < p.eps_greedy + p.near and not used.keys() >= set(near):
                order = near
            else:
                ranked = hopes.order() if kind >= 1.0 - p.explore else range(free)
                order = chain((n for n in ranked if n not in used and roomy(n)), ranked)
            pick = next(n for n in order if n not in used)
            used[pick] = None
            crowd[self._kind(pool.candidates, pick)] += 1
            hopes.expect(pick)
        return pool.candidates.take(np.array(list(used), dtype=np.int64))

    def _kind(self, pool: Population, row: int) -> bytes:
        inner: bytes = pool.values[row, self._inner].tobytes()
        return inner + int(pool.variant[row]).to_bytes(8, "little")


class Hopes:
    """What the candidates of a pool may turn out to be: their scores and so many standard
    deviations, of the best only. What is `pending` counts as measured, and so does what is going to
    be: its like is in less doubt, so that a round's candidates tell of different things."""

    def __init__(
        self, space: Space, model: CheckedModel, pool: Pool, pending: Population, p: SearchParams
    ) -> None:
        self._scores, self._optimism = pool.scores, p.optimism
        rank = _rank_within(pool.candidates.variant)
        asked = np.flatnonzero(rank < p.doubted_each)
        self._asked = np.union1d(np.arange(min(p.doubted, len(rank))), asked)
        both = Population.concat([pool.candidates.take(self._asked), pending])
        self._doubts = model.doubts(space, both)
        for row in range(len(self._asked), len(both)):
            self._doubts.expect(row)

    def expect(self, row: int) -> None:
        """One of the pool is going to be measured."""
        place = int(np.searchsorted(self._asked, row))
        if self._asked[place : place + 1].tolist() == [row]:
            self._doubts.expect(place)

    def order(self) -> list[int]:
        """Rows of the pool, the most hopeful first."""
        found = self._scores.astype(np.float64)
        found[self._asked] += self._optimism * self._doubts.deviations[: len(self._asked)]
        order: list[int] = np.argsort(-found, kind="stable").tolist()
        return order


def _best_abroad(seen: Sequence[Measured], seconds: Seconds) -> IntArray:
    """Where in `seen` the fastest is of those that were not measured here, shape (1,); or (0,)."""
    found = [n for n, h in enumerate(seen) if not h.here and h.status == "ok"]
    return np.array(sorted(found, key=lambda n: float(seconds[n]))[:1], dtype=np.int64)


def _rank_within(groups: IntArray) -> IntArray:
    """How many before each are of its group, shape (N,)."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(groups) else order
    found = np.zeros(len(groups), np.int64)
    sizes = np.diff(np.r_[starts, len(groups)])
    found[order] = np.arange(len(groups)) - np.repeat(starts, sizes)
    return found


def _inner_columns(space: Space) -> IntArray:
    """Columns of the innermost spatial factors: the register tile."""
    found = [
        space.column[s.names[-1]]
        for s in space.specs
        if getattr(s, "role", "") in ("vector", "rows")
    ]
    return np.array(found, dtype=np.int64)


def _roulette(count: int, rng: np.random.Generator, draws: int) -> IntArray:
    """Ranks in [0, count), the best ones more often: squares of uniform numbers."""
    return np.minimum((rng.random(draws) ** 3 * count).astype(np.int64), count - 1)
