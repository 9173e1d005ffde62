"""Small ONNX models, made in the test."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autosched import graph

ELEM = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def info(name, shape, dtype="float32"):
    return helper.make_tensor_value_info(name, ELEM[dtype], shape)


def model(nodes, inputs, outputs, weights=None, opset=17):
    """A ModelProto of nodes; inputs and outputs are value infos, weights arrays by name."""
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def residual_net(rng):
    """Two convolutions with batch normalisation and a residual connection, a pool, a product."""
    weights = {
        "w1": rng.standard_normal((8, 3, 3, 3)).astype("f4") * 0.2,
        "b1": rng.standard_normal(8).astype("f4"),
        "w2": rng.standard_normal((8, 8, 3, 3)).astype("f4") * 0.2,
        "scale": rng.uniform(0.5, 1.5, 8).astype("f4"),
        "offset": rng.standard_normal(8).astype("f4"),
        "mean": rng.standard_normal(8).astype("f4"),
        "var": rng.uniform(0.5, 1.5, 8).astype("f4"),
        "fc": rng.standard_normal((5, 8)).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], name="conv1"),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["c"], pads=[1, 1, 1, 1], name="conv2"),
        helper.make_node("BatchNormalization", ["c", "scale", "offset", "mean", "var"], ["n"]),
        helper.make_node("Add", ["n", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "fc"], ["y"], transB=1),
    ]
    return model(nodes, [info("x", [1, 3, 12, 12])], [info("y", [1, 5])], weights)


def reference(proto, *inputs):
    """onnx's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    run = ReferenceEvaluator(proto)
    return run.run(None, dict(zip(run.input_names, inputs, strict=True)))


def node_model(op, inputs, outputs, opset=17, **attrs):
    """One node over arrays: (ModelProto, arrays of the inputs that are given)."""
    names = [f"i{n}" if a is not None else "" for n, a in enumerate(inputs)]
    given = {n: a for n, a in zip(names, inputs, strict=True) if n}
    made = helper.make_node(op, names, [f"o{n}" for n in range(outputs)], **attrs)
    proto = helper.make_graph(
        [made],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in given.items()],
        [onnx.ValueInfoProto(name=f"o{n}") for n in range(outputs)],
    )  # fmt: skip
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", opset)]), list(
        given.values()
    )


def run(proto, *inputs):
    """The results of the evaluator: its definitions are those that kernels are made of."""
    made = graph.evaluate(graph.from_onnx(proto), "main", *inputs)
    return made if isinstance(made, tuple) else (made,)


DOMAINS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


def microsoft(op, inputs, outputs=1, **attrs):
    """The results of one operator of onnxruntime, whose inputs are constants but the first."""
    names = [f"i{n}" if a is not None else "" for n, a in enumerate(inputs)]
    node = helper.make_node(
        op, names, [f"o{n}" for n in range(outputs)], domain="com.microsoft", **attrs
    )
    first = helper.make_tensor_value_info(
        "i0", helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape
    )
    weights = [numpy_helper.from_array(np.asarray(a), n)
               for n, a in zip(names[1:], inputs[1:], strict=True) if n]  # fmt: skip
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in node.output]
    proto = helper.make_graph([node], "g", [first], results, weights)
    return run(helper.make_model(proto, opset_imports=DOMAINS), inputs[0])
