"""Several kernels one after the other in one native call.

A row of the table is (kernel, arguments, workspace, threads), 64-bit words; the arguments are
cells as `KernelInfo` says. Between two kernels there are a few instructions and no Python.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy.typing as npt

from autosched.runtime.link import Library, link
from autosched.target import Target

WORDS = 4
"""64-bit words of a row."""

_RUN = "autosched_run"

# As in call_ir.py, a kernel is entered with the stack at the end of a page.
_IR = """
define internal void @enter(ptr %kernel, ptr %args, ptr %workspace, i32 %threads) noinline {
  %page = alloca i64, align 4096
  store volatile i64 0, ptr %page
  notail call void %kernel(ptr %args, ptr %workspace, i32 %threads)
  ret void
}

define void @autosched_run(ptr %rows, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %go ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %go, label %done
go:
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
  br label %next
done:
  ret void
}
"""


@cache
def _runner() -> tuple[Library, Any]:
    """The code, which lives for ever, and how to call it without the GIL."""
    from autosched.codegen.llvm.assemble import compile_ir

    host = Target("llvm")
    text = f'target triple = "{host.triple}"\n{_IR}'
    library = link(compile_ir(text, host, "full"), (_RUN,))
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    return library, prototype(library[_RUN])


def runner() -> Any:
    """A function of (address of rows, number of rows) that runs them, without the GIL."""
    return _runner()[1]


def run_rows(rows: npt.NDArray[Any]) -> None:
    """Run a table of rows: int64, C-contiguous, of shape (n, WORDS)."""
    runner()(rows.ctypes.data, len(rows))
