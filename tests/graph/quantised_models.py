"""Quantised models, made in the test: one product each, in every form that quantisers write."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import helper, numpy_helper
from onnx.helper import make_node


@dataclass(frozen=True)
class Case:
    """A product of quantised numbers: `op` is Conv, Gemm or MatMul; `form` qdq, qlinear, integer.

    `x` and `w` are dtypes, `per_channel` scales of the weight one a column, `zero` its zero point.
    """

    op: str
    form: str = "qdq"
    x: str = "uint8"
    w: str = "int8"
    x_zero: int = 7
    zero: int = 0
    per_channel: bool = True
    bias: str = "int32"
    opset: int = 17
    after: str = ""
    attrs: tuple = ()
    shape: tuple = ()
    fixed: bool = True  # the weight is a constant


def shapes(case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the data and of the weight."""
    if case.op == "Conv":
        group = dict(case.attrs).get("group", 1)
        return case.shape or (2, 4, 7, 6), (8, 4 // group, 3, 3)
    if case.op == "Gemm":
        return (5, 11), ((6, 11) if dict(case.attrs).get("transB") else (11, 6))
    return case.shape or (2, 3, 11), (11, 6)


class Builder:
    """Collects nodes and constants of one model."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        self.case, self.rng = case, np.random.default_rng(seed)
        self.nodes: list = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}

    def const(self, name: str, value: np.ndarray) -> str:
        self.weights[name] = np.asarray(value)
        return name

    def node(self, op: str, inputs: list[str], **attrs) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(make_node(op, inputs, [name], **attrs))
        return name

    def numbers(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return self.rng.integers(low, high + 1, shape).astype(dtype)

    def made(self) -> tuple:
        """(ModelProto, inputs by name)."""
        case = self.case
        data, kernel = shapes(case)
        column = 0 if case.op == "Conv" or dict(case.attrs).get("transB") else len(kernel) - 1
        count = kernel[column]
        many = (count,) if case.per_channel else ()
        x_scale = self.const("xs", np.float32(0.02))
        x_zero = self.const("xz", np.array(case.x_zero, case.x))
        w_scale = self.const("ws", self.rng.uniform(0.002, 0.02, many).astype("f4"))
        w_zero = self.const("wz", np.full(many, case.zero, case.w))
        w = self.numbers(case.w, kernel)
        if case.fixed:
            self.const("w", w)
        else:
            self.inputs["w"] = w
        y_scale = self.const("ys", np.float32(0.25))
        y_zero = self.const("yz", np.array(120, np.uint8))
        self.inputs["x"] = self.numbers(case.x, data)
        steps = self.rng.integers(-4000, 4000, count).astype("i4")
        attrs = dict(case.attrs)
        if case.form == "integer":
            out = self.node(f"{case.op}Integer", ["x", "w", x_zero, w_zero], **attrs)
        elif case.form == "qlinear":
            given = ["x", x_scale, x_zero, "w", w_scale, w_zero, y_scale, y_zero]
            if case.op == "Conv" and case.bias:
                given.append(self.const("b", steps))
            out = self.node(f"QLinear{case.op}", given, **attrs)
        else:
            out = self._qdq(steps, column, attrs)
            if case.after == "Relu":
                out = self.node("Relu", [out])
            elif case.after == "Add":
                other = self.node("DequantizeLinear", [self._second(data), x_scale, x_zero])
                out = self.node("Add", [out, other])
            if case.after != "float":
                out = self.node("QuantizeLinear", [out, y_scale, y_zero])
        return self._model(out), self.inputs

    def _qdq(self, steps: np.ndarray, column: int, attrs: dict) -> str:
        a = self.node("DequantizeLinear", ["x", "xs", "xz"])
        along = {"axis": column} if self.case.opset >= 13 else {}
        b = self.node("DequantizeLinear", ["w", "ws", "wz"], **along)
        given = [a, b]
        if self.case.op != "MatMul" and self.case.bias:
            unit = np.float32(0.02) * self.weights["ws"]
            if self.case.bias == "float32":
                given.append(self.const("b", (steps * unit).astype("f4")))
            else:
                self.const("bs", unit)
                zero = self.const("bz", np.zeros(unit.shape, np.int32))
                given.append(self.node("DequantizeLinear", [self.const("b", steps), "bs", zero],
                                       **dict.fromkeys(along, 0)))  # fmt: skip
        return self.node(self.case.op, given, **attrs)

    def _second(self, data: tuple[int, ...]) -> str:
        filters, steps = shapes(self.case)[1][0], (data[2] - 2, data[3] - 2)
        self.inputs["z"] = self.numbers(self.case.x, (data[0], filters, *steps))
        return "z"

    def _model(self, out: str):
        make = helper.make_tensor_value_info
        kind = helper.np_dtype_to_tensor_dtype
        inputs = [make(n, kind(a.dtype), a.shape) for n, a in self.inputs.items()]
        result = "int32" if self.case.form == "integer" else "uint8"
        result = "float32" if self.case.after == "float" else result
        graph = helper.make_graph(
            self.nodes, "g", inputs, [make(out, kind(np.dtype(result)), None)],
            [numpy_helper.from_array(a, n) for n, a in self.weights.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self.case.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


CASES = (
    Case("Conv"),
    Case("Conv", attrs=(("pads", (1, 1, 1, 1)), ("strides", (2, 1)))),
    Case("Conv", x="int8", x_zero=-5, attrs=(("pads", (0, 2, 1, 0)), ("dilations", (2, 1)))),
    Case("Conv", w="uint8", zero=128, per_channel=False, after="Relu", bias="float32"),
    Case("Conv", w="uint8", zero=3, per_channel=False, attrs=(("group", 2),)),
    Case("Conv", attrs=(("group", 4), ("pads", (1, 1, 1, 1))), bias="", opset=13),
    Case("Conv", per_channel=False, x_zero=0, opset=11, after="float"),
    Case("Conv", after="Add", opset=21),
    Case("Conv", form="qlinear", attrs=(("pads", (1, 1, 1, 1)),)),
    Case("Conv", form="qlinear", x="uint8", w="uint8", zero=130, per_channel=False, bias=""),
    Case("Conv", form="integer", per_channel=False, zero=-3, attrs=(("pads", (1, 0, 1, 2)),)),
    Case("Gemm", attrs=(("transB", 1),)),
    Case("Gemm", per_channel=False, bias="float32", x="int8", x_zero=3, after="Relu"),
    Case("Gemm", attrs=(("transB", 1), ("alpha", 0.5)), bias="", opset=21),
    Case("MatMul", after="float"),
    Case("MatMul", w="uint8", zero=200, x="int8", x_zero=0, per_channel=False, opset=13),
    Case("MatMul", shape=(5, 11), w="uint8", fixed=False, per_channel=False, zero=94),
    Case("MatMul", shape=(5, 11), x="int8", x_zero=-128, fixed=False, per_channel=False),
    Case("MatMul", x="int8", x_zero=0, fixed=False, per_channel=False, zero=-3, after="float"),
    Case("MatMul", form="qlinear", w="uint8", x="uint8", zero=9, per_channel=False, opset=10),
    Case("MatMul", form="integer", per_channel=False, x="uint8", w="uint8", zero=77),
    Case(
        "MatMul", form="integer", w="uint8", fixed=False, per_channel=False, zero=2, shape=(4, 11)
    ),
)
"""Zero points, scales one a column, signedness, attributes, opsets, constant or not."""
