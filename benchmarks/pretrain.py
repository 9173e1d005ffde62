"""Grow the trees that the package ships (`cost_model/pretrained.ubj`) from what was measured.

    python benchmarks/collect.py --db cost_model.db     # measures; half an hour on two cores
    python benchmarks/pretrain.py [--db cost_model.db]

The candidates are those of `search_space.npz`, or of another file of measured spaces (`--data`),
and of the stores given. `--held-out` judges rather than writes: for each workload of the file, the
search starts with trees grown without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from search_replay import MARKS, Recorded, params_of, run
from search_space import FILE, WORKLOADS, read, target_of, task_of

from autosched.sketch.space import Space
from autosched.tuning.models import load_dataset
from cost_model import pretrained
from cost_model.dataset import Dataset
from cost_model.xgb import BoostedModel

KEPT = 512
"""Candidates of a workload that are learned from, evenly chosen: large data sets of few workloads
would outweigh many workloads."""


class OfSpace:
    """A task as data sets want one."""

    def __init__(self, space: Space) -> None:
        self.space = space


def gathered(file: Path, stores: Sequence[str], without: str = "") -> Dataset:
    """Candidates of all workloads but `without`, at most `KEPT` of each."""
    target, parts = target_of(file), []
    for workload in WORKLOADS:
        task = task_of(workload, target)
        measured = read(file, workload, task.space)
        if workload != without and len(measured.seconds):
            parts.append(
                Dataset.of(
                    OfSpace(task.space), measured.population, measured.seconds, task.workload_key
                )
            )
    left_out = task_of(without, target).workload_key if without else ""
    for store in stores:
        parts += [part for key, part in load_dataset(store)[0].by_task() if key != left_out]
    return Dataset.concat(map(_thinned, parts))


def _thinned(data: Dataset) -> Dataset:
    chosen = np.zeros(len(data), dtype=np.bool_)
    chosen[np.linspace(0, len(data) - 1, min(KEPT, len(data))).astype(np.int64)] = True
    return data.take(chosen)


def grown(data: Dataset) -> bytes:
    """The file's content: trees grown on `data`."""
    trees = BoostedModel(pretrained=False).shared_trees(data)
    trees.set_attr(features=pretrained.signature())
    return bytes(trees.save_raw("ubj"))


def judge(file: Path, stores: Sequence[str], seeds: int, trials: int) -> None:
    """Print the share of the best speed by trials, from the roofline and from such trees."""
    marks = [m for m in MARKS if m <= trials]
    rows: dict[bool, list[list[float]]] = {False: [], True: []}
    for workload in WORKLOADS:
        space = task_of(workload, target_of(file)).space
        measured = read(file, workload, space)
        if not len(measured.seconds):
            continue
        truth = Recorded(space, measured)
        start = BoostedModel(pretrained=False).train(gathered(file, stores, workload))
        cold = BoostedModel(pretrained=False)
        for warm, model in ((False, cold), (True, start)):
            with mock.patch("search_replay.BoostedModel", lambda seed, pretrained, m=model: m):
                held = np.stack([run(truth, params_of([]), trials, s)[0] for s in range(seeds)])
            found = held[:, [m - 1 for m in marks]]
            rows[warm].append(found.mean(axis=0).tolist())
            print(
                f"{workload:34} {'pretrained' if warm else 'roofline':10} "
                + "  ".join(
                    f"{m}: {x:.3f} ±{s:.3f}"
                    for m, x, s in zip(marks, found.mean(axis=0), found.std(axis=0), strict=True)
                ),
                flush=True,
            )
    for warm, found_rows in rows.items():
        means = np.mean(found_rows, axis=0)
        print(
            f"{'mean':34} {'pretrained' if warm else 'roofline':10} "
            + "  ".join(f"{m}: {x:.3f}" for m, x in zip(marks, means, strict=True))
        )


def main() -> None:
    """Write the file, or judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--db", nargs="*", default=[], help="stores written by collect.py")
    parser.add_argument("--data", type=Path, default=FILE, help="measured spaces")
    parser.add_argument("--out", type=Path, default=pretrained.FILE)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--trials", type=int, default=64)
    options = parser.parse_args()
    if options.held_out:
        judge(options.data, options.db, options.seeds, options.trials)
        return
    data = gathered(options.data, options.db)
    content = grown(data)
    options.out.write_bytes(content)
    print(f"{len(data)} candidates of {len(data.tasks)} workloads: {len(content)} bytes")


if __name__ == "__main__":
    main()
