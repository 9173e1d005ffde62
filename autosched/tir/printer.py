"""Printing the loop IR as script: Python-syntax text, one language at every stage."""

from __future__ import annotations

import json
import keyword
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Call, Const, Expr, Slot, Var, walk
from autosched.tir.forms import tidy, tidy_index
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Element,
    ExternCall,
    For,
    Foreign,
    Index,
    Iter,
    Node,
    Pointer,
    Predicate,
    PrimFunc,
    Reducer,
    foreign,
)
from autosched.tir.operations import OPS
from autosched.tir.reducers import KNOWN, known_name
from autosched.tir.size import Size

LOOP_NAMES = {
    "serial": "serial",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "unrolled": "unroll",
}


NOT = 30
"""Precedence of `not`, between `and` and the comparisons."""


@cache
def identifier(name: str) -> str:
    """`name` as a Python identifier (which may be a keyword); others keep what they can."""
    if name.isascii() and name.isidentifier():
        return name
    # Python reads identifiers in this normal form.
    text = unicodedata.normalize("NFKC", name)
    text = "".join(c if f"_{c}".isidentifier() else "_" for c in text) or "v"
    return text if text.isidentifier() else f"_{text}"


def function_name(name: str) -> str:
    """`name` as it stands after `def`."""
    text = identifier(name)
    return f"{text}_" if keyword.iskeyword(text) else text


