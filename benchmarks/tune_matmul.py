"""The main job: tune a matmul for 64 trials, then hold the best program against the engines and
against a schedule written by hand.

    python benchmarks/tune_matmul.py [--trials 64] [--seed 0]

Trials a second are counted from the last baseline to the last trial: proposing, building, verifying
and timing. The whole run, with the baselines (the untransformed program takes seconds) and the
second measurement of the finalists, is printed beside it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
import peer_client
from codegen import MatmulTiles, matmul_schedule

import autosched as at
from autosched.building.build import BuiltFunction
from autosched.runtime.arrays import empty
from autosched.target import Target
from autosched.target.machine import FmaPeak
from autosched.tuning.callbacks import MeasureCallback
from records import BASELINE, TRIAL, Record


class Clock(MeasureCallback):
    """When the last baseline and the last trial were recorded."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def on_records(self, records: Sequence[Record]) -> None:
        for record in records:
            self.times[record.kind] = time.perf_counter()

    @property
    def trial_seconds(self) -> float:
        """Seconds that all trials took together."""
        return self.times[TRIAL] - self.times[BASELINE]


@dataclass(frozen=True)
class Job:
    """One workload of the operator library, and what is asked of its tuning."""

    workload: str
    args: tuple[int, ...]
    trials_bar: float
    ratio_bar: float
    by_hand: Callable[[at.Schedule, int], None]


def _by_hand_add(sch: at.Schedule, lanes: int) -> None:
    matmul_schedule(sch, lanes, MatmulTiles(rows=16), "matmul", "out")


def _by_hand_small(sch: at.Schedule, lanes: int) -> None:
    tiles = MatmulTiles(pack="no", order="ij", rows=4, panels=4)
    matmul_schedule(sch, lanes, tiles)


JOBS = (
    Job("matmul_add", (1024, 1024, 1024), 8.0, 1.0, _by_hand_add),
    Job("matmul", (128, 128, 128), 20.0, 1.0, _by_hand_small),
)
BY_HAND_BAR = 0.95


def arrays(job: Job, built: BuiltFunction) -> list[np.ndarray[Any, Any]]:
    """Random inputs and an output, checked against NumPy in float64."""
    rng = np.random.default_rng(0)
    made = [empty(p.shape, p.dtype) for p in built.args]
    for array in made[:-1]:
        array[:] = rng.standard_normal(array.shape)
    built(*made)
    a, b, *c = (x.astype(np.float64) for x in made[:-1])
    expected = a @ b + (c[0] if c else 0)
    error = float(np.abs(made[-1] - expected).max() / np.abs(expected).max())
    if not error < 1e-5:
        raise ArithmeticError(f"{job.workload}: the result is wrong, relative error {error:.1e}")
    return made


def run(job: Job, target: Target, trials: int, seed: int) -> tuple[dict[str, Any], list[Any]]:
    """Tune, compare; returns the figures and the rows for the table of bars."""
    threads = target.num_cores
    task = at.SearchTask(job.workload, job.args, target=target)
    name = f"{job.workload} {'x'.join(str(n) for n in job.args)}"
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "records.json")
        clock = Clock()
        callbacks = [at.RecordToFile(log), clock]
        result = task.tune(
            at.TuningOptions(num_measure_trials=trials, measure_callbacks=callbacks, seed=seed)
        )
        schedule, _ = task.apply_best(log)
    rate = result.trials / clock.trial_seconds
    whole = result.trials / result.elapsed_s
    tuned = at.build(schedule, target=target)
    written = at.Schedule(task.prim_func)
    job.by_hand(written, target.vector_bytes // 4)
    by_hand = at.build(written, target=target)
    data = arrays(job, tuned)
    peers = peer_client.open_peers(
        common.MATMUL_ENGINES, f"{job.workload}:{','.join(str(n) for n in job.args)}", threads
    )
    try:
        figures = common.compare(
            f"{name}, tuned for {trials} trials",
            common.Side.of("tuned", tuned.with_threads(threads), data),
            peers,
            others=[common.Side.of("by hand", by_hand.with_threads(threads), arrays(job, by_hand))],
            flop=int(result.flop),
            bar=job.ratio_bar,
            peak=FmaPeak(target, threads, result.best_seconds),
        )
    finally:
        peer_client.close(peers)
    of_hand = figures["python_s"]["by hand"] / figures["python_s"]["tuned"]
    figures |= {
        "trials_per_s": rate,
        "trials_per_s_whole_run": whole,
        "elapsed_s": result.elapsed_s,
        "phases": result.phases,
        "statuses": result.statuses,
        "claimed_s": result.best_seconds,
        "baseline_s": result.baseline_seconds,
        "of_by_hand": of_hand,
    }
    phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in result.phases.items())
    print(
        f"  {rate:.1f} trials/s, {whole:.1f} over the whole run ({result.trials} in "
        f"{result.elapsed_s:.1f} s: {phases})"
    )
    print(
        f"  {of_hand:.3f} of the schedule by hand; "
        f"the run claimed {result.best_seconds * 1e3:.4f} ms"
    )
    bars = [
        common.ratio_bar(figures),
        common.bar(
            f"{name}, tuned",
            f">= {BY_HAND_BAR} of by hand",
            f"{of_hand:.3f}",
            of_hand >= BY_HAND_BAR,
        ),
        common.bar(
            f"{name}, {trials} trials",
            f">= {job.trials_bar:.0f} trials/s",
            f"{rate:.1f} (whole run {whole:.1f})",
            rate >= job.trials_bar,
        ),
    ]
    return figures, bars


def main() -> None:
    """Tune both and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    target = Target("llvm")
    rows, bars = [], []
    for job in JOBS:
        figures, found = run(job, target, options.trials, options.seed)
        rows.append(figures)
        bars += found
    common.finish("tune_matmul", {"rows": rows, "bars": bars})


if __name__ == "__main__":
    main()
