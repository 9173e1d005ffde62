"""What a call from Python costs over the kernel: four arrays in, nothing copied.

The kernel adds three vectors so short that it takes nanoseconds; the time of a call from Python,
less that of the same kernel in a native loop, is the overhead.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import common

import autosched as at
from autosched import te
from autosched.runtime.arrays import empty
from autosched.sketch.default import default_schedule
from autosched.target import Target

BAR_S = 3e-6
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
    rows = {"native_s": native, "overhead_s": figures}
    common.finish("call_overhead", {**rows, "bars": bars})


if __name__ == "__main__":
    main()
