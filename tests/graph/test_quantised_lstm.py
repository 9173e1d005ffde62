"""LSTMs whose recurrent weights a file stores as bytes."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.ir import Call


def stored_lstm(stored: str, by_row: bool, zero: int):
    """An LSTM in both directions whose recurrent weight is dequantised, by one scale or one a
    row."""
    rng = np.random.default_rng(0)
    steps, batch, width, hidden = 4, 2, 5, 3
    low, high = np.iinfo(stored).min, np.iinfo(stored).max
    values = graph.const(rng.integers(low, high + 1, (2, 4 * hidden, hidden)).astype(stored))
    shape = (2, 4 * hidden, 1) if by_row else ()
    scale = graph.const(rng.uniform(1e-3, 4e-3, shape).astype("f4"))
    attrs = {"axis": 2, "block_size": hidden} if by_row else {}
    r = op.dequantize_linear(values, scale, graph.const(np.full(shape, zero, stored)), **attrs)
    x = graph.var("x", (steps, batch, width))
    w = graph.const(rng.standard_normal((2, 4 * hidden, width)).astype("f4"))
    b = graph.const(rng.standard_normal((2, 8 * hidden)).astype("f4"))
    y = op.lstm(x, w, r, b, hidden_size=hidden, direction="bidirectional")
    module = graph.module(main=graph.function([x], y))
    return module, rng.standard_normal((steps, batch, width)).astype("f4")


@pytest.mark.parametrize(
    ("stored", "by_row", "zero", "bytes_stay"),
    [
        ("int8", False, 0, True),
        ("int8", True, 0, True),
        ("int8", True, 3, False),
        ("uint8", False, 0, False),
    ],
)
def test_recurrent_weights_stay_bytes(stored, by_row, zero, bytes_stay):
    module, x = stored_lstm(stored, by_row, zero)
    names = {
        b.value.callee
        for f in passes.optimise(module).graphs.values()
        for b in f.body.bindings
        if isinstance(b.value, Call)
    }
    assert ("autosched.LSTM" in names) == bytes_stay
    (found,) = graph.build(module)(x)
    np.testing.assert_allclose(found, graph.evaluate(module, "main", x), rtol=1e-5, atol=1e-6)
