"""What a user gets after how long: two versions of this project tune the same workloads in turns.

    python benchmarks/tuning_speed.py --base CHECKOUT [--trials 64] [--seeds 0 1 2] [--busy]

`--base` is a checkout of the version to compare with, set up by its own `make setup`. For each
workload and seed both versions tune, one after the other, the order changing with the seed. Then
the two programs found are built from their printed schedules by this version and timed in turns, in
several fresh processes, since where a process's arrays lie makes each program faster or slower.
`--busy` keeps one core half busy meanwhile.

    wall     elapsed time of this version's run over the base version's: below 1, this one is faster
    quality  time of the base version's program over this version's: above 1, this one's is faster
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
from peer_client import ROOT

import autosched as at

WORKLOADS = (
    "matmul_add 1024 1024 1024",
    "conv2d 7 7 512 512 3 1 1",
    "conv2d 14 14 256 256 3 1 2 2",
    "softmax 512 512",
    "batch_matmul 1 128 128 128",
    "conv2d 56 56 64 64 3 1 1",
    "layer_norm 512 768",
)
PROCESSES = 3
WINDOWS = 12
WINDOW_SECONDS = 0.02
WALL_BUSY, WALL_QUIET, QUALITY = 0.35, 0.7, 0.99


def main() -> int:
    """Compare, and print the bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--busy", action="store_true", help="keep one core half busy meanwhile")
    options = parser.parse_args()
    rows = []
    with busy_core() if options.busy else tempfile.TemporaryDirectory():
        for workload in options.workloads:
            for seed in options.seeds:
                rows.append(row := compare(workload, seed, options))
                print(
                    f"{workload}, seed {seed}: wall {row['base_s']:.1f} -> {row['new_s']:.1f} s "
                    f"({row['wall']:.2f}), quality {row['quality']:.3f} "
                    f"({', '.join(f'{q:.3f}' for q in row['qualities'])})",
                    flush=True,
                )
    wall, quality = (geometric_mean([r[key] for r in rows]) for key in ("wall", "quality"))
    most = WALL_BUSY if options.busy else WALL_QUIET
    machine = "one core half busy" if options.busy else "machine as it was"
    bars = [
        common.bar(f"wall time, {machine}", f"<= {most:.2f}", f"{wall:.3f}", wall <= most),
        common.bar("best program", f">= {QUALITY:.2f}", f"{quality:.3f}", quality >= QUALITY),
    ]
    common.finish("tuning_speed", {"rows": rows, "bars": bars})
    return 0


def compare(workload: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Both versions on one workload with one seed."""
    checkouts = {"base": options.base.resolve(), "new": ROOT}
    order = sorted(checkouts, reverse=bool(seed % 2))
    runs = {side: tune(checkouts[side], workload, seed, options.trials) for side in order}
    texts = runs["base"]["schedule"], runs["new"]["schedule"]
    qualities = []
    for _ in range(PROCESSES):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            qualities.append(fresh.apply(ratio, texts))
    return {
        "workload": workload,
        "seed": seed,
        "base_s": runs["base"]["elapsed_s"],
        "new_s": runs["new"]["elapsed_s"],
        "phases": runs["new"]["phases"],
        "wall": runs["new"]["elapsed_s"] / runs["base"]["elapsed_s"],
        "qualities": qualities,
        "quality": statistics.median(qualities),
    }


def tune(checkout: Path, workload: str, seed: int, trials: int) -> dict[str, Any]:
    """A run of a checkout's command line: its result, with the schedule found."""
    command = str(checkout / ".venv" / "bin" / "autosched")
    with tempfile.TemporaryDirectory() as folder:
        db = ["--db", f"{folder}/records.db"]
        words = ["tune", *workload.split(), "--trials", str(trials), "--seed", str(seed), "--json"]
        lines = _output([command, *words, *db], checkout).splitlines()
        result: dict[str, Any] = json.loads(lines[-1])
        shown = [command, "show", str(result["record_id"]), "--as", "schedule", *db]
        return result | {"schedule": _output(shown, checkout)}


def _output(words: Sequence[str], folder: Path) -> str:
    # PYTHONPATH would give both versions the code of one.
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} in {folder}: {done.stderr[-2000:]}")
    return done.stdout


def ratio(base: str, new: str) -> float:
    """Time of the first program over that of the second: the median of neighbouring windows."""
    calls = programs([base, new])
    pairs = []
    for _ in range(WINDOWS):
        a, b = (common.measure(call, 3, WINDOW_SECONDS) for call in calls)
        pairs.append(a / b)
    return statistics.median(pairs)


def programs(texts: Sequence[str]) -> list[Callable[[], object]]:
    """Printed schedules of one workload, built, and called with the same random arguments: where
    arrays lie makes programs faster or slower."""
    functions = []
    for text in texts:
        namespace: dict[str, Any] = {"__name__": "printed"}
        exec(text, namespace)
        sch = at.Schedule(namespace["workload"])
        namespace["apply"](sch)
        functions.append(at.build(sch, target=namespace["task"].target))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(p.shape).astype(p.dtype) for p in sch.func.params]
    for function in functions:
        function(*arrays)
    return [partial(function, *arrays) for function in functions]


@contextmanager
def busy_core() -> Iterator[None]:
    """A process that works for 5 ms of every 10."""
    process = multiprocessing.Process(target=_half_busy, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _half_busy() -> None:
    while True:
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass
        time.sleep(0.005)  # idle for as long as it was busy


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values."""
    return math.exp(statistics.fmean(map(math.log, values)))


if __name__ == "__main__":
    sys.exit(main())
