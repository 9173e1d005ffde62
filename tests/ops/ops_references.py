"""The operators of the library in NumPy, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np

from autosched.ops import winograd_weight
from autosched.ops.winograd import KERNEL
from autosched.tir import dtypes
from autosched.tir.nodes import inputs_of

Array = np.ndarray


def windows(data: Array, k: int, s: int, p: int, d: int = 1, fill: float = 0) -> Array:
    """(positions…, window…, channels) of an image (spatial…, channels)."""
    rank = data.ndim - 1
    padded = np.pad(data, [(p, p)] * rank + [(0, 0)], constant_values=fill)
    reach = (k - 1) * d + 1
    view = np.lib.stride_tricks.sliding_window_view(padded, (reach,) * rank, tuple(range(rank)))
    view = view[(slice(None, None, s),) * rank]
    view = view[(..., *[slice(None, None, d)] * rank)]
    return np.moveaxis(view, rank, -1)


def convolve(rank: int, s: int, p: int, d: int = 1, g: int = 1) -> Callable[..., Array]:
    def f(data: Array, weight: Array) -> Array:
        view = windows(data, weight.shape[0], s, p, d)
        ci, co = weight.shape[-2], weight.shape[-1] // g
        axes = list(range(-rank - 1, 0))
        parts = [
            np.tensordot(
                view[..., n * ci : (n + 1) * ci],
                weight[..., n * co : (n + 1) * co],
                (axes, list(range(rank + 1))),
            )
            for n in range(g)
        ]
        return np.concatenate(parts, axis=-1)

    return f


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5) * gamma + beta


def gelu(a: Array, b: Array, bias: Array) -> Array:
    x = a @ b + bias
    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


def conv_bias_relu(data: Array, weight: Array, bias: Array, groups: int = 1) -> Array:
    return np.maximum(convolve(2, 1, 1, 1, groups)(data, weight) + bias, 0)


def depthwise(data: Array, weight: Array) -> Array:
    return np.einsum("yxabc,abc->yxc", windows(data, 3, 2, 1), weight)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def unrolled(cell: Callable[..., tuple[Array, ...]], states: int) -> Callable[..., Array]:
    """The first state of `cell(w_ih @ x[t] + b_ih, w_hh @ h + b_hh, *states)` at every step."""

    def f(data: Array, w_ih: Array, w_hh: Array, b_ih: Array, b_hh: Array) -> Array:
        state = (np.zeros((data.shape[1], w_hh.shape[1])),) * states
        out = []
        for x in data:
            state = cell(x @ w_ih.T + b_ih, state[0] @ w_hh.T + b_hh, *state)
            out.append(state[0])
        return np.stack(out)

    return f


def lstm_cell(x: Array, y: Array, h: Array, c: Array) -> tuple[Array, ...]:
    i, f, g, o = np.split(x + y, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_cell(x: Array, y: Array, h: Array) -> tuple[Array, ...]:
    (r, z, n), (hr, hz, hn) = np.split(x, 3, axis=1), np.split(y, 3, axis=1)
    new, z = np.tanh(n + sigmoid(r + hr) * hn), sigmoid(z + hz)
    return ((1 - z) * new + z * h,)


def ema(data: Array, alpha: Array) -> Array:
    out = [data[0]]
    for x in data[1:]:
        out.append(alpha * x + (1 - alpha) * out[-1])
    return np.stack(out)


def conv_bn_relu(data: Array, weight: Array, bias: Array, scale: Array, offset: Array) -> Array:
    return np.maximum((convolve(2, 1, 1)(data, weight) + bias) * scale + offset, 0)


def transposed(s: int, p: int) -> Callable[..., Array]:
    """Every element of data, times every tap, added where it falls."""

    def f(data: Array, weight: Array) -> Array:
        (h, w, _), k = data.shape, weight.shape[0]
        wide = np.zeros(((h - 1) * s + k, (w - 1) * s + k, weight.shape[3]))
        for i in range(h):
            for j in range(w):
                part = np.einsum("c,rqco->rqo", data[i, j], weight)
                wide[i * s : i * s + k, j * s : j * s + k] += part
        return wide[p : wide.shape[0] - p, p : wide.shape[1] - p]

    return f


def capsule(data: Array, weight: Array) -> Array:
    h, w, n, _, ci = data.shape
    (k, *_, co), s = weight.shape, 2
    wide = np.pad(data, [(1, 1), (1, 1), (0, 0), (0, 0), (0, 0)])
    out = np.zeros(((h + 2 - k) // s + 1, (w + 2 - k) // s + 1, n, n, co))
    for y, x, r, q, c, o in np.ndindex(*out.shape[:2], k, k, ci, co):
        out[y, x, :, :, o] += wide[y * s + r, x * s + q, :, :, c] @ weight[r, q, :, :, c, o]
    return out


def winograd(p: int) -> Callable[..., Array]:
    """By the plain convolution, whose weights are found from the transformed ones."""
    pseudo = np.linalg.pinv(np.array(KERNEL))

    def f(data: Array, weight: Array) -> Array:
        plain = np.einsum("re,qn,enio->rqio", pseudo, pseudo, weight)
        return convolve(2, 1, p)(data, plain)

    return f


def attention(query: Array, key: Array) -> Array:
    scores = np.einsum("ihd,jhd->hij", query, key)
    e = np.exp(scores - scores.max(axis=2, keepdims=True))
    return e / e.sum(axis=2, keepdims=True)


def random_inputs(func: Any, seed: int = 0, name: str = "") -> list[Array]:
    rng = np.random.default_rng(seed)
    out = []
    for b in inputs_of(func):
        if dtypes.is_float(b.dtype):
            out.append(rng.uniform(-1, 1, b.shape).astype(b.dtype))
        else:
            out.append(rng.integers(0, 5, b.shape).astype(b.dtype))
    if name == "winograd_conv2d":
        out[1] = winograd_weight(rng.uniform(-1, 1, (3, 3, *out[1].shape[2:])).astype(out[1].dtype))
    return out
