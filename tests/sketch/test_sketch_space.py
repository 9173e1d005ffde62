"""Spaces and populations: shapes, canonical decisions, sampling that never spins, small spaces."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.errors import TuningError
from autosched.schedule import Trace
from autosched.search.evaluate import legal
from autosched.sketch.decisions import TileSpec
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Population, Space, Variant
from autosched.target import Target
from autosched.workloads import prim_func_of

TARGET = Target("llvm -mcpu=znver5 -num-cores=2")


def space_of(name: str, *args: object) -> Space:
    return generate_space(prim_func_of(name, args), TARGET)


@pytest.fixture(scope="module")
def gmm() -> Space:
    return space_of("matmul_add", 1024, 1024, 1024)


@pytest.mark.parametrize("role", ["vector", "rows", "reduce", "outer"])
@pytest.mark.parametrize("extent", [1, 2, 7, 16, 97, 1024, 1 << 20])
def test_repaired_factors_cover_the_extent_and_are_stable(role: str, extent: int) -> None:
    spec = TileSpec("b", "i", ("i.1", "i.2", "i.3"), extent, role, 16, (1, 1, 1))  # type: ignore[arg-type]
    factors = np.random.default_rng(0).integers(1, 2 * extent + 40, size=(200, 3))
    fixed = spec.repair(factors)
    assert (fixed >= 1).all()
    assert (fixed <= np.maximum(extent, 1)).all()
    assert (spec.repair(fixed) == fixed).all()


def test_population_is_frozen_and_shape_checked(gmm: Space) -> None:
    p = gmm.sample(np.random.default_rng(0), 8)
    with pytest.raises(ValueError, match="read-only"):
        p.values[0, 0] = 3
    with pytest.raises(TuningError, match="needs values of that shape"):
        Population(p.names, p.variant, p.values[:4].copy())
    with pytest.raises(TuningError, match="int64"):
        Population(p.names, p.variant, p.values.astype(np.int32))


def test_decisions_of_other_variants_are_zero_and_rows_name_candidates(gmm: Space) -> None:
    p = gmm.sample(np.random.default_rng(1), 200)
    assert ((p.values == 0) == ~gmm.used[p.variant]).all()
    again = gmm.population([gmm.candidate(p, k) for k in range(len(p))])
    assert again.keys() == p.keys()


@pytest.mark.parametrize("step", ["sample", "mutate", "crossover"])
def test_steps_keep_candidates_canonical_and_are_deterministic(gmm: Space, step: str) -> None:
    def run() -> Population:
        rng = np.random.default_rng(3)
        a, b = gmm.sample(rng, 300), gmm.sample(rng, 300)
        if step == "sample":
            return a
        return gmm.mutate(a, rng, 0.2) if step == "mutate" else gmm.crossover(a, b, rng)

    p = run()
    assert p.keys() == run().keys()
    for spec in gmm.specs:
        columns = gmm.columns_of(spec)
        rows = gmm.used[p.variant][:, columns].all(axis=1)
        values = p.values[np.ix_(rows, columns)]
        assert (spec.repair(values) == values).all()


def test_mutation_and_crossover_reach_other_candidates(gmm: Space) -> None:
    rng = np.random.default_rng(4)
    a, b = gmm.sample(rng, 300), gmm.sample(rng, 300)
    changed = gmm.mutate(a, rng, 0.1)
    assert sum(x != y for x, y in zip(a.keys(), changed.keys(), strict=True)) > 200
    assert len(set(changed.variant.tolist())) > 1
    children = gmm.crossover(a, b, rng)
    assert (children.variant == a.variant).all()
    assert (children.values != a.values).any(axis=1).mean() > 0.2


def test_winning_register_tiles_are_favoured_and_the_rest_is_not_forbidden(gmm: Space) -> None:
    p = gmm.sample(np.random.default_rng(5), 4000)
    rows = p.values[:, gmm.column["matmul.vi.3"]]
    vectors = -(-p.values[:, gmm.column["matmul.vj.3"]] // 16)
    winners = (rows * vectors >= 12) & (vectors >= 2) & (rows * vectors + vectors + 1 <= 32)
    assert winners.mean() > 0.3
    assert (~winners).mean() > 0.1
    assert (1024 % rows != 0).mean() > 0.2  # tiles need not divide


def test_neighbours_differ_from_the_candidate_and_from_each_other(gmm: Space) -> None:
    start = gmm.default()
    near = gmm.neighbours(start)
    keys = near.keys()
    assert len(keys) == len(set(keys)) >= 20
    assert gmm.population([start]).keys()[0] not in keys
    assert legal(gmm, near).any()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("matmul_add", (1, 1, 1)),
        ("matmul_add", (1, 64, 3)),
        ("matmul", (127, 131, 13)),
        ("matmul", (8, 1 << 20, 8)),
        ("conv2d", (7, 5, 3, 6, 3, 2, 1)),
        ("softmax", (1, 1)),
        ("softmax", (3, 1 << 20)),
    ],
)
def test_there_is_always_a_legal_candidate(name: str, args: tuple[int, ...]) -> None:
    space = space_of(name, *args)
    p = space.sample(np.random.default_rng(0), 128)
    assert legal(space, p).any()
    assert legal(space, space.population([space.default()])).all()


def test_small_spaces_are_enumerated_once_each() -> None:
    space = space_of("softmax", 8, 64)
    whole = space.enumerate(4096)
    assert whole is not None
    assert len(set(whole.keys())) == len(whole)
    drawn = space.sample(np.random.default_rng(0), 2000)
    assert set(drawn.keys()) <= set(whole.keys())
    assert space_of("matmul", 256, 256, 256).enumerate(4096) is None


def test_enumeration_of_a_tile_is_complete() -> None:
    spec = TileSpec("b", "i", ("i.1", "i.2"), 12, "rows", 1, (1, 1))
    whole = spec.enumerate(1000)
    assert whole is not None
    every = np.array([(a, b) for a in range(1, 13) for b in range(1, 13)])
    assert {tuple(r) for r in spec.repair(every).tolist()} == {tuple(r) for r in whole.tolist()}
    assert spec.enumerate(3) is None


def test_variants_are_made_of_choices() -> None:
    """Those that all share are left out."""
    trace = Trace()
    names = ["step.one.packed+pad.inline", "step.one+pad.root", "step.shared.packed+pad.root"]
    func = prim_func_of("matmul", (4, 4, 4))
    space = Space(func, TARGET, [Variant(name, trace, ()) for name in names])
    columns = {tuple(c) for c in space.choices.T.tolist()}
    assert space.choices.shape == (3, 5)
    assert columns == {
        (True, True, False),  # step.one
        (False, False, True),  # step.shared
        (True, False, True),  # step.packed
        (True, False, False),  # pad.inline
        (False, True, True),  # pad.root
    }
    alone = Space(func, TARGET, [Variant("default", trace, ())])
    assert alone.choices.shape == (1, 0)


def test_unknown_variants_and_missing_decisions_are_named(gmm: Space) -> None:
    with pytest.raises(TuningError, match="variant 99"):
        gmm.population([(99, {})])
    with pytest.raises(TuningError, match=r"matmul\.vi\.1 of variant"):
        gmm.population([(0, {})])


def test_the_default_is_the_first_variant_at_its_defaults() -> None:
    func = prim_func_of("matmul_add", (64, 64, 64))
    space = generate_space(func, TARGET)
    assert (
        space.schedule(*space.default()).func.script()
        == default_schedule(func, TARGET).func.script()
    )
