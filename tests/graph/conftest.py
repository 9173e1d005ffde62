"""Small ONNX models made in memory, and onnxruntime's place taken by NumPy."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)
