"""Evolutionary search: pure rounds, nothing twice, small spaces, learning from measurements."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autosched.errors import TuningError
from autosched.search.evaluate import legal
from autosched.search.evolution import EvolutionarySearch, Measured, SearchParams
from autosched.search.model import CostModel, Scores
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Candidate, Population, Space
from autosched.target import Target
from autosched.tir.affine import IntArray
from autosched.workloads import prim_func_of
from cost_model.random import RandomModel
from cost_model.xgb import BoostedModel

TARGET = Target("llvm -mcpu=znver5 -num-cores=2")
PARAMS = SearchParams(round_size=8, population=192, generations=3)


@pytest.fixture(scope="module")
def space() -> Space:
    return generate_space(prim_func_of("matmul_add", (512, 512, 512)), TARGET)


def pretended(candidate: Candidate) -> float:
    """Seconds of a made-up machine that likes 10 rows of 2 vectors, packed by each thread."""
    variant, v = candidate
    far = abs(np.log(v["matmul.vi.3"] / 10)) + abs(np.log(v["matmul.vj.3"] / 32))
    return float(
        1e-3 * (1 + far + 0.2 * (variant != 2) + 0.05 * abs(np.log(v["matmul.vk.1"] / 128)))
    )


def measure(round: int, proposed: list[Candidate]) -> list[Measured]:
    return [
        Measured(round, slot, v, values, "ok", pretended((v, values)))
        for slot, (v, values) in enumerate(proposed)
    ]


def tune(search: EvolutionarySearch, rounds: int) -> list[Measured]:
    history: list[Measured] = []
    for r in range(rounds):
        history += measure(r, search.propose(r, 8, history))
    return history


def keys(history: list[Measured]) -> list[tuple[object, ...]]:
    return [(h.round, h.slot, h.variant, *sorted(h.values.items())) for h in history]


@pytest.mark.parametrize("model", [BoostedModel(), RandomModel()])
def test_nothing_is_proposed_twice_and_everything_is_legal(space: Space, model: CostModel) -> None:
    history = tune(EvolutionarySearch(space, model, 0, PARAMS), 5)
    population = space.population([(h.variant, dict(h.values)) for h in history])
    assert len(population) == 40
    assert len(set(population.keys())) == 40
    assert legal(space, population).all()


def test_a_round_depends_on_the_seed_and_on_rounds_two_before(space: Space) -> None:
    history = tune(EvolutionarySearch(space, BoostedModel(), 7, PARAMS), 4)
    for r in range(4):
        for known in (history, [h for h in history if h.round <= r - 2], history[::-1]):
            fresh = EvolutionarySearch(space, BoostedModel(), 7, PARAMS)
            assert keys(measure(r, fresh.propose(r, 8, known))) == keys(
                [h for h in history if h.round == r]
            )
    other = EvolutionarySearch(space, BoostedModel(), 8, PARAMS).propose(0, 8, [])
    assert other != EvolutionarySearch(space, BoostedModel(), 7, PARAMS).propose(0, 8, [])


def test_a_smaller_round_is_a_prefix(space: Space) -> None:
    search = EvolutionarySearch(space, BoostedModel(), 0, PARAMS)
    assert search.propose(0, 3, []) == search.propose(0, 8, [])[:3]
    with pytest.raises(TuningError, match="round size 8"):
        search.propose(0, 9, [])


def test_the_first_rounds_try_every_structure() -> None:
    """Of which a model that has seen nothing of it may be wrong: one candidate each."""
    conv = generate_space(prim_func_of("conv2d", (7, 7, 64, 64, 3, 1, 1)), TARGET)
    every = set(range(len(conv.variants)))
    assert 8 < len(every) <= 16

    def tried(params: SearchParams, rounds: int) -> list[list[int]]:
        search = EvolutionarySearch(conv, BoostedModel(), 0, params)
        history: list[Measured] = []
        for r in range(rounds):
            proposed = search.propose(r, 8, history)
            history += [Measured(r, n, v, d, "ok", 1e-3) for n, (v, d) in enumerate(proposed)]
        return [[h.variant for h in history if h.round == r] for r in range(rounds)]

    rounds = tried(PARAMS, 4)
    assert set().union(*rounds) == every
    known: set[int] = set()
    for found in rounds:
        new = set(found[1::2]) - known
        assert len(new) == 4 or known | new == every
        known |= set(found)
    few = replace(PARAMS, untried=0.0, eps_greedy=0.0)
    assert len(set().union(*tried(few, 2))) < 8


class DoubtsOfVariants:
    """Each variant is in doubt until one of it is going to be measured."""

    def __init__(self, variant: IntArray) -> None:
        self.variant = variant
        self.deviations = np.ones(len(variant))

    def expect(self, row: int) -> None:
        self.deviations[self.variant == self.variant[row]] = 0.0


class DoubtfulModel(RandomModel):
    """Knows nothing of any candidate, and says so."""

    def predict(self, task: Any, population: Population) -> Scores:
        return np.zeros(len(population), np.float32)

    def fit(self, task: Any, population: Population, seconds: Any) -> CostModel:
        return self

    def doubts(self, task: Any, population: Population) -> DoubtsOfVariants:
        return DoubtsOfVariants(population.variant)


def test_candidates_of_a_round_and_of_the_one_before_tell_of_different_things() -> None:
    conv = generate_space(prim_func_of("conv2d", (7, 7, 64, 64, 3, 1, 1)), TARGET)
    params = replace(PARAMS, untried=0.0, eps_greedy=0.0, near=0.0, explore=1.0, round_size=4)
    search = EvolutionarySearch(conv, DoubtfulModel(), 0, params)
    rounds = [search.propose(r, 4, []) for r in range(2)]
    assert len({variant for proposed in rounds for variant, _ in proposed}) == 8


def test_a_long_run_goes_on_without_making_its_rounds_again(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,500 rounds that were measured none but the last one, which it may not know, is made."""
    rng = np.random.default_rng(0)
    drawn = space.sample(rng, 20_000)
    drawn = drawn.take(drawn.unique()[:12_000])
    each = [space.candidate(drawn, k) for k in range(len(drawn))]
    history = [
        Measured(k // 8, k % 8, v, d, "ok", pretended((v, d))) for k, (v, d) in enumerate(each)
    ]
    search = EvolutionarySearch(space, BoostedModel(), 0, PARAMS)
    made: list[int] = []
    ranked = EvolutionarySearch._ranked

    def counted(self: EvolutionarySearch, round: int, known: Any) -> Population:
        made.append(round)
        return ranked(self, round, known)

    monkeypatch.setattr(EvolutionarySearch, "_ranked", counted)
    proposed = search.propose(1500, 8, history)
    assert made == [1500]
    assert not {(v, *sorted(d.items())) for v, d in proposed} & {
        (v, *sorted(d.items())) for v, d in each
    }
    EvolutionarySearch(space, BoostedModel(), 0, PARAMS).propose(1500, 8, history[:-8])
    assert made == [1500, 1500, 1499]


def test_small_spaces_are_exhausted_and_then_nothing_is_proposed() -> None:
    small = generate_space(prim_func_of("softmax", (8, 64)), TARGET)
    whole = small.enumerate(4096)
    assert whole is not None
    search = EvolutionarySearch(small, BoostedModel(), 0, PARAMS)
    found: list[Measured] = []
    for r in range(len(whole) // 8 + 2):
        proposed = search.propose(r, 8, found)
        found += [Measured(r, s, v, d, "ok", 1e-3) for s, (v, d) in enumerate(proposed)]
    assert len(found) == int(legal(small, whole).sum())
    assert search.propose(len(whole), 8, found) == []


@pytest.mark.long
def test_measurements_correct_the_model(space: Space) -> None:
    """The made-up machine contradicts the model; with its measurements the search follows it: one
    search of three may be unlucky."""

    def best(model: CostModel, seed: int, rounds: int) -> float:
        history = tune(EvolutionarySearch(space, model, seed, PARAMS), rounds)
        return min(h.seconds for h in history)

    learned = [best(BoostedModel(), seed, 8) for seed in range(3)]
    early = [best(BoostedModel(), seed, 2) for seed in range(3)]
    blind = [best(RandomModel(), seed, 8) for seed in range(3)]
    assert np.median(learned) < np.median(early)
    assert np.median(learned) < np.median(blind)


def test_failures_are_learned_from(space: Space) -> None:
    search = EvolutionarySearch(space, BoostedModel(), 0, PARAMS)
    proposed = search.propose(0, 8, [])
    bad = [
        Measured(0, s, v, d, "run_timeout", float("inf"))
        if s < 4
        else Measured(0, s, v, d, "ok", 1e-3)
        for s, (v, d) in enumerate(proposed)
    ]
    population = space.population(proposed)
    seconds = np.array([h.seconds for h in bad])
    before = BoostedModel().predict(space, population)
    after = BoostedModel().fit(space, population, seconds).predict(space, population)
    shift = after - before
    assert shift[:4].max() < shift[4:].min()


@pytest.mark.parametrize("status", ["device_lost", "cancelled"])
def test_what_was_lost_says_nothing_of_its_candidate(space: Space, status: str) -> None:
    class Watched(RandomModel):
        told: list[int] = []  # noqa: RUF012

        def fit(self, task: Any, population: Population, seconds: Any) -> CostModel:
            self.told.append(len(population))
            return self

    search = EvolutionarySearch(space, Watched(), 0, PARAMS)
    history = measure(0, search.propose(0, 8, []))
    history[3:] = [replace(h, status=status, seconds=float("inf")) for h in history[3:]]
    proposed = search.propose(2, 8, history)
    assert Watched.told == [3]
    assert not [c for c in proposed if c in [(h.variant, h.values) for h in history]]


PROGRAM = """
from autosched.search.evolution import EvolutionarySearch, SearchParams
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.workloads import prim_func_of
from cost_model.xgb import BoostedModel
target = Target("llvm -mcpu=znver5 -num-cores=2")
space = generate_space(prim_func_of("matmul_add", (512, 512, 512)), target)
params = SearchParams(round_size=8, population=192, generations=3)
search = EvolutionarySearch(space, BoostedModel(), 3, params)
print(search.propose(0, 8, []), search.propose(1, 8, []))
"""


@pytest.mark.long
def test_proposals_are_the_same_in_another_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_the_best_predicted_matmuls_have_winning_tiles_and_packed_panels() -> None:
    big = generate_space(prim_func_of("matmul_add", (1024, 1024, 1024)), TARGET)
    search = EvolutionarySearch(
        big,
        BoostedModel(),
        0,
        SearchParams(round_size=16, eps_greedy=0.0, untried=0.0, explore=0.0),
    )
    for variant, values in search.propose(0, 16, []):
        vectors = -(-values["matmul.vj.3"] // 16)
        tile = values["matmul.vi.3"] * vectors
        assert 12 <= tile <= 28
        assert vectors >= 2
        assert "B." in big.variants[variant].name


def test_the_best_predicted_convolutions_have_winning_tiles() -> None:
    conv = generate_space(prim_func_of("conv2d", (56, 56, 64, 64, 3, 1, 1)), TARGET)
    search = EvolutionarySearch(
        conv,
        BoostedModel(),
        0,
        SearchParams(round_size=16, eps_greedy=0.0, untried=0.0, explore=0.0),
    )
    for _, values in search.propose(0, 16, []):
        vectors = -(-values["conv2d.vco.3"] // 16)
        rows = values["conv2d.vy.3"] * values["conv2d.vx.3"]
        assert 12 <= rows * vectors <= 28
        taps = values["conv2d.vrx.2"] * values["conv2d.vry.2"]
        assert vectors >= 2 or taps >= 3  # taps that slide over the same data load it once
