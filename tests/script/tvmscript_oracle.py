"""TVMScript executed as it stands: Python's own loops over NumPy arrays.

What `autosched.script.migrate` makes of a program is held to this. Of the language only blocks,
conditions that skip a block, and choices (of which one side is evaluated) need a word.
"""

from __future__ import annotations

import ast
import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from fractions import Fraction
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
        self.machine.outside.append(False)

    def __exit__(self, kind: type | None, error: object, trace: object) -> bool:
        self.machine.first.pop()
        is_outside = self.machine.outside.pop()
        assert kind is not None or not is_outside
        return kind is _Skipped


def _range(*ends: int, annotations: Any = None) -> range:
    return range(*ends)


class _Axes:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __getattr__(self, kind: str) -> Any:
        def axis(extent: Any, value: int) -> int:
            low, high = extent if isinstance(extent, tuple) else (0, extent)
            self.machine.outside[-1] |= not low <= value < high
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

    def __init__(self, sizes: Mapping[str, int], zeros: bool = False) -> None:
        self.sizes, self.zeros = sizes, zeros
        self.first: list[bool] = []
        self.outside: list[bool] = []
        self.axis = _Axes(self)

    def starts(self, values: Sequence[int]) -> list[int]:
        return [0] * len(values)

    def block(self, name: str = "") -> _Block:
        return _Block(self)

    sblock = block

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
        return np.full(shape, 0 if self.zeros else poison(dtype), dtype)

    def allocate(self, shape: Any, dtype: str, scope: str = "global") -> np.ndarray:
        return self.alloc_buffer(shape, dtype)

    def decl_buffer(
        self, shape: Any, dtype: str = "float32", data: Any = None, elem_offset: int = 0, **n: Any
    ) -> Any:
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if data is None:
            return self.alloc_buffer(shape, dtype)
        end = elem_offset + math.prod(shape)
        return data.reshape(-1)[elem_offset:end].reshape(shape)

    sblock_alloc_buffer = alloc_buffer

    Buffer = decl_buffer

    def grid(self, *extents: int) -> Any:
        return itertools.product(*map(range, extents)) if len(extents) > 1 else range(extents[0])

    def serial(self, *ends: int, step: int = 1, **named: Any) -> range:
        return range(ends[0] if len(ends) > 1 else 0, ends[-1], step)

    parallel = vectorized = unroll = serial

    def thread_binding(self, *ends: int, thread: str) -> range:
        return self.serial(*ends)

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

    def truncdiv(self, a: int, b: int) -> int:
        return int(a / b)

    def truncmod(self, a: int, b: int) -> int:
        return a - b * int(a / b)

    def target(self, text: str, host: str = "") -> None:
        pass

    def size(self, name: str) -> int | None:
        """A symbolic size, by its name in the text; None for a stride or an offset."""
        return self.sizes.get(name)

    def flat(self, array: np.ndarray) -> np.ndarray:
        """The memory of a buffer."""
        return array.reshape(-1)

    def load(self, dtype: str, array: np.ndarray, at: Any) -> Any:
        return self.flat(array)[at]

    def store(self, array: np.ndarray, at: Any, value: Any, holds: bool = True) -> None:
        if holds:
            self.flat(array)[at] = value

    def ramp(self, base: int, stride: int, lanes: int) -> np.ndarray:
        return base + stride * np.arange(lanes)

    def broadcast(self, value: Any, lanes: int) -> np.ndarray:
        return np.full(lanes, value)

    def allocate_const(self, data: Any, dtype: str, shape: Any) -> np.ndarray:
        return np.array(data, dtype).reshape(shape)

    def q_multiply_shift(self, x: Any, y: int, q: int, s: int, dtype: str) -> int:
        exact = Fraction(int(x) * y * 2 ** max(s, 0), 2 ** (q + max(-s, 0)))
        return math.floor(exact + Fraction(1, 2))

    def undef(self, dtype: str) -> int:
        return 0

    def assume(self, holds: Any) -> None:
        pass

    def attr(self, *words: Any) -> None:
        pass

    def shift_left(self, a: int, b: int, dtype: str) -> int:
        return a << b if b >= 0 else 0

    def sqrt(self, x: Any, dtype: str) -> Any:
        return np.sqrt(x)

    def ceil(self, x: Any, dtype: str) -> Any:
        return np.ceil(x)

    def log2(self, x: Any, dtype: str) -> Any:
        return np.log2(x)

    def bfloat16(self, x: float) -> float:
        return x

    bool = staticmethod(bool)

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
    float64, int16 = np.float64, np.int16


