"""Models for all lengths up to a capacity compute what the model of each length does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from bounded import Budget
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from random_lengths import random_model
from random_sizes import BATCH, INPUTS, TWO, Inputs, arrays, shapes

from autosched import graph
from autosched.graph.dynamic.lengths import Grid
from autosched.graph.dynamic.padded import Cut, Padding, Reading
from autosched.graph.errors import Unsupported
from autosched.graph.onnx_import import OpenModel
from autosched.graph.onnx_import.scope import Origins
from autosched.tir.module import IRModule

ONE = Grid((8,), (3,))
PAIR = Grid((8, 7), (3, 4))
EVEN = Grid((8,), (3,), unit=2)
QUICK = settings(
    max_examples=16, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
LONG = settings(QUICK, max_examples=3000)
MODELS = st.lists(st.integers(0, 999), min_size=20, max_size=90)
RANDOM = Budget(60)
KINDS = {
    "length": (INPUTS, ONE),
    "two lengths": (TWO, PAIR),
    "batch": (BATCH, PAIR),
    "unit": (INPUTS, EVEN),
}


def read(model: OpenModel, given: dict[str, tuple[int, ...]]) -> Reading:
    origins = Origins()
    main = model.module(given, origins).graphs["main"]
    assert isinstance(main, graph.Function)
    return Reading.of(main, origins)


def at_capacity(param: Any, x: np.ndarray) -> np.ndarray:
    """An input with zeros up to the shape of a parameter."""
    full = np.zeros(param.type.known, x.dtype)
    full[tuple(slice(k) for k in x.shape)] = x
    return full


def without_padding(whole: np.ndarray, cut: Cut, *lengths: int) -> np.ndarray:
    """The part of a result that counts; zeros lie beyond it where the result says so."""
    if cut.zero:
        rest = whole.copy()
        rest.flat[cut(np.arange(whole.size).reshape(whole.shape), lengths)] = 0
        assert not rest.any()
    return cut(whole, lengths)


def elements(grid: Grid, lengths: Sequence[int]) -> list[int]:
    """The sizes of inputs."""
    return [grid.unit * n for n in lengths]


def check(numbers: Sequence[int], inputs: Inputs, grid: Grid) -> None:
    proto = random_model(list(numbers), inputs)
    note(onnx.printer.to_text(proto))
    try:
        model = OpenModel(proto)
        readings = [read(model, shapes(inputs, *elements(grid, p))) for p in grid.points]
        main, cuts = Padding(grid, readings).function()
    except Unsupported as e:
        note(str(e))
        return
    padded = IRModule({}, {"main": main})
    note(padded.script())
    ranges = [range(a, b + 1) for a, b in zip(grid.least, grid.capacity, strict=True)]
    every = list(itertools.product(*ranges))
    for lengths in every if len(ranges) == 1 else every[::3] + [every[-1]]:
        sizes = elements(grid, lengths)
        given_ = arrays(inputs, *sizes)
        expected = graph.evaluate(model.module(shapes(inputs, *sizes)), "main", *given_.values())
        full = []
        for (name, x), param in zip(given_.items(), main.params, strict=False):
            assert param.name == name
            full.append(at_capacity(param, x))
        found = graph.evaluate(padded, "main", *full, *map(np.asarray, lengths))
        for a, b, cut in zip(found, expected, cuts, strict=True):
            part = without_padding(a, cut, *lengths)
            assert part.shape == b.shape
            assert part.dtype == b.dtype
            scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
            close = np.allclose(part, b, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)
            assert close, f"lengths {lengths}"


SIZES = helper.make_node("Shape", ["x"], ["s"])
TO_FLOAT = helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT)
NODE = helper.make_node
FLAT = NODE("Reshape", ["x", "all"], ["f"])
BRANCHES = NODE("If", ["c"], ["y"], **{
    f"{side}_branch": helper.make_graph(
        [NODE(op, ["x"], [op])], side, [],
        [helper.make_tensor_value_info(op, TensorProto.FLOAT, None)],
    )
    for side, op in (("then", "Neg"), ("else", "Exp"))
})  # fmt: skip
MANY = {
    "largest integer": ([NODE("ReduceMax", ["x"], ["y"], axes=[1])], "int64"),
    "least integer": ([NODE("ReduceMin", ["x"], ["y"], axes=[1])], "int32"),
    "place of an integer": ([NODE("ArgMax", ["x"], ["y"], axis=1)], "int64"),
    "product of integers": ([NODE("ReduceProd", ["x"], ["y"], axes=[1])], "int32"),
    "running sum from the end": ([NODE("CumSum", ["x", "one"], ["y"], reverse=1)], "int64"),
    "sum of float16": ([NODE("ReduceMean", ["x"], ["y"], axes=[0, 1])], "float16"),
    "the last element": ([NODE("Gather", ["x", "last"], ["y"], axis=1)], "float32"),
    "rows and columns as one": (
        [FLAT, NODE("Softmax", ["f"], ["p"], axis=0),
         NODE("Gather", ["f", "row"], ["g"], axis=0), NODE("ReduceMean", ["f"], ["m"], axes=[0]),
         NODE("ReduceMax", ["f"], ["h"], axes=[0]), NODE("Sub", ["f", "h"], ["d"]),
         NODE("Exp", ["d"], ["e"]), NODE("ReduceMax", ["g"], ["k"], axes=[0]),
         NODE("Sum", ["e", "m", "k", "p"], ["y"])],
        "float32",
    ),
    "rows again": (
        [FLAT, NODE("Abs", ["f"], ["a"]),
         NODE("Unsqueeze", ["a", "ones"], ["u"]), NODE("MatMul", ["u", "table"], ["t"]),
         NODE("Reshape", ["t", "rows"], ["r"]), NODE("Reshape", ["r", "pairs"], ["p"]),
         NODE("ReduceSum", ["p", "ones"], ["y"], keepdims=0)],
        "float32",
    ),
    "a multiple of the size": (
        [SIZES, NODE("Mul", ["s", "seven"], ["p"]), NODE("Div", ["p", "seven"], ["m"]), TO_FLOAT,
         NODE("ReduceSum", ["f"], ["g"]), NODE("Add", ["x", "g"], ["y"])],
        "float32",
    ),
    "a quotient of the size": (
        [SIZES, NODE("Add", ["s", "one"], ["p"]), NODE("Div", ["p", "seven"], ["d"]),
         NODE("Sub", ["d", "five"], ["m"]), TO_FLOAT, NODE("ReduceSum", ["f"], ["g"]),
         NODE("Add", ["x", "g"], ["y"])],
        "float32",
    ),
    "a part": (
        [SIZES, NODE("Gather", ["s", "ones"], ["n"]), NODE("Div", ["n", "seven"], ["m"]),
         NODE("Slice", ["x", "zeros", "m", "ones"], ["y"])],
        "float32",
    ),
    "a number for each element": (
        [SIZES, NODE("Gather", ["s", "ones"], ["n"]), NODE("Tile", ["fives", "n"], ["m"]), TO_FLOAT,
         NODE("Add", ["x", "f"], ["y"])],
        "float32",
    ),
    "the largest of three": (
        [SIZES, NODE("Gather", ["s", "ones"], ["n"]), NODE("Max", ["ones", "n", "fives"], ["k"]),
         NODE("Min", ["k"], ["m"]), NODE("Slice", ["x", "ones", "m", "ones"], ["y"])],
        "float32",
    ),
    "windows of a shape of fewer axes": (
        [NODE("Unsqueeze", ["x", "zeros"], ["u"]),
         NODE("MaxPool", ["u"], ["w"], kernel_shape=[3], strides=[2]),
         NODE("Transpose", ["w"], ["t"]), NODE("Expand", ["t", "ones"], ["y"])],
        "float32",
    ),
    "from the end": (
        [NODE("Slice", ["x", "all", "least", "ones", "all"], ["r"]),
         NODE("ReduceMax", ["r"], ["k"], axes=[1]), NODE("CumSum", ["r", "one"], ["c"]),
         NODE("Slice", ["c", "all", "least", "ones", "all"], ["d"]),
         NODE("Sub", ["d", "k"], ["y"])],
        "float32",
    ),
    "the last one written": (
        [NODE("ScatterND", ["x", "corners", "pair"], ["w"]),
         NODE("CumSum", ["w", "one"], ["y"], reverse=1)],
        "float32",
    ),
    "the last window": (
        [NODE("Unsqueeze", ["x", "zeros"], ["u"]),
         NODE("MaxPool", ["u"], ["w"], kernel_shape=[3], strides=[2]),
         NODE("Slice", ["w", "all", "most", "twos"], ["y"])],
        "float32",
    ),
    "a number of windows": (
        [NODE("Unsqueeze", ["x", "zeros"], ["u"]),
         NODE("MaxPool", ["u"], ["w"], kernel_shape=[3], strides=[2]),
         NODE("Shape", ["w"], ["s"]), NODE("Gather", ["s", "last"], ["m"]), TO_FLOAT,
         NODE("Div", ["w", "f"], ["y"])],
        "float32",
    ),
    "quantised product": (
        [NODE("DynamicQuantizeLinear", ["x"], ["q", "a", "z"]),
         NODE("Transpose", ["q"], ["t"], perm=[1, 0]),
         NODE("MatMulInteger", ["q", "t", "z", "z"], ["y"])],
        "float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "dtype"), MANY.values(), ids=MANY)
def test_operators(nodes: list[onnx.NodeProto], dtype: str) -> None:
    same(one_input(nodes, dtype), dtype, range(33, 65))


@pytest.mark.parametrize(
    ("nodes", "dtype", "said"),
    [
        ([SIZES, NODE("Mod", ["s", "five"], ["r"]), NODE("Equal", ["r", "zero"], ["m"]), TO_FLOAT,
          NODE("ReduceSum", ["f"], ["g"]), NODE("Add", ["x", "g"], ["y"])],
         "float32", "Mod of a size"),
        ([SIZES, NODE("Equal", ["s", "forty"], ["m"]), TO_FLOAT, NODE("ReduceSum", ["f"], ["g"]),
          NODE("Add", ["x", "g"], ["y"])], "float32", "Equal of a size"),
        ([SIZES, NODE("Div", ["s", "seven"], ["d"]), NODE("Add", ["s", "one"], ["p"]),
          NODE("Div", ["p", "seven"], ["e"]), NODE("Sub", ["d", "e"], ["m"]), TO_FLOAT,
          NODE("ReduceSum", ["f"], ["g"]), NODE("Add", ["x", "g"], ["y"])],
         "float32", "Sub of a number of windows"),
        ([NODE("Unsqueeze", ["x", "zeros"], ["u"]),
          NODE("MaxPool", ["u"], ["w"], kernel_shape=[1], strides=[5]), NODE("Shape", ["w"], ["t"]),
          NODE("Gather", ["t", "last"], ["n"]), NODE("Mul", ["n", "five"], ["m"]), SIZES,
          NODE("Gather", ["s", "one"], ["k"]), NODE("Equal", ["m", "k"], ["c"]), BRANCHES],
         "float32", "Equal of a number of windows"),
        ([SIZES, NODE("Gather", ["s", "one"], ["k"]), NODE("Greater", ["k", "forty"], ["a"]),
          NODE("Mul", ["five", "seven"], ["m"]), NODE("Add", ["m", "seven"], ["e"]),
          NODE("Less", ["k", "e"], ["b"]), NODE("And", ["a", "b"], ["c"]), BRANCHES],
         "float32", "And of comparisons"),
        ([SIZES, NODE("Gather", ["s", "ones"], ["n"]), NODE("Sub", ["n", "forty"], ["a"]),
          NODE("Add", ["forty", "twenty"], ["b"]), NODE("Sub", ["b", "n"], ["c"]),
          NODE("Min", ["a", "c"], ["d"]), NODE("Max", ["d", "ones"], ["m"]),
          NODE("Slice", ["x", "zeros", "m", "ones"], ["y"])], "float32", "Slice: ends depends"),
        ([SIZES, NODE("Gather", ["s", "one"], ["n"]), NODE("Gather", ["bump", "n"], ["m"]),
          NODE("Range", ["zero", "m", "one"], ["y"])], "float32", "Range: limit depends"),
        ([SIZES, NODE("Gather", ["s", "ones"], ["n"]), NODE("Gather", ["bump", "n"], ["m"]),
          NODE("Concat", ["m", "all"], ["to"], axis=0), NODE("Reshape", ["x", "to"], ["y"])],
         "float32", "Reshape: shape depends"),
        ([NODE("ReduceMean", ["x"], ["y"], axes=[1])], "int32", "ReduceMean of int32"),
        ([SIZES, NODE("Tile", ["x", "s"], ["y"])], "float32", "Tile by a number"),
        ([FLAT, NODE("CumSum", ["f", "zero"], ["y"])], "float32", "CumSum along"),
        ([FLAT, NODE("Slice", ["f", "ones", "fives"], ["y"])], "float32", "Slice along"),
        ([FLAT, NODE("ArgMax", ["f"], ["y"], axis=0)], "float32", "ArgMax along"),
        ([FLAT, NODE("Concat", ["f", "ones"], ["y"], axis=0)], "int64", "sizes 129, 127, 67"),
        ([FLAT, NODE("Transpose", ["x"], ["t"]), NODE("Reshape", ["t", "all"], ["g"]),
          NODE("Add", ["f", "g"], ["y"])], "float32", "sizes 128, 126, 66"),
        ([FLAT, NODE("Reshape", ["f", "halves"], ["y"])], "float32", "Reshape of a part"),
        ([FLAT, NODE("Unsqueeze", ["f", "zeros"], ["u"]),
          NODE("GatherElements", ["u", "places"], ["y"], axis=0)], "float32", "different lengths"),
        ([NODE("ArgMax", ["x"], ["y"], axis=1, select_last_index=1)], "float32", "last index"),
    ],
    ids=["remainder", "one length", "difference of quotients", "branch by windows",
         "branch between lengths", "size between lengths", "size of a table",
         "rows of a table", "mean of integers", "square", "running sum", "beginning", "place",
         "longer", "rows and columns in turn", "halves", "first of two", "last of equal ones"],
)  # fmt: skip
def test_what_three_lengths_do_not_tell(nodes: list[onnx.NodeProto], dtype: str, said: str) -> None:
    """Results would differ at lengths that are not read, or follow from padding."""
    with pytest.raises(Unsupported, match=said):
        padded_at(one_input(nodes, dtype), 64, 33)


def one_input(nodes: list[onnx.NodeProto], dtype: str) -> OpenModel:
    """A model of x (2, n)."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    consts = {
        "zero": 0,
        "one": 1,
        "five": 5,
        "seven": 7,
        "forty": 40,
        "twenty": 20,
        "bump": np.where(np.arange(99) == 45, 2, 1),
        "last": -1,
        "zeros": [0],
        "ones": [1],
        "fives": [5],
        "halves": [-1, 2],
        "all": [-1],
        "twos": [2],
        "most": [1 << 40],
        "least": [-1 << 40],
        "corners": [[0, -1], [1, 2]],
        "pair": np.ones(2, np.float32),
        "row": [-1, 0, 40],
        "rows": [2, -1, 4],
        "pairs": [2, -1, 2, 2],
        "places": np.zeros((1, 40), np.int64),
        "table": np.ones((1, 4), np.float32),
    }
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, [2, "n"])],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in consts.items()],
    )  # fmt: skip
    return OpenModel(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]))


