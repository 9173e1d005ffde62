"""Judges the search on measured spaces (`search_space.npz` and `search_space_zen5.npz`, made by
`search_space.py`), with no machine.

    python benchmarks/search_replay.py [--data benchmarks/search_space_zen5.npz] [--seeds 20]
        [--trials 256] [--guess] [--set NAME=VALUE ...]

As it stands, the measured candidates are the whole space: in each run a draw of `DRAWN` of them, so
that seeds differ. With `--guess` the search proposes what it likes. What was measured takes the
time that was measured; what was not takes what trees say that were grown on what was (features of
the cost model, decisions and structure). The table says how far they are off on candidates that
they have not seen: more than the search's candidates differ by, so it is the weaker judge.

What a search is told carries noise of `NOISE`, as a block of samples does. What it is judged by
does not: the speed of the best of its own finalists as a share of the best in the space. `--set`
tries other parameters of the search.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from search_space import FILE, WORKLOADS, Floats, Measured, read, target_of, task_of

from autosched.search.evolution import EvolutionarySearch, SearchParams
from autosched.search.evolution import Measured as Told
from autosched.sketch.space import Population, Space
from cost_model.evaluation import RAW, evaluator_of, summary
from cost_model.xgb import BoostedModel

ROUND, FINALISTS = 8, 5
NOISE = 0.02
"""Standard deviation of the logarithm of a trial's time; a finalist's has a third of it."""
MARKS = (16, 32, 64, 128, 256, 512, 1024)
FOLDS = 5
DRAWN = 0.7


class Recorded:
    """The candidates of a measured space and no others."""

    def __init__(self, space: Space, measured: Measured) -> None:
        self.space, self._measured = space, measured
        self._known = dict(zip(measured.population.keys(), measured.seconds.tolist(), strict=True))
        self.best = float(measured.seconds.min())

    def drawn(self, rng: np.random.Generator) -> Population:
        """Most of them."""
        found = self._measured.population
        return found.take(rng.random(len(found)) < DRAWN)

    def seconds(self, population: Population) -> Floats:
        """Seconds (N,)."""
        return np.array([self._known[k] for k in population.keys()])  # noqa: SIM118


class Truth:
    """Seconds of any candidate of a measured space."""

    def __init__(self, space: Space, measured: Measured) -> None:
        self.space = space
        ok = np.isfinite(measured.seconds)
        self.known = dict(zip(measured.population.keys(), measured.seconds.tolist(), strict=True))
        rows, table, prior = _features(space, measured.population)
        keep = ok[rows]
        self._table, self._rest = table[keep], np.log(measured.seconds[rows][keep]) - prior[keep]
        self._trees = _grown(self._table, self._rest)
        self.best = float(measured.seconds.min())

    @cached_property
    def error(self) -> float:
        """Standard deviation of the logarithm of the times of unseen candidates, for the fastest
        quarter."""
        rng = np.random.default_rng(0)
        fold = rng.integers(0, FOLDS, len(self._rest))
        off = np.zeros(len(self._rest))
        for k in range(FOLDS):
            trees = _grown(self._table[fold != k], self._rest[fold != k])
            off[fold == k] = trees.inplace_predict(self._table[fold == k]) - self._rest[fold == k]
        fast = self._rest <= np.quantile(self._rest, 0.25)
        return float(off[fast].std())

    def seconds(self, population: Population) -> Floats:
        """Seconds (N,); infinite for what is not legal."""
        found = np.full(len(population), np.inf)
        rows, table, prior = _features(self.space, population)
        found[rows] = np.exp(self._trees.inplace_predict(table) + prior)
        for n, key in enumerate(population.keys()):
            found[n] = self.known.get(key, found[n])
        return found


def _features(space: Space, population: Population) -> tuple[Any, Any, Floats]:
    """(rows that are legal, their features, the logarithm of their roofline's seconds)."""
    values = np.log2(1.0 + population.values)
    table = np.zeros((len(population), values.shape[1] + RAW + len(space.variants)), np.float32)
    prior = np.full(len(population), np.nan)
    for part in evaluator_of(space).parts(population):
        seconds, valid = part.results[0], part.results[1]
        table[part.rows, : values.shape[1]] = values[part.rows]
        table[part.rows, values.shape[1] : -len(space.variants)] = summary(
            seconds, part.results[2 : 2 + RAW]
        )
        table[part.rows, -len(space.variants) + part.variant] = 1.0
        prior[part.rows] = np.where(valid > 0.0, np.log(seconds), np.nan)
    rows = np.flatnonzero(np.isfinite(prior))
    return rows, table[rows], prior[rows]


def _grown(table: Any, rest: Floats) -> Any:
    import xgboost

    params = {
        "max_depth": 6, "eta": 0.06, "subsample": 0.8, "colsample_bytree": 0.7, "nthread": 1,
        "tree_method": "hist", "min_child_weight": 3, "seed": 0,
    }  # fmt: skip
    return xgboost.train(params, xgboost.DMatrix(table, rest), 400)


def run(
    truth: Truth | Recorded, params: SearchParams, trials: int, seed: int
) -> tuple[Floats, float]:
    """Share of the best speed that is held after each trial, and the seconds of proposing."""
    search = EvolutionarySearch(truth.space, BoostedModel(seed), seed, params)
    rng = np.random.default_rng(seed)
    best = truth.best
    if isinstance(truth, Recorded):
        search._whole = truth.drawn(rng)
        best = float(truth.seconds(search._whole).min())
    history: list[Told] = []
    real: list[float] = []
    spent = 0.0
    for r in range(trials // params.round_size):
        began = time.perf_counter()
        proposed = search.propose(r, params.round_size, history)
        spent += time.perf_counter() - began
        if not proposed:
            break
        seconds = truth.seconds(truth.space.population(proposed))
        noisy = seconds * np.exp(NOISE * np.abs(rng.standard_normal(len(seconds))))
        history += [
            Told(r, n, v, d, "ok" if np.isfinite(s) else "build_error", float(s))
            for n, ((v, d), s) in enumerate(zip(proposed, noisy, strict=True))
        ]
        real += seconds.tolist()
    told = np.array([h.seconds for h in history])
    exact = np.array(real)
    held = np.zeros(trials)
    for n in range(1, len(told) + 1):
        finalists = np.argsort(told[:n], kind="stable")[:FINALISTS]
        again = exact[finalists] * np.exp(NOISE / 3 * np.abs(rng.standard_normal(len(finalists))))
        held[n - 1] = exact[finalists[int(np.argmin(again))]]
    held[len(told) :] = held[len(told) - 1]
    return best / held, spent


def params_of(given: list[str]) -> SearchParams:
    """`--set NAME=VALUE …` over the parameters that the search has."""
    kinds = {f.name: type(getattr(SearchParams(), f.name)) for f in fields(SearchParams)}
    found: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in kinds:
            raise SystemExit(f"--set {text}: expected one of {', '.join(kinds)}")
        found[name] = kinds[name](value)
    return replace(SearchParams(round_size=ROUND), **found)


def main() -> None:
    """Print the table; ends with one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=FILE)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS)
    parser.add_argument("--guess", action="store_true", help="judge unmeasured candidates, too")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    params = params_of(options.set)
    marks = [m for m in MARKS if m <= options.trials]
    table: dict[str, list[float]] = {}
    for workload in options.workloads:
        space = task_of(workload, target_of(options.data)).space
        measured = read(options.data, workload, space)
        if not len(measured.seconds):
            continue
        truth = (Truth if options.guess else Recorded)(space, measured)
        runs = [run(truth, params, options.trials, s) for s in range(options.seeds)]
        held = np.stack([h for h, _ in runs])[:, [m - 1 for m in marks]]
        table[workload] = held.mean(axis=0).tolist()
        deviation = held.std(axis=0)
        print(
            f"{workload:34} "
            + "  ".join(
                f"{m}: {x:.3f} ±{s:.3f}"
                for m, x, s in zip(marks, table[workload], deviation, strict=True)
            )
            + f"  worst {held[:, -1].min():.3f}, "
            + (f"trees off by {truth.error:.3f}, " if isinstance(truth, Truth) else "")
            + f"proposing {np.mean([s for _, s in runs]) / options.trials * 1e3:.1f} ms a trial",
            flush=True,
        )
    means = np.mean(list(table.values()), axis=0).tolist()
    print("mean  " + "  ".join(f"{m}: {x:.3f}" for m, x in zip(marks, means, strict=True)))
    print(json.dumps({"marks": marks, "mean": means} | table))


if __name__ == "__main__":
    main()
