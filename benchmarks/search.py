"""How fast candidates are scored, and what share of a run the search takes.

Scoring is all that a search does to know a candidate: replaying its variant, analysing it, the
features of its stores, the roofline, both forests and the correction. The population is drawn from
all variants of the workload. The model is trained on 640 candidates as another task's and on 640 as
the task's own, its forests at full size; their times are made up (the roofline's, disturbed), which
is nothing to the speed. The first call, which records the tapes, is told apart.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import autosched as at
from autosched.sketch.space import Population
from autosched.target import available_cores
from cost_model.boosting import Boosting
from cost_model.dataset import Dataset
from cost_model.xgb import BoostedModel

WORKLOADS = {
    "gmm1024": ("matmul", (1024, 1024, 1024), 100_000),
    "c2d": ("conv2d", (224, 224, 3, 64, 7, 2, 3), 50_000),
    "c3d": ("conv3d", (16, 112, 112, 3, 64, 7, 2, 3), 50_000),
}
"""Name -> workload, its arguments, and candidates a second at least."""
CANDIDATES = 16_384
RECORDS = 640
REPEATS = 15


def score(name: str) -> float:
    """Candidates scored a second: the best of several calls."""
    workload, args, bar = WORKLOADS[name]
    task = at.SearchTask(workload, args)
    population = task.space.sample(np.random.default_rng(0), CANDIDATES)
    population = population.take(population.unique())
    began = time.perf_counter()
    roofline = BoostedModel().predict(task, population)
    first = time.perf_counter() - began
    known = population.take(np.flatnonzero(np.isfinite(roofline))[: 2 * RECORDS])
    model = trained(task, known)
    times, cpu = [], []
    for _ in range(REPEATS):
        began, busy = time.perf_counter(), time.process_time()
        model.predict(task, population)
        times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - busy)
    rate = len(population) / min(times)
    print(
        f"{name}: {rate:,.0f} candidates a second (bar {bar:,}), "
        f"{len(population) / min(cpu):,.0f} a second of CPU time; {len(population):,} candidates "
        f"of {len(task.space.variants)} variants, the first call {first:.2f} s"
    )
    return rate


def trained(task: at.SearchTask, population: Population) -> BoostedModel:
    """A model with all the trees that it may have."""
    rng = np.random.default_rng(1)
    scores = BoostedModel().predict(task, population).astype(np.float64)
    seconds = 1e-3 * np.exp(-scores + rng.normal(0.0, 0.3, len(scores)))
    half = np.arange(RECORDS)
    shared = BoostedModel(0, Boosting(split=10**9)).train(
        Dataset.of(task, population.take(half), seconds[half], "another")
    )
    return shared.fit(task, population.take(half + RECORDS), seconds[half + RECORDS])


def shares(trials: int) -> dict[str, float]:
    """Shares of the wall time of a tuning run of the 1024-cubed matmul with an addition."""
    task = at.SearchTask("matmul_add", (1024, 1024, 1024))
    result = task.tune(at.TuningOptions(num_measure_trials=trials, verbose=0))
    phases, whole = result.phases, result.elapsed_s
    found = {k: v / whole for k, v in phases.items()}
    busy = result.device_seconds["building"] / phases["building"] / available_cores()
    print(f"{trials} trials in {whole:.1f} s, best {result.best_seconds * 1e3:.3f} ms")
    print(", ".join(f"{k} {v:.1%}" for k, v in found.items()))
    print(f"while anything is built, {busy:.1%} of all cores build")
    return found


def main() -> None:
    """Print both and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=256, help="of the run; 0 for none")
    options = parser.parse_args()
    rates = {name: score(name) for name in WORKLOADS}
    found = shares(options.trials) if options.trials else {}
    print(json.dumps({"scored_per_second": rates, "wall_share": found}))


if __name__ == "__main__":
    main()
