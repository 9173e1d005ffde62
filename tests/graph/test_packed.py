"""Weights of two, four and eight bits: MatMulNBits against NumPy, and onnxruntime where it is."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node

from autosched import graph
from autosched.graph.ops.packed import packed4

DOMAINS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


def packed_model(rng, rows, depth, columns, block, zeros, bias=False, **attrs):
    """(ModelProto, x, the product in float64)."""
    blocks = -(-depth // block)
    numbers = rng.integers(0, 16, (columns, blocks * block)).astype("u1")
    scale = rng.uniform(0.5, 1.5, (columns, blocks)).astype("f4")
    shape = (columns, blocks, block // 2)
    pairs = numbers.reshape(*shape, 2)
    weights = {"b": pairs[..., 0] | pairs[..., 1] << 4, "s": scale.reshape(-1)}
    zero = np.full((columns, blocks), 8.0)
    names = ["x", "b", "s"]
    if zeros:
        points = rng.integers(0, 16, (columns, blocks + blocks % 2)).astype("u1")
        zero = points[:, :blocks].astype("f8")
        weights["z"] = (points[:, ::2] | points[:, 1::2] << 4).reshape(-1)
        names.append("z")
    if bias:
        weights["bias"] = rng.standard_normal(columns).astype("f4")
        names = [*(names if zeros else [*names, ""]), "", "bias"]
    node = make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=depth, N=columns,
                     bits=4, block_size=block, **attrs)  # fmt: skip
    make = helper.make_tensor_value_info
    proto = helper.make_graph(
        [node], "g", [make("x", TensorProto.FLOAT, (*rows, depth))],
        [make("y", TensorProto.FLOAT, (*rows, columns))],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    x = rng.standard_normal((*rows, depth)).astype("f4")
    w = (numbers.reshape(columns, blocks, block) - zero[..., None]) * scale[..., None]
    want = x.astype("f8") @ w.reshape(columns, -1)[:, :depth].T + weights.get("bias", 0)
    return helper.make_model(proto, opset_imports=DOMAINS, ir_version=9), x, want


def test_products_with_packed_weights(rng):
    """One row and several, blocks that K does not fill, zero points or 8, a bias."""
    cases = (
        ((1,), 64, 48, 32, False, {}),
        ((2, 3), 50, 21, 16, True, {"accuracy_level": 1}),
        ((5,), 96, 7, 32, True, {"bias": True}),
        ((1,), 33, 9, 16, False, {"bias": True}),
    )
    for rows, depth, columns, block, zeros, attrs in cases:
        proto, x, want = packed_model(rng, rows, depth, columns, block, zeros, **attrs)
        model = graph.build(graph.from_onnx(proto))
        results = [model(x)[0]]
        try:
            import onnxruntime

            session = onnxruntime.InferenceSession(
                proto.SerializeToString(), providers=["CPUExecutionProvider"]
            )
            results.append(session.run(None, {"x": x})[0])
        except ImportError:
            pass
        for found in results:
            error = np.abs(found - want).max() / np.abs(want).max()
            assert error < 1e-5, (rows, depth, columns, block, zeros)
        assert len(model.kernels) == 1
        assert all(c.nbytes < 4 * columns * depth for c in model.constants)
        assert any(c.dtype == np.uint8 for c in model.constants)


def test_a_skeleton_has_the_tasks_of_its_model(rng):
    proto, _, _ = packed_model(rng, (1,), 256, 64, 32, True)
    tasks = [
        sorted(t.workload_key for t in graph.extract_tasks(m, target="llvm")[0])
        for m in (graph.from_onnx(proto), graph.from_skeleton(graph.skeleton(proto)))
    ]
    assert tasks[0] == tasks[1]


def parts(numbers, bits):
    """The bytes of numbers along the last axis, that of the lowest bits first."""
    each = 8 // bits
    numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % each)])
    lanes = numbers.reshape(*numbers.shape[:-1], -1, each).astype("u1")
    return (lanes << np.arange(0, 8, bits, dtype="u1")).sum(-1, dtype="u1")


@pytest.mark.parametrize("kind", ["f4", "f2"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("points", [None, "u1", "float"])
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_each_number_of_bits(kind, bits, points, bias, rng):
    """Of float32, and of float16, which are computed in float32 and rounded once."""
    depth, columns, block = 70, 9, 16
    blocks = -(-depth // block)
    numbers = rng.integers(0, 1 << bits, (columns, blocks, block))
    zero = rng.integers(0, 1 << bits, (columns, blocks)) if points else 1 << (bits - 1)
    scale = rng.uniform(0.5, 1.5, (columns, blocks)).astype(kind)
    given = {"b": parts(numbers, bits), "s": scale}
    if points:
        given["z"] = parts(zero, bits) if points == "u1" else zero.astype(kind)
    if bias:
        given["c"] = rng.standard_normal(columns).astype(kind)
    names = ["x", "b", "s", "z" if points else "", "", "c" if bias else ""]
    node = make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=depth, N=columns,
                     bits=bits, block_size=block)  # fmt: skip
    make = helper.make_tensor_value_info
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    proto = helper.make_graph(
        [node], "g", [make("x", number, (3, depth))], [make("y", number, (3, columns))],
        [numpy_helper.from_array(a, n) for n, a in given.items()],
    )  # fmt: skip
    proto = helper.make_model(proto, opset_imports=DOMAINS, ir_version=9)
    x = rng.standard_normal((3, depth)).astype(kind)
    weight = (numbers - np.asarray(zero)[..., None]) * scale[..., None].astype("f8")
    want = x.astype("f8") @ weight.reshape(columns, -1)[:, :depth].T
    want = (want + given.get("c", 0)).astype(kind)
    mod = graph.from_onnx(proto)
    found = graph.build(mod)(x)[0]
    assert found.dtype == want.dtype
    step = 1e-4 if kind == "f4" else float(np.finfo("f2").eps)
    np.testing.assert_allclose(found, want, rtol=step, atol=step / 10 * abs(want).max())
    again = graph.from_skeleton(graph.skeleton(proto))
    keys = [sorted(t.workload_key for t in graph.extract_tasks(m)[0]) for m in (mod, again)]
    assert keys[0] == keys[1]


def test_what_is_packed(rng):
    numbers = rng.integers(0, 16, (7, 3))
    found = packed4(numbers, 4)
    assert found.shape == (2, 2, 3)
    for k, n in np.ndindex(numbers.shape):
        byte = found[k // 4, k % 4 // 2, n]
        assert (byte >> 4 if k % 2 else byte & 15) == numbers[k, n]
    assert (found[1, 1] >> 4 == 0).all()


def test_other_packings_are_refused(rng):
    proto, _, _ = packed_model(rng, (1,), 32, 4, 32, False)
    for change, message in (
        (lambda p: setattr(p.graph.node[0].attribute[2], "i", 3), "bits, block_size"),
        (lambda p: p.graph.initializer.pop(1), "which no node before it computes"),
        (lambda p: setattr(p.graph.node[0].attribute[0], "i", 64), r"input B has the shape"),
    ):
        other = type(proto).FromString(proto.SerializeToString())
        names = [a.name for a in other.graph.node[0].attribute]
        order = [names.index(n) for n in ("K", "N", "bits")]
        attributes = [other.graph.node[0].attribute[n] for n in order]
        rest = [a for a in other.graph.node[0].attribute if a.name == "block_size"]
        del other.graph.node[0].attribute[:]
        other.graph.node[0].attribute.extend([*attributes, *rest])
        change(other)
        with pytest.raises(graph.Unsupported, match=message):
            graph.from_onnx(other)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_weights_of_four_bits_in_blocks(kind, rng):
    """DequantizeLinear of opset 21: such tensors are read as bytes."""
    low = -8 if kind == TensorProto.INT4 else 0
    w = rng.integers(low, low + 16, (8, 5))
    scale = rng.uniform(0.5, 1.5, (2, 5)).astype("f4")
    nodes = [make_node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=4),
             make_node("MatMul", ["x", "f"], ["y"])]  # fmt: skip
    make = helper.make_tensor_value_info
    proto = helper.make_model(
        helper.make_graph(
            nodes, "g", [make("x", 1, (3, 8))], [make("y", 1, (3, 5))],
            [helper.make_tensor("w", kind, (8, 5), w.reshape(-1).tolist()),
             numpy_helper.from_array(scale, "s")],
        ), opset_imports=[helper.make_opsetid("", 21)], ir_version=10,
    )  # fmt: skip
    x = rng.standard_normal((3, 8)).astype("f4")
    (y,) = graph.build(graph.from_onnx(proto))(x)
    np.testing.assert_allclose(y, x @ (w * np.repeat(scale, 4, 0)), rtol=1e-4, atol=1e-4)