def quote(text: str) -> str:
    """`text` as a string literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def format_literal(value: Any) -> str:
    """Python text of an annotation's value."""
    if isinstance(value, np.generic):
        return format_literal(value.item())
    if isinstance(value, dict):
        items = (f"{format_literal(k)}: {format_literal(v)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(format_literal, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return f'float("{value}")'
    return repr(value)


class Names:
    """Unique printed names: the first taker keeps its name, later ones get `_1`, `_2`, …"""

    def __init__(self) -> None:
        self.by_id: dict[int, str] = {}
        self.taken: set[str] = {"T", *keyword.kwlist}

    def of(self, thing: Var | Buffer) -> str:
        """The printed name of a variable or buffer."""
        name = self.by_id.get(id(thing))
        if name is None:
            base = identifier(thing.name)
            name, n = base, 0
            while name in self.taken:
                n += 1
                name = f"{base}_{n}"
            self.taken.add(name)
            self.by_id[id(thing)] = name
        return name


def format_const(c: Const) -> str:
    """`4` for an index, `T.float32(0.5)` for the rest; exact for floats."""
    if c.dtype == "int64":
        return str(c.value)
    if c.dtype == "bool":
        return str(c.value)
    value = repr(c.value) if c.value == c.value and abs(c.value) != float("inf") else f'"{c.value}"'
    return f"T.{c.dtype}({value})"


def format_expr(
    e: Expr, names: Names | None = None, reads: tuple[Access, ...] = (), outer: int = 0
) -> str:
    """Text of an expression; `reads` spells out the slots. `outer` is the precedence around it."""
    names = names or Names()
    if isinstance(e, Var):
        return names.of(e)
    if isinstance(e, Const):
        return format_const(e)
    if isinstance(e, Slot):
        return format_access(reads[e.index], names, reads) if reads else f"slot{e.index}"
    if isinstance(e, Call):
        row = OPS[e.op]
        if e.op == "cast":
            return f'T.cast({format_expr(e.args[0], names, reads)}, "{e.dtype}")'
        if e.op == "reinterpret":
            return f'T.reinterpret("{e.dtype}", {format_expr(e.args[0], names, reads)})'
        if e.op == "not":
            text = f"not {format_expr(e.args[0], names, reads, NOT)}"
            return f"({text})" if outer > NOT else text
        if row.symbol is None:
            return f"T.{e.op}({', '.join(format_expr(a, names, reads) for a in e.args)})"
        # Left-associative: the right operand needs parentheses at equal precedence.
        level = row.precedence
        left = format_expr(e.args[0], names, reads, level + (1 if row.result == "bool" else 0))
        right = format_expr(e.args[1], names, reads, level + 1)
        text = f"{left} {row.symbol} {right}"
        return f"({text})" if level < outer else text
    if isinstance(e, Element):
        inside = ", ".join(format_expr(i, names) for i in e.indices)
        return f"{names.of(e.buffer)}[{inside or '()'}]"
    if isinstance(e, Pointer):
        return names.of(e.buffer)
    if isinstance(e, ExternCall):
        args = "".join(f", {format_expr(x, names)}" for x in e.indices)
        return f"T.call_extern({quote(e.function.name)}{args})"
    return str(e)


def format_index(index: Index, names: Names, reads: tuple[Access, ...]) -> str:
    """Text of one index."""
    index = tidy_index(index)
    return format_expr(index.to_expr() if isinstance(index, Affine) else index, names, reads)


def format_access(access: Access, names: Names, reads: tuple[Access, ...] = ()) -> str:
    """`A[vi, vk]`; a buffer of rank 0 prints `A[()]`."""
    inside = ", ".join(format_index(i, names, reads) for i in access.indices)
    return f"{names.of(access.buffer)}[{inside or '()'}]"


def script(func: PrimFunc) -> str:
    """The function as script text that ends in a newline."""
    return _Script().function(func)


def numbered(func: PrimFunc) -> tuple[str, dict[int, int]]:
    """The function as script text, and the number of the line, from 1, at which each loop, its
    variable and each block (by id) begins."""
    printer = _Script()
    text = printer.function(func)
    return text, printer.begins


def format_node(node: Node) -> str:
    """Text of a part of a program, for messages."""
    printer = _Script()
    printer.node(node, 0)
    return "\n".join(printer.lines)


class _Script:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names = Names()
        self.begins: dict[int, int] = {}
        self.bound: list[Var] = []  # kept, since names go by identity

    def function(self, func: PrimFunc) -> str:
        # Printing is deterministic in names: parameters first, then intermediates, then the body.
        head = f"def {function_name(func.name)}"
        if func.sizes:
            self.sized_params(func, head)
        else:
            params = ", ".join(f"{self.names.of(b)}: {self.buffer_type(b)}" for b in func.params)
            self.lines += ["@T.prim_func", f"{head}({params}):"]
        if func.attrs:
            self.emit(1, f"T.func_attr({format_literal(dict(func.attrs))})")
        from autosched.tir.nodes import buffers_of, loops_of

        placed = {id(b) for b in func.params}
        for loop in loops_of(func):
            placed |= {id(b) for b in loop.allocs}
        for b in func.allocs:
            self.alloc(b, 1, ", placed=True")
            placed.add(id(b))
        for b in buffers_of(func):
            if id(b) not in placed:
                self.alloc(b, 1)
        for node in func.body:
            self.node(node, 1)
        if not func.body:
            self.emit(1, "pass")
        return "\n".join(self.lines) + "\n"

    def sized_params(self, func: PrimFunc, head: str) -> None:
        """Parameters as handles, which are matched once the sizes in their shapes have names."""
        sizes = [self.names.of(v) for v in func.sizes]
        buffers = [self.names.of(b) for b in func.params]
        self.bound += (handles := [Var(f"{name}_handle") for name in buffers])
        names = [self.names.of(h) for h in handles]
        self.lines += ["@T.prim_func", f"{head}({', '.join(f'{h}: T.handle' for h in names)}):"]
        for size in sizes:
            self.emit(1, f"{size} = T.int64()")
        for handle, buffer, b in zip(names, buffers, func.params, strict=True):
            self.emit(1, f"{buffer} = T.match_buffer({handle}, {self.buffer_args(b)})")

    def number(self, n: Int, outer: int = 0) -> str:
        """An extent or a bound; `outer` is the precedence around it."""
        return format_expr(n.to_expr(), self.names, (), outer) if isinstance(n, Size) else str(n)

    def emit(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def buffer_type(self, b: Buffer) -> str:
        return f"T.Buffer({self.buffer_args(b)})"

    def buffer_args(self, b: Buffer) -> str:
        """What declares a buffer; its own name only where another is printed."""
        scope = "" if b.scope == "global" else f", scope={quote(b.scope)}"
        name = "" if self.names.of(b) == b.name else f", name={quote(b.name)}"
        align = f", align={format_literal(b.align)}" if b.align else ""
        return f"{self.shape(b)}, {quote(b.dtype)}{scope}{align}{name}"

    def shape(self, b: Buffer) -> str:
        inside = ", ".join(self.number(n) for n in b.shape)
        return f"({inside},)" if len(b.shape) == 1 else f"({inside})"

    def alloc(self, b: Buffer, depth: int, extra: str = "") -> None:
        self.emit(depth, f"{self.names.of(b)} = T.alloc_buffer({self.buffer_args(b)}{extra})")

    def node(self, node: Node, depth: int) -> None:
        if isinstance(node, Block):
            self.block(node, depth)
            return
        # A chain of plain serial loops prints as one grid.
        chain = [node]
        while self.plain(chain[-1]) and len(chain[-1].body) == 1:
            below = chain[-1].body[0]
            if not (isinstance(below, For) and self.plain(below)):
                break
            chain.append(below)
        last = chain[-1]
        for loop in chain:
            self.begins[id(loop)] = self.begins[id(loop.var)] = len(self.lines) + 1
        if len(chain) > 1:
            names = ", ".join(self.names.of(loop.var) for loop in chain)
            extents = ", ".join(self.number(x.extent) for x in chain)
            self.emit(depth, f"for {names} in T.grid({extents}):")
        else:
            self.emit(depth, f"for {self.names.of(node.var)} in {self.loop_call(node)}:")
        for b in last.allocs:
            self.alloc(b, depth + 1)
        for child in last.body:
            self.node(child, depth + 1)

    def plain(self, loop: For) -> bool:
        return loop.kind == "serial" and not loop.annotations and not loop.allocs

    def loop_call(self, loop: For) -> str:
        extra = ""
        if loop.thread is not None:
            extra += f", thread={quote(loop.thread)}"
        if loop.annotations:
            extra += f", annotations={format_literal(dict(loop.annotations))}"
        kind = "thread_binding" if loop.kind == "thread" else LOOP_NAMES[loop.kind]
        return f"T.{kind}({self.number(loop.extent)}{extra})"

    def block(self, block: Block, depth: int) -> None:
        self.begins[id(block)] = len(self.lines) + 1
        value = foreign(block)
        if value is not None:
            self.opaque(block, value, depth)
            return
        self.emit(depth, f"with T.block({quote(block.name)}):")
        depth += 1
        for it, binding in zip(block.iters, block.bindings, strict=True):
            self.axis(it, binding, depth)
        if block.predicates:
            conditions = " and ".join(self.predicate(p) for p in block.predicates)
            self.emit(depth, f"T.where({conditions})")
        reads = ", ".join(format_access(a, self.names, block.reads) for a in block.reads)
        writes = ", ".join(format_access(a, self.names, block.reads) for a in block.writes)
        self.emit(depth, f"T.reads({reads})")
        self.emit(depth, f"T.writes({writes})")
        if block.annotations:
            self.emit(depth, f"T.block_attr({format_literal(dict(block.annotations))})")
        self.statements(block, depth)

    def opaque(self, block: Block, value: Foreign, depth: int) -> None:
        """An opaque block: the whole buffers that it reads and writes, and its statements."""
        self.emit(depth, f"with T.opaque({quote(block.name)}):")
        for what, part in (("reads", block.reads), ("writes", block.writes)):
            if part:
                names = ", ".join(self.names.of(a.buffer) for a in part)
                self.emit(depth + 1, f"T.{what}({names})")
        if block.annotations:
            self.emit(depth + 1, f"T.block_attr({format_literal(dict(block.annotations))})")
        self.lines += value.text(self.names, depth + 1)

    def statements(self, block: Block, depth: int) -> None:
        targets = [format_access(a, self.names, block.reads) for a in block.writes]
        values = [format_expr(e, self.names, block.reads) for e in block.body]
        if block.reducer is not None:
            self.reduction(block, block.reducer, targets, values, depth)
            return
        # All values are computed before the first is stored. Where the order of the statements
        # would tell otherwise, the values get names first.
        written: set[int] = set()
        for e, access in zip(block.body, block.writes, strict=True):
            if any(id(block.reads[s.index].buffer) in written for s in _slots(e, block.reads)):
                values = self.bind(block, values, depth)
                break
            written.add(id(access.buffer))
        for target, value in zip(targets, values, strict=True):
            self.emit(depth, f"{target} = {value}")

    def bind(self, block: Block, values: list[str], depth: int) -> list[str]:
        """Give each value a name; the names."""
        bound = [Var(f"y{n}", e.dtype) for n, e in enumerate(block.body)]
        self.bound += bound
        names = [self.names.of(v) for v in bound]
        for name, value in zip(names, values, strict=True):
            self.emit(depth, f"{name} = {value}")
        return names

    def reduction(
        self, block: Block, reducer: Reducer, targets: list[str], values: list[str], depth: int
    ) -> None:
        """The identity, and the statements that combine. Only the known reducers are written with
        an operator; others name what they combine, so that both can be told apart."""
        known = known_name(reducer)
        if block.init or known is None:
            self.emit(depth, "with T.init():" if block.init else "with T.identity():")
            for target, e in zip(targets, reducer.identity, strict=True):
                self.emit(depth + 1, f"{target} = {format_expr(e, self.names)}")
        if known is not None:
            symbol, value = OPS[KNOWN[known]].symbol, values[0]
            if symbol is None:
                self.emit(depth, f"{targets[0]} = T.{known}({targets[0]}, {value})")
            else:
                compound = any(f" {row.symbol} " in value for row in OPS.values() if row.symbol)
                value = f"({value})" if compound else value
                self.emit(depth, f"{targets[0]} = {targets[0]} {symbol} {value}")
            return
        # A tuple combines at once, so every new value is bound before the first store.
        local = Names()
        local.taken = self.names.taken
        for var, text in zip(reducer.lhs, targets, strict=True):
            self.emit(depth, f"{local.of(var)} = {text}")
        for var, text in zip(reducer.rhs, values, strict=True):
            self.emit(depth, f"{local.of(var)} = {text}")
        for target, e in zip(targets, reducer.combine, strict=True):
            self.emit(depth, f"{target} = {format_expr(e, local)}")

    def axis(self, it: Iter, binding: Affine, depth: int) -> None:
        value = format_expr(tidy(binding).to_expr(), self.names)
        self.emit(
            depth, f"{self.names.of(it.var)} = T.axis.{it.kind}({self.number(it.extent)}, {value})"
        )

    def predicate(self, p: Predicate) -> str:
        left = format_expr(tidy(p.form).to_expr(), self.names, (), 41)
        return f"{left} < {self.number(p.bound, 41)}"


def _slots(e: Index, reads: tuple[Access, ...]) -> Iterator[Slot]:
    """The slots in `e`, those in the indices of what it reads included."""
    if not isinstance(e, Affine):
        for x in walk(e):
            if isinstance(x, Slot):
                yield x
                for index in reads[x.index].indices:
                    yield from _slots(index, reads)
