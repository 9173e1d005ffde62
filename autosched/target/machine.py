"""The limits of this machine: arithmetic, memory, and how steady its clock is.

Measured with kernels written in LLVM IR, so that a limit and a program that is held against it pass
through the same assembler, the same linker and the same pool of threads. Each figure is the best
of many short runs: what disturbs a run only ever slows it down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.codegen.llvm.assemble import compile_ir
from autosched.errors import ArgumentError
from autosched.runtime.arrays import empty
from autosched.runtime.function import Function
from autosched.runtime.parallel import SYMBOL
from autosched.target import Target

_FMA_STEPS = 200_000
# 24 multiply-adds, two a cycle, at 4 GHz: good enough to choose how long a run takes.
_FMA_STEPS_PER_SECOND = 4e9 / 12
_RUNS = 200
_COPY_RUNS = 30
_PIECE_BYTES = 4096
_NOISE_REPEATS = 15
_NOISE_MIN_OF = 20


@dataclass(frozen=True)
class Limits:
    """What the machine can do at best, at 1 thread and at `threads` threads.

    Peaks in FLOP/s of float32 with the target's vectors; bandwidths in bytes/s, read plus written;
    `noise` as a fraction: see `noise`.
    """

    threads: int
    fma_peak_1: float
    fma_peak: float
    copy_1: float
    copy: float
    copy_streaming_1: float
    copy_streaming: float
    noise: float


def measure_limits(target: Target) -> Limits:
    """All limits of this machine for a target; takes some 3 seconds and all of its cores.

    Raises TargetError if this machine cannot run code for the target.
    """
    threads = target.num_cores
    return Limits(
        threads=threads,
        fma_peak_1=fma_peak(target, 1),
        fma_peak=fma_peak(target, threads),
        copy_1=copy_bandwidth(target, 1),
        copy=copy_bandwidth(target, threads),
        copy_streaming_1=copy_bandwidth(target, 1, streaming=True),
        copy_streaming=copy_bandwidth(target, threads, streaming=True),
        noise=noise(target),
    )


class FmaPeak:
    """The rate of float32 multiply-adds on vectors in registers, to be measured again and again:
    clocks drift, so what is held against the peak is best measured in alternation with it.

    Every thread keeps so many independent accumulators going that the latency of the instruction
    is hidden: at least 12.

    Clocks also jump for less than a millisecond. `run_seconds` is about how long a run takes
    (default: 0.6 ms): as long as what is held against the peak, or a jump counts for one side only.
    """

    def __init__(self, target: Target, threads: int, run_seconds: float | None = None) -> None:
        steps = _FMA_STEPS
        if run_seconds is not None:
            steps = max(1000, int(run_seconds * _FMA_STEPS_PER_SECOND))
        self._kernel, self._flop = _fma_kernel(target, threads, steps)
        self._values = _fma_values(target)

    def rate(self, runs: int | None = None) -> float:
        """Highest rate of `runs` runs (default: 200), in FLOP/s, two an element."""
        evaluate = self._kernel.time_evaluator(number=1, repeat=runs or _RUNS)
        return self._flop / evaluate(self._values).min


def fma_peak(target: Target, threads: int) -> float:
    """Highest rate of float32 multiply-adds on vectors in registers, in FLOP/s, two an element."""
    return FmaPeak(target, threads).rate()


def copy_bandwidth(
    target: Target, threads: int, streaming: bool = False, array_bytes: int = 128 << 20
) -> float:
    """Highest rate at which one array is copied to another, in bytes/s read plus written.

    `streaming` stores go past the caches and save reading the lines that they overwrite. The arrays
    should be far larger than the last cache; their size is rounded up to 4096 bytes.
    """
    if array_bytes < 1:
        raise ArgumentError(f"array_bytes is {array_bytes}; expected 1 or more")
    pieces = -(-array_bytes // _PIECE_BYTES)
    kernel = _copy_kernel(target, threads, pieces, streaming)
    source, copy = empty(pieces * _PIECE_BYTES, "uint8"), empty(pieces * _PIECE_BYTES, "uint8")
    # Written once, or all pages of the source would be the one page of zeros.
    source[:] = 1
    copy[:] = 0
    timing = kernel.time_evaluator(number=1, repeat=_COPY_RUNS)(source, copy)
    return 2 * source.nbytes / timing.min


def noise(target: Target) -> float:
    """How far apart measurements of one unchanging kernel lie on this machine.

    Its time is taken as the minimum of 20 runs, 15 times; the figure is the distance from the 5th
    to the 95th percentile of these, as a fraction of their median. Differences between programs
    that are smaller than this need more than one measurement.
    """
    kernel, _ = _fma_kernel(target, 1, _FMA_STEPS)
    evaluate = kernel.time_evaluator(number=1, repeat=_NOISE_MIN_OF)
    values = _fma_values(target)
    minima = [evaluate(values).min for _ in range(_NOISE_REPEATS)]
    low, middle, high = np.percentile(minima, (5, 50, 95))
    return float((high - low) / middle)


def _fma_values(target: Target) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The kernel's argument: factor, summand, then room for one vector."""
    values = empty(2 + target.vector_bytes // 4)
    # Every accumulator tends to summand / (1 - factor): neither overflows nor turns subnormal.
    values[:2] = 0.999, 0.001
    return values


def _fma_kernel(target: Target, threads: int, steps: int) -> tuple[Function, int]:
    """The kernel of `FmaPeak` and the FLOP of one call."""
    lanes = target.vector_bytes // 4
    accumulators = 24 if target.vector_registers >= 32 else 12
    vector = f"<{lanes} x float>"
    fma = f"@llvm.fma.v{lanes}f32"
    step = []
    for n in range(accumulators):
        if target.has_fma:
            step += [f"  %b{n} = call {vector} {fma}({vector} %a{n}, {vector} %f, {vector} %s)"]
        else:
            step += [f"  %p{n} = fmul {vector} %a{n}, %f", f"  %b{n} = fadd {vector} %p{n}, %s"]
    phis = [
        f"  %a{n} = phi {vector} [ {_splat(lanes, n + 1)}, %work ], [ %b{n}, %loop ]"
        for n in range(accumulators)
    ]
    total = [f"  %t0 = fadd {vector} %b0, %b1"]
    total += [f"  %t{n - 1} = fadd {vector} %t{n - 2}, %b{n}" for n in range(2, accumulators)]
    lines = [
        "define internal void @body(ptr %context, i64 %begin, i64 %end, i32 %thread) {",
        "entry:",
        "  %x = load ptr, ptr %context",
        "  %f0 = load float, ptr %x",
        "  %x1 = getelementptr float, ptr %x, i64 1",
        "  %s0 = load float, ptr %x1",
        "  %x2 = getelementptr float, ptr %x, i64 2",
        *_broadcast("f", "f0", lanes),
        *_broadcast("s", "s0", lanes),
        "  br label %work",
        "work:",
        "  %part = phi i64 [ %begin, %entry ], [ %next, %store ]",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %work ], [ %i1, %loop ]",
        *phis,
        *step,
        "  %i1 = add i64 %i, 1",
        f"  %more = icmp slt i64 %i1, {steps}",
        "  br i1 %more, label %loop, label %store",
        "store:",
        *total,
        f"  store volatile {vector} %t{accumulators - 2}, ptr %x2, align 4",
        "  %next = add i64 %part, 1",
        "  %again = icmp slt i64 %next, %end",
        "  br i1 %again, label %work, label %done",
        "done:",
        "  ret void",
        "}",
        f"declare {vector} {fma}({vector}, {vector}, {vector})",
        *_entry(threads, "1"),
    ]
    params = (Param("values", (2 + lanes,), "float32", True),)
    flop = threads * steps * accumulators * lanes * 2
    return _function(lines, target, params, threads), flop


