"""Small ONNX models made in memory, and onnxruntime's place taken by NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from autosched.graph import kernels


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def one_process() -> Iterator[None]:
    """Models of tests are compiled in this process: two others take longer to start than their
    kernels to compile, and the tests keep all cores busy. test_model.py compiles in others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_FEW", 1000)
        yield
