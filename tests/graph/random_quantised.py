"""Random quantised networks as ONNX models, each operator between QuantizeLinear and
DequantizeLinear, as quantisers write them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
CHANNELS = (3, 4, 6, 8, 12, 16, 17, 24, 32)
EACH = (2, 3, 4, 4, 8, 8, 16)
"""Channels of a group."""


@dataclass(frozen=True)
class Numbers:
    """Names of the constants that say what bytes stand for, and what they are."""

    scale: str
    zero: str
    unit: float
    kind: str


@dataclass(frozen=True)
class Real:
    """Dequantised numbers of a shape, their root mean square, and the numbers of their bytes."""

    name: str
    shape: tuple[int, ...]
    rms: float
    by: Numbers
    positive: bool = False


@dataclass(frozen=True)
class Model:
    """A model, its inputs by name, and the size of a step of each result."""

    text: bytes
    inputs: dict[str, Array]
    units: tuple[float, ...]


class Network:
    """Nodes and constants of a model as it grows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.kind = self.random.choice(("uint8", "int8"))
        self.inputs: dict[str, Array] = {}

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Append a node of one result; its name."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def numbers(self, rms: float, positive: bool) -> Numbers:
        """A scale under which few numbers saturate, and a zero point."""
        r = self.random
        kind = self.kind if r.random() < 0.85 else r.choice(("uint8", "int8"))
        low = int(np.iinfo(kind).min)
        unit = np.float32(rms * r.uniform(3.5, 6 if positive else 9) / 255)
        zero = low + (r.choice((0, 0, 9)) if positive else r.randint(90, 165))
        shape = r.choice(((), (), (1,)))
        names = self.constant(np.full(shape, unit)), self.constant(np.full(shape, zero, kind))
        return Numbers(*names, float(unit), kind)

    def quantised(
        self, x: str, shape: tuple[int, ...], rms: float, positive: bool = False,
        by: Numbers | None = None,
    ) -> Real:  # fmt: skip
        """x, quantised and dequantised by given numbers, or by new ones."""
        by = self.numbers(rms, positive) if by is None else by
        q = self.node("QuantizeLinear", x, by.scale, by.zero)
        return Real(self.node("DequantizeLinear", q, by.scale, by.zero), shape, rms, by, positive)

    def weight(self, *shape: int, terms: int, axis: int) -> tuple[str, Array]:
        """A dequantised constant, and its scales, one or one an index of `axis`."""
        real = self.rng.standard_normal(shape) * terms**-0.5
        many = self.random.random() < 0.7
        others = tuple(n for n in range(len(shape)) if n != axis % len(shape))
        most = np.abs(real).max(others if many else None, keepdims=True)
        scale = (np.maximum(most, 1e-3) / 127).astype("float32")
        kind, zero = "int8", 0
        if not many and self.random.random() < 0.3:
            kind, zero = "uint8", self.random.choice((128, 121))
        info = np.iinfo(kind)
        stored = np.clip(np.round(real / scale) + zero, info.min, info.max).astype(kind)
        by = scale.reshape(-1) if many else scale.reshape(())
        names = [self.constant(a) for a in (stored, by, np.full(by.shape, zero, kind))]
        return self.node("DequantizeLinear", *names, axis=axis), by

    def bias(self, x: Real, by: Array, count: int) -> str:
        """What is added to the results of a product: float32, or int32 in steps of the sums."""
        unit = (np.float32(x.by.unit) * by).astype("float32")
        real = self.rng.standard_normal(count) * 0.3 * x.rms
        if self.random.random() < 0.3:
            return self.constant(real.astype("float32"))
        steps = np.round(real / unit).astype("int32")
        if np.abs(steps).max() >= 1 << 30:
            return self.constant(real.astype("float32"))
        return self.node(
            "DequantizeLinear", self.constant(steps), self.constant(unit), axis=0
        )  # fmt: skip

    def activation(self, x: str, rms: float) -> tuple[str, float, bool]:
        """A function of each element or none: its result, its root mean square, and whether none
        is negative."""
        kind = self.random.choice(("Relu", "Relu", "", "", "Sigmoid", "HardSwish", "Clip"))
        if kind == "Relu":
            return self.node("Relu", x), 0.7 * rms, True
        if kind == "Sigmoid":
            return self.node("Sigmoid", x), 0.55, True
        if kind == "HardSwish":
            return self.node("HardSwish", x), 0.6 * rms, False
        if kind == "Clip":
            ends = (self.constant(np.float32(n)) for n in (0, 6))
            return self.node("Clip", x, *ends), 0.7 * min(rms, 4), True
        return x, rms, False

    def conv(self, x: Real, form: str = "", same: bool = False, **chosen: Any) -> Real:
        """A convolution; `same` keeps the spatial sizes, `filters` and `by` may be given."""
        r = self.random
        images, depth, *spatial = x.shape
        groups = [n for n in EACH if depth % n == 0 and depth > n]
        form = form or r.choice(("dense", "dense", "one", "depthwise", *["grouped"] * 2))
        group, filters = 1, chosen.get("filters") or r.choice(CHANNELS)
        if form == "grouped" and not groups:
            x = self.conv(x, "one", True, filters=r.choice((2, 4, 6)) * r.choice(EACH))
            return self.conv(x, form, same, **chosen)
        if form == "depthwise":
            group, filters = depth, depth * r.choice((1, 1, 2))
        elif form == "grouped":
            group = depth // r.choice(groups)
            filters = group * r.choice(EACH)
        k = 1 if form == "one" else r.choice([n for n in (1, 2, 3, 3, 5) if n <= min(spatial)])
        k = k if k % 2 or not same else 3
        dilation = 2 if k == 3 and min(spatial) >= 5 and r.random() < 0.2 else 1
        stride = 1 if same else r.choice((1, 1, 2))
        reach = (k - 1) * dilation
        pads = [reach // 2] * len(spatial) * 2
        if not same and min(spatial) > reach:
            pads = r.choice((pads, pads, [0] * len(pads), [r.randint(0, reach) for _ in pads]))
        each = depth // group
        w, by = self.weight(filters, each, *[k] * len(spatial), terms=each * k ** len(spatial),
                            axis=0)  # fmt: skip
        args = [x.name, w]
        if r.random() < 0.6:
            args.append(self.bias(x, by, filters))
        out = self.node(
            "Conv", *args, group=group, strides=[stride] * len(spatial),
            dilations=[dilation] * len(spatial), pads=pads, kernel_shape=[k] * len(spatial),
        )  # fmt: skip
        before, after = pads[: len(spatial)], pads[len(spatial) :]
        spatial = [
            (n + a + b - reach - 1) // stride + 1
            for n, a, b in zip(spatial, before, after, strict=True)
        ]
        out, rms, positive = self.activation(out, x.rms)
        if "by" in chosen:
            positive = False
        return self.quantised(out, (images, filters, *spatial), rms, positive, chosen.get("by"))

    def residual(self, x: Real) -> Real:
        """x plus a convolution of it, of new numbers or of those of x."""
        y = self.conv(x, self.random.choice(("one", "dense")), True, filters=x.shape[1])
        out = self.node("Add", *self.random.sample([x.name, y.name], 2))
        rms = (x.rms**2 + y.rms**2) ** 0.5
        if self.random.random() < 0.5:
            return self.quantised(self.node("Relu", out), x.shape, 0.8 * rms, True)
        return self.quantised(out, x.shape, rms)

    def squeeze(self, x: Real) -> Real:
        """Channels scaled by a sigmoid of their means."""
        shape = (*x.shape[:2], *[1] * (len(x.shape) - 2))
        s = self.quantised(self.node("GlobalAveragePool", x.name), shape, x.rms)
        s = self.conv(s, "one", True, filters=x.shape[1])
        s = self.quantised(self.node("Sigmoid", s.name), shape, 0.6, True)
        return self.quantised(self.node("Mul", x.name, s.name), x.shape, 0.6 * x.rms, x.positive)

    def branches(self, x: Real) -> Real:
        """Two convolutions side by side, and x, or not; all of the same numbers, or of any."""
        by = self.numbers(x.rms, False) if self.random.random() < 0.5 else None
        given: dict[str, Any] = {} if by is None else {"by": by}
        parts = [self.conv(x, f, True, **given) for f in ("one", "dense")]
        if by is None and self.random.random() < 0.5:
            parts.append(x)
        depth = sum(p.shape[1] for p in parts)
        out = self.node("Concat", *(p.name for p in parts), axis=1)
        rms = max(p.rms for p in parts)
        return self.quantised(out, (x.shape[0], depth, *x.shape[2:]), rms, by=by)

    def moved(self, x: Real) -> Real:
        """Channels in another order, or some of them; between numbers of their own, or not."""
        images, depth, *spatial = x.shape
        if self.random.random() < 0.4 and depth > 2:
            ends = (self.constant(np.array([n])) for n in (1, depth, 1))
            return self._kept(self.node("Slice", x.name, *ends), (images, depth - 1, *spatial), x)
        g = next(n for n in (4, 3, 2, 1) if depth % n == 0)
        split = self.constant(np.array([images, g, depth // g, *spatial]))
        y = self._kept(self.node("Reshape", x.name, split), (images, g, depth // g, *spatial), x)
        perm = [0, 2, 1, *range(3, 3 + len(spatial))]
        y = self._kept(self.node("Transpose", y.name, perm=perm), (), x)
        whole = self.constant(np.array(x.shape))
        return self._kept(self.node("Reshape", y.name, whole), x.shape, x)

    def _kept(self, name: str, shape: tuple[int, ...], x: Real) -> Real:
        """What moves elements of x: quantised by the numbers that x has, or not."""
        if self.random.random() < 0.5:
            return self.quantised(name, shape, x.rms, x.positive, x.by)
        return Real(name, shape, x.rms, x.by, x.positive)

    def pool(self, x: Real) -> Real:
        """Windows of 2 or 3."""
        spatial, k = x.shape[2:], self.random.choice((2, 3))
        if min(spatial) < k:
            return x
        pad, stride = self.random.choice((0, 0, 1)), self.random.choice((1, 2))
        shape = (*x.shape[:2], *((n + 2 * pad - k) // stride + 1 for n in spatial))
        attrs = {name: [n] * len(spatial) for name, n in
                 (("kernel_shape", k), ("strides", stride))}  # fmt: skip
        kind = self.random.choice(("MaxPool", "MaxPool", "AveragePool"))
        out = self.node(kind, x.name, pads=[pad] * 2 * len(spatial), **attrs)
        if kind == "MaxPool":
            return self._kept(out, shape, x)
        return self.quantised(out, shape, x.rms, x.positive)

    def projected(self, x: Real, columns: int) -> Real:
        """A product with a constant matrix."""
        w, _ = self.weight(x.shape[-1], columns, terms=x.shape[-1], axis=1)
        out = self.node("MatMul", x.name, w)
        if self.random.random() < 0.5:
            bias = self.rng.standard_normal(columns) * 0.3 * x.rms
            out = self.node("Add", out, self.constant(bias.astype("float32")))
        return self.quantised(out, (*x.shape[:-1], columns), x.rms)

    def attention(self, x: Real) -> Real:
        """Rows mixed by the softmax of products of rows: x is (images, rows, columns)."""
        images, rows, _ = x.shape
        q, k = self.projected(x, 8), self.projected(x, 8)
        k = self._kept(self.node("Transpose", k.name, perm=[0, 2, 1]), (images, 8, rows), k)
        rms = q.rms * k.rms * 8**0.5
        scores = self.quantised(self.node("MatMul", q.name, k.name), (images, rows, rows), rms)
        p = self.node("Softmax", scores.name, axis=-1)
        p = self.quantised(p, scores.shape, (1 if rows < 4 else 1.6) * rows**-0.5, True)
        mixed = self.quantised(self.node("MatMul", p.name, x.name), x.shape, x.rms)
        return self.quantised(self.node("Add", x.name, mixed.name), x.shape, 1.4 * x.rms)


def network(seed: int) -> Model:
    """A model of one input, and of one result or two, of bytes or of float32."""
    net = Network(seed)
    r = net.random
    spatial = (r.randint(5, 11), r.randint(5, 11)) if r.random() < 0.85 else (r.randint(8, 30),)
    shape = (r.choice((1, 1, 1, 2)), r.choice((1, 3, 3, 4, 8)), *spatial)
    value = net.rng.standard_normal(shape).astype("float32")
    by = net.numbers(1.0, False)
    if r.random() < 0.7:
        net.inputs["x"] = value
        x = net.quantised("x", shape, 1.0, by=by)
    else:
        info = np.iinfo(by.kind)
        net.inputs["x"] = net.rng.integers(info.min, info.max + 1, shape).astype(by.kind)
        x = Real(net.node("DequantizeLinear", "x", by.scale, by.zero), shape, 2.0, by)
    steps = (net.conv, net.conv, net.residual, net.squeeze, net.branches, net.moved, net.pool)
    x, seen = net.conv(x), []
    for _ in range(r.randint(1, 3)):
        x = r.choice(steps)(x)
        seen.append(x)
    if r.random() < 0.3:
        rows = int(np.prod(x.shape[2:]))
        flat = net.constant(np.array([x.shape[0], x.shape[1], rows]))
        x = net._kept(net.node("Reshape", x.name, flat), (*x.shape[:2], rows), x)
        x = net.attention(x)
    elif r.random() < 0.3:
        many = net.node("Flatten", net.node("GlobalAveragePool", x.name))
        x = net.projected(net.quantised(many, x.shape[:2], x.rms), r.choice((7, 10, 33)))
    results = [x, seen[0]] if r.random() < 0.25 and seen[0] is not x else [x]
    return _model(net, results)


def _model(net: Network, results: list[Real]) -> Model:
    outputs, units = [], []
    for n, x in enumerate(results):
        as_bytes = net.random.random() < 0.5
        kind = np.dtype(x.by.kind if as_bytes else "float32")
        name = net.node("QuantizeLinear", x.name, x.by.scale, x.by.zero) if as_bytes else x.name
        net.nodes.append(helper.make_node("Identity", [name], [f"y{n}"]))
        as_type = helper.np_dtype_to_tensor_dtype(kind)
        outputs.append(helper.make_tensor_value_info(f"y{n}", as_type, None))
        units.append(1.0 if as_bytes else x.by.unit)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in net.inputs.items()
    ]
    body = helper.make_graph(net.nodes, "network", given, outputs, net.constants)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Model(model.SerializeToString(), net.inputs, tuple(units))
