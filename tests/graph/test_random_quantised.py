"""Random quantised networks: optimised and compiled, against the operators as they are imported."""

from __future__ import annotations

import numpy as np
import pytest
from random_quantised import network

from autosched import graph
from autosched.graph import passes

MOST = 2.0
"""Steps. Sums of integers are exact; what stands behind them differs by some 1e-7 of a number of
at most 255 steps, so that one number in 1e4 is rounded to a neighbour. A product passes such a
step on as less than one, and at most two meet."""
FEW = 0.02
"""The part of a result that may be another number, and the part that may be off by more than a
step is a tenth of it: as much as one such number changes in what depends on it."""


def check(seed: int) -> None:
    """One network, on one thread or two."""
    model = network(seed)
    module, given = graph.from_onnx(model.text), list(model.inputs.values())
    ready = passes.optimise(module)
    wanted = _all(graph.evaluate(module, "main", *given))
    evaluated = _all(graph.evaluate(ready, "main", *given))
    compiled = graph.build(module, target=f"llvm -num-cores={1 + seed % 2}")(*given)
    for name, found in (("evaluated", evaluated), ("compiled", compiled)):
        for n, (out, want) in enumerate(zip(found, wanted, strict=True)):
            assert out.shape == want.shape
            assert out.dtype == want.dtype
            steps = np.abs(out.astype("f8") - want.astype("f8")) / model.units[n]
            story = f"network {seed}, result {n} {name}: {steps.max():.2f} steps"
            assert steps.max() <= MOST + 0.01, story
            # Of few numbers one is a large part.
            assert (steps > 0.01).sum() <= max(FEW * steps.size, 2), story
            assert (steps > 1.01).sum() <= max(FEW / 10 * steps.size, 1), story


def _all(results) -> tuple:
    return results if isinstance(results, tuple) else (results,)


def test_results_are_of_many_numbers() -> None:
    """Scales fit: few numbers saturate, so that errors show."""
    spread = []
    for seed in range(12):
        model = network(seed)
        module = graph.from_onnx(model.text)
        for out in _all(graph.evaluate(module, "main", *model.inputs.values())):
            spread.append(len(np.unique(out)) / min(out.size, 64))
    assert np.median(spread) > 0.5


@pytest.mark.parametrize(
    "part", [*(pytest.param(n, marks=pytest.mark.long) for n in range(17)), 17]
)
def test_a_random_network_gives_what_its_operators_give(part: int) -> None:
    for seed in range(2 * part, 2 * part + 2):
        check(seed)


@pytest.mark.parametrize("seed", [1015, 1554])
def test_networks_that_were_wrong(seed: int) -> None:
    """Groups whose results are channels first; sums of 16 products of two activations."""
    check(seed)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(8))
def test_many_random_networks_give_what_their_operators_give(part: int) -> None:
    for seed in range(1000 + 25 * part, 1025 + 25 * part):
        check(seed)
