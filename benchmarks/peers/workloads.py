"""What the peers compute: arrays, and the computation in NumPy, PyTorch and ONNX words.

A workload is written `name:int,int,...`, with the arguments of the operator library. Arrays are
float32, batch 1, drawn from a fixed seed. Tensors are laid out as the engine likes best: a
convolution is NCHW here and NHWC where an engine offers that (`-nhwc`, `-cl`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Any]


@dataclass(frozen=True)
class Node:
    """One ONNX operator."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """`inputs` come at run time; `weights` too, or are constants, as the server is told;
    `constants` of the ONNX form (an axis, a shape) always are.

    `torch(t, out)` computes with the tensors `t` into `out` where PyTorch has a form that does;
    `numpy(a, out)` is None where NumPy has no such operation. `reference` is in float64.
    """

    inputs: Arrays
    weights: Arrays
    flop: int
    shape: tuple[int, ...]
    torch: Callable[[Arrays, Any], Any]
    nodes: tuple[Node, ...]
    reference: Callable[[Arrays], Array]
    numpy: Callable[[Arrays, Array], Any] | None = None
    image: bool = False
    constants: Arrays = field(default_factory=dict)


def make(spec: str) -> Workload:
    """The workload written `name:int,int,...`. Raises ValueError on an unknown one."""
    name, _, arguments = spec.partition(":")
    if name not in _MAKERS:
        raise ValueError(f"no workload {name!r}; there are {', '.join(_MAKERS)}")
    return _MAKERS[name](*(int(n) for n in arguments.split(",") if n))


def smallest(spec: str) -> str:
    """The same computation on next to nothing: what a call costs when there is no work in it."""
    name, _, arguments = spec.partition(":")
    if name in _WINDOWS:
        given = [int(n) for n in arguments.split(",")]
        size, channels = _WINDOWS[name]
        k, s, p, *rest = given[size + channels :]
        return (
            f"{name}:{','.join(str(n) for n in (*[k] * size, *[1] * channels, k, s, p, *rest[:1]))}"
        )
    return f"{name}:{','.join('1' for _ in arguments.split(','))}"


def _random(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)


def matmul(n: int, depth: int, m: int) -> Workload:
    """a (n, depth) @ b (depth, m)."""
    rng = np.random.default_rng(0)
    return Workload(
        inputs={"a": _random(rng, n, depth)},
        weights={"b": _random(rng, depth, m)},
        flop=2 * n * depth * m,
        shape=(n, m),
        torch=lambda t, out: _torch().matmul(t["a"], t["b"], out=out),
        nodes=(Node("MatMul", ("a", "b"), "y"),),
        reference=lambda a: a["a"] @ a["b"],
        numpy=lambda a, out: np.matmul(a["a"], a["b"], out=out),
    )


def batch_matmul(b: int, n: int, depth: int, m: int) -> Workload:
    """a (b, n, depth) @ b (b, depth, m), a product for each of the b pairs."""
    rng = np.random.default_rng(0)
    return Workload(
        inputs={"a": _random(rng, b, n, depth), "b": _random(rng, b, depth, m)},
        weights={},
        flop=2 * b * n * depth * m,
        shape=(b, n, m),
        torch=lambda t, out: _torch().bmm(t["a"], t["b"], out=out),
        nodes=(Node("MatMul", ("a", "b"), "y"),),
        reference=lambda a: a["a"] @ a["b"],
        numpy=lambda a, out: np.matmul(a["a"], a["b"], out=out),
    )


def max_pool2d(h: int, w: int, c: int, k: int, s: int, p: int) -> Workload:
    """Largest element of each k by k window of x (1, c, h, w)."""
    rng = np.random.default_rng(0)
    oh, ow = ((n + 2 * p - k) // s + 1 for n in (h, w))

    def forward(t: Arrays, _: Any) -> Any:
        return _torch().nn.functional.max_pool2d(t["x"], k, stride=s, padding=p)

    attrs = {"kernel_shape": [k, k], "strides": [s, s], "pads": [p] * 4}
    return Workload(
        inputs={"x": _random(rng, 1, c, h, w)},
        weights={},
        flop=oh * ow * c * k * k,
        shape=(1, c, oh, ow),
        torch=forward,
        nodes=(Node("MaxPool", ("x",), "y", attrs),),
        reference=_by_torch(forward),
        image=True,
    )


def argmax(n: int, m: int) -> Workload:
    """The largest element of each row of x (n, m), and where it is; the values are compared."""
    rng = np.random.default_rng(0)

    def numpy(a: Arrays, out: Array) -> None:
        found = a["x"].argmax(axis=1, keepdims=True)
        out[...] = np.take_along_axis(a["x"], found, axis=1)[:, 0]

    return Workload(
        inputs={"x": _random(rng, n, m)},
        weights={},
        flop=n * m,
        shape=(n,),
        torch=lambda t, out: _torch().max(t["x"], 1)[0],
        nodes=(),
        reference=lambda a: a["x"].max(axis=1),
        numpy=numpy,
    )


def matmul_add(n: int, depth: int, m: int) -> Workload:
    """a (n, depth) @ b (depth, m) + c (n, m)."""
    rng = np.random.default_rng(0)

    def numpy(a: Arrays, out: Array) -> None:
        np.matmul(a["a"], a["b"], out=out)
        np.add(out, a["c"], out=out)

    return Workload(
        inputs={"a": _random(rng, n, depth), "c": _random(rng, n, m)},
        weights={"b": _random(rng, depth, m)},
        flop=2 * n * depth * m + n * m,
        shape=(n, m),
        torch=lambda t, out: _torch().addmm(t["c"], t["a"], t["b"], out=out),
        nodes=(Node("MatMul", ("a", "b"), "t"), Node("Add", ("t", "c"), "y")),
        reference=lambda a: a["a"] @ a["b"] + a["c"],
        numpy=numpy,
    )


def conv2d(
    h: int, w: int, ci: int, co: int, k: int, s: int, p: int, d: int = 1, g: int = 1
) -> Workload:
    """x (1, ci, h, w) with w (co, ci / g, k, k): stride s, padding p, dilation d, g groups."""
    return _convolution((h, w), ci, co, k, s, p, d, g)


def conv2d_bias_relu(h: int, w: int, ci: int, co: int, k: int, s: int, p: int) -> Workload:
    """The same, plus a bias (co,), and no less than 0."""
    return _convolution((h, w), ci, co, k, s, p, bias=True)


def conv1d(length: int, ci: int, co: int, k: int, s: int, p: int) -> Workload:
    """x (1, ci, length) with w (co, ci, k)."""
    return _convolution((length,), ci, co, k, s, p)


def conv3d(d: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int) -> Workload:
    """x (1, ci, d, h, w) with w (co, ci, k, k, k)."""
    return _convolution((d, h, w), ci, co, k, s, p)


def depthwise_conv2d(h: int, w: int, c: int, k: int, s: int, p: int) -> Workload:
    """x (1, c, h, w), every channel with a window (k, k) of its own."""
    return _convolution((h, w), c, c, k, s, p, g=c)


def _convolution(
    size: tuple[int, ...],
    ci: int,
    co: int,
    k: int,
    s: int,
    p: int,
    d: int = 1,
    g: int = 1,
    bias: bool = False,
) -> Workload:
    rng = np.random.default_rng(0)
    rank = len(size)
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n in size)

    def forward(t: Arrays, _: Any) -> Any:
        functional: Any = _torch().nn.functional
        conv = getattr(functional, f"conv{rank}d")
        y = conv(t["x"], t["w"], t.get("b"), stride=s, padding=p, dilation=d, groups=g)
        return functional.relu(y) if bias else y

    attrs = {
        "strides": [s] * rank,
        "pads": [p] * 2 * rank,
        "dilations": [d] * rank,
        "group": g,
        "kernel_shape": [k] * rank,
    }
    weights = {"w": _random(rng, co, ci // g, *[k] * rank) * np.float32(0.05)}
    points = int(np.prod(out)) * co
    nodes = (Node("Conv", ("x", "w"), "y", attrs),)
    if bias:
        weights["b"] = _random(rng, co)
        nodes = (Node("Conv", ("x", "w", "b"), "t", attrs), Node("Relu", ("t",), "y"))
    return Workload(
        inputs={"x": _random(rng, 1, ci, *size)},
        weights=weights,
        flop=2 * points * (ci // g) * k**rank + 2 * points * bias,
        shape=(1, co, *out),
        torch=forward,
        nodes=nodes,
        reference=_by_torch(forward),
        image=True,
    )


def conv2d_transpose(h: int, w: int, ci: int, co: int, k: int, s: int, p: int) -> Workload:
    """x (1, ci, h, w) spread by stride s, with w (ci, co, k, k). Flop: taps that meet data."""
    rng = np.random.default_rng(0)
    oh, ow = ((n - 1) * s - 2 * p + k for n in (h, w))

    def forward(t: Arrays, _: Any) -> Any:
        return _torch().nn.functional.conv_transpose2d(t["x"], t["w"], stride=s, padding=p)

    attrs = {"kernel_shape": [k, k], "strides": [s, s], "pads": [p] * 4}
    return Workload(
        inputs={"x": _random(rng, 1, ci, h, w)},
        weights={"w": _random(rng, ci, co, k, k) * np.float32(0.05)},
        flop=2 * oh * ow * ci * co * k * k // (s * s),
        shape=(1, co, oh, ow),
        torch=forward,
        nodes=(Node("ConvTranspose", ("x", "w"), "y", attrs),),
        reference=_by_torch(forward),
        image=True,
    )


def matmul_bias_gelu(n: int, depth: int, m: int) -> Workload:
    """gelu(a (n, depth) @ b (depth, m) + d (m,)), by the error function."""
    rng = np.random.default_rng(0)

    def forward(t: Arrays, _: Any) -> Any:
        torch = _torch()
        return torch.nn.functional.gelu(torch.addmm(t["d"], t["a"], t["b"]))

    return Workload(
        inputs={"a": _random(rng, n, depth)},
        weights={"b": _random(rng, depth, m) * np.float32(0.05), "d": _random(rng, m)},
        flop=2 * n * depth * m,
        shape=(n, m),
        torch=forward,
        nodes=(
            Node("MatMul", ("a", "b"), "t"),
            Node("Add", ("t", "d"), "u"),
            Node("Gelu", ("u",), "y"),
        ),
        reference=_by_torch(forward),
    )


def transpose_batch_matmul(seq: int, heads: int, dim: int) -> Workload:
    """q and k (seq, heads, dim): for each head the products of all pairs of rows."""
    rng = np.random.default_rng(0)

    def forward(t: Arrays, out: Any) -> Any:
        return _torch().matmul(t["q"].permute(1, 0, 2), t["k"].permute(1, 2, 0), out=out)

    def numpy(a: Arrays, out: Array) -> Any:
        return np.matmul(a["q"].transpose(1, 0, 2), a["k"].transpose(1, 2, 0), out=out)

    return Workload(
        inputs={"q": _random(rng, seq, heads, dim), "k": _random(rng, seq, heads, dim)},
        weights={},
        flop=2 * heads * seq * seq * dim,
        shape=(heads, seq, seq),
        torch=forward,
        nodes=(
            Node("Transpose", ("q",), "s", {"perm": [1, 0, 2]}),
            Node("Transpose", ("k",), "t", {"perm": [1, 2, 0]}),
            Node("MatMul", ("s", "t"), "y"),
        ),
        reference=lambda a: np.matmul(a["q"].transpose(1, 0, 2), a["k"].transpose(1, 2, 0)),
        numpy=numpy,
    )


def norm(n: int, m: int) -> Workload:
    """Euclidean norm of n * m numbers, as a tensor of one element."""
    rng = np.random.default_rng(0)

    def numpy(a: Arrays, out: Array) -> None:
        out[0] = np.sqrt(np.dot(a["x"], a["x"]))

    return Workload(
        inputs={"x": _random(rng, n * m)},
        weights={},
        flop=2 * n * m,
        shape=(1,),
        torch=lambda t, out: _torch().linalg.vector_norm(t["x"], dim=0, keepdim=True, out=out),
        nodes=(Node("ReduceL2", ("x",), "y", {"keepdims": 1}),),
        reference=lambda a: np.sqrt((a["x"] ** 2).sum()).reshape(1),
        numpy=numpy,
    )


def softmax(n: int, m: int) -> Workload:
    """Softmax of the rows of x (n, m)."""
    rng = np.random.default_rng(0)

    def numpy(a: Arrays, out: Array) -> None:
        np.subtract(a["x"], a["x"].max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    def reference(a: Arrays) -> Array:
        e: Array = np.exp(a["x"] - a["x"].max(axis=1, keepdims=True))
        result: Array = e / e.sum(axis=1, keepdims=True)
        return result

    return Workload(
        inputs={"x": _random(rng, n, m)},
        weights={},
        flop=4 * n * m,
        shape=(n, m),
        torch=lambda t, out: _torch().softmax(t["x"], 1, out=out),
        nodes=(Node("Softmax", ("x",), "y", {"axis": 1}),),
        reference=reference,
        numpy=numpy,
    )


def layer_norm(n: int, m: int) -> Workload:
    """Rows of x (n, m) brought to mean 0 and variance 1 (epsilon 1e-5), times g plus b (m,)."""
    rng = np.random.default_rng(0)

    def forward(t: Arrays, out: Any) -> Any:
        torch = _torch()
        if out is None:
            return torch.nn.functional.layer_norm(t["x"], (m,), t["g"], t["b"], 1e-5)
        means = torch.empty((n, 1)), torch.empty((n, 1))
        torch.ops.aten.native_layer_norm.out(
            t["x"], (m,), t["g"], t["b"], 1e-5, out0=out, out1=means[0], out2=means[1]
        )
        return out

    def reference(a: Arrays) -> Array:
        x = a["x"] - a["x"].mean(axis=1, keepdims=True)
        scaled: Array = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)
        result: Array = scaled * a["g"] + a["b"]
        return result

    return Workload(
        inputs={"x": _random(rng, n, m)},
        weights={"g": _random(rng, m), "b": _random(rng, m)},
        flop=7 * n * m,
        shape=(n, m),
        torch=forward,
        nodes=(Node("LayerNormalization", ("x", "g", "b"), "y", {"axis": 1, "epsilon": 1e-5}),),
        reference=reference,
        numpy=lambda a, out: np.copyto(out, reference(a)),
    )


def cumsum(n: int, m: int) -> Workload:
    """Cumulative sum of x (n, m) along axis 0."""
    rng = np.random.default_rng(0)
    return Workload(
        inputs={"x": _random(rng, n, m)},
        weights={},
        flop=n * m,
        shape=(n, m),
        torch=lambda t, out: _torch().cumsum(t["x"], 0, out=out),
        nodes=(Node("CumSum", ("x", "axis"), "y"),),
        reference=lambda a: np.cumsum(a["x"], axis=0),
        numpy=lambda a, out: np.cumsum(a["x"], axis=0, out=out),
        constants={"axis": np.array(0, np.int64)},
    )


def rnn(t: int, b: int, i: int, h: int) -> Workload:
    """Elman cell over x (t, b, i), PyTorch's weights, tanh, zero initial state; (t, b, h)."""

    def step(x: Array, y: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        return (np.tanh(x + y),)

    def forward(a: Arrays, out: Any) -> Any:
        zero = _torch().zeros(1, b, h, dtype=a["x"].dtype)
        rest = (True, 1, 0.0, False, False, False)
        return _torch()._VF.rnn_tanh(a["x"], zero, [a[k] for k in _CELL], *rest)[0]

    return _cell("RNN", (0,), 1, step, forward, t, b, i, h)


def lstm(t: int, b: int, i: int, h: int) -> Workload:
    """LSTM cell over x (t, b, i), PyTorch's weights, zero initial states; h (t, b, h)."""

    def step(x: Array, y: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        gate, forget, new, out = np.split(x + y, 4, axis=1)
        c = _sigmoid(forget) * state[1] + _sigmoid(gate) * np.tanh(new)
        return _sigmoid(out) * np.tanh(c), c

    def forward(a: Arrays, out: Any) -> Any:
        zero = _torch().zeros(1, b, h, dtype=a["x"].dtype)
        rest = (True, 1, 0.0, False, False, False)
        return _torch()._VF.lstm(a["x"], (zero, zero), [a[k] for k in _CELL], *rest)[0]

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
        "w_ih": _random(rng, rows, i) * np.float32(0.05),
        "w_hh": _random(rng, rows, h) * np.float32(0.05),
        "b_ih": _random(rng, rows) * np.float32(0.1),
        "b_hh": _random(rng, rows) * np.float32(0.1),
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
        inputs={"x": _random(rng, t, b, i)},
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


def _torch() -> Any:
    import torch

    return torch


def _by_torch(forward: Callable[[Arrays, Any], Any]) -> Callable[[Arrays], Array]:
    """What PyTorch makes of NumPy arrays."""

    def reference(a: Arrays) -> Array:
        torch = _torch()
        result: Array = forward({k: torch.from_numpy(v) for k, v in a.items()}, None).numpy()
        return result

    return reference


_WINDOWS = {
    "conv1d": (1, 2),
    "conv2d": (2, 2),
    "conv2d_bias_relu": (2, 2),
    "conv3d": (3, 2),
    "depthwise_conv2d": (2, 1),
    "conv2d_transpose": (2, 2),
    "max_pool2d": (2, 1),
}
"""Workloads with a window: how many extents and how many channels they begin with."""
_MAKERS: dict[str, Callable[..., Workload]] = {
    f.__name__: f
    for f in (
        matmul,
        matmul_add,
        matmul_bias_gelu,
        batch_matmul,
        max_pool2d,
        argmax,
        conv1d,
        conv2d,
        conv2d_bias_relu,
        conv3d,
        depthwise_conv2d,
        conv2d_transpose,
        softmax,
        layer_norm,
        norm,
        transpose_batch_matmul,
        cumsum,
        rnn,
        lstm,
    )
}
