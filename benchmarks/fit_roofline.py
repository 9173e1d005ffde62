"""Fit the roofline's rates (`cost_model.roofline.Machine`) to what was measured.

    python benchmarks/collect.py --db cost_model.db     # measures; ten minutes on two cores
    python benchmarks/fit_roofline.py [--db cost_model.db] [--data benchmarks/search_space.npz ...]

Each rate in turn takes the value of its grid by which candidates are ranked best. What is judged is
the mean over tasks of three figures: the share of pairs ranked rightly, the same of the fastest
third, and the speed of the best of the first `PICKED` as a share of the best. Every second task
chooses; what the others say is printed beside it, and says whether the fit carries over.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import collect
import numpy as np
import numpy.typing as npt
import search_space

import autosched as at
from autosched.search.analysis import Analysis
from autosched.search.evaluate import evaluate_columns
from autosched.sketch.space import Population, Space
from cost_model import roofline
from cost_model.roofline import Machine

Floats = npt.NDArray[np.float64]
GRID: dict[str, tuple[float, ...]] = {
    "walk": (0.0, 0.5, 1.0, 2.0, 4.0, 8.0),
    "l1_fill": (160e9, 240e9, 320e9, 480e9),
    "overlap": (0.1, 0.15, 0.2, 0.35),
    "spill": (1.2, 2.0, 3.0),
    "entry": (0.9, 1.5, 2.0, 3.0, 5.0),
    "guard": (0.0, 0.3, 1.0),
    "contention": (0.1, 0.2, 0.3, 0.4),
    "l2_fill": (60e9, 80e9, 120e9),
    "latency": (4.0, 4.5, 5.5),
    "loop": (4.0, 8.0, 12.0),
    "fork": (2e-6, 4e-6),
}
PICKED = 8
APART = 0.04
"""Least difference of the logarithms of two times that counts as a pair."""
MOST = 300
"""Candidates of a measured space, evenly chosen."""


@dataclass(frozen=True)
class Task:
    """What was measured of a workload: seconds (N,), and by structure the rows and what the
    analysis says of them."""

    space: Space
    seconds: Floats
    analysed: tuple[tuple[npt.NDArray[np.int64], Analysis], ...]

    @staticmethod
    def of(space: Space, population: Population, seconds: Floats) -> Task:
        """The candidates that ran."""
        ran = np.flatnonzero(np.isfinite(seconds))
        population, found = population.take(ran), []
        for variant, rows in population.groups():
            seen: list[Analysis] = []

            def note(
                analysis: Analysis, seen: list[Analysis] = seen
            ) -> tuple[list[Floats], list[Floats]]:
                seen.append(analysis)
                return [np.zeros(1)], []

            trace, columns = (
                space.variants[variant].trace,
                space.decisions(variant, population, rows),
            )
            parts = evaluate_columns(space.func, space.target, trace, columns, len(rows), note)
            found += [(rows[mine], seen[-1]) for mine, _, _ in parts]
        return Task(space, seconds[ran], tuple(found))

    def judge(self, machine: Machine) -> Floats:
        """The three figures."""
        predicted = np.full(len(self.seconds), np.inf)
        with mock.patch.object(roofline, "machine_of", return_value=machine):
            for rows, analysis in self.analysed:
                predicted[rows] = roofline.roofline(analysis, self.space.target).seconds
        fast = self.seconds < np.quantile(self.seconds, 1 / 3)
        first = self.seconds[np.argsort(predicted, kind="stable")[:PICKED]]
        return np.array(
            [
                _pairs(self.seconds, predicted),
                _pairs(self.seconds[fast], predicted[fast]),
                self.seconds.min() / first.min(),
            ]
        )


def _pairs(seconds: Floats, predicted: Floats) -> float:
    """The share of the pairs that are apart that are ranked rightly; NaN where there is none."""
    apart = np.log(seconds)[:, None] - np.log(seconds)[None, :] > APART
    said = np.sign(predicted[:, None] - predicted[None, :])
    return float((0.5 + 0.5 * said[apart]).mean()) if apart.any() else float("nan")


def tasks(stores: Sequence[str], files: Sequence[Path], target: str) -> Iterator[Task]:
    """All workloads of the stores (those of `collect.py`) and of the measured spaces."""
    for store in stores:
        for _, workload in collect.listed(0):
            task = at.SearchTask(*workload, target=target)
            measured = at.PreloadMeasuredStates(store).measured(task, task.space)
            if len(measured) >= 2 * PICKED:
                pairs = [(m.variant, dict(m.values)) for m in measured]
                seconds = np.array([m.seconds for m in measured])
                yield Task.of(task.space, task.space.population(pairs), seconds)
    for file in files:
        for workload in search_space.WORKLOADS:
            space = search_space.task_of(workload, search_space.target_of(file)).space
            found = search_space.read(file, workload, space)
            if len(found.seconds):
                k = np.unique(np.linspace(0, len(found.seconds) - 1, MOST).astype(np.int64))
                yield Task.of(space, found.population.take(k), found.seconds[k])


def mean(of: Sequence[Task], machine: Machine) -> Floats:
    """The three figures, the mean over tasks."""
    found: Floats = np.nanmean([task.judge(machine) for task in of], axis=0)
    return found


def main() -> None:
    """Fit, and print each step with what the tasks say that did not choose."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--db", nargs="*", default=[], help="stores written by collect.py")
    files = [search_space.FILE, search_space.FILE.with_name("search_space_zen5.npz")]
    parser.add_argument("--data", nargs="*", type=Path, default=files, help="measured spaces")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], metavar="RATE=VALUE", help="start from")
    options = parser.parse_args()
    every = list(tasks(options.db, options.data, options.target))
    choosing, others = every[::2], every[1::2]
    given = (text.split("=") for text in options.set)
    machine = replace(Machine(), **{name: float(value) for name, value in given})
    best = mean(choosing, machine)

    def say(what: str) -> None:
        held = mean(others, machine)
        print(
            f"{what:20} {best.round(3).tolist()}, of the others {held.round(3).tolist()}",
            flush=True,
        )

    say(f"{len(every)} tasks")
    for _ in range(options.passes):
        for rate, values in GRID.items():
            for value in values:
                tried = replace(machine, **{rate: value})
                found = mean(choosing, tried)
                if found.sum() > best.sum() + 5e-4:
                    best, machine = found, tried
                    say(f"{rate} {value:g}")
    print(machine)


if __name__ == "__main__":
    main()
