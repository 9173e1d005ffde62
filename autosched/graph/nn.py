"""Layers under the names that Relay gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.graph.builder import Value, ValueLike, call


def dense(data: Value, weight: ValueLike) -> Value:
    """data (M, K) times the transposed weight (N, K)."""
    found: Value = call("Gemm", (data, weight), {"transB": 1})
    return found


def bias_add(data: Value, bias: Value, axis: int = 1) -> Value:
    """data plus a bias along an axis."""
    rank = len(data.shape)
    at = axis % rank
    new = tuple(d for d in range(rank) if d != at)
    wide = call("Unsqueeze", (bias,), {"axes": new}) if new else bias
    found: Value = call("Add", (data, wide), {})
    return found


def conv2d(
    data: Value,
    weight: ValueLike,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Value:
    """Convolution of data (N, C, H, W) with weight (M, C / groups, KH, KW)."""
    given = (padding,) if isinstance(padding, int) else tuple(padding)
    pads = given * 4 if len(given) == 1 else given * 2 if len(given) == 2 else given
    attrs: dict[str, Any] = {
        "strides": tuple(strides), "pads": pads, "dilations": tuple(dilation), "group": groups
    }  # fmt: skip
    found: Value = call("Conv", (data, weight), attrs)
    return found


def batch_norm(
    data: Value, gamma: Value, beta: Value, mean: Value, variance: Value, epsilon: float = 1e-5
) -> Value:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, by channel."""
    args = (data, gamma, beta, mean, variance)
    found: Value = call("BatchNormalization", args, {"epsilon": epsilon})
    return found


def _pool(name: str, data: Value, size: Sequence[int], strides: Sequence[int] | None,
          padding: Sequence[int]) -> Value:  # fmt: skip
    attrs = {
        "kernel_shape": tuple(size),
        "strides": tuple(strides or size),
        "pads": tuple(padding) * 2 if len(padding) == 2 else tuple(padding),
    }
    found: Value = call(name, (data,), attrs)
    return found


def max_pool2d(
    data: Value,
    pool_size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
) -> Value:
    """The largest element of each window."""
    return _pool("MaxPool", data, pool_size, strides, padding)


def avg_pool2d(
    data: Value,
    pool_size: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
) -> Value:
    """The mean of each window."""
    return _pool("AveragePool", data, pool_size, strides, padding)


def global_avg_pool2d(data: Value) -> Value:
    """The mean over all positions."""
    found: Value = call("GlobalAveragePool", (data,), {})
    return found


def batch_flatten(data: Value) -> Value:
    """A row an image."""
    found: Value = call("Flatten", (data,), {})
    return found


def batch_matmul(a: Value, b: Value) -> Value:
    """a (B, M, K) times the transposed b (B, N, K)."""
    turned = call("Transpose", (b,), {"perm": (0, 2, 1)})
    found: Value = call("MatMul", (a, turned), {})
    return found


def softmax(data: Value, axis: int = -1) -> Value:
    """exp(x) / sum(exp(x)) along an axis."""
    found: Value = call("Softmax", (data,), {"axis": axis})
    return found


def relu(data: Value) -> Value:
    """max(x, 0)."""
    found: Value = call("Relu", (data,), {})
    return found


def leaky_relu(data: Value, alpha: float = 0.01) -> Value:
    """x, or alpha * x where x is negative."""
    found: Value = call("LeakyRelu", (data,), {"alpha": alpha})
    return found


def layer_norm(data: Value, gamma: Value, beta: Value, epsilon: float = 1e-5) -> Value:
    """Normalised over the last axis."""
    found: Value = call("LayerNormalization", (data, gamma, beta), {"epsilon": epsilon})
    return found
