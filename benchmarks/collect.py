"""Make a data set for the cost model on this machine, and hold models against it.

Each task is measured twice: half of the candidates at random, half as the search proposes them.
The report is on operator families that the model has not seen (one family's tasks are held out at a
time, the model learns from all others), and on tasks that it has not seen, of families that it has.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

import autosched as at
from autosched.search.model import CostModel
from autosched.tir.affine import IntArray
from autosched.tuning.models import load_dataset
from cost_model import metrics
from cost_model.dataset import Dataset, Floats
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
NEAR = (0.98, 0.95)
"""Shares of the speed of the best recorded candidate that count as found."""
ROUND = 16
DRAWS, DRAWN = 4, 0.7
GROUPS = 11
"""Groups of tasks that are held out in turns, beside the families."""


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
    """Hold the roofline and models that never saw the family, or the task, against what was
    measured, and count the trials that they save."""
    data, lost = load_dataset(str(db))
    print(f"{len(data)} candidates of {len(data.tasks)} tasks, {lost} not replayable")
    every = [(f, at.SearchTask(*t, target=target)) for f, t in listed(tasks)]
    task_of = {t.workload_key: t for _, t in every if t.workload_key in data.tasks}
    data = data.take(np.array([k in task_of for k in data.tasks], dtype=np.bool_)[data.task])
    family_of = {t.workload_key: f for f, t in every}
    models: dict[str, dict[str, CostModel]] = {
        "random": dict.fromkeys(task_of, at.RandomModel()),
        "roofline": dict.fromkeys(task_of, BoostedModel()),
        "other families": held_out(data, {k: family_of[k] for k in task_of}),
        "other tasks": held_out(data, {k: str(n % GROUPS) for n, k in enumerate(task_of)}),
    }
    found: dict[str, dict[str, float]] = {name: {} for name in models}
    for name, mine in models.items():
        if name != "random":
            found[name] = ranks(data, mine)
    counts: dict[str, list[tuple[float, ...]]] = {name: [] for name in models}
    for key, task in task_of.items():
        replay = Replay(task, db)
        for name, mine in models.items():
            counts[name].append(replay.needed(mine[key]))
    for name, row in found.items():
        means = np.mean(counts[name], axis=0).tolist()
        row |= {f"trials to {n:.0%}": mean for n, mean in zip(NEAR, means, strict=True)}
        print(f"{name}: " + ", ".join(f"{k} {v:.3f}" for k, v in row.items()))
    return found


def held_out(data: Dataset, group: dict[str, str]) -> dict[str, CostModel]:
    """By task, a model that learned from the tasks of all other groups."""
    of = np.array([group.get(k, "") for k in data.tasks])[data.task]
    start = BoostedModel()
    models = {g: copy.copy(start).train(data.take(of != g)) for g in dict.fromkeys(group.values())}
    return {key: models[g] for key, g in group.items()}


def ranks(data: Dataset, models: dict[str, CostModel]) -> dict[str, float]:
    """How well each task's model, without measurements of the task, ranks its candidates."""
    pairs: list[tuple[Floats, Floats]] = []
    for key, part in data.by_task():
        model = models[key]
        assert isinstance(model, BoostedModel)
        pairs.append((np.exp(model.predict_data(part)), np.exp(part.label)))
    return asdict(metrics.report(pairs))


class Replay:
    """The recorded candidates of a task as the whole space of a search."""

    def __init__(self, task: at.SearchTask, db: Path) -> None:
        measured = at.PreloadMeasuredStates(db).measured(task, task.space)
        self.task = task
        self.population = task.space.population([(m.variant, dict(m.values)) for m in measured])
        self.seconds = np.array([m.seconds for m in measured])

    def needed(self, model: CostModel) -> tuple[float, ...]:
        """Trials until a candidate near the best of the recorded ones is found, for each `NEAR`,
        when the model picks `ROUND` of them at a time and learns from all so far. The mean over
        `DRAWS` draws of most of the candidates: of one best candidate chance says too much."""
        rng = np.random.default_rng(0)
        draws = [np.flatnonzero(rng.random(len(self.seconds)) < DRAWN) for _ in range(DRAWS)]
        return tuple(np.mean([self._needed(model, d) for d in draws if len(d)], axis=0).tolist())

    def _needed(self, model: CostModel, drawn: IntArray) -> list[int]:
        population, seconds = self.population.take(drawn), self.seconds[drawn]
        order: list[int] = []
        current = model
        while len(order) < len(seconds):
            scores = current.predict(self.task, population).astype(np.float64)
            scores[order] = -np.inf
            picks = np.argsort(-scores, kind="stable")[: min(ROUND, len(seconds) - len(order))]
            order += picks.tolist()
            if seconds[order].min() <= seconds.min() / max(NEAR):
                break
            current = model.fit(self.task, population.take(np.array(order)), seconds[order])
        best = np.minimum.accumulate(seconds[order])
        return [int(np.argmax(best <= seconds.min() / near)) + 1 for near in NEAR]


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
