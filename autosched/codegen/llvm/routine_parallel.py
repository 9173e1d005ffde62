"""Parallel loops of routines as functions of their own, for other threads to run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.control import Control
from autosched.codegen.llvm.types import Value
from autosched.tir import dtypes
from autosched.tir.expr import Var
from autosched.tir.nodes import Element
from autosched.tir.parallel_loops import expressions
from autosched.tir.routine import Loop

if TYPE_CHECKING:
    from autosched.codegen.llvm.routine import _Writer

Values = list[tuple[str, str]]
"""Type and name of each."""
_LAST = "i64 %begin, i64 %end, i32 %thread"


def outlined(outer: _Writer, loop: Loop, begin: str) -> tuple[str, Values]:
    """Add the functions of a loop that `outer` has come to: the name of the one that the runtime
    calls, and the values that it takes, in an array of 8-byte cells."""
    name = f"{outer.entry}.par{len(outer.functions) // 2}"
    inner = copy(outer)
    inner.b = Builder(outer.declarations)
    inner.control = Control(inner.b, outer.control.number)
    inner.env, inner.pointers = {}, {}
    inner.scratch, inner.space = outer.thread_scratch, "%thread_space"
    inner.values = type(outer.values)(inner)
    values: Values = []
    declared: list[str] = []

    def given(kind: str, ref: str, name: str = "") -> str:
        inside = inner.b.name(name or f"%c{len(values)}", 0)
        values.append((kind, ref))
        # Of what it stores, no other thread touches the elements.
        declared.append(f"{kind}{' noalias' if kind == 'ptr' else ''} {inside}")
        return inside

    every = list(expressions(loop.body))
    buffers = {id(e.buffer) for e in every if isinstance(e, Element)}
    variables = {id(v) for v in (*every, *outer.func.sizes) if isinstance(v, Var)}
    for key, ref in outer.pointers.items():
        if key in buffers:
            inner.pointers[key] = given("ptr", ref)
    for key, value in outer.env.items():
        if key in variables:
            inner.env[key] = Value(given(value.type, value.ref), value.dtype)
    first = given("i64", begin)
    given("ptr", "%workspace", "%workspace")
    for known in ("%begin", "%end", "%thread_space"):
        inner.b.name(known, 0)

    def body(counter: str) -> None:
        index = inner.b.op(f"add nsw i64 {first}, {counter}")
        inner.env[id(loop.var)] = Value(index, dtypes.INDEX)
        inner.body(loop.body)

    inner.control.counted("%begin", "%end", body)
    outer.stops = inner.stops
    outer.functions += [_body(name, declared, inner), _entry(name, values)]
    return name, values


def _body(name: str, declared: Sequence[str], writer: _Writer) -> str:
    """The function of some iterations."""
    lines = [
        "entry:",
        *writer.control.slots,
        "  %thread64 = zext i32 %thread to i64",
        "  %mine = mul nsw i64 %thread64, @@EACH@@",
        "  %offset = add nsw i64 %mine, @@SHARED@@",
        "  %thread_space = getelementptr inbounds i8, ptr %workspace, i64 %offset",
        writer.b.text(),
        "  ret void",
    ]
    return _function(f"{name}.body", [*declared, _LAST], lines)


def _entry(name: str, values: Values) -> str:
    """The function that takes the values from the cells."""
    lines, passed = ["entry:"], []
    for n, (kind, _) in enumerate(values):
        lines.append(f"  %a{n} = getelementptr inbounds i64, ptr %context, i64 {n}")
        lines.append(f"  %v{n} = load {kind}, ptr %a{n}, align 8")
        passed.append(f"{kind} %v{n}")
    lines += [f"  call void @{name}.body({', '.join([*passed, _LAST])})", "  ret void"]
    return _function(name, ["ptr %context", _LAST], lines)


def _function(name: str, arguments: Sequence[str], lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    return f"define internal void @{name}({', '.join(arguments)}) #0 {{\n{text}\n}}"


def sized(functions: Sequence[str], shared: int, each: int) -> list[str]:
    """The functions, once it is known how many bytes of the workspace are for all threads, and how
    many each one has behind them."""
    return [t.replace("@@SHARED@@", str(shared)).replace("@@EACH@@", str(each)) for t in functions]
