"""Make a data set for the cost model on this machine, and hold models against it.

Each task is measured twice: half of the candidates at random, half as the search proposes them.
The report is on operator families that the model has not seen: one family's tasks are held out at a
time, the model learns from all others.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import autosched as at
from autosched.tuning.policy import SketchPolicy
from cost_model.random import RandomModel

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


def main() -> None:
    """Measure what is missing in the store."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--db", type=Path, default=Path("cost_model.db"))
    parser.add_argument("--candidates", type=int, default=128, help="of each task")
    parser.add_argument("--tasks", type=int, default=0, help="of each family; 0 for all")
    parser.add_argument("--target", default="llvm")
    options = parser.parse_args()
    half = options.candidates // 2
    for family, tasks in TASKS.items():
        for name, args in tasks[: options.tasks or None]:
            task = at.SearchTask(name, args, target=options.target)
            for seed, model in ((1, RandomModel(1)), (2, None)):
                began = time.perf_counter()
                policy = SketchPolicy(task, model)
                result = task.tune(
                    at.TuningOptions(
                        num_measure_trials=half,
                        num_measures_per_round=max(8, half // 4),
                        measure_callbacks=[at.RecordToStore(options.db)],
                        seed=seed,
                        resume=True,
                        finalists=1,
                        verbose=0,
                    ),
                    policy,
                )
                print(
                    f"{family}: {task.title} {'random' if model else 'searched'}: {result.trials} "
                    f"trials, {result.statuses}, best {result.best_seconds * 1e3:.4f} ms, "
                    f"{time.perf_counter() - began:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
