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
    vector = f"<{lanes} x float>"
    names = range(ACCUMULATORS)
    seeds = [f"splat (float {1.0 + n / 16:e})" for n in names]
    lines = [
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
        f"declare void @{SYMBOL}(ptr, ptr, i64, i64, i32)",
        "define internal void @body(ptr %out, i64 %begin, i64 %end, i32 %thread) {",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]",
    ]
    lines += [f"  %a{n} = phi {vector} [ {seeds[n]}, %entry ], [ %b{n}, %loop ]" for n in names]
    # x * 0.5 + 0.5 stays near 1: no infinities, no denormals, no value that depends on the clock.
    half = "splat (float 0.5)"
    for n in names:
        if target.has_fma:
            arguments = f"{vector} %a{n}, {vector} {half}, {vector} {half}"
            lines.append(f"  %b{n} = call {vector} @llvm.fma.v{lanes}f32({arguments})")
        else:
            lines.append(f"  %m{n} = fmul {vector} %a{n}, {half}")
            lines.append(f"  %b{n} = fadd {vector} %m{n}, {half}")
    lines += [
        "  %i1 = add i64 %i, 1",
        f"  %more = icmp slt i64 %i1, {ITERATIONS}",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    total = "%b0"
    for n in names[1:]:
        lines.append(f"  %s{n} = fadd {vector} {total}, %b{n}")
        total = f"%s{n}"
    lines += [
        f"  %p = getelementptr {vector}, ptr %out, i64 %begin",
        f"  store {vector} {total}, ptr %p, align 4",
        "  ret void",
        "}",
        f"define void @{ENTRY}(ptr %args, ptr %workspace, i32 %threads) {{",
        "  %out = load ptr, ptr %args",
        "  %n = zext i32 %threads to i64",
        f"  call void @{SYMBOL}(ptr @body, ptr %out, i64 %n, i64 1, i32 %threads)",
        "  ret void",
        "}",
    ]
    info = KernelInfo(ENTRY, (Param("out", (threads, lanes), "float32", True),), parallel=True)
    return Artifact(compile_ir("\n".join(lines) + "\n", target), info, str(target))
