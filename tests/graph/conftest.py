"""Small ONNX models made in memory, and onnxruntime's place taken by NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autosched.graph import kernels


@pytest.fixture
def rng():
    return np.random.default_rng(0)


FULL = {"test_export_model", "test_int8", "test_model", "test_padded", "test_random_networks"}
"""Modules of tests whose models are compiled as those of users are."""


@pytest.fixture(scope="module", autouse=True)
def compiled_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    """Models of tests are compiled in this process: two others take longer to start than their
    kernels to compile, and the tests keep all cores busy. test_model.py compiles in others. And as
    candidates are, in a third of the time: what is computed is decided before LLVM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_FEW", 1000)
        if request.module.__name__ not in FULL:
            patch.setattr(kernels, "_LEVEL", "search")
        yield
