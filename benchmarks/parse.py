"""How many lines of script a second are parsed and verified.

    python benchmarks/parse.py [--seconds 2]

Of programs as they come over a wire: the operator library, what the search makes of two operators
(as scheduled and as lowered), and one long chain of blocks. All runs in one thread, and processor
time is taken, which other processes do not lengthen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import common
import numpy as np

from autosched import ops, te
from autosched.lowering.lower import lower
from autosched.script import parse_func
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from autosched.tir.verify import verify

BAR = 2000
LIBRARY: dict[str, tuple[int, ...]] = {
    "matmul": (1024, 1024, 1024),
    "matmul_add": (1024, 1024, 1024),
    "batch_matmul": (16, 128, 64, 128),
    "matmul_bias_gelu": (512, 768, 3072),
    "transpose_batch_matmul": (128, 12, 64),
    "conv1d": (256, 64, 128, 3, 2, 1),
    "conv2d": (56, 56, 64, 64, 3, 1, 1),
    "conv2d_bias_relu": (56, 56, 64, 64, 3, 1, 1),
    "conv3d": (16, 28, 28, 16, 32, 3, 1, 1),
    "depthwise_conv2d": (112, 112, 32, 3, 1, 1),
    "max_pool2d": (112, 112, 64, 3, 2, 1),
    "norm": (512, 512),
    "softmax": (512, 1024),
    "layer_norm": (512, 1024),
    "argmax": (512, 1024),
}
SEARCHED = ("matmul_add", "conv2d_bias_relu")
CANDIDATES = 40
CHAIN = 400


def operator(name: str) -> PrimFunc:
    """The program of one row of LIBRARY."""
    return te.create_prim_func(ops.get(name)(*LIBRARY[name]))


def candidates() -> list[PrimFunc]:
    """Random candidates of the search space of the operators in SEARCHED."""
    out = []
    for name in SEARCHED:
        space = generate_space(operator(name), Target("llvm -mcpu=x86-64-v3"))
        population = space.sample(np.random.default_rng(0), CANDIDATES)
        out += [space.schedule(*space.candidate(population, n)).func for n in range(CANDIDATES)]
    return out


def chain(length: int) -> PrimFunc:
    """Elementwise blocks, each of which reads the one before."""
    first = last = te.placeholder((64, 64), name="A")
    for n in range(length):
        last = te.compute((64, 64), lambda i, j: last[i, j] + 1.0, name=f"B{n}")  # noqa: B023
    return te.create_prim_func([first, last])


def rate(what: Callable[[], object], lines: int, seconds: float) -> float:
    """Lines a second: the best of several passes, in processor time of this process."""
    best, end, passes = float("inf"), time.perf_counter() + seconds, 0
    while passes < 3 or time.perf_counter() < end:
        start = time.process_time()
        what()
        best = min(best, time.process_time() - start)
        passes += 1
    return lines / best


def case(name: str, programs: Sequence[PrimFunc], seconds: float) -> dict[str, Any]:
    """Print and return the figures of one set of programs."""
    texts = [p.script() for p in programs]
    lines = sum(text.count("\n") for text in texts)
    read = [parse_func(text, check=False) for text in texts]
    figures = {
        "lines": lines,
        "parse_lines_s": rate(lambda: [parse_func(t, check=False) for t in texts], lines, seconds),
        "verify_lines_s": rate(lambda: [verify(f) for f in read], lines, seconds),
        "lines_s": rate(lambda: [parse_func(t) for t in texts], lines, seconds),
        "print_lines_s": rate(lambda: [f.script() for f in read], lines, seconds),
    }
    print(
        f"{name}: {len(texts)} programs, {lines} lines; lines a second: parse "
        f"{figures['parse_lines_s']:.0f}, verify {figures['verify_lines_s']:.0f}, both "
        f"{figures['lines_s']:.0f}, print {figures['print_lines_s']:.0f}",
        flush=True,
    )
    return {"case": name, **figures}


def main() -> None:
    """Print each set and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    options = parser.parse_args()
    scheduled = candidates()
    sets = {
        "operator library": [operator(name) for name in LIBRARY],
        "scheduled candidates": scheduled,
        "lowered candidates": [lower(func) for func in scheduled],
        f"chain of {CHAIN} blocks": [chain(CHAIN)],
    }
    rows = [case(name, programs, options.seconds) for name, programs in sets.items()]
    slowest = min(rows, key=lambda row: row["lines_s"])
    bar = common.bar(
        f"parse + verify, {slowest['case']} (the slowest of {len(rows)} sets)",
        f">= {BAR} lines/s",
        f"{slowest['lines_s']:.0f} lines/s",
        slowest["lines_s"] >= BAR,
    )
    common.finish("parse", {"rows": rows, "bars": [bar]})


if __name__ == "__main__":
    main()
