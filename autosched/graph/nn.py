"""Layers under the names that Relay gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.checks import instance, shown
from autosched.errors import WorkloadError
from autosched.graph.builder import Value, ValueLike, call
from autosched.integers import as_int


def _ints(name: str, values: Any) -> tuple[int, ...]:
    """One int or several, as a tuple. Raises WorkloadError for all else."""
    alone = as_int(values)
    if alone is not None:
        return (alone,)
    found = [as_int(x) for x in values] if isinstance(values, (list, tuple)) else [None]
    if not found or any(x is None for x in found):
        raise WorkloadError(f"{name} is {shown(values)}; expected an int or a list of ints")
    return tuple(x for x in found if x is not None)


def _both(name: str, values: Any) -> tuple[int, ...]:
    """`_ints`, one number standing for both."""
    found = _ints(name, values)
    return found * 2 if len(found) == 1 else found


def dense(data: Value, weight: ValueLike) -> Value:
    """data (M, K) times the transposed weight (N, K)."""
    found: Value = call("Gemm", (data, weight), {"transB": 1})
    return found


def bias_add(data: Value, bias: Value, axis: int = 1) -> Value:
    """data plus a bias along an axis."""
    instance("the data of bias_add", data, Value, "a value of the graph", WorkloadError)
    rank, place = len(data.shape), as_int(axis)
    if place is None or not -rank <= place < rank:
        raise WorkloadError(f"axis of bias_add is {shown(axis)}; the data have {rank} axes")
    at = place % rank
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
    given = _ints("padding of conv2d", padding)
    pads = given * 4 if len(given) == 1 else given * 2 if len(given) == 2 else given
    attrs: dict[str, Any] = {
        "strides": _both("strides of conv2d", strides),
        "pads": pads,
        "dilations": _both("dilation of conv2d", dilation),
        "group": groups,
    }
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
    pads = _ints(f"padding of {name}", padding)
    attrs = {
        "kernel_shape": _both(f"pool_size of {name}", size),
        "strides": _both(f"strides of {name}", size if strides is None else strides),
        "pads": pads * 4 if len(pads) == 1 else pads * 2 if len(pads) == 2 else pads,
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
