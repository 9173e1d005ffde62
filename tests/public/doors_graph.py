"""Valid calls of the graph level."""

from __future__ import annotations

from typing import Any

import numpy as np
from doors import FUNC, door

from autosched import graph


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
