"""Models with strided convolutions and pools, whose sizes are those of each call."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from test_dynamic import RNG, evaluated, model

from autosched import graph

PADS = [1, 1, 1, 1]


def strided() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Two strided layers with a pool between them, and what follows from their sizes."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], strides=[2, 2], pads=PADS),
        helper.make_node("MaxPool", ["c"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=PADS),
        helper.make_node("Conv", ["m", "v"], ["d"], strides=[1, 2], pads=[0, 1, 1, 0]),
        helper.make_node(
            "AveragePool", ["d"], ["a"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1,
            pads=[1, 1, 0, 0],
        ),
        helper.make_node("GlobalAveragePool", ["d"], ["g"]),
        helper.make_node("Reshape", ["a", "flat"], ["f"]),
        helper.make_node("Softmax", ["f"], ["s"], axis=1),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    weights = {"w": (4, 2, 3, 3), "b": (4,), "v": (3, 4, 2, 3)}
    constants = {n: rng.standard_normal(s).astype(np.float32) for n, s in weights.items()}
    return nodes, constants | {"flat": np.asarray([0, -1])}


def test_strided_layers_of_images_of_any_size() -> None:
    nodes, constants = strided()
    data = model(nodes, {"x": [1, 2, "h", "w"]}, ["d", "a", "g", "s"], constants)
    dynamic, _ = evaluated(data)
    for h, w in ((40, 50), (41, 60), (43, 33), *((h, 97 - h) for h in range(33, 65))):
        x = RNG.standard_normal((1, 2, h, w)).astype(np.float32)
        exact = graph.evaluate(graph.from_onnx(data, {"x": x.shape}), "main", x)
        for a, b in zip(dynamic(x), exact, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert not dynamic.refused
    assert [b for b in dynamic.builds if b.startswith("lengths")] == [
        "lengths 33 to 64 and 33 to 64 of x=1,2,64,64"
    ]
