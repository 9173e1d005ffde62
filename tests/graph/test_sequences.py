"""Sequences and optional values of ONNX files: none is left when the file has been read."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import info, model, reference
from onnx import TensorProto, helper

from autosched import graph

BOOL, I64 = "bool", "int64"


def node(op, reads, gives, **attrs):
    return helper.make_node(op, reads.split(" ") if reads else [], gives.split(), **attrs)


def sequence(name):
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [None])
    return helper.make_value_info(name, helper.make_sequence_type_proto(kind))


def turns(*, stops):
    """The body of a Loop that adds row i to a sequence; it stops after the third turn."""
    nodes = [
        node("Gather", "x i", "row"),
        node("SequenceInsert", "s row", "t"),
        node("Less", "i two", "on") if stops else node("Identity", "c", "on"),
    ]
    given = [info("i", [], I64), info("c", [], BOOL), sequence("s")]
    return helper.make_graph(nodes, "turn", given, [info("on", [], BOOL), sequence("t")])


def unchanged():
    """The body of a Loop that has no nodes and does not stop."""
    given = [info("i", [], I64), info("c", [], BOOL), sequence("s")]
    return helper.make_graph([], "turn", given, [info("c", [], BOOL), sequence("s")])


def chosen(name, at):
    return helper.make_graph([node("SequenceAt", f"s {at}", name)], name, [], [info(name, None)])


WEIGHTS = {
    "zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "three": np.int64(3),
    "minus": np.int64(-1), "five": np.int64(5), "yes": np.array(True), "axes": np.array([0]),
    "sizes": np.array([1, 3, 1]),
}  # fmt: skip
CASES = {
    "split into rows": [node("SplitToSequence", "x", "s", axis=0, keepdims=0),
                        node("SequenceAt", "s minus", "y")],
    "split into rows that keep their axis": [node("SplitToSequence", "x", "s", axis=1),
                                             node("SequenceAt", "s one", "y")],
    "split evenly, the last piece smaller": [node("SplitToSequence", "x two", "s", axis=0),
                                             node("SequenceAt", "s two", "y")],
    "split by sizes": [node("SplitToSequence", "x sizes", "s", axis=-2),
                       node("ConcatFromSequence", "s", "y", axis=0)],
    "stacked": [node("SplitToSequence", "x", "s", axis=0, keepdims=0),
                node("ConcatFromSequence", "s", "y", axis=1, new_axis=1)],
    "counted": [node("SplitToSequence", "x", "s"), node("SequenceLength", "s", "y")],
    "a place that is computed": [node("SplitToSequence", "x", "s", axis=0, keepdims=0),
                                 node("ArgMax", "x", "m", axis=0, keepdims=0),
                                 node("ReduceMin", "m", "at", keepdims=0),
                                 node("SequenceAt", "s at", "y")],
    "carried by a loop": [node("SequenceEmpty", "", "e"),
                          node("Loop", "five yes e", "s", body=turns(stops=False)),
                          node("ConcatFromSequence", "s", "y", axis=0, new_axis=1)],
    "carried by a loop that stops": [node("SequenceEmpty", "", "e"),
                                     node("Loop", "five yes e", "s", body=turns(stops=True)),
                                     node("SequenceLength", "s", "y")],
    "carried by a loop without a count": [node("SequenceEmpty", "", "e"),
                                          node("Loop", " yes e", "s", body=turns(stops=True)),
                                          node("ConcatFromSequence", "s", "y", axis=0)],
    "read in branches": [node("SplitToSequence", "x", "s", axis=0, keepdims=0),
                         node("ReduceSum", "x", "sum", keepdims=0), node("Cast", "sum", "b", to=9),
                         node("If", "b", "y", then_branch=chosen("p", "one"),
                              else_branch=chosen("q", "two"))],
    "through Identity": [node("SequenceConstruct", "x x", "s"), node("Identity", "s", "t"),
                         node("SequenceAt", "t zero", "y")],
}  # fmt: skip


def built(nodes, name="y"):
    return model(nodes, [info("x", [5, 4])], [info(name, None)], WEIGHTS)


@pytest.mark.parametrize("name", CASES)
def test_sequences_agree_with_onnx(name, rng):
    proto = built(CASES[name])
    x = rng.standard_normal((5, 4)).astype("f4")
    (want,) = reference(proto, x)
    (got,) = graph.build(graph.from_onnx(proto))(x)
    assert (got.shape, got.dtype) == (np.shape(want), np.asarray(want).dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_elements_are_put_in_and_taken_out(rng):
    """By hand: onnx's evaluator takes the place behind the last element for the first one, unlike
    onnxruntime and the specification."""
    nodes = [
        node("SequenceConstruct", "x x", "s"),
        node("Neg", "x", "n"),
        node("SequenceInsert", "s n one", "t"),
        node("SequenceErase", "t", "u"),
        node("SequenceInsert", "u n two", "v"),
        node("SequenceErase", "v zero", "w"),
        node("ConcatFromSequence", "w", "y", axis=-1),
    ]
    x = rng.standard_normal((5, 4)).astype("f4")
    (got,) = graph.build(graph.from_onnx(built(nodes)))(x)
    np.testing.assert_array_equal(got, np.concatenate([-x, -x], axis=1))


def test_an_optional_value_is_what_it_has(rng):
    nodes = [
        node("Optional", "x", "o"),
        node("OptionalHasElement", "o", "h"),
        node("Cast", "h", "f", to=1),
        node("OptionalGetElement", "o", "g"),
        node("Add", "g f", "y"),
    ]
    x = rng.standard_normal((5, 4)).astype("f4")
    np.testing.assert_array_equal(graph.build(graph.from_onnx(built(nodes)))(x)[0], x + 1)


def test_hundreds_of_elements_become_one_value(rng):
    """An unrolled recurrence puts its steps together so."""
    nodes = [
        node("SplitToSequence", "x", "s", axis=0, keepdims=0),
        node("ConcatFromSequence", "s", "y", axis=0, new_axis=1),
    ]
    x = rng.standard_normal((300, 3)).astype("f4")
    proto = model(nodes, [info("x", [300, 3])], [info("y", None)])
    np.testing.assert_array_equal(graph.build(graph.from_onnx(proto))(x)[0], x)


def collected(inputs, computed, to):
    """A sequence carried by a loop, of whose inputs `computed` is a sum, cast to the type `to`."""
    return [
        node("SequenceEmpty", "", "e"),
        node("ReduceSum", "x", "n", keepdims=0),
        node("Cast", "n", computed, to=to),
        node("Loop", inputs, "s", body=turns(stops=False)),
        node("SequenceLength", "s", "y"),
    ]


REFUSED = {
    "an output": ([node("SequenceConstruct", "x", "y")], "output 'y' is a sequence"),
    "an operand": (
        [node("SequenceConstruct", "x", "s"), node("Relu", "s", "y")],
        r"\(Relu\): value 0 is a sequence of 1; expected a tensor",
    ),
    "a tensor": ([node("SequenceLength", "x", "y")], "its input 0 is no sequence"),
    "outside": (
        [node("SequenceConstruct", "x", "s"), node("SequenceAt", "s two", "y")],
        r"\(SequenceAt\): the position 2 is outside of 1 places",
    ),
    "other shapes": (
        [
            node("SequenceConstruct", "x zero", "s"),
            node("ArgMax", "x", "m", axis=0, keepdims=0),
            node("ReduceMin", "m", "at", keepdims=0),
            node("SequenceAt", "s at", "y"),
        ],
        "the position is computed, and the elements are not all of one shape",
    ),
    "turns": (
        collected("count yes e", "count", 7),
        r"\(Loop\): it carries a sequence, and how often it runs is not known",
    ),
    "a condition": (
        collected("three go e", "go", 9),
        r"\(Loop\): it carries a sequence, and how often it runs is not known",
    ),
    "no end": (
        [
            node("SequenceEmpty", "", "e"),
            node("Loop", " yes e", "s", body=unchanged()),
            node("SequenceLength", "s", "y"),
        ],
        "more than 100000 nodes",
    ),
    "sizes": (
        [node("SplitToSequence", "x axes", "s"), node("SequenceLength", "s", "y")],
        r"the sizes \[0\] do not make 5",
    ),
    "absent": (
        [
            node(
                "Optional",
                "",
                "o",
                type=helper.make_tensor_type_proto(TensorProto.FLOAT, [1]),
            ),
            node("OptionalGetElement", "o", "y"),
        ],
        "the optional value has no element",
    ),
    "attribute": (
        [node("SequenceConstruct", "x", "s", odd=1), node("SequenceLength", "s", "y")],
        "SequenceConstruct has no attribute odd",
    ),
    "nothing": (
        [node("SequenceEmpty", "", "s"), node("ConcatFromSequence", "s", "y", axis=0)],
        "the sequence has no elements",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_by_name(name):
    nodes, message = REFUSED[name]
    with pytest.raises(graph.Unsupported, match=message):
        graph.from_onnx(built(nodes))


def test_pieces_count_as_nodes():
    nodes = [node("SplitToSequence", "x", "s"), node("SequenceLength", "s", "y")]
    proto = model(nodes, [info("x", [10**6, 1])], [info("y", None)])
    with pytest.raises(graph.Unsupported, match="more than 100000 nodes"):
        graph.from_onnx(proto)


def test_the_body_of_a_map_reads_values_around_it(rng):
    body = helper.make_graph([node("Add", "e w", "r")], "body", [info("e", [2])], [info("r", [2])])
    nodes = [
        node("SplitToSequence", "x", "s", axis=0, keepdims=0),
        node("SequenceMap", "s", "t", body=body),
        node("ConcatFromSequence", "t", "y", axis=0, new_axis=1),
    ]
    mod = graph.from_onnx(model(nodes, [info("x", [3, 2]), info("w", [2])], [info("y", [3, 2])]))
    x, w = rng.standard_normal((3, 2)).astype("f4"), rng.standard_normal(2).astype("f4")
    np.testing.assert_array_equal(graph.evaluate(mod, "main", x, w), x + w)
