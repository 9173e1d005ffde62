"""A matrix product on a GPU: tiles in shared memory, fetched a step ahead, virtual threads.

    python examples/matmul_gpu.py [N] [--target "cuda -arch=sm_90"] [--compile-only]

N is a multiple of 64. The target is opencl if none is given, which also runs on PoCL (Debian:
pocl-opencl-icd), and CUDA compiles with --compile-only.
"""

from __future__ import annotations

import argparse

import numpy as np

import autosched as at
from autosched import te


def matmul(n):
    """(schedule, tensors): blocks of 64 x 64, 2 x 2 virtual threads, 8 x 8 threads."""
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    copies = [s.cache_read(x, "shared", [C]) for x in (A, B)]
    local = s.cache_write(C, "local")
    threads = {x: te.thread_axis((0, 8), f"threadIdx.{x}") for x in "yx"}
    levels = []
    for axis, name in zip(s[C].op.axis, "yx", strict=True):
        block, rest = s[C].split(axis, factor=64)
        virtual, rest = s[C].split(rest, nparts=2)
        thread, inner = s[C].split(rest, nparts=8)
        s[C].bind(block, te.thread_axis(f"blockIdx.{name}"))
        s[C].bind(virtual, te.thread_axis((0, 2), "vthread"))
        s[C].bind(thread, threads[name])
        levels.append((block, virtual, thread, inner))
    s[C].reorder(*(x for level in zip(*levels, strict=True) for x in level))
    s[local].compute_at(s[C], levels[1][2])
    outer, inner = s[local].split(s[local].op.reduce_axis[0], factor=8)
    s[local].reorder(outer, inner, *s[local].op.axis)
    for axis in s[local].op.axis:
        s[local].unroll(axis)
    for copy in copies:
        s[copy].compute_at(s[local], outer)
        rest, lanes = s[copy].split(s[copy].fuse(*s[copy].op.axis), factor=4)
        rest, x = s[copy].split(rest, factor=8)
        _, y = s[copy].split(rest, factor=8)
        s[copy].bind(y, threads["y"])
        s[copy].bind(x, threads["x"])
        s[copy].vectorize(lanes)
        s[copy].double_buffer()
    return s, [A, B, C]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", nargs="?", type=int, default=256)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--compile-only", action="store_true", help="do not run it")
    options = parser.parse_args()
    n = options.n
    s, args = matmul(n)
    func = at.build(s, args, options.target, name="matmul", compile_only=options.compile_only)
    print(func.source)
    if options.compile_only:
        return
    a, b = (np.random.default_rng(x).random((n, n), np.float32) for x in (0, 1))
    c = np.empty((n, n), np.float32)
    func(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
    seconds = func.time_evaluator(repeat=3)(a, b, c).median
    print(f"{func.target}: {2 * n**3 / seconds * 1e-9:.1f} GFLOP/s")


if __name__ == "__main__":
    main()
