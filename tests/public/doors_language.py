"""Valid calls of the functional language, patterns, external code generators and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from doors import door, kw
from doors_graph import small

from autosched import graph
from autosched.graph.pattern import any as anything
from autosched.graph.pattern import matches, op
from autosched.script import parse

LIST = """
@G.module
class M:
    from prelude import List, sum
    @G.function
    def main(xs: List[int32], n: int32) -> int32:
        return sum(xs) + n
"""


def listed() -> Any:
    """A module whose main has a list and a number."""
    return parse(LIST)


def scalar() -> Any:
    """A function with one result of one element."""
    x = graph.var("x", (3,))
    return graph.function([x], graph.op.reduce_sum(graph.op.mul(x, x), keepdims=0))


ITEMS = graph.to_list([1, 2])
ADDED = op("Add")(anything, anything)

door("graph.check")(lambda: (graph.check, listed()))
door("graph.evaluate, list")(lambda: (graph.evaluate, listed(), "main", ITEMS, 3))
door("graph.specialise")(lambda: (graph.specialise, listed(), "main", {"xs": ITEMS}))
door("graph.specialise, known")(
    lambda: (lambda x: graph.specialise(listed(), "main", {"xs": x}), ITEMS)
)
door("graph.from_relay")(lambda: (graph.from_relay, "def @main(%x: int32) { %x }"))
door("graph.from_list")(lambda: (graph.from_list, ITEMS))
door("graph.gradient")(lambda: (graph.gradient, scalar(), ["x"], True))
door("graph.partition")(lambda: (graph.partition, small(), "blas"))
door("graph.external_codegen")(
    lambda: (graph.external_codegen, "walked", [op("Add")(anything, anything)], True, True)
)
# Errors of a callback are its own.
door("graph.rewrite")(
    lambda: (lambda m, p: graph.rewrite(m, p, lambda found: found.value), small(), ADDED)
)
door("graph.rewrite_pass")(
    lambda: (lambda n, p: graph.rewrite_pass(n, p, lambda found: None), "walked", ADDED)
)
door("graph.pattern.op")(lambda: (op, "Relu"))
door("graph.pattern.op, call")(lambda: (op("Conv"), anything, anything, kw(group=1)))
door("graph.pattern.matches")(lambda: (matches, op("Add")(anything, anything), small()["main"]))
door("graph.pattern.named")(lambda: (anything.named, "x"))
door("graph.pattern.where")(lambda: (anything.where, lambda value: True))
door("graph.pattern.typed")(lambda: (anything.typed, (2, None), "float32"))
door("graph.passes.partial_eval")(lambda: (graph.passes.partial_eval, listed()))
door("graph.const, pattern")(lambda: (graph.pattern.const, np.float32(1)))
