"""The clock probe: fixed multiply-adds on every thread, timed to see how fast the clock runs."""

from __future__ import annotations

from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime.parallel import SYMBOL
from autosched.target import Target

ACCUMULATORS = 12  # enough to hide the latency of 4 cycles at two a cycle
ITERATIONS = 16_000  # 27 or 52 microseconds at 3.7 GHz, by the width of the units
ENTRY = "clock_probe"


def build_clock_probe(target: Target, threads: int) -> Artifact:
    """The kernel, for up to `threads` threads.

    Its one argument takes what each thread has computed, so that it is computed.
    """
    lanes = target.vector_bytes // 4
    vector, chains = f"<{lanes} x float>", range(ACCUMULATORS)
    seeds = [f"splat (float {1.0 + n / 16:e})" for n in chains]
    starts = [f"%a{n} = phi {vector} [ {seeds[n]}, %entry ], [ %b{n}, %loop ]" for n in chains]
    # x * 0.5 + 0.5 stays near 1: no infinities, no denormals, no value that depends on the clock.
    half = f"{vector} splat (float 0.5)"
    fma = f"{vector} @llvm.fmuladd.v{lanes}f32"
    steps = [f"%b{n} = call {fma}({vector} %a{n}, {half}, {half})" for n in chains]
    sums = [f"%s{n} = fadd {vector} %{'s' if n > 1 else 'b'}{n - 1}, %b{n}" for n in chains[1:]]
    newline = "\n"
    code = f"""
declare {fma}({vector}, {vector}, {vector})
declare void @{SYMBOL}(ptr, ptr, i64, i64, i32)
define internal void @body(ptr %out, i64 %begin, i64 %end, i32 %thread) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
{newline.join([*starts, *steps])}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {ITERATIONS}
  br i1 %more, label %loop, label %done
done:
{newline.join(sums)}
  %p = getelementptr {vector}, ptr %out, i64 %begin
  store {vector} %s{ACCUMULATORS - 1}, ptr %p, align 4
  ret void
}}
define void @{ENTRY}(ptr %args, ptr %workspace, i32 %threads) {{
  %out = load ptr, ptr %args
  %n = zext i32 %threads to i64
  call void @{SYMBOL}(ptr @body, ptr %out, i64 %n, i64 1, i32 %threads)
  ret void
}}
"""
    info = KernelInfo(ENTRY, (Param("out", (threads, lanes), "float32", True),), parallel=True)
    return Artifact(compile_ir(code, target), info, str(target))
