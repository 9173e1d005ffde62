"""Models with transposed convolutions and resizing, whose sizes are those of each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper
from test_dynamic import RNG, as_exact, evaluated, model

from autosched.graph.errors import Unsupported

RESIZED: dict[str, dict[str, Any]] = {
    "linear": {"mode": "linear"},
    "nearest": {"mode": "nearest"},
    "floor": {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    "ceil": {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"},
    "cubic": {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"},
}
CONSTANTS = {
    "three": np.asarray(3, np.float32),
    "w": RNG.standard_normal((2, 3, 4)).astype(np.float32),
    "v": RNG.standard_normal((2, 3, 3)).astype(np.float32),
    "b": RNG.standard_normal(3).astype(np.float32),
    "scales": np.asarray([1, 1, 3], np.float32),
    "ones": np.ones(3, np.float32),
    "roi": np.asarray([0, 0, 0.25, 1, 1, 0.75], np.float32),
    "half": np.asarray([1, 1, 1.5], np.float32),
}


def layers() -> tuple[list[NodeProto], list[str]]:
    """A transposed convolution, and what follows from its size."""
    nodes = [
        helper.make_node("Add", ["x", "three"], ["a"]),  # no zeros in the padding
        helper.make_node("ConvTranspose", ["a", "w", "b"], ["c"], strides=[2], pads=[1, 0]),
        helper.make_node("Conv", ["c", "v"], ["d"], strides=[2], pads=[1, 1]),
        helper.make_node("Softmax", ["c"], ["s"], axis=2),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
    ]
    for name, attrs in RESIZED.items():
        nodes.append(helper.make_node("Resize", ["c", "", "scales"], [name], **attrs))
    nodes.append(helper.make_node("Concat", ["linear", "cubic"], ["both"], axis=1))
    return nodes, ["c", "d", "s", "g", "both", *RESIZED]


def test_lengths_that_become_longer() -> None:
    nodes, outputs = layers()
    data = model(nodes, {"x": ["n", 2, "n_2"]}, outputs, CONSTANTS)
    dynamic, built = evaluated(data)
    for n, batch in ((11, 5), (14, 7), (10, 6), (16, 8), (9, 5)):
        as_exact(dynamic, data, (batch, 2, n))
    assert not dynamic.refused
    assert len(built) == 3


REFUSED = {
    "corners": (
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear",
                          coordinate_transformation_mode="align_corners")],
        "Resize by 3 along an axis whose size varies",
    ),
    "a part": (
        [helper.make_node("Resize", ["x", "roi", "ones"], ["y"],
                          coordinate_transformation_mode="tf_crop_and_resize")],
        "Resize by 1 along an axis whose size varies",
    ),
    "one and a half": (
        [helper.make_node("Resize", ["x", "", "half"], ["y"])],
        "Resize by 1.5 along an axis whose size varies",
    ),
    "without what lies outside": (
        [helper.make_node("Shape", ["x"], ["n"]),
         helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[3], strides=[3]),
         helper.make_node("Resize", ["m", "", "", "n"], ["y"], mode="cubic", exclude_outside=1)],
        "Resize without what lies outside, to a size that varies",
    ),
    "to a size by one number": (
        [helper.make_node("Shape", ["x"], ["n"]),
         helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[3], strides=[3]),
         helper.make_node("Resize", ["m", "", "", "n"], ["y"],
                          keep_aspect_ratio_policy="not_larger")],
        "Resize to a size that depends on the length",
    ),
    "of windows": (
        [helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[3], strides=[3]),
         helper.make_node("ConvTranspose", ["m", "w"], ["y"], strides=[3])],
        "ConvTranspose of a number of windows",
    ),
}  # fmt: skip


NEAREST = [
    {"coordinate_transformation_mode": kind, "nearest_mode": mode}
    for kind in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
    for mode in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
]
LINEAR = [
    {"coordinate_transformation_mode": kind, "mode": mode}
    for mode in ("linear", "cubic")
    for kind in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
]


def test_sizes_of_other_values() -> None:
    """A third of the length as long as the input again, that as long as the third, and one
    element as long as it."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[3], strides=[3]),
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Shape", ["m"], ["k"]),
        helper.make_node("GlobalAveragePool", ["x"], ["one"]),
    ]
    outputs = []
    for attrs in NEAREST + LINEAR:
        name = "_".join(attrs.values())
        for source, size in (("m", "n"), ("x", "k"), ("one", "n")):
            outputs.append(f"{source}_{name}")
            nodes.append(helper.make_node("Resize", [source, "", "", size], outputs[-1:], **attrs))
    data = model(nodes, {"x": [1, 2, "n"]}, outputs, CONSTANTS)
    dynamic, built = evaluated(data)
    for n in (11, 14, 10, 16, 9, 12):
        as_exact(dynamic, data, (1, 2, n))
    assert not dynamic.refused
    assert len(built) == 3


def skips() -> bytes:
    """Two layers that halve, two that double, and what stands between them beside each other: the
    size is a multiple of 4."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "v"], ["a"], pads=[1, 1]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2], strides=[2]),
        node("Conv", ["b", "u"], ["c"], pads=[1, 1]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2], strides=[2]),
        node("ConvTranspose", ["d", "t"], ["e"], strides=[2]),
        node("Concat", ["e", "c"], ["f"], axis=1),
        node("Resize", ["f", "", "twice"], ["g"], mode="linear"),
        node("Concat", ["a", "g"], ["h"], axis=1),
        node("Softmax", ["h"], ["y"], axis=2),
    ]
    shapes = {"v": (3, 2, 3), "u": (3, 3, 3), "t": (3, 2, 2)}
    constants = {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    twice = np.asarray([1, 1, 2], np.float32)
    return model(nodes, {"x": [1, 2, "n"]}, ["y"], {**constants, "twice": twice})


def test_lengths_that_are_multiples_of_a_unit() -> None:
    data = skips()
    dynamic, built = evaluated(data)
    for n in (40, 48, 64, 36, 52, 60):
        as_exact(dynamic, data, (1, 2, n))
    assert dynamic.builds[2:] == ("lengths 9 to 16 times 4 of x=1,2,64",)
    assert len(built) == 3
    with pytest.raises(Unsupported, match="do not go together"):
        dynamic(np.zeros((1, 2, 50), np.float32))


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_padded(case: str) -> None:
    nodes, why = REFUSED[case]
    dynamic, _ = evaluated(model(nodes, {"x": [1, 2, "n"]}, ["y"], CONSTANTS))
    for n in (5, 6, 8):
        dynamic(np.ones((1, 2, n), np.float32))
    assert set(dynamic.refused.values()) == {why}
