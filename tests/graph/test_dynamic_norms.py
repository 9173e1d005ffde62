"""Normalisations along lengths, whose means are of the elements that count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from test_dynamic import evaluated

from autosched import graph

RNG = np.random.default_rng(0)
SHAPE: list[int | str] = ["b", 4, "n"]


def normed(
    name: str, scales: list[tuple[int, ...]], shape: list[int | str], dtype: type = np.float32,
    **attrs: Any,
) -> bytes:  # fmt: skip
    """A model of a normalisation, behind an operator that leaves no zeros in the padding."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = helper.make_tensor_value_info("x", kind, shape)
    y = helper.make_tensor_value_info("y", kind, None)
    tensors = [
        numpy_helper.from_array(RNG.uniform(0.5, 2, s).astype(dtype), f"s{n}")
        for n, s in enumerate(scales)
    ]
    tensors.append(numpy_helper.from_array(np.asarray(3, dtype), "three"))
    nodes = [
        helper.make_node("Add", ["x", "three"], ["a"]),
        helper.make_node(name, ["a", *(f"s{n}" for n in range(len(scales)))], ["y"], **attrs),
    ]
    made = helper.make_graph(nodes, "g", [x], [y], tensors)
    opset = helper.make_opsetid("", 23)
    return helper.make_model(made, opset_imports=[opset]).SerializeToString()


CASES = {
    "instance": ("InstanceNormalization", [(4,), (4,)], SHAPE, {}),
    "instance of images": ("InstanceNormalization", [(4,), (4,)], [1, 4, "h", "w"], {}),
    "groups": ("GroupNormalization", [(4,), (4,)], SHAPE, {"num_groups": 2, "epsilon": 0.1}),
    "groups of images": ("GroupNormalization", [(4,), (4,)], [1, 4, "h", "w"], {"num_groups": 2}),
    "one group": ("GroupNormalization", [(4,), (4,)], [1, 4, "h", 3], {"num_groups": 1}),
    "layer": ("LayerNormalization", [(1,), (1,)], SHAPE, {}),
    "layer without offset": ("LayerNormalization", [(3,)], [1, "n", 3], {"axis": 1}),
    "last axis": ("LayerNormalization", [(3,), (3,)], [1, "n", 3], {"axis": -1}),
    "root mean square": ("RMSNormalization", [(3,)], ["n", 3], {"axis": 0}),
    "mean": ("ReduceMean", [], SHAPE, {}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("case", CASES)
def test_normalisations(case: str, dtype: type) -> None:
    name, scales, shape, attrs = CASES[case]
    data = normed(name, scales, shape, dtype, **attrs)
    dynamic, built = evaluated(data)
    places = [s for s in shape if isinstance(s, str)]
    for n, batch in ((40, 5), (45, 7), (52, 6), (33, 8), (64, 5)):
        sizes = dict(zip(places, (n, 97 - n) if len(places) > 1 else (n,), strict=True))
        if "b" in sizes:
            sizes = {"b": batch, "n": n}
        x = RNG.standard_normal([sizes.get(str(s), s) for s in shape]).astype(dtype)
        exact = graph.evaluate(graph.from_onnx(data, {"x": x.shape}), "main", x)
        (found,) = dynamic(x)
        assert found.shape == np.shape(exact)
        tolerance = 1e-5 if dtype == np.float32 else 4e-3
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance)
    assert not dynamic.refused
    assert len(built) == 3


def test_means_of_more_elements_than_float16_counts() -> None:
    dynamic, built = evaluated(normed("ReduceMean", [], ["n"], np.float16))
    for n in (66000, 67000, 70000, 69001):
        x = RNG.uniform(0, 2, n).astype(np.float16)
        (found,) = dynamic(x)
        np.testing.assert_allclose(found, [x.astype(np.float32).mean() + 3], rtol=2e-3)
    assert len(built) == 3
