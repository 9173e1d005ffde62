"""Nodes of random ONNX models, made of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from random_sizes import Dim, Dims, Inputs, written


@dataclass
class Model:
    """Nodes, constants and values by name, made of numbers."""

    numbers: list[int]
    inputs: Inputs
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    values: list[tuple[str, Dims]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = [(k, d) for k, d in self.inputs.items() if k != "ids"]

    def pick(self, count: int) -> int:
        """A number below `count`."""
        return self.numbers.pop(0) % count if self.numbers else 0

    def value(self) -> tuple[str, Dims]:
        """A value, later ones more often."""
        return self.values[-1 - min(self.pick(len(self.values)), self.pick(len(self.values)))]

    def const(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def floats(self, *shape: int) -> str:
        rng = np.random.default_rng(len(self.constants))
        return self.const(rng.standard_normal(shape).astype(np.float32))

    def node(self, op: str, inputs: Sequence[str], **attrs: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def size(self, d: Dim) -> str | None:
        """A size as a tensor of one number; None where no input has it."""
        if isinstance(d, int):
            return self.const(np.asarray([d]))
        for name, dims in self.inputs.items():
            if d in dims:
                shape = self.node("Shape", [name])
                return self.node("Gather", [shape, self.const(np.asarray([dims.index(d)]))])
        return None

    def proto(self) -> onnx.ModelProto:
        infos = [
            helper.make_tensor_value_info(
                k, TensorProto.INT64 if k == "ids" else TensorProto.FLOAT, [written(d) for d in v]
            )
            for k, v in self.inputs.items()
        ]
        outs = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [written(d) for d in dims])
            for n, dims in self.values[-3:]
        ]
        graph = helper.make_graph(self.nodes, "g", infos, outs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
