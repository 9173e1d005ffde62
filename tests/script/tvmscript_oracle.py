"""TVMScript executed as it stands: Python's own loops over NumPy arrays.

What `autosched.script.migrate` makes of a program is held to this. Of the language only blocks,
conditions that skip a block, and choices (of which one side is evaluated) need a word.
"""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.tir.interp import poison


class _Skipped(Exception):
    """T.where does not hold."""


class _Block:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __enter__(self) -> None:
        self.machine.first.append(True)

    def __exit__(self, kind: type | None, error: object, trace: object) -> bool:
        self.machine.first.pop()
        return kind is _Skipped


class _Axes:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __getattr__(self, kind: str) -> Any:
        def axis(extent: Any, value: int) -> int:
            low, high = extent if isinstance(extent, tuple) else (0, extent)
            assert low <= value < high
            if kind in ("R", "reduce"):
                self.machine.first[-1] &= value == low
            return value

        return axis

    def remap(self, kinds: str, values: Sequence[int]) -> Any:
        for kind, value, start in zip(kinds, values, self.machine.starts(values), strict=True):
            if kind == "R":
                self.machine.first[-1] &= value == start
        return values[0] if len(values) == 1 else tuple(values)


class Machine:
    """The namespace T."""

    def __init__(self) -> None:
        self.first: list[bool] = []
        self.axis = _Axes(self)

    def starts(self, values: Sequence[int]) -> list[int]:
        return [0] * len(values)

    def block(self, name: str = "") -> _Block:
        return _Block(self)

    def where(self, holds: bool) -> None:
        if not holds:
            raise _Skipped

    def match_buffer(self, array: np.ndarray, shape: Any, *rest: Any, **named: Any) -> Any:
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        view = array.reshape(shape)
        assert np.shares_memory(view, array)
        return view

    def alloc_buffer(self, shape: Any, dtype: str = "float32", *a: Any, **n: Any) -> np.ndarray:
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        return np.full(shape, poison(dtype), dtype)

    def allocate(self, shape: Any, dtype: str, scope: str = "global") -> np.ndarray:
        return self.alloc_buffer(shape, dtype)

    def decl_buffer(self, shape: Any, dtype: str = "float32", data: Any = None, **n: Any) -> Any:
        return self.alloc_buffer(shape, dtype) if data is None else data.reshape(tuple(shape))

    Buffer = decl_buffer

    def grid(self, *extents: int) -> Any:
        return itertools.product(*map(range, extents)) if len(extents) > 1 else range(extents[0])

    def serial(self, *ends: int, step: int = 1, **named: Any) -> range:
        return range(ends[0] if len(ends) > 1 else 0, ends[-1], step)

    parallel = vectorized = unroll = serial

    def thread_binding(self, *ends: int, thread: str) -> range:
        return self.serial(*ends)

    def launch_thread(self, thread: str, extent: int) -> range:
        return range(extent)

    def reads(self, *regions: Any) -> None:
        pass

    writes = block_attr = func_attr = evaluate = reads

    def Cast(self, dtype: str, value: Any) -> Any:
        return np.asarray(value).astype(dtype)[()]

    def cast(self, value: Any, dtype: str) -> Any:
        return self.Cast(dtype, value)

    def max(self, a: Any, b: Any) -> Any:
        return np.maximum(a, b)

    def min(self, a: Any, b: Any) -> Any:
        return np.minimum(a, b)

    def floordiv(self, a: Any, b: Any) -> Any:
        return a // b

    def floormod(self, a: Any, b: Any) -> Any:
        return a % b

    def exp(self, x: Any, dtype: str = "") -> Any:
        return np.exp(x)

    def likely(self, x: Any, dtype: str = "") -> Any:
        return x

    def min_value(self, dtype: str) -> Any:
        return np.finfo(dtype).min if dtype.startswith("f") else np.iinfo(dtype).min

    def int32(self, *x: Any) -> Any:
        return int(x[0]) if x else None

    int64 = int32
    float32, float16, int8, uint8 = np.float32, np.float16, np.int8, np.uint8


class _Plain(ast.NodeTransformer):
    """T.init as a condition, choices as Python's, and `A.data` as A."""

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        item = node.items[0].context_expr
        if ast.unparse(item) == "T.init()":
            return ast.If(ast.parse("T.first[-1]", mode="eval").body, node.body, [])
        if item.func.attr == "launch_thread":
            return ast.For(node.items[0].optional_vars, item, node.body, [])
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if ast.unparse(node.func) in ("T.if_then_else", "T.Select"):
            return ast.IfExp(*node.args[:3])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        return node.value if node.attr == "data" else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.generic_visit(node)
        node.decorator_list, node.returns = [], None
        for arg in node.args.args:
            arg.annotation = None
        return node


def execute(text: str, arrays: Sequence[np.ndarray], name: str = "main", **constants: Any) -> None:
    """Run the function `name` of a text on arrays, one a parameter; outputs are written in
    place."""
    tree = ast.parse(textwrap.dedent(text))
    tree.body = [s for s in tree.body if not isinstance(s, (ast.Import, ast.ImportFrom))]
    tree = ast.fix_missing_locations(_Plain().visit(tree))
    names: dict[str, Any] = {"T": Machine(), **constants}
    exec(compile(tree, "tvmscript", "exec"), names)
    with np.errstate(all="ignore"):
        names[name](*arrays)