class _Plain(ast.NodeTransformer):
    """T.init as a condition, choices as Python's, `A.data` as A, sizes by name, and what
    T.launch_thread opens as a loop."""

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "data":
            flat = ast.parse(f"T.flat({ast.unparse(node.value.value)})", mode="eval").body
            return ast.Subscript(flat, self.visit(node.slice), node.ctx)
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        text = ast.unparse(node.value)
        if text == "T.var('float32')":
            return ast.Pass()
        if text in ("T.int32()", "T.int64()", "T.var('int32')"):
            node.value = ast.parse(f"T.size({ast.unparse(node.targets[0])!r})", mode="eval").body
        return node

    def threads(self, target: ast.expr, extent: ast.expr, body: list[ast.stmt]) -> ast.For:
        """A loop over threads."""
        numbers = ast.Call(ast.Name("range", ast.Load()), [extent], [])
        return ast.For(target, numbers, body or [ast.Pass()], [], lineno=0)

    def launched(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Statements, with a loop around those after T.launch_thread."""
        for n, s in enumerate(body):
            call = s.value if isinstance(s, (ast.Assign, ast.Expr)) else None
            word = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
            if word == "T.launch_thread":
                of = s.targets[0] if isinstance(s, ast.Assign) else call.args[0]
                target = ast.Name(ast.unparse(of), ast.Store())
                loop = self.threads(target, call.args[1], self.launched(body[n + 1 :]))
                return [*(x for x in body[:n] if "T.env_thread" not in ast.unparse(x)), loop]
        return [x for x in body if "T.env_thread" not in ast.unparse(x)[:60]] or [ast.Pass()]

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        item = node.items[0].context_expr
        if ast.unparse(item) == "T.init()":
            return ast.If(ast.parse("T.first[-1]", mode="eval").body, node.body, [])
        bound = node.items[0].optional_vars
        if item.func.attr == "launch_thread":
            target = bound or ast.Name(ast.unparse(item.args[0]), ast.Store())
            return self.threads(target, item.args[1], node.body)
        if item.func.attr == "LetStmt":
            given = {k.arg: k.value for k in item.keywords}
            target = ast.Name(ast.unparse(bound or given["var"]), ast.Store())
            return [ast.Assign([target], item.args[0], lineno=0), *node.body]
        if isinstance(bound, ast.List):
            node.items[0].optional_vars = None
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("vload", "vstore"):
            at, lanes = ast.unparse(node.args[0].elts[0]), 4
            part = f"{ast.unparse(node.func.value)}[{at} : {at} + {lanes}]"
            if node.func.attr == "vload":
                return ast.parse(part, mode="eval").body
            text = f"np.copyto({part}, {ast.unparse(node.args[1])})"
            return ast.parse(text, mode="eval").body
        if ast.unparse(node.func) == "T.Let":
            var, value, body = node.args
            return ast.parse(
                f"(lambda {ast.unparse(var)}: {ast.unparse(body)})({ast.unparse(value)})",
                mode="eval",
            ).body
        if ast.unparse(node.func) in ("T.if_then_else", "T.Select"):
            return ast.IfExp(*node.args[:3])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        return node.value if node.attr == "data" else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.generic_visit(node)
        node.decorator_list, node.returns = [], None
        node.body = self.launched(node.body)
        for arg in node.args.args:
            arg.annotation = None
        return node


def execute(
    text: str,
    arrays: Sequence[np.ndarray],
    name: str = "main",
    sizes: Mapping[str, int] | None = None,
    zeros: bool = False,
    **constants: Any,
) -> None:
    """Run the function `name` of a text on arrays, one a parameter; outputs are written in place.
    `sizes` are the symbolic sizes by their names in the text. With `zeros` new memory holds 0, as
    in routines, and else poison."""
    tree = ast.parse(textwrap.dedent(text))
    tree.body = [s for s in tree.body if not isinstance(s, (ast.Import, ast.ImportFrom))]
    tree = ast.fix_missing_locations(_Plain().visit(tree))
    names: dict[str, Any] = {
        "T": Machine(sizes or {}, zeros),
        "np": np,
        "range": _range,
        **constants,
    }
    exec(compile(tree, "tvmscript", "exec"), names)
    with np.errstate(all="ignore"):
        names[name](*arrays)
