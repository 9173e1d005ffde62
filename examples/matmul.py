"""Tune a matrix product with a fused addition and call the result.

    python examples/matmul.py [N L M [TRIALS]]

The records go to matmul.json in the current folder; running it again adds to them.
"""

from __future__ import annotations

import argparse

import numpy as np

import autosched as at
from autosched import te


@at.register_workload
def matmul_add(N, L, M, dtype="float32"):
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    matmul = te.compute(
        (N, M),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},
    )
    out = te.compute((N, M), lambda i, j: matmul[i, j] + C[i, j], name="out")
    return [A, B, C, out]


def arguments() -> list[int]:
    """N, L, M and the number of trials, from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", type=int, nargs="*", metavar="N L M TRIALS")
    given = parser.parse_args().numbers
    if len(given) not in (0, 3, 4) or any(x < 1 for x in given):
        parser.error("expected no numbers, or N L M, or N L M TRIALS, all of them positive")
    return given + [1024, 1024, 1024, 64][len(given) :]


def main() -> None:
    rows, inner, columns, trials = arguments()

    task = at.SearchTask(func=matmul_add, args=(rows, inner, columns, "float32"), target="llvm")
    print(task.compute_dag)

    log = "matmul.json"
    task.tune(
        at.TuningOptions(
            num_measure_trials=trials, measure_callbacks=[at.RecordToFile(log)], seed=0
        )
    )
    sch, args = task.apply_best(log)
    print(at.lower(sch, args))

    func = at.build(sch, args, task.target)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((rows, inner), dtype=np.float32)
    b = rng.standard_normal((inner, columns), dtype=np.float32)
    c = rng.standard_normal((rows, columns), dtype=np.float32)
    out = np.empty((rows, columns), dtype=np.float32)
    func(a, b, c, out)  # NumPy arrays, no copy
    np.testing.assert_allclose(out, a @ b + c, rtol=1e-4, atol=1e-3)
    print(f"{func.time_evaluator(min_repeat_ms=500)(a, b, c, out).median * 1e3:.4f} ms")
    print(task.print_best(log))


if __name__ == "__main__":
    main()
