"""A program as equations, one line a tensor: what `print(task.compute_dag)` shows.

    A = PLACEHOLDER [1024, 1024]
    B = PLACEHOLDER [1024, 1024]
    matmul(i, j) += (A[i, k]*B[k, j])

The form is that of TVM's auto_scheduler, which users compare with.
"""

from __future__ import annotations

from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.nodes import Access, Block, Buffer, Index, PrimFunc, Reducer, inputs_of, sites

WIDTH = 256
"""Longer lines are cut: their first and last 100 characters stay."""

_SYMBOLS = {
    "add": " + ", "sub": " - ", "mul": "*", "div": "/",
    "lt": " < ", "le": " <= ", "gt": " > ", "ge": " >= ", "eq": " == ", "ne": " != ",
    "and": " && ", "or": " || ", "bitwise_and": " & ", "bitwise_or": " | ", "bitwise_xor": " ^ ",
    "shift_left": " << ", "shift_right": " >> ",
}  # fmt: skip
_PLAIN_CALLS = ("floordiv", "floormod", "min", "max", "select")


def dag_text(func: PrimFunc, width: int | None = WIDTH) -> str:
    """The equations of `func` in program order, each input before its first use.

    `width` None leaves long lines whole.
    """
    writer = _Equations(func)
    lines = writer.lines()
    if width is not None:
        lines = [x if len(x) <= width else f"{x[:100]} ..(OMITTED).. {x[-100:]}" for x in lines]
    return "\n".join(lines)


class _Equations:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.labels: dict[Buffer, str] = {}
        for site in sites(func):
            block = site.block
            for n, access in enumerate(block.writes):
                several = len(block.writes) > 1
                self.labels[access.buffer] = f"{block.name}.v{n}" if several else access.buffer.name

    def lines(self) -> list[str]:
        out: list[str] = []
        inputs = inputs_of(self.func)
        shown: set[Buffer] = set()

        def placeholder(b: Buffer) -> None:
            shown.add(b)
            out.append(f"{b.name} = PLACEHOLDER [{', '.join(str(n) for n in b.shape)}]")

        for site in sites(self.func):
            for access in site.block.reads:
                if access.buffer in inputs and access.buffer not in shown:
                    placeholder(access.buffer)
            out += _Equation(site.block, self.labels).lines()
        for b in inputs:
            if b not in shown:
                placeholder(b)
        return out


class _Equation:
    """One block. An axis bound to one loop takes that loop's name, the one the user gave."""

    def __init__(self, block: Block, labels: dict[Buffer, str]) -> None:
        self.block = block
        self.labels = labels
        self.names: dict[Var, str] = {}
        for it, binding in zip(block.iters, block.bindings, strict=True):
            loop = binding.single_var()
            self.names[it.var] = it.var.name if loop is None else loop.name

    def lines(self) -> list[str]:
        values = [self.expr(e) for e in self.block.body]
        relation = "=" if self.block.reducer is None else self.reduction(self.block.reducer)
        source = f"({', '.join(values)})" if self.block.reducer and len(values) > 1 else None
        return [
            f"{self.labels[a.buffer]}({', '.join(self.index(i) for i in a.indices)})"
            f" {relation} {source or value}"
            for a, value in zip(self.block.writes, values, strict=True)
        ]

    def reduction(self, reducer: Reducer) -> str:
        """`+=`, `max=`, …; the combining expression itself where it is no single operation."""
        e = reducer.combine[0]
        if len(reducer.combine) == 1 and isinstance(e, Call) and len(e.args) == 2:
            operands = {id(a) for a in e.args}
            if operands == {id(reducer.lhs[0]), id(reducer.rhs[0])}:
                symbol = {"add": "+", "mul": "*"}.get(e.op, e.op)
                return f"{symbol}="
        for n, (lhs, rhs) in enumerate(zip(reducer.lhs, reducer.rhs, strict=True)):
            suffix = f"_{n}" if len(reducer.lhs) > 1 else ""
            self.names[lhs], self.names[rhs] = f"lhs{suffix}", f"rhs{suffix}"
        texts = [self.expr(c) for c in reducer.combine]
        return texts[0] + "=" if len(texts) == 1 else f"({', '.join(texts)})="

    def access(self, access: Access) -> str:
        inside = ", ".join(self.index(i) for i in access.indices)
        return f"{self.labels.get(access.buffer, access.buffer.name)}[{inside}]"

    def index(self, index: Index) -> str:
        return self.expr(index.to_expr() if isinstance(index, Affine) else index)

    def expr(self, e: Expr) -> str:
        if isinstance(e, Var):
            return self.names.get(e, e.name)
        if isinstance(e, Const):
            return _const(e)
        if isinstance(e, Slot):
            return self.access(self.block.reads[e.index])
        if not isinstance(e, Call):
            return str(e)
        args = [self.expr(a) for a in e.args]
        if e.op in _SYMBOLS:
            return f"({args[0]}{_SYMBOLS[e.op]}{args[1]})"
        if e.op == "cast":
            return f"{e.dtype}({args[0]})"
        if e.op == "reinterpret":
            return f"tir.reinterpret({e.dtype}, {args[0]})"
        if e.op == "not":
            return f"!{args[0]}"
        if e.op in _PLAIN_CALLS:
            return f"{e.op}({', '.join(args)})"
        return f"tir.{e.op}({', '.join(args)})"


def _const(c: Const) -> str:
    if c.dtype in ("int64", "bool"):
        return str(c.value)
    suffix = {"float32": "f", "float16": "h"}.get(c.dtype)
    if suffix is None:
        return f"{c.dtype}({c.value})" if c.dtype != "float64" else str(c.value)
    return f"{c.value:g}{suffix}" if float(f"{c.value:g}") == c.value else f"{c.value!r}{suffix}"
