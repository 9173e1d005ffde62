"""What a model computes from sizes is believed only where its readings tell it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_padded import padded_at, same

from autosched import graph
from autosched.graph.errors import Unsupported
from autosched.graph.onnx_import import OpenModel

NODE = helper.make_node
CONSTANTS = {
    "zero": 0, "one": 1, "five": 5, "forty": 40, "high": 56, "far": 97, "most": 2200,
    "cube": 80_000, "first": [0], "second": [1], "square": [1, 1],
    "table": np.isin(np.arange(100), (40, 50)).astype(np.int64),
    "flags": np.isin(np.arange(100), (40, 50)),
    "rows": -np.triu(np.ones((100, 100), np.float32)) * (np.arange(100) % 5 > 0)[:, None],
}  # fmt: skip
CASES = {
    "a hat": [
        NODE("Sub", ["n", "forty"], ["a"]), NODE("Clip", ["a", "zero", "one"], ["b"]),
        NODE("Sub", ["high", "n"], ["c"]), NODE("Clip", ["c", "zero", "one"], ["d"]),
        NODE("Mul", ["b", "d"], ["k"]),
    ],
    "a table": [NODE("Gather", ["table", "n"], ["k"])],
    "a table of truth values": [NODE("Gather", ["flags", "n"], ["k"])],
    "a row of a matrix": [
        NODE("Sub", ["n", "one"], ["m"]), NODE("Gather", ["rows", "m"], ["r"]),
        NODE("Unsqueeze", ["n", "first"], ["e"]), NODE("Slice", ["r", "first", "e"], ["k"]),
    ],
    "one length": [NODE("Reshape", ["n", "square"], ["m"]), NODE("Equal", ["m", "forty"], ["k"])],
    "every fifth": [
        NODE("Reshape", ["n", "square"], ["m"]), NODE("Mod", ["m", "five"], ["r"]),
        NODE("Equal", ["r", "zero"], ["k"]),
    ],
    "a place at a fifth": [
        NODE("Range", ["zero", "n", "one"], ["r"]), NODE("Mul", ["r", "five"], ["m"]),
        NODE("Unsqueeze", ["m", "first"], ["u"]), NODE("Equal", ["u", "n"], ["k"]),
    ],
    "a square": [
        NODE("Sub", ["far", "n"], ["m"]), NODE("Mul", ["n", "m"], ["p"]),
        NODE("Less", ["p", "most"], ["k"]),
    ],
    "a cube": [
        NODE("Mul", ["n", "n"], ["m"]), NODE("Mul", ["n", "m"], ["p"]),
        NODE("Less", ["p", "cube"], ["k"]),
    ],
}  # fmt: skip


def made(nodes: list[onnx.NodeProto]) -> OpenModel:
    """x (2, n) and a number `k` that is computed from n, added."""
    size = [NODE("Shape", ["x"], ["s"]), NODE("Gather", ["s", "one"], ["n"])]
    added = [NODE("Cast", ["k"], ["f"], to=TensorProto.FLOAT), NODE("Add", ["x", "f"], ["y"])]
    proto = helper.make_graph(
        [*size, *nodes, *added], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in CONSTANTS.items()],
    )  # fmt: skip
    return OpenModel(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.mark.parametrize("nodes", CASES.values(), ids=CASES)
def test_what_agrees_at_the_readings_and_differs_between(nodes: list[onnx.NodeProto]) -> None:
    same(made(nodes), "float32", range(33, 65))


def test_ranges_of_lengths_are_refused() -> None:
    """A branch may be taken by one: it is false at all readings, and true between."""
    nodes = [
        NODE("Greater", ["n", "forty"], ["a"]), NODE("Less", ["n", "high"], ["b"]),
        NODE("And", ["a", "b"], ["k"]),
    ]  # fmt: skip
    with pytest.raises(Unsupported, match="And of comparisons of a size"):
        padded_at(made(nodes), 64, 33)


def test_what_is_told_stays_a_constant() -> None:
    """A mask over places is not computed in each call."""
    mask = [
        NODE("Range", ["zero", "n", "one"], ["r"]), NODE("Mod", ["r", "five"], ["m"]),
        NODE("Unsqueeze", ["m", "first"], ["u"]), NODE("Less", ["u", "one"], ["k"]),
    ]  # fmt: skip
    model = made(mask)
    same(model, "float32", range(33, 65))
    module, _ = padded_at(model, 64, 33)
    main = module.graphs["main"]
    assert isinstance(main, graph.Function)
    called = {getattr(b.value, "callee", "") for b in main.body.bindings}
    assert not called & {"Less", "Mod", "Range"}
