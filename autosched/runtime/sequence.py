"""Several kernels one after the other in one native call.

A row of the table is (kernel, arguments, workspace, threads), 64-bit words; the arguments are
cells as `KernelInfo` says. Between two kernels there are a few instructions and no Python.

A kernel that may stop (`KernelInfo.messages`) has STOPS added to its threads. When it has stopped,
the sequence ends there, and the number of its row, from 1, is written where the caller says.

A sequence whose cells depend on the caller's arrays alone is a function of these arrays
(`make_sequence`): it is entered as one kernel is, and writes the cells itself.

A loop runs two tables in turns (`loop_runner`), and writes the cells that go along with it.

All may flush denormals while it runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.codegen.artifact import KernelInfo, Param
from autosched.runtime.call import make_call
from autosched.runtime.float_mode import float_mode_ir, flushed_ir
from autosched.runtime.link import Library, link
from autosched.target import Target

WORDS = 4
"""64-bit words of a row."""
STOPS = 1 << 32
"""Added to the threads of a row: the kernel's workspace begins with a status."""

LOOP = np.dtype(
    [
        ("rows", "2i8"),
        ("count", "i8"),
        ("stopped", "i8"),
        ("number", "i8"),
        ("go", "i8"),
        ("done", "i8"),
        ("moved", "i8"),
        ("moves", "i8"),
    ]
)
"""A loop: addresses of the rows of even and of odd iterations; how many rows each has; addresses of
int64s for the row that stops and for the number of an iteration, and of the bool whether the loop
goes on; how many iterations are done; how many cells move, and the address of the MOVEs."""
MOVE = np.dtype([("cells", "2i8"), ("base", "i8"), ("stride", "i8")])
"""In iteration n, the cell at cells[n % 2] is base + n * stride."""

_RUN, _ENTER, _LOOP = "autosched_run", "autosched_enter_sequence", "autosched_loop"
_FLUSHED = {n: f"{n}_flushed" for n in (_RUN, _ENTER, _LOOP)}
"""The same with denormals flushed."""

# As in call_ir.py, a kernel is entered with the stack at the end of a page.
_IR = """
define internal void @enter(ptr %kernel, ptr %args, ptr %workspace, i32 %threads) noinline {
  %page = alloca i64, align 4096
  store volatile i64 0, ptr %page
  notail call void %kernel(ptr %args, ptr %workspace, i32 %threads)
  ret void
}

define void @autosched_run(ptr %rows, i64 %count, ptr %stopped) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %go ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %work, label %done
work:
  %row = getelementptr [4 x i64], ptr %rows, i64 %i
  %kernel = load ptr, ptr %row
  %p.args = getelementptr i64, ptr %row, i64 1
  %args = load ptr, ptr %p.args
  %p.workspace = getelementptr i64, ptr %row, i64 2
  %workspace = load ptr, ptr %p.workspace
  %p.threads = getelementptr i64, ptr %row, i64 3
  %threads64 = load i64, ptr %p.threads
  %threads = trunc i64 %threads64 to i32
  call void @enter(ptr %kernel, ptr %args, ptr %workspace, i32 %threads)
  %i1 = add i64 %i, 1
  %stops = icmp uge i64 %threads64, 4294967296
  br i1 %stops, label %look, label %go
look:
  %status = load i64, ptr %workspace
  %ended = icmp ne i64 %status, 0
  br i1 %ended, label %stop, label %go
go:
  br label %next
stop:
  store i64 %i1, ptr %stopped
  ret void
done:
  ret void
}

; A sequence as a kernel. Its "workspace" is a table: address of the rows, how many, where to
; write which one stopped, then how many cells are written before, and of each the address and the
; number of its argument.
define void @autosched_enter_sequence(ptr %args, ptr %table, i32 %threads) {
entry:
  %rows = load ptr, ptr %table
  %p.count = getelementptr i64, ptr %table, i64 1
  %count = load i64, ptr %p.count
  %p.stopped = getelementptr i64, ptr %table, i64 2
  %stopped = load ptr, ptr %p.stopped
  %p.cells = getelementptr i64, ptr %table, i64 3
  %cells = load i64, ptr %p.cells
  %first = getelementptr i64, ptr %table, i64 4
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %patch ]
  %more = icmp slt i64 %i, %cells
  br i1 %more, label %patch, label %run
patch:
  %p.cell = getelementptr [2 x i64], ptr %first, i64 %i
  %cell = load ptr, ptr %p.cell
  %p.number = getelementptr i64, ptr %p.cell, i64 1
  %number = load i64, ptr %p.number
  %p.arg = getelementptr ptr, ptr %args, i64 %number
  %arg = load ptr, ptr %p.arg
  store ptr %arg, ptr %cell
  %i1 = add i64 %i, 1
  br label %next
run:
  call void @autosched_run(ptr %rows, i64 %count, ptr %stopped)
  ret void
}

; Iterations of a LOOP up to a number, the condition, or a kernel that stops.
define void @autosched_loop(ptr %loop, i64 %end) {
entry:
  %p.count = getelementptr i64, ptr %loop, i64 2
  %count = load i64, ptr %p.count
  %p.stopped = getelementptr i64, ptr %loop, i64 3
  %stopped = load ptr, ptr %p.stopped
  %p.number = getelementptr i64, ptr %loop, i64 4
  %number = load ptr, ptr %p.number
  %p.go = getelementptr i64, ptr %loop, i64 5
  %go = load ptr, ptr %p.go
  %p.done = getelementptr i64, ptr %loop, i64 6
  %first = load i64, ptr %p.done
  %p.moved = getelementptr i64, ptr %loop, i64 7
  %moved = load i64, ptr %p.moved
  %p.moves = getelementptr i64, ptr %loop, i64 8
  %moves = load ptr, ptr %p.moves
  br label %next
next:
  %n = phi i64 [ %first, %entry ], [ %n1, %ran ]
  %goes = phi i1 [ true, %entry ], [ %goes1, %ran ]
  %below = icmp slt i64 %n, %end
  %more = and i1 %below, %goes
  br i1 %more, label %start, label %done
start:
  store i64 %n, ptr %number
  %odd = and i64 %n, 1
  br label %each
each:
  %i = phi i64 [ 0, %start ], [ %i1, %move ]
  %left = icmp slt i64 %i, %moved
  br i1 %left, label %move, label %work
move:
  %m = getelementptr [4 x i64], ptr %moves, i64 %i
  %p.cell = getelementptr i64, ptr %m, i64 %odd
  %cell = load ptr, ptr %p.cell
  %p.base = getelementptr i64, ptr %m, i64 2
  %base = load i64, ptr %p.base
  %p.stride = getelementptr i64, ptr %m, i64 3
  %stride = load i64, ptr %p.stride
  %along = mul i64 %n, %stride
  %at = add i64 %base, %along
  store i64 %at, ptr %cell
  %i1 = add i64 %i, 1
  br label %each
work:
  %p.rows = getelementptr i64, ptr %loop, i64 %odd
  %rows = load ptr, ptr %p.rows
  call void @autosched_run(ptr %rows, i64 %count, ptr %stopped)
  %row = load i64, ptr %stopped
  %ended = icmp ne i64 %row, 0
  br i1 %ended, label %done, label %ran
ran:
  %n1 = add i64 %n, 1
  %flag = load i8, ptr %go
  %goes1 = icmp ne i8 %flag, 0
  br label %next
done:
  store i64 %n, ptr %p.done
  ret void
}
"""


