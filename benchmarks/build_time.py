"""What one candidate costs before it runs: replay of its trace, lowering, IR, LLVM.

    python benchmarks/build_time.py [--candidates 60]

Candidates are drawn at random from the space of the 1024^3 matmul with a fused addition.
"""

from __future__ import annotations

import argparse
import statistics
import time

import common
import numpy as np

from autosched import ops, te
from autosched.codegen.build import generate_ir
from autosched.codegen.llvm.assemble import compile_ir
from autosched.sketch.generate import generate_space
from autosched.target import Target

BAR_S = 0.030
WORKLOADS = {
    "matmul_add 1024x1024x1024": (ops.matmul_add, (1024, 1024, 1024)),
    "matmul 128x128x128": (ops.matmul, (128, 128, 128)),
}


def main() -> None:
    """Print each phase and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--candidates", type=int, default=60)
    options = parser.parse_args()
    target = Target("llvm")
    rows, bars = [], []
    for name, (operator, arguments) in WORKLOADS.items():
        func = te.create_prim_func(operator(*arguments))
        start = time.perf_counter()
        space = generate_space(func, target)
        derived = time.perf_counter() - start
        population = space.sample(np.random.default_rng(0), options.candidates)
        phases: dict[str, list[float]] = {"replay": [], "lower and IR": [], "LLVM": []}
        ir_bytes = []
        space.schedule(*space.candidate(population, 0))
        for row in range(len(population)):
            variant, decisions = space.candidate(population, row)
            begin = time.perf_counter()
            schedule = space.schedule(variant, decisions)
            replayed = time.perf_counter()
            generated = generate_ir(schedule.func, target)
            lowered = time.perf_counter()
            compile_ir(generated.ir, target, "search")
            compiled = time.perf_counter()
            for phase, took in zip(
                phases, (replayed - begin, lowered - replayed, compiled - lowered), strict=True
            ):
                phases[phase].append(took)
            ir_bytes.append(len(generated.ir))
        totals = [sum(parts) for parts in zip(*phases.values(), strict=True)]
        median = statistics.median(totals)
        row_figures = {
            "case": name,
            "variants": len(space.variants),
            "space_s": derived,
            "median_s": median,
            "p90_s": float(np.percentile(totals, 90)),
            "max_s": max(totals),
            "phases_median_s": {phase: statistics.median(took) for phase, took in phases.items()},
            "ir_bytes_median": statistics.median(ir_bytes),
        }
        rows.append(row_figures)
        parts = ", ".join(
            f"{phase} {statistics.median(t) * 1e3:.1f}" for phase, t in phases.items()
        )
        print(
            f"{name}: {median * 1e3:.1f} ms median a candidate ({parts}), p90 "
            f"{row_figures['p90_s'] * 1e3:.1f}, worst {max(totals) * 1e3:.1f}; space of "
            f"{len(space.variants)} variants in {derived:.2f} s",
            flush=True,
        )
        bars.append(
            common.bar(
                f"one candidate of {name}, median",
                "<= 30 ms",
                f"{median * 1e3:.1f} ms",
                median <= BAR_S,
            )
        )
    common.finish("build_time", {"rows": rows, "bars": bars})


if __name__ == "__main__":
    main()
