"""A skeleton has no weights and the tasks of its model; what is none is refused within bounds."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graph_models import info, model, residual_net
from onnx import TensorProto, helper

from autosched import graph
from autosched.errors import WorkloadError
from autosched.graph.onnx_import import Bounds
from autosched.target import Target

TARGET = Target("llvm")


def tasks_of(module):
    tasks, weights = graph.extract_tasks(module, TARGET)
    return [(t.workload_key, t.name, w) for t, w in zip(tasks, weights, strict=True)]


def wide_net(rng):
    """Batch normalisations over 32 and 96 channels, one that begins as training does."""
    weights = {"w1": rng.standard_normal((32, 4, 3, 3)), "w2": rng.standard_normal((96, 32, 1, 1))}
    for n, c in ((1, 32), (2, 96), (3, 96)):
        fresh = n == 3
        weights |= {
            f"s{n}": np.ones(c) if fresh else rng.uniform(0.5, 2, c),
            f"o{n}": np.zeros(c),
            f"m{n}": np.zeros(c) if fresh else rng.standard_normal(c),
            f"v{n}": np.ones(c) if fresh else rng.uniform(0.5, 2, c),
        }
    norm = [[f"{p}{n}" for p in "somv"] for n in (1, 2, 3)]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", *norm[0]], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"]),
        helper.make_node("BatchNormalization", ["d", *norm[1]], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        helper.make_node("BatchNormalization", ["f", *norm[2]], ["y"]),
    ]
    arrays = {n: np.asarray(a, "f4") for n, a in weights.items()}
    return model(nodes, [info("x", [1, 4, 10, 10])], [info("y", [1, 96, 10, 10])], arrays)


def shapes_from_constants(rng):
    """Sizes by scales, by integers that are computed, and a table that is read by numbers."""
    weights = {
        "table": rng.standard_normal((50, 24)).astype("f4"),
        "scales": np.asarray([1, 1, 2, 2], "f4"),
        "to": np.asarray([1, 4, 3, -1], "i8"),
        "k": np.asarray([2], "i8"),
        "roi": np.asarray([], "f4"),
        "zero": np.zeros(24, "f4"),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["g"]),
        helper.make_node("Reshape", ["g", "to"], ["r"]),
        helper.make_node("Resize", ["r", "roi", "scales"], ["s"], mode="nearest"),
        helper.make_node("Shape", ["s"], ["t"]),
        helper.make_node("Mul", ["t", "k"], ["u"]),
        helper.make_node("ConstantOfShape", ["u"], ["v"]),
        helper.make_node("Shape", ["v"], ["w"]),
        helper.make_node("Gather", ["w", "k"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "f"], ["p"]),
        helper.make_node("Add", ["p", "zero"], ["y"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 6])
    return model(nodes, [ids], [info("y", [1, 4, 6, 24])], weights)


def equal_weights(rng):
    """Two products with equal weights, which are made once, and one with another weight."""
    w = rng.standard_normal((24, 24)).astype("f4")
    weights = {"a": w, "b": w.copy(), "c": w + 1}
    nodes = [helper.make_node("MatMul", ["x", n], [f"p{n}"]) for n in "abc"]
    nodes += [
        helper.make_node("Softmax", ["pa"], ["q"]),
        helper.make_node("Sub", ["q", "pb"], ["r"]),
        helper.make_node("Mul", ["r", "pc"], ["y"]),
    ]
    return model(nodes, [info("x", [8, 24])], [info("y", [8, 24])], weights)


def quantised(rng):
    """Integer weights of 8 bits, scales by channel."""
    weights = {
        "w": rng.integers(-127, 127, (96, 16), "i1").T.copy(),
        "s": rng.uniform(0.01, 0.1, 96).astype("f4"),
        "z": np.zeros(96, "i1"),
        "xs": np.asarray(0.1, "f4"),
        "xz": np.asarray(3, "u1"),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["e"], axis=1),
        helper.make_node("MatMul", ["d", "e"], ["y"]),
    ]
    return model(nodes, [info("x", [4, 16])], [info("y", [4, 96])], weights)


def looped(rng):
    """A weight inside the body of a Loop, and one as a Constant."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "w"], ["p"]),
            helper.make_node("Tanh", ["p"], ["t"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            info("s", [24, 24]),
        ],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), info("t", [24, 24])],
        [onnx.numpy_helper.from_array(rng.standard_normal((24, 24)).astype("f4"), "w")],
    )
    value = onnx.numpy_helper.from_array(rng.standard_normal((24, 24)).astype("f4"))
    nodes = [
        helper.make_node("Constant", [], ["k"], value=value),
        helper.make_node("MatMul", ["x", "k"], ["z"]),
        helper.make_node("Loop", ["m", "go", "z"], ["y"], body=body),
    ]
    weights = {"m": np.asarray(7, "i8"), "go": np.asarray(True)}
    return model(nodes, [info("x", [24, 24])], [info("y", [24, 24])], weights)


