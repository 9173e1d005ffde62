"""Tables of operators beside onnx's own evaluator, by the evaluator; tensors without elements and
host operators compiled."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graph_models import node_model, reference
from onnx import helper, numpy_helper

from autosched import graph, te
from autosched.graph import op
from autosched.graph.ops import roi_align

RNG = np.random.default_rng(1)


def floats(*shape):
    return RNG.standard_normal(shape).astype("f4")


def ints(*values):
    return np.array(values, "i8")


PART = RNG.uniform(-0.99, 0.99, 40).astype("f4")
CASES = {
    **{n: (n, [PART], {}) for n in ("Acos", "Asin", "Atan", "Asinh", "Atanh", "Sinh", "Cosh")},
    "atan far": ("Atan", [floats(40) * 100], {}),
    "acosh": ("Acosh", [1 + np.abs(floats(40))], {}),
    "is inf": ("IsInf", [np.array([1, np.inf, -np.inf, np.nan], "f4")], {"detect_negative": 0}),
    "mod": ("Mod", [ints(7, -7, 7, -7), ints(3, 3, -3, -3)], {}),
    "fmod": ("Mod", [floats(20) * 9, floats(20)], {"fmod": 1}),
    "hardmax": ("Hardmax", [np.array([[1, 3, 3], [2, 0, 1]], "f4")], {"axis": 1}),
    "lp norm": ("LpNormalization", [np.abs(floats(3, 4))], {"axis": 0, "p": 1}),
    "lrn": ("LRN", [floats(5, 5, 3, 3)], {"size": 3, "alpha": 0.1}),
    "einsum": ("Einsum", [floats(2, 3, 4), floats(2, 4, 5)], {"equation": "bij,bjk->bik"}),
    "einsum dots": ("Einsum", [floats(2, 3, 3)], {"equation": "...ii->...i"}),
    "rnn": ("RNN", [floats(3, 2, 4), floats(1, 5, 4), floats(1, 5, 5)], {"hidden_size": 5}),
    "top k": ("TopK", [np.array([[3, 1, 3, 2]], "f4"), ints(3)], {}),
    "non zero": ("NonZero", [np.array([[0, 2], [3, 0]], "f4")], {}),
    "scatter add": ("ScatterElements", [floats(4), ints(1, 1, -1), floats(3)],
                    {"reduction": "add"}),
    "scatter nd": ("ScatterND", [floats(3, 2), np.array([[2], [0]]), floats(2, 2)], {}),
    "compress": ("Compress", [floats(3, 2), np.array([True, False, True])], {"axis": 0}),
    "unique": ("Unique", [np.array([2, 1, 1, 3], "f4")], {"sorted": 0}),
    "det": ("Det", [floats(2, 3, 3)], {}),
    "bits": ("BitwiseAnd", [np.array([12, 7], "i4"), np.array([10, 3], "i4")], {}),
    "cubic": ("Resize", [floats(1, 1, 4, 4), None, np.array([1, 1, 0.6, 2], "f4")],
              {"mode": "cubic"}),
    "sum of nothing": ("ReduceSum", [floats(2, 0, 3), ints(1)], {}),
    "product of nothing": ("ReduceProd", [floats(2, 0, 3)], {"axes": [1]}),
    "concat nothing": ("Concat", [floats(2, 0), floats(2, 3)], {"axis": 1}),
    "add nothing": ("Add", [floats(2, 0), floats(2, 1)], {}),
    "matmul over nothing": ("MatMul", [floats(2, 0), floats(0, 3)], {}),
    "gemm over nothing": ("Gemm", [floats(2, 0), floats(0, 3), floats(3)], {"alpha": 2.0}),
    "split off nothing": ("Split", [floats(3), ints(0, 3)], {}),
}  # fmt: skip
OUTPUTS = {"top k": 2, "unique": 4, "rnn": 2, "split off nothing": 2}


def _several(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("case", sorted(CASES))
def test_operator_agrees_with_onnx(case: str) -> None:
    name, inputs, attrs = CASES[case]
    proto, arrays = node_model(name, inputs, OUTPUTS.get(case, 1), 18 if name != "ReduceProd" else
                               13, **attrs)  # fmt: skip
    got = _several(graph.evaluate(graph.from_onnx(proto), "main", *arrays))
    for a, b in zip(got, reference(proto, *arrays), strict=True):
        assert (a.shape, a.dtype) == (np.shape(b), np.asarray(b).dtype)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "case",
    ["concat nothing", "gemm over nothing", "sum of nothing", "split off nothing", "scatter add",
     "top k"],
)  # fmt: skip
def test_compiled(case: str) -> None:
    name, inputs, attrs = CASES[case]
    proto, arrays = node_model(name, inputs, OUTPUTS.get(case, 1), 18, **attrs)
    got = graph.build(graph.from_onnx(proto))(*arrays)
    for a, b in zip(got, reference(proto, *arrays), strict=True):
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_compiled_grid_sample(mode: str, padding: str, align_corners: int) -> None:
    """Of an image in a layout of channels and of many images with one channel."""
    for x, places in [((2, 5, 4, 7), (2, 3, 5, 2)), ((6, 1, 5, 3), (6, 4, 4, 2))]:
        grid = RNG.uniform(-1.7, 1.7, places).astype("f4")
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
        proto, arrays = node_model("GridSample", [floats(*x), grid], 1, 20, **attrs)
        (got,) = graph.build(graph.from_onnx(proto))(*arrays)
        if (mode, padding) == ("cubic", "border"):
            # onnx moves the place to the border, PyTorch and onnxruntime what is read.
            proto, arrays = node_model("GridSample", _widened(*arrays, align_corners), 1, 20,
                                       mode=mode)  # fmt: skip
        (want,) = reference(proto, *arrays)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


DEFORMED = {
    "plain": ([(1, 4, 6, 7), (5, 4, 3, 3), (1, 18, 6, 7)], {"pads": [1] * 4}),
    "groups": ([(2, 4, 6, 5), (6, 2, 3, 2), (2, 24, 6, 4), (6,), (2, 12, 6, 4)],
               {"pads": [1, 0, 1, 0], "group": 2, "offset_group": 2}),
    "strides": ([(1, 2, 9, 8), (3, 2, 2, 3), (1, 12, 4, 2)],
                {"strides": [2, 2], "dilations": [2, 2]}),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(DEFORMED))
def test_compiled_deform_conv(case: str) -> None:
    """Far places, too, which read nothing."""
    shapes, attrs = DEFORMED[case]
    arrays = [floats(*shape) for shape in shapes]
    arrays[2] *= 3
    proto, given = node_model("DeformConv", arrays, 1, 19, **attrs)
    module = graph.from_onnx(proto)
    model = graph.build(module)
    assert len(model.kernels) == 1
    np.testing.assert_allclose(*model(*given), *reference(proto, *given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align_beyond_the_image(ratio: int) -> None:
    corners = np.sort(RNG.uniform(-4, 14, (6, 2, 2)), 1).reshape(6, 4).astype("f4")
    inputs = [floats(2, 3, 9, 10), corners, ints(0, 1, 1, 0, 1, 0)]
    attrs = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio}
    proto, given = node_model("RoiAlign", inputs, 1, 16, **attrs)
    got = graph.evaluate(graph.from_onnx(proto), "main", *given)
    np.testing.assert_allclose(got, *reference(proto, *given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 3])
def test_boxes_that_are_read_at_once_are_each_as_by_itself(mode: str, ratio: int, monkeypatch):
    """Boxes of a few sizes, of two images, more than are read at once, with one of no numbers."""
    monkeypatch.setattr(roi_align, "AT_ONCE", 2000)
    corners = RNG.uniform(-3, 12, (40, 1, 2)) + RNG.uniform(0, 12, (40, 2, 2)) * [[[0], [1]]]
    boxes = corners.reshape(40, 4).astype("f4")
    boxes[7] = np.nan if ratio else boxes[7]
    x, batch = floats(2, 5, 11, 9), RNG.integers(0, 2, 40)
    attrs = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio,
             "coordinate_transformation_mode": mode}  # fmt: skip
    got = roi_align.roi_align(x, boxes, batch, **attrs)
    alone = [roi_align.roi_align(x, boxes[n : n + 1], batch[n : n + 1], **attrs) for n in range(40)]
    np.testing.assert_allclose(got, np.concatenate(alone), rtol=1e-5, atol=1e-6)
    real = ~np.isnan(boxes).any(1)
    proto, given = node_model("RoiAlign", [x, boxes[real], batch[real]], 1, 16, **attrs)
    np.testing.assert_allclose(got[real], *reference(proto, *given), rtol=1e-4, atol=1e-5)


def test_grid_sample_of_any_size() -> None:
    """Evaluated for sizes that are known only then, in float64: a corner in the middle."""
    n = te.var("n")
    x, g = graph.var("x", (1, 1, n, 2)), graph.var("g", (1, 1, 1, 2))
    module = graph.module(main=graph.function([x, g], graph.op.grid_sample(x, g, align_corners=1)))
    for rows in (2, 5):
        image = floats(1, 1, rows, 2)
        place = np.array([[[[1, -1]]]], "f4")
        assert graph.evaluate(module, "main", image, place) == image[0, 0, 0, 1]


def _widened(x: np.ndarray, grid: np.ndarray, align_corners: int) -> list[np.ndarray]:
    """Images with eight more elements like the border on each side, and the same places."""
    n = np.array(x.shape[:1:-1])
    at = (grid + 1) / 2 * (n - 1) if align_corners else ((grid + 1) * n - 1) / 2
    wide = np.pad(x, [(0, 0), (0, 0), (8, 8), (8, 8)], "edge")
    return [wide, ((2 * (at + 8) + 1) / (n + 16) - 1).astype("f4")]


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample_far_outside_is_the_padding(mode: str) -> None:
    grid = np.full((1, 2, 2, 2), 3e38, "f4")
    grid[0, 0] = [[-np.inf, 0], [np.inf, -np.inf]]
    proto, arrays = node_model("GridSample", [floats(1, 2, 4, 4), grid], 1, 20, mode=mode)
    model = graph.build(graph.from_onnx(proto))
    assert (model(*arrays)[0] == 0).all()
    arrays[1][:] = np.nan
    assert model(*arrays)[0].shape == (1, 2, 2, 2)


def test_reshape_of_an_unknown_shape_is_kept() -> None:
    # NonZero's result has a shape that data decide; so have its copies.
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "s"], ["b"]),
    ]
    g = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [2, 2])],
        [onnx.ValueInfoProto(name="b")], [onnx.numpy_helper.from_array(ints(-1), "s")],
    )  # fmt: skip
    proto = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)])
    (got,) = graph.build(graph.from_onnx(proto))(np.array([[0, 2], [3, 0]], "f4"))
    assert got.tolist() == [0, 1, 1, 0]


def test_host_failures_name_the_operator() -> None:
    proto, arrays = node_model("ScatterElements", [floats(4), ints(9), floats(1)], 1, 18)
    with pytest.raises(graph.Unsupported, match="ScatterElements: an index is beyond the 4"):
        graph.build(graph.from_onnx(proto))(*arrays)


HOST = {
    "TopK": ([(3, 5), np.array([2])], 2, {"axis": 0}),
    "Det": ([(2, 3, 3)], 1, {}),
    "GridSample": ([(2, 3, 4, 5), (2, 6, 7, 2)], 1, {}),
    "STFT": ([(2, 40, 1), np.array(8), np.ones(16, "f4")], 1, {}),
    "RoiAlign": ([(1, 3, 8, 8), np.array([[0, 0, 4, 4]], "f4"), np.array([0])], 1,
                 {"output_height": 2, "output_width": 3}),
    "DeformConv": ([(1, 2, 5, 5), (3, 2, 2, 2), (1, 8, 4, 4)], 1, {}),
    "Col2Im": ([(1, 8, 9), np.array([4, 4]), np.array([2, 2])], 1, {}),
    "BitwiseAnd": ([np.ones((2, 1, 3), "i4"), np.ones((4, 1), "i4")], 1, {}),
    "BitCast": ([(2, 3)], 1, {"to": 6}),
    "ScatterND": ([(3, 4), np.array([[1]]), np.ones((1, 4), "f4")], 1, {}),
}  # fmt: skip


@pytest.mark.parametrize("op", HOST)
def test_the_types_of_host_operators_are_those_of_their_results(op, rng):
    """Kernels read the results at addresses, by these types."""
    given, outputs, attrs = HOST[op]
    arrays = [
        rng.standard_normal(a).astype("f4") if isinstance(a, tuple) else np.asarray(a)
        for a in given
    ]
    proto, _ = node_model(op, arrays, outputs, 26, **attrs)
    fixed = [n for n, a in enumerate(given) if not isinstance(a, tuple)]
    for n in reversed(fixed if len(fixed) < len(given) else fixed[1:]):
        proto.graph.initializer.append(numpy_helper.from_array(arrays[n], f"i{n}"))
        del proto.graph.input[n]
        del arrays[n]
    mod = graph.from_onnx(proto)
    made = graph.evaluate(mod, "main", *arrays)
    results = made if isinstance(made, tuple) else (made,)
    for atom, result in zip(mod["main"].body.results, results, strict=True):
        assert (atom.type.shape, atom.type.dtype) == (result.shape, result.dtype.name)


MERGE = {
    "none": lambda a, b: b,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
}


@pytest.mark.parametrize("reduction", MERGE)
@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4), (3, 0)], ids=str)
def test_scattered_as_one_element_at_a_time(reduction: str, shape: tuple[int, ...]) -> None:
    rank = len(shape)
    x = RNG.integers(0, 9, shape).astype("f4")
    for axis in range(-1, rank - 1) if x.size else ():
        few = [7 if n == axis % rank else max(extent - 1, 1) for n, extent in enumerate(shape)]
        at = RNG.integers(-shape[axis], shape[axis], few)
        new, want = RNG.integers(0, 9, few).astype("f4"), x.copy()
        for place in np.ndindex(*few):
            to = list(place)
            to[axis] = at[place]
            want[tuple(to)] = MERGE[reduction](want[tuple(to)], new[place])
        _same_scatter("ScatterElements", [x, at, new], want, axis=axis, reduction=reduction)
    for width in range(1, rank + 1):
        if 0 in shape[:width]:
            continue
        at = np.stack([RNG.integers(-n, n, (3, 2)) for n in shape[:width]], -1)
        new, want = RNG.integers(0, 9, (3, 2, *shape[width:])).astype("f4"), x.copy()
        for place in np.ndindex(*new.shape):
            to = (*at[place[:2]], *place[2:])
            want[to] = MERGE[reduction](want[to], new[place])
        _same_scatter("ScatterND", [x, at, new], want, reduction=reduction)


def _same_scatter(name: str, inputs: list[np.ndarray], want: np.ndarray, **attrs: object) -> None:
    proto, arrays = node_model(name, inputs, 1, 18, **attrs)
    got = graph.evaluate(graph.from_onnx(proto), "main", *arrays)
    np.testing.assert_array_equal(got, want)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [65, 2100])
@pytest.mark.parametrize(("axis", "dtype"), [(0, "float32"), (1, "int32"), (2, "float32")])
def test_running_sums_of_any_length(rng, dtype, axis, size):
    """From 65 elements on they are added up in stretches, and those in stretches again."""
    shape = [2, 3, 2]
    shape[axis] = size
    x = graph.var("x", shape, dtype)
    data = (rng.standard_normal(shape) * 9).astype(dtype)
    forms = [(e, r) for e in (0, 1) for r in (0, 1)]
    results = [op.cumsum(x, axis, exclusive=e, reverse=r) for e, r in forms]
    mod = graph.module(main=graph.function([x], results))
    for (exclusive, reverse), found in zip(forms, graph.build(mod)(data), strict=True):
        want = np.flip(data, axis) if reverse else data
        want = want.astype("f8").cumsum(axis) - (want if exclusive else 0)
        want = np.flip(want, axis) if reverse else want
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)