def _copy_kernel(target: Target, threads: int, pieces: int, streaming: bool) -> Function:
    """The kernel of `copy_bandwidth` over pieces of `_PIECE_BYTES`."""
    width = target.vector_bytes
    vector = f"<{width} x i8>"
    hint = ", !nontemporal !0" if streaming else ""
    step = []
    for n in range(4):
        step += [
            f"  %o{n} = add i64 %o, {n * width}",
            f"  %p{n} = getelementptr i8, ptr %source, i64 %o{n}",
            f"  %q{n} = getelementptr i8, ptr %copy, i64 %o{n}",
            f"  %v{n} = load {vector}, ptr %p{n}, align {width}",
            f"  store {vector} %v{n}, ptr %q{n}, align {width}{hint}",
        ]
    lines = [
        "define internal void @body(ptr %context, i64 %begin, i64 %end, i32 %thread) {",
        "entry:",
        "  %source = load ptr, ptr %context",
        "  %second = getelementptr ptr, ptr %context, i64 1",
        "  %copy = load ptr, ptr %second",
        f"  %first = mul i64 %begin, {_PIECE_BYTES}",
        f"  %last = mul i64 %end, {_PIECE_BYTES}",
        "  br label %loop",
        "loop:",
        "  %o = phi i64 [ %first, %entry ], [ %next, %loop ]",
        *step,
        f"  %next = add i64 %o, {4 * width}",
        "  %more = icmp slt i64 %next, %last",
        "  br i1 %more, label %loop, label %done",
        "done:",
        # Streaming stores are not ordered with the flag that tells that the loop is done.
        "  fence seq_cst",
        "  ret void",
        "}",
        "!0 = !{i32 1}",
        *_entry(pieces, str(max(1, pieces // (8 * threads)))),
    ]
    shape = (pieces * _PIECE_BYTES,)
    params = (Param("source", shape, "uint8", False), Param("copy", shape, "uint8", True))
    return _function(lines, target, params, threads)


def _entry(extent: int, chunk: str) -> list[str]:
    """The kernel's entry: `body` over [0, extent) on all threads."""
    return [
        f"declare void @{SYMBOL}(ptr, ptr, i64, i64, i32)",
        "define void @kernel(ptr %args, ptr %workspace, i32 %threads) {",
        f"  call void @{SYMBOL}(ptr @body, ptr %args, i64 {extent}, i64 {chunk}, i32 %threads)",
        "  ret void",
        "}",
    ]


def _splat(lanes: int, value: int) -> str:
    return f"<{', '.join(f'float {value}.0' for _ in range(lanes))}>"


def _broadcast(name: str, scalar: str, lanes: int) -> list[str]:
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i32> zeroinitializer"
    return [
        f"  %{name}v = insertelement {vector} poison, float %{scalar}, i64 0",
        f"  %{name} = shufflevector {vector} %{name}v, {vector} poison, {mask}",
    ]


def _function(
    lines: list[str], target: Target, params: tuple[Param, ...], threads: int
) -> Function:
    if threads < 1:
        raise ArgumentError(f"threads is {threads}; expected 1 or more")
    code = compile_ir("\n".join(lines), target)
    info = KernelInfo("kernel", params, parallel=True)
    return Function(Artifact(code, info, str(target)), threads=threads)