def quantised_windows(rng):
    """Weights of bytes whose sums are small, and some that are as large as bytes can be: their
    convolutions have different implementations."""
    nodes, name = [], "x"
    weights = {"z": np.asarray(3, "u1"), "wz": np.asarray(128, "u1"), "one": np.asarray(1, "f4")}
    small = rng.integers(-20, 21, (128, 128, 3, 3)).astype("i1")
    for n, (w, zero) in enumerate(
        [
            (small, ""),
            (np.full((128, 128, 3, 3), -128, "i1"), ""),
            ((small.astype("i2") + 128).astype("u1"), "wz"),
            (np.full((128, 128, 3, 3), 255, "u1"), "wz"),
        ]
    ):
        weights[f"w{n}"] = w
        nodes += [
            helper.make_node("ConvInteger", [name, f"w{n}", "z", zero], [f"s{n}"], pads=[1] * 4),
            helper.make_node("Cast", [f"s{n}"], [f"f{n}"], to=TensorProto.FLOAT),
            helper.make_node("QuantizeLinear", [f"f{n}", "one", "z"], [f"q{n}"]),
        ]
        name = f"q{n}"
    # Filters last: large along that axis, and along others alone.
    large = np.zeros((3, 3, 128, 128), "i1")
    large[..., :4] = 127
    for n, w in ((4, large), (5, rng.integers(-80, 81, large.shape).astype("i1"))):
        weights[f"w{n}"] = w
        nodes += [
            helper.make_node("Transpose", [f"w{n}"], [f"t{n}"], perm=[3, 2, 0, 1]),
            helper.make_node("ConvInteger", [name, f"t{n}", "z"], [f"s{n}"], pads=[1] * 4),
            helper.make_node("Cast", [f"s{n}"], [f"f{n}"], to=TensorProto.FLOAT),
            helper.make_node("QuantizeLinear", [f"f{n}", "one", "z"], [f"q{n}"]),
        ]
        name = f"q{n}"
    given = helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 128, 28, 28])
    made = helper.make_tensor_value_info(name, TensorProto.UINT8, [1, 128, 28, 28])
    return model(nodes, [given], [made], weights)


MODELS = {
    f.__name__: f
    for f in (
        residual_net,
        wide_net,
        shapes_from_constants,
        equal_weights,
        quantised,
        quantised_windows,
        looped,
    )
}


@pytest.mark.parametrize("name", MODELS)
def test_the_tasks_of_a_skeleton_are_those_of_its_model(name, rng):
    proto = MODELS[name](rng)
    whole = tasks_of(graph.from_onnx(proto))
    data = graph.skeleton(proto)
    assert tasks_of(graph.from_skeleton(data)) == whole
    assert len(data) < proto.ByteSize() or proto.ByteSize() < 4000


