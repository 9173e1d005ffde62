"""Everything that is done on a GPU, on whichever is here, as a table.

    python examples/gpu_check.py [--target opencl] [--trials 4] [--device N]

Without --target it takes CUDA where there is a device, and OpenCL otherwise (PoCL on a machine
without a GPU). It builds and runs library operators with the default schedule, compares them with
the processor's results, times them, and tunes one. The exit status is 1 if anything was not right.
"""

from __future__ import annotations

import argparse
import sys

import autosched as at
from autosched.errors import AutoschedError, BuildError
from autosched.sketch.default import default_schedule

OPERATORS = (
    ("matmul_add", (64, 64, 64)),
    ("conv2d", (14, 14, 8, 16, 3, 1, 1)),
    ("softmax", (64, 256)),
    ("layer_norm", (64, 256)),
    ("argmax", (16, 100)),
    ("cumsum", (64, 32)),
    ("lstm", (4, 2, 8, 8)),
)
TUNED = ("matmul", (32, 32, 32))


def chosen_target() -> at.Target:
    """CUDA if it can be used, else OpenCL."""
    from autosched.runtime.detect import architecture

    try:
        return at.Target(f"cuda -arch={architecture()}")
    except BuildError as e:
        print(f"no CUDA: {e}")
        return at.Target("opencl")


def operator_row(pool: at.LocalPool, name: str, args: tuple[int, ...]) -> tuple[str, str, str]:
    """Build, verify and time the default schedule of an operator."""
    task = at.SearchTask(name, args, target=pool.target)
    schedule = default_schedule(task.prim_func, task.target)
    kernels = at.build(schedule, target=task.target, compile_only=True).launches
    job = pool.open_job(task.prim_func)
    (result,) = pool.measure(job, [schedule.trace])
    job.close()
    found = f"{result.seconds * 1e6:.1f} us" if result.ok else result.error.splitlines()[-1]
    return f"{task.title}, {len(kernels)} kernels", str(result.status), found


def tuned_row(pool: at.LocalPool, trials: int) -> tuple[str, str, str]:
    """Tune an operator for a few trials."""
    task = at.SearchTask(*TUNED, target=pool.target)
    options = at.TuningOptions(num_measure_trials=trials, pool=pool, verbose=0)
    result = task.tune(options)
    times = f"{result.best_seconds * 1e6:.1f} us, default {result.baseline_seconds * 1e6:.1f} us"
    return f"{task.title}, {result.trials} trials", "ok", times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", help="cuda, opencl, or either with options")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--device", type=int, help="number of the GPU")
    options = parser.parse_args()
    target = at.Target(options.target) if options.target else chosen_target()
    runner = at.LocalRunner(device=options.device, baseline_timeout=30)
    builder = at.LocalBuilder(timeout=60)
    good = True
    with at.LocalPool(target, builder=builder, runner=runner) as pool:
        print(f"{target} on {pool.device}")
        rows = [(operator_row, (pool, name, args)) for name, args in OPERATORS]
        for make, args in [*rows, (tuned_row, (pool, options.trials))]:
            try:
                what, status, found = make(*args)
            except AutoschedError as e:
                what, status, found = str(args[1]), type(e).__name__, str(e).splitlines()[0]
            good &= status == "ok"
            print(f"{what:<48}{status:<16}{found}", flush=True)
    print("everything is right" if good else "something is not right: see above")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
