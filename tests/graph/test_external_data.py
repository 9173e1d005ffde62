"""Weights in a file beside the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import info, model
from onnx import TensorProto, helper, numpy_helper

from autosched import graph

KINDS = [
    "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8",
    "UINT16", "UINT32", "UINT64", "INT4", "UINT4",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_element_type(kind: str, tmp_path: Path) -> None:
    """As from a file that has its weights inside, at any place of the other one."""
    values = [[1, 0, 1], [0, 3 if kind != "BOOL" else 1, 7 if kind != "BOOL" else 0]]
    tensor = helper.make_tensor("w", getattr(TensorProto, kind), (2, 3), np.ravel(values))
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    proto = model([node], [], [info("y", [2, 3])])
    proto.graph.initializer.append(tensor)
    inside = graph.evaluate(graph.from_onnx(proto), "main")
    np.testing.assert_array_equal(inside, np.array(values, "f4"))
    raw = tensor.raw_data or numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
    for length in (True, False):
        (tmp_path / "w.bin").write_bytes(b"abcde" + raw + b"more" * length)
        described(proto.graph.initializer[0], 5, len(raw) if length else None)
        onnx.save(proto, tmp_path / "m.onnx")
        found = graph.evaluate(graph.from_onnx(tmp_path / "m.onnx"), "main")
        np.testing.assert_array_equal(found, inside)


def described(tensor: TensorProto, offset: object, length: object) -> None:
    """Have a tensor's bytes in w.bin."""
    for field in ("raw_data", "int32_data", "float_data", "int64_data", "uint64_data",
                  "double_data", "external_data"):  # fmt: skip
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    given = {"location": "w.bin", "offset": offset, "length": length}
    for key, value in given.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))


@pytest.mark.parametrize(
    ("offset", "length", "message"),
    [
        (0, 40, r"'w' is 40 bytes of 'w.bin'; its shape \(4, 5\) takes 80"),
        (0, 83, r"'w' is 83 bytes of 'w.bin'; its shape \(4, 5\) takes 80"),
        (64, None, r"'w' is bytes 64 to 144 of 'w.bin', which has 100"),
        ("abc", 80, r"'w' has the offset 'abc'; expected a number of bytes"),
        ("١٦", 80, r"'w' has the offset '١٦'; expected a number of bytes"),
        ("1" * 5000, 80, r"'w' has the offset '1{40}'; expected a number of bytes"),
        (-4, 80, r"'w' has the offset '-4'; expected a number of bytes"),
    ],
)
def test_bytes_that_do_not_fit(
    offset: object, length: object, message: str, tmp_path: Path
) -> None:
    proto = model([helper.make_node("Relu", ["w"], ["y"])], [], [info("y", [4, 5])])
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((4, 5), "f4"), "w"))
    described(proto.graph.initializer[0], offset, length)
    (tmp_path / "w.bin").write_bytes(bytes(100))
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(graph.Unsupported, match=message):
        graph.from_onnx(tmp_path / "m.onnx")
