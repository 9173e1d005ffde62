"""Small operators of com.microsoft: quantised tables, distances, windows, and those of ONNX."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_onnxruntime_attention import close, imported

from autosched import graph

BLOCK = 16


def packed(numbers, bits):
    """Bytes of numbers, that of the lowest bits first."""
    wide = np.pad(numbers, ((0, 0), (0, -numbers.shape[1] % (8 // bits))))
    parts = wide.reshape(len(wide), -1, 8 // bits) << np.arange(0, 8, bits)
    return parts.sum(-1).astype("u1")


@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("indices", [[[1, 3], [0, 7]], 2, np.zeros(0, np.int64)])
def test_rows_of_a_packed_table(bits, indices, with_zeros, rng):
    blocks = 3  # of which the last byte of zero points is not full
    numbers = rng.integers(0, 1 << bits, (8, blocks * BLOCK))
    scales = rng.standard_normal((8, blocks)).astype("f4")
    zeros = rng.integers(0, 1 << bits, (8, blocks))
    table = packed(numbers, bits), np.asarray(indices), scales
    given = [*table, packed(zeros, bits)] if with_zeros else [*table]
    (found,) = imported("GatherBlockQuantized", given, known=(0, 2, 3), bits=bits,
                        block_size=BLOCK)  # fmt: skip
    less = zeros if with_zeros else np.full_like(zeros, 1 << (bits - 1))
    whole = (numbers - np.repeat(less, BLOCK, 1)) * np.repeat(scales, BLOCK, 1)
    assert found.dtype == np.float32
    close(found, whole[np.asarray(indices)])


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_columns_of_a_table_of_small_integers(kind, rng):
    low = -8 if kind == TensorProto.INT4 else 0
    numbers = rng.integers(low, low + 16, (2 * BLOCK, 4))
    scales = rng.standard_normal((2, 4)).astype("f4")
    node = helper.make_node("GatherBlockQuantized", ["x", "i", "s"], ["y"], domain="com.microsoft",
                            gather_axis=1, quantize_axis=0, block_size=BLOCK)  # fmt: skip
    constants = [
        helper.make_tensor("x", kind, numbers.shape, numbers.ravel()),
        helper.make_tensor("s", TensorProto.FLOAT, scales.shape, scales.ravel()),
    ]
    proto = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("i", TensorProto.INT64, (1, 2))],
        [helper.make_empty_tensor_value_info("y")], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    mod = graph.from_onnx(helper.make_model(proto, opset_imports=opsets))
    found = graph.evaluate(mod, "main", np.array([[3, 1]]))
    close(found, (numbers * np.repeat(scales, BLOCK, 0))[:, [[3, 1]]])


@pytest.mark.parametrize(
    ("shape", "options"),
    [((8, 5), {}), ((8, 4), {"block_size": 32}), ((8, 32), {"bits": 3}),
     ((8, 32), {"gather_axis": 1}), ((8, 32), {"quantize_axis": 2})],
)  # fmt: skip
def test_tables_that_do_not_fit_their_scales_are_refused(shape, options):
    """Of 4 bytes in a block of 32 it is not known whether these are numbers or pairs."""
    given = np.zeros(shape, "u1"), np.array([1]), np.ones((8, 1), "f4")
    with pytest.raises(graph.Unsupported, match="block"):
        imported("GatherBlockQuantized", given, known=(0, 2), **{"block_size": 16, **options})


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_of_rows(metric, rng):
    a, b = (rng.standard_normal((n, 5)).astype("f4") for n in (6, 4))
    squares = ((a[:, None].astype("f8") - b) ** 2).sum(-1)
    (found,) = imported("CDist", [a, b], metric=metric)
    close(found, np.sqrt(squares) if metric == "euclidean" else squares)
    with pytest.raises(graph.Unsupported, match="metric is 'cosine'; expected euclidean or sqeu"):
        imported("CDist", [a, b], metric="cosine")


@pytest.mark.parametrize(("axis", "size", "step"), [(0, 3, 2), (1, 2, 3), (-1, 4, 1), (2, 1, 5)])
def test_windows_of_an_axis(axis, size, step, rng):
    x = rng.standard_normal((5, 7, 4)).astype("f4")
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    (found,) = imported("UnfoldTensor", [x], dim=axis, size=size, step=step)
    close(found, np.take(windows, np.arange(0, windows.shape[axis], step), axis))
    with pytest.raises(graph.Unsupported, match="a size within it and a positive step"):
        imported("UnfoldTensor", [x], dim=axis, size=8, step=step)


def test_forms_of_operators_that_onnx_has_too(rng):
    x = rng.standard_normal((2, 4, 5)).astype("f4")
    (found,) = imported("Trilu", [x, np.array(1)], known=(1,))
    close(found, np.triu(x, 1))
    (found,) = imported("Trilu", [x], upper=0)
    close(found, np.tril(x))
    (found,) = imported("Trilu", [x, np.array([-1])])
    close(found, np.triu(x, -1))
    pads = np.array([[0, 1, 2, 0, 0, 1]])
    (found,) = imported("Pad", [x, pads, np.array(7, "f4")], known=(1,))
    close(found, np.pad(x, ((0, 0), (1, 0), (2, 1)), constant_values=7))
    (found,) = imported("Pad", [x, pads], known=(1,), mode="reflect")
    close(found, np.pad(x, ((0, 0), (1, 0), (2, 1)), "reflect"))
    (found,) = imported("GatherND", [x, np.array([[0, 1], [1, 3]])])
    close(found, x[[0, 1], [1, 3]])
    for axis in (0, -1, 2):
        (found,) = imported("ExpandDims", [x, np.array(axis, "i4")], known=(1,))
        close(found, np.expand_dims(x, axis))
    a, b = (rng.integers(0, 256, (3, 4)).astype("u1") for _ in range(2))
    taken = rng.random((3, 4)) > 0.5
    steps = [np.array(n, "f4") for n in (0.1, 0.2, 0.15)]
    middles = [np.array(n, "u1") for n in (3, 9, 5)]
    (found,) = imported("QLinearWhere", [taken, a, steps[0], middles[0], b, steps[1], middles[1],
                                         steps[2], middles[2]])  # fmt: skip
    meant = np.where(taken, (a - 3.0) * steps[0], (b - 9.0) * steps[1])
    np.testing.assert_allclose(found, np.clip(np.round(meant / steps[2]) + 5, 0, 255), atol=1)
