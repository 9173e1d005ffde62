"""Single layers as ONNX models, to be timed beside onnxruntime and OpenVINO (oneDNN).

    python benchmarks/layers.py FOLDER [--dtype uint8|float32]
    python benchmarks/models.py FOLDER [--threads 2 1] [--db URL] [--precision bfloat16]

Ten products of matrices and ten convolutions. Those of uint8 have the form in which quantised
models come: bytes in, int8 weights with a scale a column or a filter, a bias, bytes out. Those of
float32 have a bias; with --precision bfloat16 both sides round what they multiply.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

MATMULS = (
    (1024, 1024, 1024),
    (512, 512, 512),
    (256, 256, 256),
    (128, 768, 768),
    (128, 768, 3072),
    (128, 3072, 768),
    (64, 384, 1536),
    (384, 512, 512),
    (100, 300, 500),
    (1, 1024, 1000),
)
"""Rows, depth, columns."""
CONVS = (
    (224, 3, 64, 7, 2, 1),
    (56, 64, 64, 3, 1, 1),
    (56, 64, 256, 1, 1, 1),
    (56, 64, 128, 3, 2, 1),
    (28, 128, 128, 3, 1, 1),
    (28, 128, 512, 1, 1, 1),
    (28, 128, 128, 3, 1, 4),
    (14, 256, 256, 3, 1, 1),
    (14, 1024, 256, 1, 1, 1),
    (7, 512, 512, 3, 1, 1),
)
"""Height and width, input channels, filters, window, stride, groups; padded by half a window."""
SCALE_IN, SCALE_OUT, ZERO = 0.02, 0.1, 128
OPSET = 17


class Layer(NamedTuple):
    """A layer of one operator: `axis` of the weights is that of bias and scales."""

    name: str
    operator: str
    shape: tuple[int, ...]
    weights: tuple[int, ...]
    axis: int
    attributes: dict[str, Any]

    @property
    def columns(self) -> int:
        """Elements of the bias."""
        return self.weights[self.axis]

    @property
    def depth(self) -> int:
        """Terms of a result."""
        return prod(self.weights) // self.columns

    def nodes(self, x: str, w: str, bias: str, y: str) -> list[onnx.NodeProto]:
        """The operator with its bias, between these names."""
        node = helper.make_node
        if self.operator == "Conv":
            return [node("Conv", [x, w, bias], [y], **self.attributes)]
        return [node(self.operator, [x, w], ["p"]), node("Add", ["p", bias], [y])]


def main() -> None:
    """Write the models and their inputs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=("uint8", "float32"), default="uint8")
    options = parser.parse_args()
    write = _write_quantised if options.dtype == "uint8" else _write_float
    options.folder.mkdir(parents=True, exist_ok=True)
    layers = list(_layers())
    for layer in layers:
        write(options.folder / layer.name, layer)
    print(f"{len(layers)} models in {options.folder}")


def _layers() -> Iterator[Layer]:
    for n, k, m in MATMULS:
        yield Layer(f"matmul_{n}_{k}_{m}", "MatMul", (n, k), (k, m), 1, {})
    for size, ci, co, window, stride, groups in CONVS:
        half = window // 2
        attributes = {"strides": [stride] * 2, "pads": [half] * 4, "group": groups}
        name = f"conv_{size}_{ci}_{co}_k{window}_s{stride}_g{groups}"
        weights = (co, ci // groups, window, window)
        yield Layer(name, "Conv", (1, ci, size, size), weights, 0, attributes)


def _write_quantised(path: Path, layer: Layer) -> None:
    rng = np.random.default_rng(len(path.name))
    columns, axis = layer.columns, layer.axis
    scale = rng.uniform(0.5, 1.0, columns).astype(np.float32) / (64 * layer.depth**0.5)
    constants = {
        "w": rng.integers(-127, 128, layer.weights, np.int8),
        "w_scale": scale,
        "w_zero": np.zeros(columns, np.int8),
        "x_scale": np.float32(SCALE_IN),
        "y_scale": np.float32(SCALE_OUT),
        "zero": np.uint8(ZERO),
        "bias": rng.integers(-1000, 1000, columns).astype(np.int32),
        "b_scale": scale * np.float32(SCALE_IN),
        "b_zero": np.zeros(columns, np.int32),
    }
    node = helper.make_node
    nodes = [
        node("DequantizeLinear", ["x", "x_scale", "zero"], ["xf"]),
        node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wf"], axis=axis),
        node("DequantizeLinear", ["bias", "b_scale", "b_zero"], ["bf"], axis=0),
        *layer.nodes("xf", "wf", "bf", "yf"),
        node("QuantizeLinear", ["yf", "y_scale", "zero"], ["y"]),
    ]
    _store(path, nodes, constants, rng.integers(0, 256, layer.shape, np.uint8))


def _write_float(path: Path, layer: Layer) -> None:
    rng = np.random.default_rng(len(path.name))
    constants = {
        "w": (rng.standard_normal(layer.weights) / layer.depth**0.5).astype(np.float32),
        "bias": rng.standard_normal(layer.columns).astype(np.float32),
    }
    nodes = layer.nodes("x", "w", "bias", "y")
    _store(path, nodes, constants, rng.standard_normal(layer.shape).astype(np.float32))


def _store(
    path: Path, nodes: list[onnx.NodeProto], constants: Mapping[str, Any], x: np.ndarray[Any, Any]
) -> None:
    """The model from x to y, of the dtype of x, and its input."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = helper.make_graph(
        nodes,
        path.name,
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model)
    onnx.save(model, path.with_suffix(".onnx"))
    np.savez(path.with_suffix(".npz"), in_x=x)


if __name__ == "__main__":
    main()
