"""What the peers compute.

A workload is written `name:int,int,...`, with the arguments of the operator library. Arrays are
float32, batch 1, drawn from a fixed seed. Tensors are laid out as the engine likes best: a
convolution is NCHW here and NHWC where an engine offers that (`-nhwc`, `-cl`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from recurrent import lstm, rnn
from workload import Array, Arrays, Node, Workload, by_torch, draw, torch_module


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


def matmul(n: int, depth: int, m: int) -> Workload:
    """a (n, depth) @ b (depth, m)."""
    rng = np.random.default_rng(0)
    return Workload(
        inputs={"a": draw(rng, n, depth)},
        weights={"b": draw(rng, depth, m)},
        flop=2 * n * depth * m,
        shape=(n, m),
        torch=lambda t, out: torch_module().matmul(t["a"], t["b"], out=out),
        nodes=(Node("MatMul", ("a", "b"), "y"),),
        reference=lambda a: a["a"] @ a["b"],
        numpy=lambda a, out: np.matmul(a["a"], a["b"], out=out),
    )


def batch_matmul(b: int, n: int, depth: int, m: int) -> Workload:
    """a (b, n, depth) @ b (b, depth, m), a product for each of the b pairs."""
    rng = np.random.default_rng(0)
    return Workload(
        inputs={"a": draw(rng, b, n, depth), "b": draw(rng, b, depth, m)},
        weights={},
        flop=2 * b * n * depth * m,
        shape=(b, n, m),
        torch=lambda t, out: torch_module().bmm(t["a"], t["b"], out=out),
        nodes=(Node("MatMul", ("a", "b"), "y"),),
        reference=lambda a: a["a"] @ a["b"],
        numpy=lambda a, out: np.matmul(a["a"], a["b"], out=out),
    )


def max_pool2d(h: int, w: int, c: int, k: int, s: int, p: int) -> Workload:
    """Largest element of each k by k window of x (1, c, h, w)."""
    rng = np.random.default_rng(0)
    oh, ow = ((n + 2 * p - k) // s + 1 for n in (h, w))

    def forward(t: Arrays, _: Any) -> Any:
        return torch_module().nn.functional.max_pool2d(t["x"], k, stride=s, padding=p)

    attrs = {"kernel_shape": [k, k], "strides": [s, s], "pads": [p] * 4}
    return Workload(
        inputs={"x": draw(rng, 1, c, h, w)},
        weights={},
        flop=oh * ow * c * k * k,
        shape=(1, c, oh, ow),
        torch=forward,
        nodes=(Node("MaxPool", ("x",), "y", attrs),),
        reference=by_torch(forward),
        image=True,
    )


def argmax(n: int, m: int) -> Workload:
    """The largest element of each row of x (n, m), and where it is; the values are compared."""
    rng = np.random.default_rng(0)

    def numpy(a: Arrays, out: Array) -> None:
        found = a["x"].argmax(axis=1, keepdims=True)
        out[...] = np.take_along_axis(a["x"], found, axis=1)[:, 0]

    return Workload(
        inputs={"x": draw(rng, n, m)},
        weights={},
        flop=n * m,
        shape=(n,),
        torch=lambda t, out: torch_module().max(t["x"], 1)[0],
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
        inputs={"a": draw(rng, n, depth), "c": draw(rng, n, m)},
        weights={"b": draw(rng, depth, m)},
        flop=2 * n * depth * m + n * m,
        shape=(n, m),
        torch=lambda t, out: torch_module().addmm(t["c"], t["a"], t["b"], out=out),
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
        functional: Any = torch_module().nn.functional
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
    weights = {"w": draw(rng, co, ci // g, *[k] * rank) * np.float32(0.05)}
    points = int(np.prod(out)) * co
    nodes = (Node("Conv", ("x", "w"), "y", attrs),)
    if bias:
        weights["b"] = draw(rng, co)
        nodes = (Node("Conv", ("x", "w", "b"), "t", attrs), Node("Relu", ("t",), "y"))
    return Workload(
        inputs={"x": draw(rng, 1, ci, *size)},
        weights=weights,
        flop=2 * points * (ci // g) * k**rank + 2 * points * bias,
        shape=(1, co, *out),
        torch=forward,
        nodes=nodes,
        reference=by_torch(forward),
        image=True,
    )


def conv2d_transpose(h: int, w: int, ci: int, co: int, k: int, s: int, p: int) -> Workload:
    """x (1, ci, h, w) spread by stride s, with w (ci, co, k, k). Flop: taps that meet data."""
    rng = np.random.default_rng(0)
    oh, ow = ((n - 1) * s - 2 * p + k for n in (h, w))

    def forward(t: Arrays, _: Any) -> Any:
        return torch_module().nn.functional.conv_transpose2d(t["x"], t["w"], stride=s, padding=p)

    attrs = {"kernel_shape": [k, k], "strides": [s, s], "pads": [p] * 4}
    return Workload(
        inputs={"x": draw(rng, 1, ci, h, w)},
        weights={"w": draw(rng, ci, co, k, k) * np.float32(0.05)},
        flop=2 * oh * ow * ci * co * k * k // (s * s),
        shape=(1, co, oh, ow),
        torch=forward,
        nodes=(Node("ConvTranspose", ("x", "w"), "y", attrs),),
        reference=by_torch(forward),
        image=True,
    )


def matmul_bias_gelu(n: int, depth: int, m: int) -> Workload:
    """gelu(a (n, depth) @ b (depth, m) + d (m,)), by the error function."""
    rng = np.random.default_rng(0)

    def forward(t: Arrays, _: Any) -> Any:
        torch = torch_module()
        return torch.nn.functional.gelu(torch.addmm(t["d"], t["a"], t["b"]))

    return Workload(
        inputs={"a": draw(rng, n, depth)},
        weights={"b": draw(rng, depth, m) * np.float32(0.05), "d": draw(rng, m)},
        flop=2 * n * depth * m,
        shape=(n, m),
        torch=forward,
        nodes=(
            Node("MatMul", ("a", "b"), "t"),
            Node("Add", ("t", "d"), "u"),
            Node("Gelu", ("u",), "y"),
        ),
        reference=by_torch(forward),
    )


def transpose_batch_matmul(seq: int, heads: int, dim: int) -> Workload:
    """q and k (seq, heads, dim): for each head the products of all pairs of rows."""
    rng = np.random.default_rng(0)

    def forward(t: Arrays, out: Any) -> Any:
        return torch_module().matmul(t["q"].permute(1, 0, 2), t["k"].permute(1, 2, 0), out=out)

    def numpy(a: Arrays, out: Array) -> Any:
        return np.matmul(a["q"].transpose(1, 0, 2), a["k"].transpose(1, 2, 0), out=out)

    return Workload(
        inputs={"q": draw(rng, seq, heads, dim), "k": draw(rng, seq, heads, dim)},
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
        inputs={"x": draw(rng, n * m)},
        weights={},
        flop=2 * n * m,
        shape=(1,),
        torch=lambda t, out: torch_module().linalg.vector_norm(
            t["x"], dim=0, keepdim=True, out=out
        ),
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
        inputs={"x": draw(rng, n, m)},
        weights={},
        flop=4 * n * m,
        shape=(n, m),
        torch=lambda t, out: torch_module().softmax(t["x"], 1, out=out),
        nodes=(Node("Softmax", ("x",), "y", {"axis": 1}),),
        reference=reference,
        numpy=numpy,
    )


def layer_norm(n: int, m: int) -> Workload:
    """Rows of x (n, m) brought to mean 0 and variance 1 (epsilon 1e-5), times g plus b (m,)."""
    rng = np.random.default_rng(0)

    def forward(t: Arrays, out: Any) -> Any:
        torch = torch_module()
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
        inputs={"x": draw(rng, n, m)},
        weights={"g": draw(rng, m), "b": draw(rng, m)},
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
        inputs={"x": draw(rng, n, m)},
        weights={},
        flop=n * m,
        shape=(n, m),
        torch=lambda t, out: torch_module().cumsum(t["x"], 0, out=out),
        nodes=(Node("CumSum", ("x", "axis"), "y"),),
        reference=lambda a: np.cumsum(a["x"], axis=0),
        numpy=lambda a, out: np.cumsum(a["x"], axis=0, out=out),
        constants={"axis": np.array(0, np.int64)},
    )


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
