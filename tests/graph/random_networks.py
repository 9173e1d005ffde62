"""Random convolutional networks and transformer blocks as ONNX models, of uneven sizes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
CHANNELS = (3, 5, 8, 12, 16, 20, 24, 33, 40, 48, 55, 64, 72, 88)
EACH = (1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 24)
ACTIVATIONS = ("Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Tanh", "Silu", "Clip", "")


class Network:
    """Nodes and weights of a model as it grows; a value is its name and its shape."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0

    def node(self, kind: str, *inputs: str, **attrs: Any) -> str:
        """Append a node of one output; its name."""
        self.count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [f"v{self.count}"], **attrs))
        return f"v{self.count}"

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        """A constant of normal values."""
        return self.constant((self.rng.standard_normal(shape) * scale).astype("float32"))

    def constant(self, value: Array) -> str:
        """A constant."""
        self.count += 1
        self.weights.append(numpy_helper.from_array(value, f"w{self.count}"))
        return f"w{self.count}"

    def activation(self, x: str) -> str:
        """One of the usual functions of each element, or none."""
        kind = self.random.choice(ACTIVATIONS)
        if kind == "Silu":
            return self.node("Mul", x, self.node("Sigmoid", x))
        if kind == "Clip":
            bounds = (self.constant(np.float32(n)) for n in (0, 6))
            return self.node("Clip", x, *bounds)
        return self.node(kind, x) if kind else x

    def conv(self, x: str, shape: list[int]) -> tuple[str, list[int]]:
        """A convolution of random form, with batch normalisation and an activation or without."""
        r = self.random
        images, depth, *spatial = shape
        form = r.choice(("dense", "dense", "grouped", "depthwise", "one"))
        filters, group = r.choice(CHANNELS), 1
        if form == "depthwise":
            group = depth
            filters = depth * r.choice((1, 1, 2))
        elif form == "grouped":
            # The channels are made a multiple of a group's before.
            each, group = r.choice(EACH), r.choice((2, 3, 5, 6, 11))
            w = self.weight(each * group, depth, 1, 1, scale=depth**-0.5)
            x, depth = self.node("Conv", x, w), each * group
            filters = group * r.choice(EACH)
        k = 1 if form == "one" else r.choice([n for n in (1, 3, 5) if n <= min(spatial)])
        dilation = 2 if k == 3 and min(spatial) >= 5 and r.random() < 0.2 else 1
        stride = r.choice((1, 1, 2))
        reach = (k - 1) * dilation
        pad = r.choice((reach // 2, reach // 2, 0)) if min(spatial) > reach else reach // 2
        each = depth // group
        args = [x, self.weight(filters, each, k, k, scale=(each * k * k) ** -0.5)]
        if r.random() < 0.6:
            args.append(self.weight(filters))
        out = self.node(
            "Conv", *args, group=group, strides=[stride] * 2, dilations=[dilation] * 2,
            pads=[pad] * 4, kernel_shape=[k, k],
        )  # fmt: skip
        spatial = [(n + 2 * pad - reach - 1) // stride + 1 for n in spatial]
        if r.random() < 0.4:
            scale = self.constant(self.rng.uniform(0.5, 2, filters).astype("float32"))
            shift, mean = self.weight(filters), self.weight(filters)
            out = self.node("BatchNormalization", out, scale, shift, mean, scale)
        return self.activation(out), [images, filters, *spatial]

    def squeeze(self, x: str, shape: list[int]) -> tuple[str, list[int]]:
        """Channels scaled by a function of their means."""
        few = max(shape[1] // 4, 1)
        s = self.node("GlobalAveragePool", x)
        s = self.node("Relu", self.node("Conv", s, self.weight(few, shape[1], 1, 1, scale=0.2)))
        s = self.node("Conv", s, self.weight(shape[1], few, 1, 1, scale=0.2))
        return self.node("Mul", x, self.node("Sigmoid", s)), shape

    def branches(self, x: str, shape: list[int]) -> tuple[str, list[int]]:
        """Two convolutions of one value, side by side."""
        both = [
            self.node("Conv", x, self.weight(n, shape[1], k, k, scale=0.1), pads=[k // 2] * 4)
            for n, k in ((self.random.choice(CHANNELS), 1), (self.random.choice(CHANNELS), 3))
        ]
        widths = [w.dims[0] for w in self.weights[-2:]]
        return self.node("Concat", *both, axis=1), [shape[0], sum(widths), *shape[2:]]

    def residual(self, x: str, shape: list[int]) -> tuple[str, list[int]]:
        """x plus a convolution of it."""
        w = self.weight(shape[1], shape[1], 3, 3, scale=(9 * shape[1]) ** -0.5)
        return self.activation(self.node("Add", x, self.node("Conv", x, w, pads=[1] * 4))), shape

    def shuffle(self, x: str, shape: list[int]) -> tuple[str, list[int]]:
        """Channels in another order."""
        images, depth, *spatial = shape
        g = next(n for n in (4, 3, 2, 1) if depth % n == 0)
        x = self.node("Reshape", x, self.constant(np.array([images, g, depth // g, *spatial])))
        x = self.node("Transpose", x, perm=[0, 2, 1, 3, 4])
        return self.node("Reshape", x, self.constant(np.array(shape))), shape

    def pool(self, x: str, shape: list[int]) -> tuple[str, list[int]]:
        """Windows of 2 or 3."""
        kind, k = self.random.choice(("MaxPool", "AveragePool")), self.random.choice((2, 3))
        if min(shape[2:]) < k:
            return x, shape
        stride = self.random.choice((1, 2))
        spatial = [(n - k) // stride + 1 for n in shape[2:]]
        return self.node(kind, x, kernel_shape=[k, k], strides=[stride] * 2), [*shape[:2], *spatial]

    def grow(self, x: str, shape: list[int]) -> tuple[str, list[int]]:
        """Twice as large, by repetition or by a transposed convolution."""
        spatial = [2 * n for n in shape[2:]]
        if self.random.random() < 0.5:
            factors = self.constant(np.array([1, 1, 2, 2], "float32"))
            form = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
            return self.node("Resize", x, "", factors, **form, nearest_mode="floor"), [
                *shape[:2], *spatial,
            ]  # fmt: skip
        filters = self.random.choice(CHANNELS)
        w = self.weight(shape[1], filters, 2, 2, scale=(4 * shape[1]) ** -0.5)
        return self.node("ConvTranspose", x, w, strides=[2, 2]), [shape[0], filters, *spatial]

    def attention(self, x: str, rows: int, width: int, heads: int) -> str:
        """A transformer's block of (1, rows, width)."""
        each = width // heads
        split = self.constant(np.array([1, rows, heads, each]))
        ones, zeros = np.ones(width, "float32"), np.zeros(width, "float32")
        n = self.node("LayerNormalization", x, self.constant(ones), self.constant(zeros), axis=-1)
        square = [self.weight(width, width, scale=0.1) for _ in range(4)]
        q, k, v = (self.node("Reshape", self.node("MatMul", n, w), split) for w in square[:3])
        q, v = (self.node("Transpose", a, perm=[0, 2, 1, 3]) for a in (q, v))
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 3, 1]))
        scores = self.node("Div", scores, self.constant(np.float32(each**0.5)))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
        mixed = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.constant(np.array([1, rows, width])))
        x = self.node("Add", x, self.node("MatMul", mixed, square[3]))
        wide = self.random.choice((2, 3, 4)) * width
        h = self.node("MatMul", x, self.weight(width, wide, scale=0.1))
        h = self.activation(self.node("Add", h, self.weight(wide)))
        return self.node("Add", x, self.node("MatMul", h, self.weight(wide, width)))


def network(seed: int) -> tuple[bytes, Array]:
    """A model of one input `x` and one output `y`, and a value for x."""
    net = Network(seed)
    r = net.random
    if r.random() < 0.2:
        heads = r.choice((1, 2, 3, 4))
        rows, width = r.randint(1, 40), heads * r.choice((5, 8, 12, 16, 32))
        shape, value = [1, rows, width], "x"
        for _ in range(r.randint(1, 2)):
            value = net.attention(value, rows, width, heads)
    else:
        side = r.randint(5, 18)
        shape = [r.choice((1, 1, 1, 2)), r.choice((1, 3, 4)), side, side + r.choice((0, 0, 1, 3))]
        value, now = net.conv("x", shape)
        steps = (net.conv, net.conv, net.conv, net.squeeze, net.branches, net.residual)
        steps += (net.shuffle, net.pool, net.grow)
        for _ in range(r.randint(2, 5)):
            step = r.choice(steps)
            if step != net.grow or max(now[2:]) < 20:
                value, now = step(value, now)
        if r.random() < 0.5:
            flat = net.node("Flatten", net.node("GlobalAveragePool", value))
            value = net.node("Gemm", flat, net.weight(r.choice((10, 33)), now[1]), transB=1)
    net.nodes.append(helper.make_node("Identity", [value], ["y"]))
    x = net.rng.standard_normal(shape).astype("float32")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    body = helper.make_graph(net.nodes, "network", [given], [made], net.weights)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(body, opset_imports=opset, ir_version=8)
    return model.SerializeToString(), x