def padded_at(model: OpenModel, capacity: int, least: int) -> tuple[IRModule, Any]:
    grid = Grid((capacity,), (least,))
    readings = [read(model, {"x": (2, n)}) for (n,) in grid.points]
    function, cuts = Padding(grid, readings).function()
    return IRModule({}, {"main": function}), cuts


def same(model: OpenModel, dtype: str, lengths: Sequence[int]) -> None:
    """The function for these lengths computes what that of each does."""
    module, (cut,) = padded_at(model, lengths[-1], lengths[0])
    main = module.graphs["main"]
    assert isinstance(main, graph.Function)
    for n in lengths:
        x = np.random.default_rng(n).integers(-9, -1, (2, n)).astype(dtype)
        full = at_capacity(main.params[0], x)
        expected = graph.evaluate(model.module({"x": x.shape}), "main", x)
        found = graph.evaluate(module, "main", full, np.asarray(n))
        part = without_padding(found, cut, n)
        assert part.dtype == expected.dtype
        np.testing.assert_allclose(part, expected, rtol=2e-3)


@pytest.mark.parametrize(("inputs", "grid"), KINDS.values(), ids=KINDS)
@QUICK
@given(numbers=MODELS)
def test_random_models(inputs: Inputs, grid: Grid, numbers: list[int]) -> None:
    check(numbers, inputs, grid)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("inputs", "grid"), KINDS.values(), ids=KINDS)
@LONG
@given(numbers=MODELS)
def test_random_models_long(inputs: Inputs, grid: Grid, numbers: list[int]) -> None:
    RANDOM.run(check, numbers, inputs, grid)
