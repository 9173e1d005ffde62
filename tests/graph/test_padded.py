"""Models for all lengths up to a capacity compute what the model of each length does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from bounded import Budget
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_lengths import arrays, random_model, shapes

from autosched import graph
from autosched.graph.dynamic.padded import Padding, Reading
from autosched.graph.errors import Unsupported
from autosched.graph.onnx_import import OpenModel
from autosched.tir.module import IRModule

CAPACITY, LEAST = 8, 3
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
LONG = settings(QUICK, max_examples=3000)
MODELS = st.lists(st.integers(0, 999), min_size=20, max_size=90)
RANDOM = Budget(60)


def read(model: OpenModel, n: int) -> Reading:
    origins: dict = {}
    main = model.module(shapes(n), origins).graphs["main"]
    assert isinstance(main, graph.Function)
    return Reading.of(n, main, origins)


def check(numbers: Sequence[int]) -> None:
    proto = random_model(list(numbers))
    note(onnx.printer.to_text(proto))
    try:
        model = OpenModel(proto)
        readings = [read(model, n) for n in (CAPACITY, CAPACITY - 1, LEAST)]
        main, ends = Padding((readings[0], readings[1], readings[2])).function()
    except Unsupported as e:
        note(str(e))
        return
    padded = IRModule({}, {"main": main})
    note(padded.script())
    for n in range(LEAST, CAPACITY + 1):
        given_ = arrays(n)
        expected = graph.evaluate(model.module(shapes(n)), "main", *given_.values())
        full = []
        for name, shape in shapes(CAPACITY).items():
            array = np.zeros(shape, given_[name].dtype)
            array[tuple(slice(k) for k in given_[name].shape)] = given_[name]
            full.append(array)
        found = graph.evaluate(padded, "main", *full, np.asarray(n))
        for a, b, end in zip(found, expected, ends, strict=True):
            cut = a[tuple(slice(None if e is None else n + e) for e in end)]
            assert cut.shape == b.shape
            assert cut.dtype == b.dtype
            scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
            assert np.allclose(cut, b, rtol=1e-3, atol=1e-4 * scale, equal_nan=True), f"length {n}"


@QUICK
@given(MODELS)
def test_random_models(numbers: list[int]) -> None:
    check(numbers)


@pytest.mark.long
@pytest.mark.timeout(1800)
@LONG
@given(MODELS)
def test_random_models_long(numbers: list[int]) -> None:
    RANDOM.run(check, numbers)