@cache
def _library() -> Library:
    """The code, which lives for ever."""
    from autosched.codegen.llvm.assemble import compile_ir

    host = Target("llvm")
    text = f'target triple = "{host.triple}"\n{float_mode_ir(host.arch)}{_IR}'
    text += flushed_ir(host.arch, _FLUSHED[_RUN], _RUN, "ptr %rows, i64 %count, ptr %stopped")
    text += flushed_ir(host.arch, _FLUSHED[_ENTER], _ENTER, "ptr %args, ptr %table, i32 %threads")
    text += flushed_ir(host.arch, _FLUSHED[_LOOP], _LOOP, "ptr %loop, i64 %end")
    return link(compile_ir(text, host, "full"), (*_FLUSHED, *_FLUSHED.values()))


@cache
def runner(flush_denormals: bool = False) -> Any:
    """A function of (address of rows, number of rows, address of an int64 for the row that stops)
    that runs them, without the GIL."""
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    return prototype(_library()[_FLUSHED[_RUN] if flush_denormals else _RUN])


@cache
def loop_runner(flush_denormals: bool = False) -> Any:
    """A function of (address of a LOOP, the number of iterations after which to stop at the latest)
    that goes on with a loop, without the GIL. An iteration that a kernel stops is not done."""
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    return prototype(_library()[_FLUSHED[_LOOP] if flush_denormals else _LOOP])


def make_sequence(
    params: Sequence[Param],
    rows: npt.NDArray[Any],
    patches: Sequence[tuple[int, int]],
    stopped: int,
    keep: tuple[Any, ...],
    flush_denormals: bool = False,
) -> Callable[..., Any]:
    """A function of arrays that runs a table of rows; None, or NotImplemented if they do not fit.

    `patches`: (address of a cell, number of the array whose address is written there); `stopped`:
    the address of an int64 for the row that stops. What the rows refer to must be in `keep`. Not
    for two calls at once: they would share the cells.
    """
    cells = (w for patch in patches for w in patch)
    words = [rows.ctypes.data, len(rows), stopped, len(patches), *cells]
    table = np.array(words, np.int64)
    # A "workspace" of some bytes, so that the call passes its address on.
    info = KernelInfo(_ENTER, tuple(params), table.nbytes, 0, True)
    kept = (*keep, rows, table)
    entry = _library()[_FLUSHED[_ENTER] if flush_denormals else _ENTER]
    return make_call(info, entry, table.ctypes.data, 1, kept)
