"""Where the stack is when a kernel or the body of a parallel loop starts: at the end of a page."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime import parallel
from autosched.runtime.function import Function
from autosched.target import Target

PAGE = 4096
NEAR = 256  # bytes: the return address, and what the function pushed before its own variable
EXTENT = 8

# Each notes the address of a variable of its own: the kernel in out[0], bodies in out[1 + begin].
KERNEL = """
declare void @autosched_parallel_for(ptr, ptr, i64, i64, i32)
declare void @autosched_parallel_team(ptr, ptr, i32)

define internal void @body(ptr %out, i64 %begin, i64 %end, i32 %thread) noinline {
  %here = alloca i64
  %address = ptrtoint ptr %here to i64
  %place = add i64 %begin, 1
  %cell = getelementptr i64, ptr %out, i64 %place
  store i64 %address, ptr %cell
  ret void
}

define void @kernel(ptr %args, ptr %workspace, i32 %threads) {
  %here = alloca i64
  %out = load ptr, ptr %args
  %address = ptrtoint ptr %here to i64
  store i64 %address, ptr %out
  CALL
  ret void
}
"""
LOOP = f"call void @{parallel.SYMBOL}(ptr @body, ptr %out, i64 {EXTENT}, i64 1, i32 %threads)"
TEAM = f"call void @{parallel.TEAM_SYMBOL}(ptr @body, ptr %out, i32 %threads)"


def kernel(call: str, threads: int, workspace: int = 0) -> Function:
    target = Target("llvm")
    params = (Param("out", (1 + EXTENT,), "int64", True),)
    info = KernelInfo("kernel", params, workspace_bytes=workspace, parallel=True)
    code = compile_ir(KERNEL.replace("CALL", call), target)
    return Function(Artifact(code, info, str(target)), threads=threads)


def below_a_page(addresses: np.ndarray) -> bool:
    return bool(((-addresses) % PAGE <= NEAR).all())


def deeper(depth: int, call: object) -> None:
    """Call with the stack elsewhere: a callback from native code takes some of it."""
    if not depth:
        call()  # type: ignore[operator]
        return
    again = ctypes.CFUNCTYPE(None)(lambda: deeper(depth - 1, call))
    again()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("workspace", [0, 128])
@pytest.mark.parametrize("call", [LOOP, TEAM], ids=["loop", "team"])
def test_kernels_and_bodies_start_at_the_end_of_a_page(
    call: str, workspace: int, threads: int
) -> None:
    function = kernel(call, threads, workspace)
    count = 1 + EXTENT if call is LOOP and threads > 1 else 2 if threads == 1 else 3
    for depth in range(4):
        for run in (function, function.native_seconds):
            out = np.zeros(1 + EXTENT, np.int64)
            deeper(depth, lambda run=run, out=out: run(out))
            assert (out[:count] != 0).all()
            assert below_a_page(out[out != 0])
