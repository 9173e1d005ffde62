"""Operators on arrays, again and again with the same types: what is found out once is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from autosched.graph import ops
from autosched.graph.higher import HIGHER
from autosched.graph.infer import (
    _program,
    evaluate_operator,
    is_normal,
    type_of_array,
)
from autosched.graph.ir import Array
from autosched.graph.types import TensorType
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot
from autosched.tir.interp import constant
from autosched.tir.nodes import Access, Block, For, Iter, Node, PrimFunc
from autosched.tir.operations import OPS

Evaluate = Callable[[Sequence[Any]], Sequence[Any]]
Thunk = Callable[[Sequence[Array]], Any]
MOST_STAGES = 3
MOST = 64
"""Types of arguments that one call is prepared for."""


class Site:
    """A call of an operator. Calling it gives the results on arrays.

    To be called under `np.errstate(all="ignore")`. An operator of elements is a NumPy expression
    of whole arrays; any other is evaluated as a loop function.
    """

    def __init__(self, name: str, attrs: Mapping[str, Any], outputs: int) -> None:
        self.name, self.attrs, self.outputs = name, dict(attrs), outputs
        self.known: dict[object, Evaluate | None] = {}
        self.higher = HIGHER.get(name)

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        """The results. Raises Unsupported, naming the operator."""
        if self.higher is not None:
            return self.higher(*args, **self.attrs)[: self.outputs]
        try:
            key = tuple([(a.shape, a.dtype, type(a)) for a in args])
            evaluate = self.known[key]
        except (AttributeError, KeyError):
            evaluate = self.prepare(args)
        if evaluate is not None:
            return evaluate(args)
        arrays = [None if a is None else np.asanyarray(a) for a in args]
        return evaluate_operator(self.name, arrays, self.attrs, self.outputs)

    def prepare(self, args: Sequence[Any]) -> Evaluate | None:
        """How arguments of these types are evaluated; None for one by one."""
        row = ops.find(self.name)
        plain = row.host is None and (not row.static or is_normal(row, self.attrs))
        if not plain or not all(isinstance(a, np.ndarray) and a.dtype.kind in "biuf" for a in args):
            return None
        types = tuple(map(type_of_array, args))
        attrs = tuple(sorted(self.attrs.items()))
        found = _prepared(self.name, types, attrs, self.outputs, repr(attrs))
        if len(self.known) < MOST:
            self.known[tuple([(a.shape, a.dtype, type(a)) for a in args])] = found
        return found


@lru_cache(maxsize=512)
def _prepared(
    name: str,
    types: tuple[TensorType, ...],
    attrs: tuple[tuple[str, Any], ...],
    outputs: int,
    text: str,
) -> Evaluate | None:
    made = _program(name, types, (None,) * len(types), attrs, outputs, text)
    if made.func is None or len(made.results) != 1:
        return None
    return elementwise(made.func, made.reads, *made.results[0])


def elementwise(
    func: PrimFunc, reads: Sequence[int], shape: tuple[int, ...], dtype: str
) -> Evaluate | None:
    """A loop function whose points read their own place, as an expression of
    whole arrays; None for another one. `reads`: which arguments its parameters are."""
    known: dict[int, Thunk] = {
        id(b): _argument(n) for b, n in zip(func.params, reads, strict=False)
    }
    value: Thunk | None = None
    if len(func.body) > MOST_STAGES or dtype == "bfloat16":
        return None
    for node in func.body:
        block = _only_block(node)
        if block is None or block.reducer is not None or len(block.body) != 1:
            return None
        axes = block.iters
        if not all(_in_place(a, axes) for a in (*block.reads, *block.writes)):
            return None
        slots = [known.get(id(a.buffer)) for a in block.reads]
        value = _thunk(block.body[0], slots)
        if value is None:
            return None
        known[id(block.writes[0].buffer)] = value
    if value is None:
        return None
    kind, compute = dtypes.array_dtype(dtype), value

    def evaluate(args: Sequence[Any]) -> Sequence[Any]:
        made = np.asarray(compute(args), kind)
        return (made if made.shape == shape else np.broadcast_to(made, shape).copy(),)

    return evaluate


def _argument(n: int) -> Thunk:
    return lambda args: args[n]


def _only_block(node: Node) -> Block | None:
    """The block that is all of a plain loop nest."""
    while isinstance(node, For) and len(node.body) == 1:
        node = node.body[0]
    return node if isinstance(node, Block) and not node.predicates else None


def _in_place(access: Access, axes: Sequence[Iter]) -> bool:
    """Whether the indices are the last axes from end to end, so that NumPy broadcasts as the block
    reads."""
    rank = len(access.indices)
    last = axes[len(axes) - rank :]
    return len(last) == rank and all(
        isinstance(i, Affine) and i.single_var() is axis.var and bool(n == axis.extent)
        for i, n, axis in zip(access.indices, access.buffer.shape, last, strict=True)
    )


def _thunk(e: Expr, slots: Sequence[Thunk | None]) -> Thunk | None:
    """An expression as a function of the arguments; None where it has more than elements in it."""
    if isinstance(e, Const):
        value = constant(e.value, e.dtype)
        return lambda args: value
    if isinstance(e, Slot):
        return slots[e.index]
    if not isinstance(e, Call) or "bfloat16" in (e.dtype, *(a.dtype for a in e.args)):
        return None
    inner = [_thunk(a, slots) for a in e.args]
    given = [t for t in inner if t is not None]
    if len(given) < len(inner):
        return None
    if e.op == "cast":
        source, to = e.args[0].dtype, e.dtype
        return lambda args: dtypes.converted(given[0](args), source, to)
    operation = np.where if e.op in ("if_then_else", "select") else OPS[e.op].numpy
    if len(given) == 2:
        first, second = given
        return lambda args: operation(first(args), second(args))
    return lambda args: operation(*[t(args) for t in given])
