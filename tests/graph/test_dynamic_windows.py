"""Models with strided convolutions and pools, whose sizes are those of each call."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_dynamic import RNG, as_exact, evaluated, model

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
        as_exact(dynamic, data, (1, 2, h, w))
    assert not dynamic.refused
    assert [b for b in dynamic.builds if b.startswith("lengths")] == [
        "lengths 33 to 64 and 33 to 64 of x=1,2,64,64"
    ]


NODE = helper.make_node


def encoder() -> bytes:
    """Attention, with a mask and positions, over every second frame: they are as many as the size
    of the input says, (n - 1) / 2 + 1."""
    nodes = [
        NODE("Conv", ["x", "w"], ["c"], strides=[2], pads=[1, 1]),
        NODE("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
        NODE("Shape", ["x"], ["s"]), NODE("Gather", ["s", "two"], ["n"]),
        NODE("Sub", ["n", "one"], ["less"]), NODE("Div", ["less", "two"], ["half"]),
        NODE("Add", ["half", "one"], ["count"]),
        NODE("Slice", ["table", "zero", "count", "zero"], ["positions"]),
        NODE("Add", ["t", "positions"], ["y"]),
        NODE("Squeeze", ["count"], ["limit"]),
        NODE("Range", ["start", "limit", "step"], ["places"]),
        NODE("Unsqueeze", ["places", "one"], ["rows"]),
        NODE("Sub", ["rows", "places"], ["apart"]), NODE("Abs", ["apart"], ["distance"]),
        NODE("Less", ["distance", "near"], ["seen"]),
        NODE("Concat", ["one", "count", "count"], ["square"], axis=0),
        NODE("Expand", ["seen", "square"], ["mask"]),
        NODE("Transpose", ["y"], ["k"], perm=[0, 2, 1]), NODE("MatMul", ["y", "k"], ["scores"]),
        NODE("Where", ["mask", "scores", "least"], ["kept"]),
        NODE("Softmax", ["kept"], ["p"], axis=2), NODE("MatMul", ["p", "y"], ["out"]),
    ]  # fmt: skip
    constants = {
        "w": RNG.standard_normal((4, 2, 3)).astype(np.float32),
        "table": RNG.standard_normal((99, 4)).astype(np.float32),
        "zero": [0], "one": [1], "two": [2], "start": 0, "step": 1, "near": 4,
        "least": np.asarray(-1e9, np.float32),
    }  # fmt: skip
    arrays = {n: np.asarray(k) for n, k in constants.items()}
    return model(nodes, {"x": [1, 2, "n"]}, ["out"], arrays)


def test_masks_and_positions_of_a_computed_number_of_windows() -> None:
    data = encoder()
    dynamic, _ = evaluated(data)
    for n in (40, 41, 43, *range(33, 65, 5), 64):
        as_exact(dynamic, data, (1, 2, n))
    assert not dynamic.refused
    assert dynamic.builds[-1] == "lengths 33 to 64 of x=1,2,64"


def test_positions_that_end_before_the_capacity_of_windows() -> None:
    """Of 99 positions there are none at lengths above 198, where the product is refused."""
    data = encoder()
    dynamic, _ = evaluated(data)
    for n in (180, 181, 185, 193, 195, 198):
        as_exact(dynamic, data, (1, 2, n))
    assert dynamic.builds[-1] == "lengths 193 to 198 of x=1,2,198"


@pytest.mark.parametrize("kind", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_that_depends_on_the_length(kind: str) -> None:
    """Windows of 3 and of 4, 2 apart, of sizes that are even and odd, and of windows."""
    nodes = [
        NODE("Conv", ["x", "w"], ["c"], strides=[2, 2], auto_pad=kind),
        NODE("MaxPool", ["c"], ["m"], kernel_shape=[4, 3], strides=[2, 3], auto_pad=kind),
        NODE("Conv", ["m", "v"], ["d"], auto_pad=kind),
        NODE("AveragePool", ["d"], ["a"], kernel_shape=[2, 2], auto_pad=kind),
        NODE("GlobalAveragePool", ["a"], ["g"]),
    ]
    constants = {
        "w": RNG.standard_normal((4, 2, 3, 5)).astype(np.float32),
        "v": RNG.standard_normal((3, 4, 3, 4)).astype(np.float32),
    }
    data = model(nodes, {"x": [1, 2, "h", "w"]}, ["c", "m", "d", "a", "g"], constants)
    dynamic, _ = evaluated(data)
    for h, w in ((40, 50), (41, 60), (43, 33), *((h, 97 - h) for h in range(33, 65, 4)), (36, 47)):
        as_exact(dynamic, data, (1, 2, h, w))
    assert not dynamic.refused


HALF = [NODE("MaxPool", ["x"], ["c"], kernel_shape=[3], strides=[2], pads=[1, 1])]
CROPPED = [NODE("Shape", ["x"], ["s"]), NODE("Gather", ["s", "two"], ["l"]),
           NODE("Slice", ["u", "zero", "l", "last"], ["y"])]  # fmt: skip
CONSTANTS = {"zero": [0], "two": [2], "three": [3], "last": [-1], "row": [1, -1]}
CONSTANTS |= {"rows": [0, 0, -1]}


@pytest.mark.parametrize(
    ("nodes", "refused"),
    [
        ([*HALF, NODE("Reshape", ["c", "row"], ["u"]), *CROPPED], True),
        ([*HALF, NODE("Softmax", ["c"], ["p"]), NODE("Unsqueeze", ["p", "three"], ["e"]),
          NODE("Concat", ["e", "e"], ["d"], axis=3), NODE("Reshape", ["d", "rows"], ["u"]),
          *CROPPED, NODE("ReduceSum", ["y", "last"], ["z"])], False),
    ],
    ids=["channels after each other", "each element twice"],
)  # fmt: skip
def test_what_windows_were_made_into_is_cut_to_the_length(
    nodes: list[onnx.NodeProto], refused: bool
) -> None:
    """Windows are as many as half the length, rounded up: at the capacity nothing is cut."""
    constants = {n: np.asarray(k) for n, k in CONSTANTS.items()}
    data = model(nodes, {"x": [1, 2, "n"]}, [nodes[-1].output[0]], constants)
    dynamic, _ = evaluated(data)
    for n in (33, 34, 36, *range(37, 65, 3)):
        as_exact(dynamic, data, (1, 2, n))
    assert bool(dynamic.refused) == refused


def test_sizes_that_are_those_of_another_axis_by_chance() -> None:
    """8 channels cut to a seventh of the length, and an eighth of it, are 8, 8 and 5 at 64, 63 and
    33."""
    nodes = [
        NODE("MaxPool", ["x"], ["c"], kernel_shape=[1], strides=[8]),
        NODE("MaxPool", ["x"], ["h"], kernel_shape=[1], strides=[7]),
        NODE("Shape", ["h"], ["s"]), NODE("Gather", ["s", "two"], ["l"]),
        NODE("Slice", ["c", "zero", "l", "one"], ["y"]),
    ]  # fmt: skip
    constants = {n: np.asarray([k]) for k, n in enumerate(("zero", "one", "two"))}
    data = model(nodes, {"x": [1, 8, "n"]}, ["y"], constants)
    dynamic, _ = evaluated(data)
    for n in (34, 60, 64, 50):
        (y,) = dynamic(np.zeros((1, 8, n), np.float32))
        assert y.shape == (1, min(8, -(-n // 7)), -(-n // 8))
    assert set(dynamic.refused.values()) == {
        "Slice of windows by numbers that depend on the length"
    }


def test_numbers_of_windows_that_are_the_same_by_chance() -> None:
    """The numbers of windows of one and of two elements, 8 apart, differ at every eighth length
    alone."""
    nodes = [
        NODE("MaxPool", ["x"], ["c"], kernel_shape=[1], strides=[8]),
        NODE("MaxPool", ["x"], ["h"], kernel_shape=[2], strides=[8]),
        NODE("Shape", ["h"], ["s"]), NODE("Gather", ["s", "two"], ["l"]),
        NODE("Concat", ["one", "l", "rest"], ["to"], axis=0),
        NODE("Transpose", ["c"], ["t"], perm=[0, 2, 1]), NODE("Reshape", ["t", "to"], ["y"]),
    ]  # fmt: skip
    constants = {"one": np.asarray([1]), "two": np.asarray([2]), "rest": np.asarray([-1])}
    data = model(nodes, {"x": [1, 2, "n"]}, ["y"], constants)
    dynamic, _ = evaluated(data)
    for n in (34, 60, 63, 50, 40):
        (y,) = dynamic(np.zeros((1, 2, n), np.float32))
        assert y.shape == (1, -(-(n - 1) // 8), 2)
    (y,) = dynamic(np.zeros((1, 2, 9), np.float32))
    assert y.shape == (1, 1, 4)
    assert dynamic.refused


@pytest.mark.parametrize("op", ["ReduceMean", "GlobalAveragePool"])
def test_means_of_more_float16_than_float16_counts(op: str) -> None:
    kind = TensorProto.FLOAT16
    x, y = helper.make_tensor_value_info("x", kind, [1, 1, "n"]), helper.make_tensor_value_info(
        "y", kind, None
    )  # fmt: skip
    attrs = {"axes": [2]} if op == "ReduceMean" else {}
    made = helper.make_graph([NODE(op, ["x"], ["y"], **attrs)], "g", [x], [y])
    dynamic, _ = evaluated(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    for n in (70000, 80000, 98303, 66000):
        values = RNG.uniform(0.5, 1, (1, 1, n)).astype(np.float16)
        want = values.astype(np.float64).mean()
        np.testing.assert_allclose(dynamic(values)[0].ravel(), [want], rtol=2e-3)
    assert len(dynamic.builds) == 3
