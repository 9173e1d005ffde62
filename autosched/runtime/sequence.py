"""Several kernels one after the other in one native call.

A row of the table is (kernel, arguments, workspace, threads), 64-bit words; the arguments are
cells as `KernelInfo` says. Between two kernels there are a few instructions and no Python.

A kernel that may stop (`KernelInfo.messages`) has STOPS added to its threads. When it has stopped,
the sequence ends there, and the number of its row, from 1, is written where the caller says.

A sequence whose cells depend on the caller's arrays alone is a function of these arrays
(`make_sequence`): it is entered as one kernel is, and writes the cells itself.

Either may flush denormals while it runs.
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

_RUN, _ENTER = "autosched_run", "autosched_enter_sequence"
_FLUSHED = {_RUN: "autosched_run_flushed", _ENTER: "autosched_enter_sequence_flushed"}
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
"""


@cache
def _library() -> Library:
    """The code, which lives for ever."""
    from autosched.codegen.llvm.assemble import compile_ir

    host = Target("llvm")
    text = f'target triple = "{host.triple}"\n{float_mode_ir(host.arch)}{_IR}'
    text += flushed_ir(host.arch, _FLUSHED[_RUN], _RUN, "ptr %rows, i64 %count, ptr %stopped")
    text += flushed_ir(host.arch, _FLUSHED[_ENTER], _ENTER, "ptr %args, ptr %table, i32 %threads")
    return link(compile_ir(text, host, "full"), (*_FLUSHED, *_FLUSHED.values()))


@cache
def runner(flush_denormals: bool = False) -> Any:
    """A function of (address of rows, number of rows, address of an int64 for the row that stops)
    that runs them, without the GIL."""
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    return prototype(_library()[_FLUSHED[_RUN] if flush_denormals else _RUN])


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
