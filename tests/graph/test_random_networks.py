"""Random networks, compiled, against ONNX's reference evaluation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from random_networks import network

from autosched import graph


def check(seed: int) -> None:
    """One network, on one thread or two."""
    model, x = network(seed)
    (expected,) = ReferenceEvaluator(onnx.load_from_string(model)).run(None, {"x": x})
    compiled = graph.build(graph.from_onnx(model), target=f"llvm -num-cores={1 + seed % 2}")
    (found,) = compiled(x)
    assert found.shape == expected.shape
    error = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-3)
    assert error < 1e-4, f"network {seed}: {error:.1e} of the largest value"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_a_random_network_gives_what_the_reference_gives(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_many_random_networks_give_what_the_reference_gives(part: int) -> None:
    for seed in range(1000 + 20 * part, 1020 + 20 * part):
        check(seed)
