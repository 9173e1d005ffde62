"""Nests of loops that copy or clear one stretch of memory, as one call of memcpy or memset.

    for x in range(low, high): for y in range(64): B[x, y] = A[x + 3, y]

From a few kilobytes on the C library's copy reads and writes more a second than vectors do: it need
not read the lines that it writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosched.codegen.llvm.memory import Guard
from autosched.tir import dtypes
from autosched.tir.affine import Affine, same_int
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.intrin import KEY
from autosched.tir.nodes import Access, Block, For, Node
from autosched.tir.size import Size

if TYPE_CHECKING:
    from autosched.codegen.llvm.blocks.points import Points
    from autosched.codegen.llvm.function import FunctionWriter

LEAST = 4096
"""Bytes of a stretch. Of shorter ones the call costs more than it saves (Zen 5, data in L2: 1 KiB
118 GB/s by vectors, 68 by memcpy; 4 KiB 93 and 102; 64 KiB 103 and 124)."""


def moved_by(loop: For) -> Block | None:
    """The block of a nest, if it only stores what it reads, or constants, as conditions on indices
    say."""
    node: Node = loop
    while isinstance(node, For):
        if len(node.body) != 1 or node.allocs or node.annotation(KEY) is not None:
            return None
        node = node.body[0]
    is_move = node.reducer is None and len(node.body) == 1 and _moves(node.body[0])
    return node if is_move else None


def _moves(e: Expr) -> bool:
    if isinstance(e, Call):
        return e.op == "if_then_else" and all(map(_moves, e.args[1:]))
    return isinstance(e, (Slot, Const))


def write_run(f: FunctionWriter, loop: For, low: int | str, high: int | str) -> bool:
    """Write iterations `low` to `high` of a nest as one copy; whether that was possible."""
    block = moved_by(loop)
    if block is None or f.index.lanes is not None:
        return False
    if f.pending(block) or id(block) in f.carried:
        return False
    if f.streaming and block.annotation("streaming", False):
        return False
    points, write = f.points(block), block.writes[0]
    leaf = _leaf(f, block.body[0])
    read = block.reads[leaf.index] if isinstance(leaf, Slot) else None
    if read is None and not _is_zero(leaf):
        return False
    touched = [write] if read is None else [write, read]
    if any(id(a.buffer) in f.module.hosts for a in touched) or (
        read is not None and read.buffer is write.buffer
    ):
        return False
    loops = f.blocks[id(block)].loops
    loops = loops[loops.index(loop) :]
    row = _row(points, touched, loops, count=_count(low, high))
    most = loop.extent if isinstance(low, str) or isinstance(high, str) else high - low
    size = dtypes.itemsize(write.buffer.dtype)
    if row is None or isinstance(most, Size) or int(most) * row * size < LEAST:
        return False
    _call(f, points, touched, loops, low, high, row * size)
    return True


def _count(low: int | str, high: int | str) -> int | None:
    return None if isinstance(low, str) or isinstance(high, str) else high - low


def _leaf(f: FunctionWriter, e: Expr) -> Expr | None:
    """What is stored at all points here; None where conditions differ."""
    while isinstance(e, Call):
        holds = _known(f, e.args[0])
        if holds is None:
            return None
        e = e.args[1 if holds else 2]
    return e


def _known(f: FunctionWriter, e: Expr) -> bool | None:
    if id(e) in f.index.held or id(e) in f.index.failed:
        return id(e) in f.index.held
    if not isinstance(e, Call) or e.op not in ("and", "or"):
        return None
    sides = [_known(f, x) for x in e.args]
    decides = e.op == "or"
    if decides in sides:
        return decides
    return None if None in sides else not decides


def _is_zero(e: Expr | None) -> bool:
    if not isinstance(e, Const) or e.value != 0:
        return False
    return not isinstance(e.value, float) or math.copysign(1, e.value) > 0


def _row(
    points: Points, touched: Sequence[Access], loops: Sequence[For], count: int | None
) -> int | None:
    """Elements of one iteration of the first loop, of which `count` are made (None: known when it
    runs); None where the nest's elements do not follow one another in memory."""
    forms = [points.flat(a) for a in touched]
    row = 1
    for x in reversed(loops):
        n = count if x is loops[0] else x.extent
        if isinstance(n, Size):
            return None
        for form in forms:
            if form is None or not (n == 1 or _steps(form, x.var, row)):
                return None
        row *= 1 if x is loops[0] or n is None else int(n)
    return row


def _steps(form: Affine, var: Var, row: int) -> bool:
    """Whether a form has `row * var`, and the variable nowhere else."""
    return same_int(form.coefficient(var), row) and sum(v is var for v in form.variables()) == 1


def _call(
    f: FunctionWriter,
    points: Points,
    touched: Sequence[Access],
    loops: Sequence[For],
    low: int | str,
    high: int | str,
    row: int,
) -> None:
    """The call; `row` is the bytes of an iteration of the first loop."""
    b, env = f.b, f.index.env
    env.update({x.var: 0 for x in loops[1:]} | {loops[0].var: low})

    def body() -> None:
        total: int | str
        if isinstance(low, str) or isinstance(high, str):
            total = b.op(f"mul nsw i64 {b.op(f'sub nsw i64 {high}, {low}')}, {row}")
        else:
            total = (high - low) * row
        ends = [f"ptr {f.memory.address(a.buffer, points.offset(a, Guard()))}" for a in touched]
        what = "memcpy.p0.p0" if len(ends) == 2 else "memset.p0"
        kinds = ", ".join(["ptr", "ptr" if len(ends) == 2 else "i8", "i64", "i1"])
        b.declare(f"llvm.{what}.i64", f"void @llvm.{what}.i64({kinds})")
        second = ends[1] if len(ends) == 2 else "i8 0"
        b.do(f"call void @llvm.{what}.i64({ends[0]}, {second}, i64 {total}, i1 false)")

    if isinstance(low, str) or isinstance(high, str):
        f.branch(b.op(f"icmp slt i64 {low}, {high}"), body)
    else:
        body()
    f.memory.forget(touched[0].buffer)
    for x in loops:
        del env[x.var]
