"""Masked arrays of NumPy are refused wherever arrays are taken, not computed without their mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_models import info, model
from onnx import helper

import autosched as at
from autosched import graph, te
from autosched.errors import AutoschedError
from autosched.graph import op
from measure.verify.given import give_inputs

MASKED = np.ma.masked_array(np.ones((4, 8), "f4"), mask=np.eye(4, 8))


class Records(np.ma.MaskedArray):
    """A type that somebody has derived."""


def _module() -> Any:
    x = graph.var("x", (4, 8), "float32")
    return graph.module(main=graph.function([x], op.add(x, x)))


def _program() -> Any:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] * 2.0, name="B")
    return te.create_prim_func([a, b])


def _open() -> Any:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    return model([node], [info("x", ["n", 8])], [info("y", ["n", 8])])


MODULE, FUNCTION = _module(), at.build(at.Schedule(_program()))
TAKERS: dict[str, Callable[[Any], Any]] = {
    "a function": lambda x: FUNCTION(x, np.empty((4, 8), "f4")),
    "an output": lambda x: FUNCTION(np.ones((4, 8), "f4"), x),
    "a model": lambda x: graph.build(MODULE)(x),
    "a model by names": lambda x: graph.build(MODULE).run({"x": x}),
    "sizes of each call": lambda x: graph.build_dynamic(_open())(x),
    "evaluate": lambda x: graph.evaluate(MODULE, "main", x),
    "a constant": graph.const,
    "inputs of a task": lambda x: give_inputs("", _program(), {"A": x}),
    "samples": lambda x: graph.quantise(MODULE, {"x": x}),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("array", [MASKED, MASKED.view(Records)], ids=["masked", "derived"])
def test_a_masked_array_is_refused(taker: str, array: Any) -> None:
    with pytest.raises(AutoschedError, match=r"a masked array, whose mask .*filled\(value\)"):
        TAKERS[taker](array)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("kind", [np.recarray, np.matrix, memoryview], ids=lambda k: k.__name__)
def test_other_arrays_are_taken(kind: Any) -> None:
    x, y = np.full((4, 8), 3, "f4"), np.empty((4, 8), "f4")
    FUNCTION(memoryview(x) if kind is memoryview else x.view(kind), y)
    assert (y == 6).all()
