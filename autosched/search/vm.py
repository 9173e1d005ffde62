"""A native interpreter of tapes: columns of float64, a block of rows at a time.

A tape has two thousand short operations; NumPy spends a microsecond on each call. Here an
instruction is five 32-bit numbers, and a register holds `ROWS` rows, so that the registers of a
tape stay in the second-level cache and the cost of decoding is shared by a block. The code is LLVM
IR, compiled once a process; calls leave Python's lock to others.

    ptr code            instructions: operation, destination, three operands (registers)
    i64 count           their number
    ptr registers       the register file: ROWS float64 each; constants are filled in already
    ptr inputs, outputs columns (float64), `stride` elements apart
    ptr table           rows (float32) of `width` elements
    i64 begin, end      rows to compute

Truth values are 1.0 and 0.0.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime.link import Library, link
from autosched.target import Target

ROWS = 128
"""Rows of a register: 16 vectors of 64 bytes."""
LANES = 8
SYMBOL = "autosched_tape"

_V = f"<{LANES} x double>"
_COMPARE = "%c = fcmp {p} {v} %a, %b\n  %r = uitofp <{n} x i1> %c to {v}"
_SELECT = "%c = fcmp {p} {v} %a, %b\n  %r = select <{n} x i1> %c, {v} %a, {v} %b"
_BINARY = {
    "add": "%r = fadd {v} %a, %b",
    "subtract": "%r = fsub {v} %a, %b",
    "multiply": "%r = fmul {v} %a, %b",
    "divide": "%r = fdiv {v} %a, %b",
    "minimum": _SELECT.replace("{p}", "olt"),
    "maximum": _SELECT.replace("{p}", "ogt"),
    "less": _COMPARE.replace("{p}", "olt"),
    "less_equal": _COMPARE.replace("{p}", "ole"),
    "equal": _COMPARE.replace("{p}", "oeq"),
    "not_equal": _COMPARE.replace("{p}", "une"),
    "logical_and": "%r = fmul {v} %a, %b",
    "logical_or": _SELECT.replace("{p}", "ogt"),
}
_UNARY = {
    "negative": "%r = fneg {v} %a",
    "absolute": "%r = call {v} @llvm.fabs.v{n}f64({v} %a)",
    "floor": "%r = call {v} @llvm.floor.v{n}f64({v} %a)",
    "ceil": "%r = call {v} @llvm.ceil.v{n}f64({v} %a)",
    "logical_not": "%r = fsub {v} splat (double 1.0), %a",
    # The largest power of two that divides: all that greatest common divisors are needed for.
    "lowest_bit": """%i = fptosi {v} %a to <{n} x i64>
  %m = sub <{n} x i64> zeroinitializer, %i
  %l = and <{n} x i64> %i, %m
  %r = sitofp <{n} x i64> %l to {v}""",
}
_WHERE = """%t = fcmp une {v} %a, zeroinitializer
  %r = select <{n} x i1> %t, {v} %b, {v} %d"""
KERNELS = {**_UNARY, **_BINARY, "where": _WHERE}
MOVES = ("input", "output", "row")
"""Moves between the columns and rows in memory and the registers: operand a is the column."""
OPCODE = {name: n for n, name in enumerate((*KERNELS, *MOVES))}

_HEAD = """
declare {v} @llvm.fabs.v{n}f64({v})
declare {v} @llvm.floor.v{n}f64({v})
declare {v} @llvm.ceil.v{n}f64({v})

define void @SYMBOL(ptr %code, i64 %count, ptr noalias %registers, ptr %inputs, ptr %outputs,
                    i64 %stride, ptr %table, i64 %width, i64 %begin, i64 %end) {
entry:
  br label %block
block:
  %row = phi i64 [ %begin, %entry ], [ %row.next, %block.end ]
  %left = sub i64 %end, %row
  %whole = icmp sge i64 %left, ROWS
  %rows = select i1 %whole, i64 ROWS, i64 %left
  br label %fetch
fetch:
  %pc = phi i64 [ 0, %block ], [ %pc.next, %next ]
  %at = mul i64 %pc, 5
  %p0 = getelementptr i32, ptr %code, i64 %at
  %op = load i32, ptr %p0
  %p1 = getelementptr i32, ptr %p0, i64 1
  %to.index = load i32, ptr %p1
  %p2 = getelementptr i32, ptr %p0, i64 2
  %a.index = load i32, ptr %p2
  %p3 = getelementptr i32, ptr %p0, i64 3
  %b.index = load i32, ptr %p3
  %p4 = getelementptr i32, ptr %p0, i64 4
  %d.index = load i32, ptr %p4
  %to.wide = sext i32 %to.index to i64
  %a.wide = sext i32 %a.index to i64
  %b.wide = sext i32 %b.index to i64
  %d.wide = sext i32 %d.index to i64
  %to = getelementptr [ROWS x double], ptr %registers, i64 %to.wide
  %a.at = getelementptr [ROWS x double], ptr %registers, i64 %a.wide
  %b.at = getelementptr [ROWS x double], ptr %registers, i64 %b.wide
  %d.at = getelementptr [ROWS x double], ptr %registers, i64 %d.wide
  switch i32 %op, label %next [
CASES
  ]
"""
_TAIL = """
next:
  %pc.next = add i64 %pc, 1
  %more = icmp slt i64 %pc.next, %count
  br i1 %more, label %fetch, label %block.end
block.end:
  %row.next = add i64 %row, ROWS
  %again = icmp slt i64 %row.next, %end
  br i1 %again, label %block, label %done
done:
  ret void
}
"""
_LOOP = """
@.head:
  br label %@.body