def test_weights_stay_with_the_user_and_external_ones_are_read_where_the_model_is(rng, tmp_path):
    proto = wide_net(rng)
    from_memory = graph.skeleton(proto)
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=64
    )
    from_file = graph.skeleton(tmp_path / "m.onnx")
    assert from_file == from_memory
    for name in ("w1", "w2", "s1", "m1", "v2"):
        for start in range(0, arrays[name].size - 4, 16):
            assert arrays[name].reshape(-1)[start : start + 4].tobytes() not in from_file
    assert len(from_file) < 3000
    with pytest.raises(graph.Unsupported, match=r"malformed|cannot be read"):
        graph.from_onnx(from_file)


def test_open_sizes_are_fixed_in_the_skeleton():
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    proto = model(nodes, [info("x", ["batch", 10])], [info("y", ["batch", 10])])
    with pytest.raises(graph.Unsupported, match=r"whose size batch is open; fix it"):
        graph.skeleton(proto)
    with pytest.raises(graph.Unsupported, match="no input is named 'z'; there are x"):
        graph.skeleton(proto, {"z": (1,)})
    found = graph.from_skeleton(graph.skeleton(proto, {"x": (3, 10)}))
    assert tasks_of(found) == tasks_of(graph.from_onnx(proto, {"x": (3, 10)}))


def test_a_model_that_stays_large_without_its_weights_is_refused():
    weights = {f"k{n}": np.arange(n, n + 16_000) for n in range(10)}
    nodes = [helper.make_node("Sum", [*weights, "x"], ["y"])]
    proto = model(nodes, [info("x", [16_000], "int64")], [info("y", [16_000], "int64")], weights)
    with pytest.raises(WorkloadError, match=r"still has 1,28\d,\d+ bytes, and at most 1,000,000"):
        graph.skeleton(proto)


def hostile():
    """(what is said of it, skeleton)."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]

    def of(tensor, op=nodes):
        proto = model(op, [info("x", [4])], [info("y", [4])])
        proto.graph.initializer.append(tensor)
        return proto.SerializeToString()

    outside = TensorProto(name="w", dims=[4], data_type=1, data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="/etc/hostname")
    mark = "autosched.weight:"
    yield "no ONNX model", b"\x08\x01junk"
    yield "the file has no graph", b""
    yield "is in another file", of(outside)
    yield (
        "expected sizes >= 0",
        of(TensorProto(name="w", dims=[-4], data_type=1, doc_string=f"{mark}1")),
    )
    yield (
        "at most 1073741824 elements",
        of(TensorProto(name="w", dims=[1 << 40], data_type=1, doc_string=f"{mark}1")),
    )
    yield (
        "more bytes than a server has room",
        of(TensorProto(name="w", dims=[1 << 29], data_type=1, doc_string=f"{mark}1")),
    )
    yield (
        "expected up to 9 digits",
        of(TensorProto(name="w", dims=[4], data_type=1, doc_string=f"{mark}{'9' * 30}")),
    )
    yield "element type", of(TensorProto(name="w", dims=[4], data_type=8, doc_string=f"{mark}1"))
    yield "element type", of(TensorProto(name="w", dims=[4], data_type=99, doc_string=f"{mark}1"))
    yield "cannot be read", of(TensorProto(name="w", dims=[4], data_type=1))
    yield "size n is open", model(nodes[:0], [info("x", ["n"])], []).SerializeToString()
    yield "at most 1000000 are read", b"\0" * 1_000_001


@pytest.mark.parametrize(("said", "data"), list(hostile()))
def test_a_hostile_skeleton_is_refused(said, data):
    with pytest.raises(graph.Unsupported, match=said):
        graph.from_skeleton(data)


def test_nodes_and_depth_are_bounded(rng):
    data = graph.skeleton(residual_net(rng))
    with pytest.raises(graph.Unsupported, match="more than 3 nodes"):
        graph.from_skeleton(data, Bounds(nodes=3))
    with pytest.raises(graph.Unsupported, match="nest more than 0 deep"):
        graph.from_skeleton(graph.skeleton(looped(rng)), Bounds(depth=0))
