"""Sums of float16 are taken in float32; recurrent layers are computed in it."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.graph.infer import evaluate_operator

RECURRENT = {
    "LSTM": ([(3, 2, 1024), (1, 32, 1024), (1, 32, 8)], {"hidden_size": 8}),
    "GRU": ([(3, 2, 1024), (1, 24, 1024), (1, 24, 8), (1, 48)], {"hidden_size": 8}),
    "RNN": ([(3, 2, 1024), (1, 8, 1024), (1, 8, 8)], {"hidden_size": 8}),
}
SUMS = {
    "Einsum": ([(3, 4000), (4000, 5)], {"equation": "ij,jk->ik"}),
    "Einsum of three": ([(3, 4000), (4000, 5), (5, 2)], {"equation": "ij,jk,kl->il"}),
    "Gemm": ([(3, 4000), (5, 4000), (5,)], {"transB": 1, "alpha": 0.5}),
    "MatMul": ([(3, 4000), (4000, 5)], {}),
    **RECURRENT,
}


@pytest.mark.parametrize("case", sorted(SUMS))
def test_sums_of_float16_are_of_float32(case: str) -> None:
    """Off by their own rounding alone."""
    (shapes, attrs), name = SUMS[case], case.split()[0]
    rng = np.random.default_rng(0)
    scale = 0.03 if name in RECURRENT else 1.0
    values = [(rng.standard_normal(shape) * scale).astype("f2") for shape in shapes]
    values[0] = (values[0] / scale).astype("f2")
    inputs = [graph.var(f"x{n}", shape, "float16") for n, shape in enumerate(shapes)]
    made = getattr(graph.op, name.lower())(*inputs, **attrs)
    result = made[0] if isinstance(made, tuple) else made
    (got,) = graph.build(graph.module(main=graph.function(inputs, result)))(*values)
    exact = [v.astype("f8") for v in values]
    want = evaluate_operator(name, exact, attrs, 1)[0]
    assert got.dtype == "float16"
    np.testing.assert_allclose(got, want, rtol=2**-11, atol=1e-3 if name not in RECURRENT else 1e-5)
