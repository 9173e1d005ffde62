"""Cumulative sums on a GPU, by hand: a column a thread, and in chunks that run at once.

    python examples/scan_gpu.py [STEPS] [COLUMNS] [--target "cuda -arch=sm_90"] [--compile-only]

The target is opencl if none is given; without a GPU that runs on PoCL (Debian: pocl-opencl-icd).
"""

from __future__ import annotations

import argparse

import numpy as np

import autosched as at
from autosched import te

THREADS = 64


def cumsum(steps, columns):
    """(the scan's stages, its parameters)."""
    X = te.placeholder((steps, columns), name="X")
    state = te.placeholder((steps, columns), name="state")
    init = te.compute((1, columns), lambda _, i: X[0, i], name="init")
    update = te.compute((steps, columns), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    return (init, update), [X, te.scan(init, update, state, inputs=[X], name="S")]


def columns_on_threads(steps, columns):
    """Init and update are bound alike: each thread has columns, and runs through all steps."""
    stages, args = cumsum(steps, columns)
    s = te.create_schedule(args[-1].op)
    for stage in stages:
        block, thread = s[stage].split(stage.op.axis[1], factor=THREADS)
        s[stage].bind(block, te.thread_axis("blockIdx.x"))
        s[stage].bind(thread, te.thread_axis("threadIdx.x"))
    return te.create_prim_func(args), s.replay(args, "columns")


def chunks_on_threads(steps, columns):
    """Chunks of steps run at once: their sums, then what is carried over, then their steps."""
    func = te.create_prim_func(cumsum(steps, columns)[1])
    sch = at.Schedule(func)
    update = sch.get_block("update")
    totals, carry = sch.parallel_scan(update, max(2, round(steps**0.5)))
    chunk, steps_of_chunk, column = sch.get_loops(update)
    sch.reorder(chunk, column, steps_of_chunk)
    step, column_of_carry = sch.get_loops(carry)
    sch.reorder(column_of_carry, step)
    bound = {
        update: [chunk, column],
        totals: list(sch.get_loops(totals)[:2]),
        carry: [column_of_carry],
        sch.get_block("init"): list(sch.get_loops(sch.get_block("init"))),
    }
    for loops in bound.values():
        fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
        block, thread = sch.split(fused, [None, THREADS])
        sch.bind(block, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")
    return func, sch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="?", type=int, default=10000)
    parser.add_argument("columns", nargs="?", type=int, default=8)
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--compile-only", action="store_true", help="do not run it")
    options = parser.parse_args()
    shape = options.steps, options.columns
    for schedule in (columns_on_threads, chunks_on_threads):
        _, sch = schedule(*shape)
        func = at.build(sch, target=options.target, compile_only=options.compile_only)
        print(func.source)
        if options.compile_only:
            continue
        x, out = np.random.default_rng(0).random(shape, np.float32), np.empty(shape, np.float32)
        func(x, out)
        np.testing.assert_allclose(out, x.cumsum(0), rtol=1e-3)
        seconds = func.time_evaluator(repeat=3)(x, out).median
        print(f"{schedule.__name__}: {seconds * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
