"""What a call from Python costs over the kernel, and what a model costs over its kernels.

The kernel adds three vectors so short that it takes nanoseconds; the time of a call from Python,
less that of the same kernel in a native loop, is the overhead. The models are chains of softmaxes
of 16 elements, which do not fuse: what one more kernel in the chain takes, less its own time in a
native loop, is the overhead between kernels.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import common
import numpy as np

import autosched as at
from autosched import graph, te
from autosched.graph import op
from autosched.runtime.arrays import empty
from autosched.sketch.default import default_schedule
from autosched.target import Target

BAR_S = 3e-6
BETWEEN_S = 0.3e-6
CHAINS = (50, 550)
"""Kernels in the two models."""
LENGTH = 16
CALLS = 2000
ROUNDS = 25


def main() -> None:
    """Print and end with one JSON line."""
    target = Target("llvm")
    inputs = [te.placeholder((LENGTH,), name=name) for name in "abc"]
    total = te.compute((LENGTH,), lambda i: sum((x[i] for x in inputs[1:]), inputs[0][i]), name="d")
    func = te.create_prim_func([*inputs, total])
    built = at.build(default_schedule(func, target), target=target)
    arrays = [empty(LENGTH) for _ in range(4)]
    for array in arrays:
        array[:] = 1
    a, b, c, d = arrays
    forms: dict[str, Callable[..., None]] = {
        "at.build": built,
        "with_threads(1)": built.with_threads(1),
    }
    figures: dict[str, float] = {}
    native = built.time_evaluator(number=CALLS, repeat=ROUNDS)(*arrays).min
    for name, function in forms.items():
        function(a, b, c, d)
        rounds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(CALLS):
                function(a, b, c, d)
            rounds.append((time.perf_counter() - start) / CALLS)
        figures[name] = min(rounds) - native
        print(
            f"{name}: {figures[name] * 1e6:.2f} us over the kernel's {native * 1e9:.0f} ns "
            f"(median {(statistics.median(rounds) - native) * 1e6:.2f})"
        )
    if d[0] != 3:
        raise ArithmeticError(f"1 + 1 + 1 gave {d[0]}")
    overhead = figures["at.build"]
    bars = [
        common.bar(
            "call with four arrays", "<= 3 us", f"{overhead * 1e6:.2f} us", overhead <= BAR_S
        )
    ]
    between = between_kernels()
    print(f"between kernels: {between * 1e9:.0f} ns")
    bars.append(
        common.bar("between kernels", "<= 0.3 us", f"{between * 1e6:.3f} us", between <= BETWEEN_S)
    )
    rows = {"native_s": native, "overhead_s": figures, "between_kernels_s": between}
    common.finish("call_overhead", {**rows, "bars": bars})


def between_kernels() -> float:
    """Seconds that a kernel of a model takes beyond its own time."""
    x = graph.var("x", (1, LENGTH), "float32")
    data = np.ones((1, LENGTH), "float32")
    least = dict.fromkeys(CHAINS, float("inf"))
    models = {}
    for count in CHAINS:
        value = x
        for _ in range(count):
            value = op.softmax(value, axis=-1)
        models[count] = graph.build(graph.module(main=graph.function([x], value)))
        if len(models[count].kernels) != count:
            raise ArithmeticError(f"{count} softmaxes are {len(models[count].kernels)} kernels")
    for _ in range(ROUNDS * 8):
        for count, model in models.items():
            start = time.perf_counter()
            model(data)
            least[count] = min(least[count], time.perf_counter() - start)
    short, long = CHAINS
    each = (least[long] - least[short]) / (long - short)
    kernel = at.build(models[short].kernels[0].func, target=models[short].target)
    arrays = [empty(LENGTH).reshape(1, LENGTH) for _ in range(2)]
    arrays[0][:] = 1
    return each - float(kernel.time_evaluator(number=CALLS, repeat=ROUNDS)(*arrays).min)


if __name__ == "__main__":
    main()
