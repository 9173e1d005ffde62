"""What more trials buy: many runs of one workload with few trials and with many, their programs
timed in turns.

    python benchmarks/search_budget.py [--few 64] [--many 256] [--few-seeds 5] [--many-seeds 3]
        [--workloads "conv2d 14 14 256 256 3 1 2 2" ...] [--keep FOLDER]

Each run starts from no records. Then the programs of all runs of a workload are built from their
printed schedules and timed in turns in several fresh processes, since where a process's arrays lie
makes each program faster or slower. `--keep` writes the schedules to a folder, and takes those that
are there in place of tuning again.

    more     speed of the programs by many trials over that by few, both in the geometric mean
    against  the same over the best of the first four seeds of few trials
    seeds    standard deviation of the logarithm of the time over the seeds of few trials
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
from peer_client import ROOT
from tuning_speed import PROCESSES, WINDOW_SECONDS, WINDOWS, geometric_mean, programs, tune

WORKLOADS = (
    "matmul_add 1024 1024 1024",
    "matmul 128 128 128",
    "matmul_bias_gelu 128 768 3072",
    "matmul 512 32 512",
    "transpose_batch_matmul 128 12 64",
    "conv2d 7 7 512 512 3 1 1",
    "conv2d 14 14 256 256 3 1 2 2",
    "conv2d 56 56 64 64 3 1 1",
    "conv2d 30 23 40 72 3 2 1",
    "softmax 512 512",
    "layer_norm 512 768",
    "lstm 16 1 64 128",
)
MORE, SEEDS = 1.03, 0.03


def main() -> int:
    """Tune, time, and print the bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--few", type=int, default=64)
    parser.add_argument("--many", type=int, default=256)
    parser.add_argument("--few-seeds", type=int, default=5)
    parser.add_argument("--many-seeds", type=int, default=3)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.few_seeds < 4 or options.many_seeds < 1:
        parser.error("expected four seeds of few trials, and one of many")
    rows = []
    for workload in options.workloads:
        rows.append(row := compare(workload, options))
        print(
            f"{workload}: more {row['more']:.3f}, against {row['against']:.3f}, "
            f"seeds {row['seeds']:.3f}; {row['few_s']:.1f} and {row['many_s']:.1f} s a run; times "
            f"{' '.join(f'{t:.3f}' for t in row['few'])} | "
            f"{' '.join(f'{t:.3f}' for t in row['many'])}",
            flush=True,
        )
    more, against = (geometric_mean([r[key] for r in rows]) for key in ("more", "against"))
    seeds = math.sqrt(statistics.fmean(r["seeds"] ** 2 for r in rows))
    few, many = options.few, options.many
    bars = [
        common.bar(f"{many} trials over {few}", f">= {MORE}", f"{more:.3f}", more >= MORE),
        common.bar(f"over four seeds of {few}", ">= 1", f"{against:.3f}", against >= 1.0),
        common.bar(f"seeds of {few} trials", f"<= {SEEDS}", f"{seeds:.3f}", seeds <= SEEDS),
    ]
    common.finish("search_budget", {"rows": rows, "bars": bars})
    return 0


def compare(workload: str, options: argparse.Namespace) -> dict[str, Any]:
    """The runs of one workload, their programs' times relative to the geometric mean of all."""
    few = [found(workload, seed, options.few, options.keep) for seed in range(options.few_seeds)]
    many = [found(workload, seed, options.many, options.keep) for seed in range(options.many_seeds)]
    texts = [run["schedule"] for run in few + many]
    each = []
    for _ in range(PROCESSES):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            each.append(fresh.apply(relative, (texts,)))
    times = [statistics.median(t) for t in zip(*each, strict=True)]
    less, more = times[: len(few)], times[len(few) :]
    return {
        "workload": workload,
        "few": less,
        "many": more,
        "few_s": statistics.fmean(run["elapsed_s"] for run in few),
        "many_s": statistics.fmean(run["elapsed_s"] for run in many),
        "more": geometric_mean(less) / geometric_mean(more),
        "against": min(less[:4]) / geometric_mean(more),
        "seeds": statistics.stdev(map(math.log, less)),
    }


def found(workload: str, seed: int, trials: int, keep: Path | None) -> dict[str, Any]:
    """The result of a run, with the schedule found."""
    file = keep and keep / f"{workload.replace(' ', '_')}-{trials}-{seed}.json"
    if file and file.exists():
        known: dict[str, Any] = json.loads(file.read_text())
        return known
    run = tune(ROOT, workload, seed, trials)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(run))
    return run


def relative(texts: Sequence[str]) -> list[float]:
    """Each program's time relative to the geometric mean of all: the median of the windows."""
    calls = programs(texts)
    windows = []
    for n in range(WINDOWS):
        order = sorted(range(len(calls)), reverse=bool(n % 2))
        took = {k: common.measure(calls[k], 3, WINDOW_SECONDS) for k in order}
        middle = geometric_mean(list(took.values()))
        windows.append([took[k] / middle for k in range(len(calls))])
        time.sleep(common.SETTLE_SECONDS)  # an idle worker of the thread pool stops spinning
    return [statistics.median(t) for t in zip(*windows, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
