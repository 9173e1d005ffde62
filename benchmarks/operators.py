"""Single operators as ONNX models, to be timed beside onnxruntime and OpenVINO.

    python benchmarks/operators.py FOLDER
    python benchmarks/models.py FOLDER [--threads 2 1]

What a whole model hides: an operator that takes a hundredth of its time may take ten times what an
engine does. Inputs are float32; constants are weights, indices and sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Union

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17
Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """One node: the shapes of its inputs, then its constants by their shapes or values."""

    operator: str
    inputs: tuple[Shape, ...]
    constants: tuple[Union[Shape, Array], ...] = ()
    attributes: Mapping[str, Any] = MappingProxyType({})
    outputs: int = 1


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


def _windows(size: int, stride: int, pad: int, rank: int = 2, **more: Any) -> dict[str, Any]:
    shape = {"kernel_shape": [size] * rank, "strides": [stride] * rank, "pads": [pad] * 2 * rank}
    return {**shape, **more}


def _product(rows: int, depth: int, columns: int) -> dict[str, Case]:
    """By a constant matrix, as it lies in a MatMul and in a Linear, and by one that is given."""
    name = f"{rows}x{depth}x{columns}"
    return {
        f"matmul_constant_{name}": Case("MatMul", ((rows, depth),), ((depth, columns),)),
        f"linear_{name}": Case(
            "Gemm", ((rows, depth),), ((columns, depth), (columns,)), {"transB": 1}
        ),
        f"matmul_given_{name}": Case("MatMul", ((rows, depth), (depth, columns))),
    }


def _turned(rank: int, size: int, channels: int, filters: int, k: int, s: int) -> Case:
    pad = (k - s + 1) // 2
    extra = [2 * pad + s - k] * rank
    attributes = {"strides": [s] * rank, "pads": [pad] * 2 * rank, "output_padding": extra}
    given = (1, channels, *[size] * rank)
    return Case(
        "ConvTranspose", (given,), ((channels, filters, *[k] * rank), (filters,)), attributes
    )


CASES: dict[str, Case] = {
    **{k: v for rows in (1, 2, 4, 7, 12) for k, v in _product(rows, 1024, 8192).items()},
    "linear_head": Case("Gemm", ((4, 1024),), ((50257, 1024), (50257,)), {"transB": 1}),
    "matmul_tall": Case("MatMul", ((10000, 32),), ((32, 24),)),
    "matmul_deep": Case("MatMul", ((32, 10000), (10000, 24))),
    "matmul_batch": Case("MatMul", ((48, 50, 64), (48, 64, 50))),
    "transposed_k2s2": _turned(2, 28, 256, 128, 2, 2),
    "transposed_k3s2": _turned(2, 28, 128, 64, 3, 2),
    "transposed_k4s2": _turned(2, 32, 128, 64, 4, 2),
    "transposed_k5s2": _turned(2, 28, 64, 32, 5, 2),
    "transposed_k7s3": _turned(2, 20, 32, 16, 7, 3),
    "transposed_3d_k3s2": _turned(3, 12, 32, 16, 3, 2),
    "conv_1d": Case("Conv", ((1, 128, 400),), ((256, 128, 5), (256,)), {"pads": [2, 2]}),
    "conv_1d_by_channel": Case(
        "Conv", ((1, 512, 300),), ((512, 1, 31), (512,)), {"pads": [15, 15], "group": 512}
    ),
    "conv_3d": Case(
        "Conv", ((1, 16, 16, 56, 56),), ((32, 16, 3, 3, 3), (32,)), {"pads": [1] * 6}
    ),
    "conv_dilated": Case(
        "Conv", ((1, 256, 33, 33),), ((256, 256, 3, 3), (256,)),
        {"pads": [12] * 4, "dilations": [12, 12]},
    ),
    "max_pool_3s2": Case("MaxPool", ((4, 64, 112, 112),), (), _windows(3, 2, 1)),
    "max_pool_5s1": Case("MaxPool", ((1, 256, 20, 20),), (), _windows(5, 1, 2)),
    "max_pool_3d": Case("MaxPool", ((1, 32, 32, 56, 56),), (), _windows(2, 2, 0, 3)),
    "average_pool_3s1": Case("AveragePool", ((4, 64, 56, 56),), (), _windows(3, 1, 1)),
    "global_pool": Case("GlobalAveragePool", ((8, 512, 14, 14),)),
    "instance_norm": Case("InstanceNormalization", ((2, 64, 112, 112),), ((64,), (64,))),
    "layer_norm": Case("LayerNormalization", ((512, 768),), ((768,), (768,))),
    "softmax": Case("Softmax", ((16, 30522),), (), {"axis": -1}),
    "softmax_first": Case("Softmax", ((8, 512, 100),), (), {"axis": 1}),
    "log_softmax": Case("LogSoftmax", ((128, 1000),), (), {"axis": -1}),
    "sum_of_columns": Case("ReduceSum", ((2000, 1500),), (_ints(0),), {"keepdims": 0}),
    "sum_of_rows": Case("ReduceSum", ((2000, 1500),), (_ints(1),), {"keepdims": 0}),
    "mean_between": Case("ReduceMean", ((16, 300, 400),), (), {"axes": [1], "keepdims": 0}),
    "arg_max": Case("ArgMax", ((2, 21, 128, 128),), (), {"axis": 1}),
    "running_sum": Case("CumSum", ((256, 1000),), (np.array(1),)),
    "top_k": Case("TopK", ((64, 10000),), (_ints(10),), {}, 2),
    "sort": Case("TopK", ((64, 1000),), (_ints(1000),), {}, 2),
    "resize_nearest": Case(
        "Resize", ((1, 128, 40, 40),),
        (np.zeros(0, "f4"), np.array([1, 1, 2, 2], "f4")),
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "resize_linear": Case(
        "Resize", ((1, 64, 64, 64),), (np.zeros(0, "f4"), np.array([1, 1, 2, 2], "f4")),
        {"mode": "linear"},
    ),
    "pad_reflect": Case(
        "Pad", ((1, 64, 128, 128),), (_ints(0, 0, 3, 3, 0, 0, 3, 3),), {"mode": "reflect"}
    ),
    "transpose": Case("Transpose", ((1500, 1700),), (), {"perm": [1, 0]}),
    "transpose_heads": Case("Transpose", ((8, 128, 12, 64),), (), {"perm": [0, 2, 1, 3]}),
    "concat": Case("Concat", ((4, 96, 28, 28), (4, 32, 28, 28)), (), {"axis": 1}),
    "depth_to_space": Case("DepthToSpace", ((1, 256, 64, 64),), (), {"blocksize": 2}),
    "gather": Case("Gather", ((256, 1000),), (np.arange(0, 1000, 3),), {"axis": 1}),
    "outer": Case("Mul", ((2000, 1), (1, 1500))),
    "erf": Case("Erf", ((128, 3072),)),
    "tanh": Case("Tanh", ((512, 1024),)),
    "power": Case("Pow", ((512, 1024),), (np.array(2.5, "f4"),)),
}  # fmt: skip


def main() -> None:
    """Write the models and their inputs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        _write(options.folder / name, case)
    print(f"{len(CASES)} models in {options.folder}")


def _write(path: Path, case: Case) -> None:
    rng = np.random.default_rng(len(path.name))
    given = {f"x{n}": rng.standard_normal(s).astype("f4") for n, s in enumerate(case.inputs)}
    if case.operator == "Pow":
        given = {name: np.abs(x) for name, x in given.items()}
    depth = max((s[0] for s in case.inputs[:1]), default=1)
    constants = {
        f"c{n}": c if isinstance(c, np.ndarray)
        else (rng.standard_normal(c) / max(depth, 16) ** 0.5).astype("f4")
        for n, c in enumerate(case.constants)
    }  # fmt: skip
    results = [f"y{n}" for n in range(case.outputs)]
    node = helper.make_node(case.operator, [*given, *constants], results, **case.attributes)
    graph = helper.make_graph(
        [node],
        path.name,
        [
            helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, x.shape)
            for n, x in given.items()
        ],
        [onnx.ValueInfoProto(name=n) for n in results],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model)
    onnx.save(model, path.with_suffix(".onnx"))
    np.savez(path.with_suffix(".npz"), **{f"in_{n}": x for n, x in given.items()})


if __name__ == "__main__":
    main()
