"""Small kernels in IR, for tests of how kernels are linked and called."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.codegen.llvm.assemble import compile_ir
from autosched.target import Target

# args -> out[i] = (a[i] + b[i]) * c[i] + the first float of the workspace, which is then bumped.
MIX = """
define void @mix(ptr %args, ptr %workspace, i32 %threads) {
entry:
  %a = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %c = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %o = load ptr, ptr %p3
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %pa = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %pa
  %pb = getelementptr float, ptr %b, i64 %i
  %y = load float, ptr %pb
  %pc = getelementptr float, ptr %c, i64 %i
  %z = load float, ptr %pc
  %s = fadd float %x, %y
  %m = fmul float %s, %z
  ; Through the workspace, so that a shared one would be noticed.
  %w = getelementptr float, ptr %workspace, i64 %i
  store volatile float %m, ptr %w
  %v = load volatile float, ptr %w
  %po = getelementptr float, ptr %o, i64 %i
  store float %v, ptr %po
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, @SIZE@
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

# out[0] = threads, out[1] = address of the workspace
REPORT = """
define void @report(ptr %args, ptr %workspace, i32 %threads) {
  %o = load ptr, ptr %args
  %t = sext i32 %threads to i64
  store i64 %t, ptr %o
  %p = getelementptr i64, ptr %o, i64 1
  %w = ptrtoint ptr %workspace to i64
  store i64 %w, ptr %p
  ret void
}
"""

# out[i] += 1 in a parallel loop, i below 1000
COUNT = """
declare void @autosched_parallel_for(ptr, ptr, i64, i64, i32)
define internal void @body(ptr %o, i64 %begin, i64 %end, i32 %thread) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr i32, ptr %o, i64 %i
  %x = load i32, ptr %p
  %y = add i32 %x, 1
  store i32 %y, ptr %p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @count(ptr %args, ptr %workspace, i32 %threads) {
  %o = load ptr, ptr %args
  call void @autosched_parallel_for(ptr @body, ptr %o, i64 1000, i64 0, i32 %threads)
  ret void
}
"""


def _artifact(text: str, info: KernelInfo) -> Artifact:
    host = Target("llvm")
    return Artifact(compile_ir(text, host), info, str(host))


def mix_artifact(shape: tuple[int, ...] = (2, 3)) -> Artifact:
    """(a + b) * c into out, float32, by way of the workspace."""
    size = int(np.prod(shape))
    params = tuple(Param(n, shape, "float32", n == "out") for n in ("a", "b", "c", "out"))
    info = KernelInfo("mix", params, workspace_bytes=4 * size)
    return _artifact(MIX.replace("@SIZE@", str(size)), info)


@pytest.fixture(scope="session")
def mix() -> Artifact:
    """`mix_artifact` of shape (2, 3)."""
    return mix_artifact()


@pytest.fixture(scope="session")
def big_mix() -> Artifact:
    """`mix_artifact` of 20,000 elements."""
    return mix_artifact((20000,))


@pytest.fixture(scope="session")
def report() -> Artifact:
    """int64[2] out: the number of threads and the workspace's address."""
    info = KernelInfo("report", (Param("out", (2,), "int64", True),), 100, 50)
    return _artifact(REPORT, info)


@pytest.fixture(scope="session")
def count() -> Artifact:
    """int32[1000] out: every element plus one, in a parallel loop."""
    info = KernelInfo("count", (Param("out", (1000,), "int32", True),), parallel=True)
    return _artifact(COUNT, info)
