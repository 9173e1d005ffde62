"""Valid calls of the graph level."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import numpy as np
from doors import FUNC, door, kw

from autosched import graph
from autosched.errors import AutoschedError
from autosched.graph.builder import call
from autosched.graph.ops.registry import OPERATORS, named


def sums() -> tuple[Any, Any, Any]:
    """Two parameters and their sum."""
    x, y = graph.var("x", (2, 3)), graph.var("y", (2, 3))
    return x, y, graph.op.add(x, y)


def small() -> Any:
    x, y, z = sums()
    return graph.module(main=graph.function([x, y], z))


ONES = np.ones((2, 3), np.float32)

door("graph.var")(lambda: (graph.var, "x", (2, 3), "float32"))
door("graph.const")(lambda: (graph.const, [1.0, 2.0], "float32"))
door("graph.constants")(lambda: (graph.constants, small()))
door("graph.module")(lambda: (lambda f: graph.module(main=f), FUNC))
door("graph.evaluate")(lambda: (graph.evaluate, small(), "main", ONES, ONES))
for n in ("add", "matmul"):
    door(f"graph.op.{n}")(lambda n=n: (getattr(graph.op, n), *graph_square()))


def graph_square() -> tuple[Any, Any]:
    return graph.var("x", (2, 2)), graph.var("y", (2, 2))


@door("graph.function")
def _() -> Any:
    x, y, z = sums()
    return graph.function, [x, y], z, "main"


# Operators: any argument of some, and any attribute of all of them.
FOUR = graph.var("x", (2, 2, 4, 4))
for n in ("relu", "add", "conv", "reduce_sum", "gather", "where", "split", "one_hot", "einsum"):
    row = named(n)
    assert row is not None
    kinds = [p.kind for p in row.parameters.values()]
    count = min(max(kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD), 1), 3)
    attrs = {a: None for a in row.attributes if a != "outputs"}
    door(f"graph.op.{n}, each")(
        lambda n=n, count=count, attrs=attrs: (getattr(graph.op, n), *[FOUR] * count, kw(**attrs))
    )


def _any_attribute(value: Any) -> None:
    """Many operators with this for each of their attributes."""
    for row in list(OPERATORS.values())[::8]:
        for attribute in row.attributes:
            with suppress(AutoschedError):
                call(row.name, [FOUR], {attribute: value})


for n in ("avg_pool2d", "batch_flatten", "bias_add", "conv2d", "dense", "global_avg_pool2d"):
    rest = {"avg_pool2d": ((2, 2),), "bias_add": ([1.0, 1.0],), "conv2d": (FOUR,), "dense": (FOUR,)}
    door(f"graph.nn.{n}")(lambda n=n, rest=rest: (getattr(graph.nn, n), FOUR, *rest.get(n, ())))
door("graph.op, attributes")(lambda: (_any_attribute, 1))

# Whole models. What takes long is refused before it begins.
door("graph.build")(lambda: (graph.build, FUNC))
door("graph.build, params")(lambda: (lambda p: graph.build(small(), params=p), {"x": ONES}))
door("graph.build, threads")(lambda: (lambda n: graph.build(small(), threads=n, cache="kept"), 1))
door("graph.extract_tasks")(lambda: (graph.extract_tasks, FUNC))
door("graph.lower")(lambda: (graph.lower, FUNC))
door("graph.from_onnx")(lambda: (graph.from_onnx, b"no model", kw(shapes={"x": (1, 2)})))
door("graph.load")(lambda: (graph.load, "no folder"))
door("graph.strategy")(lambda: (graph.strategy, "MatMul"))
