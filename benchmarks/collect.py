"""Make a data set for the cost model on this machine, and hold models against it.

Each task is measured twice: half of the candidates at random, half as the search proposes them.
The report is on operator families that the model has not seen: one family's tasks are held out at a
time, the model learns from all others.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

import autosched as at
from autosched.tuning.models import load_dataset
from cost_model import metrics
from cost_model.dataset import Floats
from cost_model.xgb import BoostedModel

Task = tuple[str, tuple[int, ...]]
TASKS: dict[str, tuple[Task, ...]] = {
    "matmul": (
        ("matmul", (128, 128, 128)),
        ("matmul", (512, 32, 512)),
        ("matmul", (384, 1000, 520)),
        ("matmul", (97, 203, 310)),
        ("matmul_add", (1024, 1024, 1024)),
        ("matmul_add", (64, 2048, 512)),
        ("matmul_add", (1, 1024, 1000)),
    ),
    "batch matmul": (
        ("batch_matmul", (12, 128, 64, 128)),
        ("batch_matmul", (8, 100, 100, 100)),
        ("batch_matmul", (48, 32, 256, 32)),
    ),
    "matmul bias gelu": (
        ("matmul_bias_gelu", (128, 768, 3072)),
        ("matmul_bias_gelu", (64, 256, 512)),
        ("matmul_bias_gelu", (30, 500, 300)),
    ),
    "conv1d": (
        ("conv1d", (256, 64, 128, 3, 2, 1)),
        ("conv1d", (1000, 32, 48, 5, 1, 2)),
        ("conv1d", (128, 128, 128, 3, 1, 1)),
    ),
    "conv2d": (
        ("conv2d", (224, 224, 3, 64, 7, 2, 3)),
        ("conv2d", (56, 56, 64, 64, 3, 1, 1)),
        ("conv2d", (14, 14, 256, 256, 3, 1, 1)),
        ("conv2d", (28, 28, 128, 128, 3, 2, 1)),
        ("conv2d", (56, 56, 64, 256, 1, 1, 0)),
        ("conv2d", (35, 35, 48, 60, 5, 1, 2)),
        ("conv2d", (56, 56, 64, 128, 3, 2, 1, 1, 4)),
        ("conv2d", (56, 56, 32, 64, 3, 1, 2, 2)),
    ),
    "conv3d": (
        ("conv3d", (16, 112, 112, 3, 64, 7, 2, 3)),
        ("conv3d", (8, 28, 28, 32, 64, 3, 1, 1)),
        ("conv3d", (4, 20, 20, 16, 40, 3, 2, 1)),
    ),
    "depthwise": (
        ("depthwise_conv2d", (112, 112, 32, 3, 1, 1)),
        ("depthwise_conv2d", (56, 56, 128, 3, 2, 1)),
        ("depthwise_conv2d", (14, 14, 512, 5, 1, 2)),
    ),
    "transpose batch matmul": (
        ("transpose_batch_matmul", (128, 12, 64)),
        ("transpose_batch_matmul", (100, 8, 80)),
    ),
    "pooling": (
        ("max_pool2d", (112, 112, 64, 3, 2, 1)),
        ("max_pool2d", (28, 28, 192, 2, 2, 0)),
    ),
    "conv2d bias relu": (
        ("conv2d_bias_relu", (224, 224, 3, 64, 7, 2, 3)),
        ("conv2d_bias_relu", (28, 28, 64, 64, 3, 1, 1)),
        ("conv2d_bias_relu", (7, 7, 256, 512, 3, 1, 1)),
    ),
    "rows": (
        ("softmax", (256, 256)),
        ("softmax", (4096, 1024)),
        ("softmax", (1000, 333)),
        ("layer_norm", (4096, 1024)),
        ("layer_norm", (128, 768)),
        ("norm", (256, 256)),
    ),
}
"""Operator family -> tasks, of many sizes, shapes that divide and shapes that do not."""
NEAR = 0.98
"""Share of the speed of the best recorded candidate that counts as found."""


def collect(db: Path, candidates: int, tasks: int, target: str) -> None:
    """Measure what is missing in the store: half of each task's candidates drawn at random, half
    proposed by a search."""
    half = candidates // 2
    for family, (name, args) in listed(tasks):
        task = at.SearchTask(name, args, target=target)
        for seed, model in ((1, at.RandomModel(1)), (2, None)):
            began = time.perf_counter()
            options = at.TuningOptions(
                num_measure_trials=half,
                num_measures_per_round=max(8, half // 4),
                measure_callbacks=[at.RecordToStore(db)],
                seed=seed,
                resume=True,
                finalists=1,
                verbose=0,
            )
            result = task.tune(options, at.SketchPolicy(task, model))
            print(
                f"{family}: {task.title} {'random' if model else 'searched'}: {result.trials} "
                f"trials, {result.statuses}, best {result.best_seconds * 1e3:.4f} ms, "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )


def listed(tasks: int) -> list[tuple[str, Task]]:
    """(family, task), the first `tasks` of each family, or all for 0."""
    return [(family, task) for family, found in TASKS.items() for task in found[: tasks or None]]


def report(db: Path, tasks: int, target: str) -> dict[str, dict[str, float]]:
    """Hold the roofline and a model that never saw the family against what was measured."""
    data, lost = load_dataset(str(db))
    print(f"{len(data)} candidates of {len(data.tasks)} tasks, {lost} not replayable")
    every = [(f, at.SearchTask(*t, target=target)) for f, t in listed(tasks)]
    task_of = {t.workload_key: t for _, t in every}
    family_of = {t.workload_key: f for f, t in every}
    known = np.array([family_of.get(k, "") for k in data.tasks])
    ranked: dict[str, list[tuple[Floats, Floats]]] = {"roofline": [], "trees": []}
    saved: list[tuple[int, int]] = []
    for family in dict.fromkeys(family_of.values()):
        held_out = (known == family)[data.task]
        if not held_out.any() or held_out.all():
            continue
        model = BoostedModel().train(data.take(~held_out))
        for key, part in data.take(held_out).by_task():
            truth = np.exp(part.label)
            ranked["roofline"].append((np.exp(part.prior), truth))
            ranked["trees"].append((np.exp(model.predict_data(part)), truth))
            cold, warm = (needed(task_of[key], db, m) for m in (BoostedModel(), model))
            saved.append((cold, warm))
    found: dict[str, dict[str, float]] = {}
    for name, pairs in ranked.items():
        row = metrics.report(pairs)
        found[name] = asdict(row)
        print(f"{name}: {row}")
    trials = dict(zip(("cold", "warm"), np.mean(saved, axis=0).tolist(), strict=True))
    print(f"trials until {NEAR:.0%} of the best recorded: {trials}")
    found["trials"] = trials
    return found


def needed(task: at.SearchTask, db: Path, model: BoostedModel) -> int:
    """Trials until a candidate near the best of the recorded ones is found, when the model picks
    eight of them at a time and learns from each eight."""
    measured = at.PreloadMeasuredStates(db).measured(task, task.space)
    population = task.space.population([(m.variant, dict(m.values)) for m in measured])
    seconds = np.array([m.seconds for m in measured])
    left = np.ones(len(seconds), dtype=np.bool_)
    current = model
    while left.any():
        scores = np.where(left, current.predict(task, population), -np.inf)
        picks = np.argsort(-scores, kind="stable")[:8]
        left[picks] = False
        near = np.flatnonzero(seconds[picks] <= seconds.min() / NEAR)
        if len(near):
            return int((~left).sum()) - len(picks) + int(near[0]) + 1
        current = model.fit(task, population.take(~left), seconds[~left])
    return len(seconds)


def main() -> None:
    """Measure what is missing in the store, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--db", type=Path, default=Path("cost_model.db"))
    parser.add_argument("--candidates", type=int, default=128, help="of each task")
    parser.add_argument("--tasks", type=int, default=0, help="of each family; 0 for all")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.report_only:
        collect(options.db, options.candidates, options.tasks, options.target)
    print(json.dumps(report(options.db, options.tasks, options.target)))


if __name__ == "__main__":
    main()
