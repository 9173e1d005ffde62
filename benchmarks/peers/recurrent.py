"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from workload import Array, Arrays, Node, Workload, draw, torch_module


def rnn(t: int, b: int, i: int, h: int) -> Workload:
    """Elman cell over x (t, b, i), PyTorch's weights, tanh, zero initial state; (t, b, h)."""

    def step(x: Array, y: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        return (np.tanh(x + y),)

    def forward(a: Arrays, out: Any) -> Any:
        zero = torch_module().zeros(1, b, h, dtype=a["x"].dtype)
        rest = (True, 1, 0.0, False, False, False)
        return torch_module()._VF.rnn_tanh(a["x"], zero, [a[k] for k in _CELL], *rest)[0]

    return _cell("RNN", (0,), 1, step, forward, t, b, i, h)


def lstm(t: int, b: int, i: int, h: int) -> Workload:
    """LSTM cell over x (t, b, i), PyTorch's weights, zero initial states; h (t, b, h)."""

    def step(x: Array, y: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        gate, forget, new, out = np.split(x + y, 4, axis=1)
        c = _sigmoid(forget) * state[1] + _sigmoid(gate) * np.tanh(new)
        return _sigmoid(out) * np.tanh(c), c

    def forward(a: Arrays, out: Any) -> Any:
        zero = torch_module().zeros(1, b, h, dtype=a["x"].dtype)
        rest = (True, 1, 0.0, False, False, False)
        return torch_module()._VF.lstm(a["x"], (zero, zero), [a[k] for k in _CELL], *rest)[0]

    # PyTorch's gates are input, forget, cell, output; ONNX has input, output, forget, cell.
    return _cell("LSTM", (0, 3, 1, 2), 2, step, forward, t, b, i, h)


_CELL = ("w_ih", "w_hh", "b_ih", "b_hh")


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def _cell(
    op: str,
    gates: tuple[int, ...],
    states: int,
    step: Callable[[Array, Array, tuple[Array, ...]], tuple[Array, ...]],
    forward: Callable[[Arrays, Any], Any],
    t: int,
    b: int,
    i: int,
    h: int,
) -> Workload:
    """A recurrent layer. `gates`: PyTorch's places of the gates in ONNX's order."""
    rng = np.random.default_rng(0)
    rows = len(gates) * h
    torch = {
        "w_ih": draw(rng, rows, i) * np.float32(0.05),
        "w_hh": draw(rng, rows, h) * np.float32(0.05),
        "b_ih": draw(rng, rows) * np.float32(0.1),
        "b_hh": draw(rng, rows) * np.float32(0.1),
    }

    def reordered(array: Array) -> Array:
        return np.concatenate([array[g * h : (g + 1) * h] for g in gates])

    def unrolled(a: Arrays, out: Array) -> Array:
        w_ih, w_hh, b_ih, b_hh = (a[k] for k in _CELL)
        known = a["x"].reshape(t * b, i) @ w_ih.T + b_ih
        known = known.reshape(t, b, rows)
        state = (np.zeros((b, h), a["x"].dtype),) * states
        for n in range(t):
            state = step(known[n], state[0] @ w_hh.T + b_hh, state)
            out[n] = state[0]
        return out

    biases = np.concatenate([reordered(torch["b_ih"]), reordered(torch["b_hh"])])
    return Workload(
        inputs={"x": draw(rng, t, b, i)},
        weights=torch,
        flop=2 * t * b * rows * (i + h),
        shape=(t, b, h),
        torch=forward,
        nodes=(
            Node(op, ("x", "onnx_w", "onnx_r", "onnx_b"), "steps", {"hidden_size": h}),
            Node("Reshape", ("steps", "shape"), "y"),
        ),
        reference=lambda a: unrolled(a, np.empty((t, b, h), a["x"].dtype)),
        numpy=unrolled,
        constants={
            "onnx_w": reordered(torch["w_ih"])[None],
            "onnx_r": reordered(torch["w_hh"])[None],
            "onnx_b": biases[None],
            "shape": np.array([t, b, h], np.int64),
        },
    )