@.body:
  %@.k = phi i64 [ 0, %@.head ], [ %@.k1, %@.body ]
BODY
  %@.k1 = add i64 %@.k, STEP
  %@.go = icmp slt i64 %@.k1, LIMIT
  br i1 %@.go, label %@.body, label %next
"""
_ELEMENT = {
    "input": """  %@.col = mul i64 %a.wide, %stride
  %@.n = add i64 %@.col, %row
  %@.m = add i64 %@.n, %@.k
  %@.f = getelementptr double, ptr %inputs, i64 %@.m
  %@.x = load double, ptr %@.f
  %@.t = getelementptr double, ptr %to, i64 %@.k
  store double %@.x, ptr %@.t""",
    "output": """  %@.f = getelementptr double, ptr %b.at, i64 %@.k
  %@.x = load double, ptr %@.f
  %@.col = mul i64 %a.wide, %stride
  %@.n = add i64 %@.col, %row
  %@.m = add i64 %@.n, %@.k
  %@.t = getelementptr double, ptr %outputs, i64 %@.m
  store double %@.x, ptr %@.t""",
    "row": """  %@.f = getelementptr double, ptr %b.at, i64 %@.k
  %@.x = load double, ptr %@.f
  %@.y = fptrunc double %@.x to float
  %@.n = add i64 %row, %@.k
  %@.col = mul i64 %@.n, %width
  %@.m = add i64 %@.col, %a.wide
  %@.t = getelementptr float, ptr %table, i64 %@.m
  store float %@.y, ptr %@.t""",
}


def _ir() -> str:
    text = [
        _HEAD.replace("CASES", "\n".join(f"    i32 {n}, label %k{n}.head" for n in OPCODE.values()))
    ]
    for name, n in OPCODE.items():
        if name in MOVES:
            body, step, limit = _ELEMENT[name], 1, "%rows"
        else:
            body, step, limit = _vector_body(name), LANES, str(ROWS)
        loop = _LOOP.replace("BODY", body).replace("STEP", str(step)).replace("LIMIT", limit)
        text.append(loop.replace("@.", f"k{n}."))
    text.append(_TAIL)
    joined = "".join(text).replace("SYMBOL", SYMBOL).replace("ROWS", str(ROWS))
    return joined.replace("{v}", _V).replace("{n}", str(LANES))


def _vector_body(name: str) -> str:
    lines = []
    operands = ("a",) if name in _UNARY else ("a", "b") if name in _BINARY else ("a", "b", "d")
    for x in operands:
        lines.append(f"  %@.p{x} = getelementptr double, ptr %{x}.at, i64 %@.k")
        lines.append(f"  %@.{x} = load {{v}}, ptr %@.p{x}, align 64")
    kernel = KERNELS[name]
    for x in ("a", "b", "c", "d", "t", "i", "m", "l", "r"):
        kernel = kernel.replace(f"%{x} ", f"%@.{x} ").replace(f"%{x},", f"%@.{x},")
        kernel = kernel.replace(f"%{x}\n", f"%@.{x}\n").replace(f"%{x})", f"%@.{x})")
        if kernel.endswith(f"%{x}"):
            kernel = kernel[: -len(x) - 1] + f"%@.{x}"
    lines.append("  " + kernel)
    lines.append("  %@.pt = getelementptr double, ptr %to, i64 %@.k")
    lines.append("  store {v} %@.r, ptr %@.pt, align 64")
    return "\n".join(lines)


_loading = threading.Lock()


@cache
def _library() -> tuple[Library, Callable[..., None]]:
    library = link(compile_ir(_ir(), Target("llvm")), (SYMBOL,))
    i64, ptr = ctypes.c_int64, ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, ptr, i64, ptr, ptr, ptr, i64, ptr, i64, i64, i64)
    return library, kind(library[SYMBOL])


def run(
    code: npt.NDArray[np.int32],
    registers: npt.NDArray[np.float64],
    inputs: npt.NDArray[np.float64],
    outputs: npt.NDArray[np.float64],
    table: npt.NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    """Interpret `code` for rows [begin, end).

    `registers` (R, ROWS) starts on a multiple of 64 bytes and is this call's own; `inputs` (D, N)
    and `outputs` (K, N) are columns, `table` (N, W) rows.
    """
    with _loading:  # two threads must not make two libraries: one of them would be freed
        _, call = _library()
    call(
        code.ctypes.data,
        len(code),
        registers.ctypes.data,
        inputs.ctypes.data,
        outputs.ctypes.data,
        inputs.shape[1],
        table.ctypes.data,
        table.shape[1],
        begin,
        end,
    )
