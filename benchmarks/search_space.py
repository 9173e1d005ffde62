"""Measures thousands of candidates of a few workloads, so that a search can be judged without a
machine: what is the best that the space holds, and how far from it is the search after 64 trials?

    python benchmarks/search_space.py [--out benchmarks/search_space.npz] [--candidates 5000]
        [--workloads "softmax 512 512" ...]

A third of a workload's candidates is drawn at random, evenly over the structures. The rest closes
in on what is fast: batch by batch the neighbours of the fastest, one and two decisions away, and
what a model learned from all measurements so far ranks first. Each candidate is built, verified and
timed by the pool as in a tuning run. The file holds, by workload, the variant, the decisions and
the seconds of each candidate, infinite where it failed; what is there is kept, and added to.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import autosched as at
from autosched.sketch.space import Population, Space
from cost_model.xgb import BoostedModel
from measure.local.pool import LocalPool

WORKLOADS = (
    "matmul 256 256 256",
    "transpose_batch_matmul 128 12 64",
    "conv2d 14 14 256 256 3 1 2 2",
    "conv2d 56 56 64 64 3 1 1",
    "softmax 512 512",
    "lstm 16 1 64 128",
)
FILE = Path(__file__).parent / "search_space.npz"
BATCH = 250
RANDOM = 1 / 3
NEAREST = 12
"""Candidates, the fastest so far, whose neighbours are measured."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """Candidates of one workload, in the order of measuring: `seconds` float64 (N,)."""

    population: Population
    seconds: Floats

    @staticmethod
    def empty(space: Space) -> Measured:
        """None yet."""
        d = len(space.names)
        none = Population(space.names, np.zeros(0, np.int64), np.zeros((0, d), np.int64))
        return Measured(none, np.zeros(0))

    def plus(self, other: Measured) -> Measured:
        """These, then the others."""
        both = Population.concat([self.population, other.population])
        return Measured(both, np.concatenate([self.seconds, other.seconds]))


def task_of(workload: str, target: str = "llvm") -> at.SearchTask:
    """`"conv2d 14 14 …"` as a task, on this machine where no target is given."""
    name, *args = workload.split()
    return at.SearchTask(name, tuple(int(a) for a in args), target=target)


def target_of(file: Path) -> str:
    """The target that a file's candidates were measured on."""
    with np.load(file, allow_pickle=False) as arrays:
        return str(arrays["target"])


def read(file: Path, workload: str, space: Space) -> Measured:
    """What a file has of a workload. Raises ValueError where its space was another one."""
    if not file.exists():
        return Measured.empty(space)
    with np.load(file, allow_pickle=False) as arrays:
        if f"{workload}/seconds" not in arrays:
            return Measured.empty(space)
        names = tuple(str(n) for n in arrays[f"{workload}/names"])
        variants = [str(n) for n in arrays[f"{workload}/variants"]]
        if names != space.names or variants != [v.name for v in space.variants]:
            raise ValueError(
                f"{file}: the space of {workload} is another one now; measure it again"
            )
        found = Population(
            names,
            arrays[f"{workload}/variant"].astype(np.int64),
            arrays[f"{workload}/values"].astype(np.int64),
        )
        return Measured(found, arrays[f"{workload}/seconds"].astype(np.float64))


def write(file: Path, workload: str, space: Space, measured: Measured) -> None:
    """Put a workload into the file; the others stay."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    if file.exists():
        with np.load(file, allow_pickle=False) as old:
            arrays = {k: old[k] for k in old.files if not k.startswith(f"{workload}/")}
    arrays["target"] = np.array(str(space.target))
    arrays[f"{workload}/names"] = np.array(space.names)
    arrays[f"{workload}/variants"] = np.array([v.name for v in space.variants])
    arrays[f"{workload}/variant"] = measured.population.variant.astype(np.int16)
    arrays[f"{workload}/values"] = measured.population.values.astype(np.int32)
    arrays[f"{workload}/seconds"] = measured.seconds.astype(np.float32)
    scratch = file.with_suffix(".tmp.npz")
    np.savez_compressed(scratch, allow_pickle=False, **arrays)
    scratch.replace(file)


def batch_of(
    space: Space, known: Measured, model: BoostedModel, wanted: int, rng: np.random.Generator
) -> Population:
    """The next candidates: neighbours of the fastest, and what the model likes."""
    order = np.argsort(known.seconds, kind="stable")
    order = order[np.isfinite(known.seconds[order])]
    best = known.population.take(order[:NEAREST])
    parents = known.population.take(order[rng.integers(0, min(len(order), 100), 2000)])
    near = [space.neighbours(space.candidate(best, k)) for k in range(len(best))]
    two = space.mutate(space.mutate(best.take(rng.integers(0, len(best), 400)), rng, 0.0), rng, 0.0)
    mutants = Population.concat([space.mutate(parents, rng, 0.1), space.sample(rng, 2000)])
    fitted = model.fit(space, known.population, known.seconds)
    close = Population.concat([*near, two])
    parts = [_new(space, p, known.population, fitted) for p in (close, mutants)]
    half = wanted // 2
    both = Population.concat([parts[0].take(np.arange(min(half, len(parts[0])))), parts[1]])
    return both.take(both.unique()[:wanted])


def _new(space: Space, found: Population, known: Population, model: BoostedModel) -> Population:
    """Those that are legal and not known, best first."""
    found = found.take(found.unique())
    old = set(known.keys())
    found = found.take(np.array([k not in old for k in found.keys()], np.bool_))  # noqa: SIM118
    scores = model.predict(space, found)
    rows = np.argsort(-scores, kind="stable")
    return found.take(rows[np.isfinite(scores[rows])])


def collect(workload: str, candidates: int, file: Path, seed: int) -> Measured:
    """Measure what is missing of a workload."""
    task = task_of(workload)
    space, model = task.space, BoostedModel()
    known = read(file, workload, space)
    rng = np.random.default_rng([seed, len(known.seconds)])
    pool = LocalPool(task.target)
    try:
        job = pool.open_job(task.prim_func, seed)
        while len(known.seconds) < candidates:
            began, left = time.perf_counter(), candidates - len(known.seconds)
            if len(known.seconds) < RANDOM * candidates:
                drawn = space.sample(rng, 4 * BATCH)
                found = _new(space, drawn, known.population, model)
                found = found.take(rng.permutation(len(found))[: min(BATCH, left)])
            else:
                found = batch_of(space, known, model, min(BATCH, left), rng)
            if not len(found):
                break
            best = known.seconds.min() if len(known.seconds) else None
            known = known.plus(Measured(found, measured(space, pool, job, found, best)))
            write(file, workload, space, known)
            spent = time.perf_counter() - began
            print(
                f"{workload}: {len(known.seconds)} candidates, {len(found) / spent:.1f}/s, best "
                f"{known.seconds.min() * 1e6:.1f} us, number {int(known.seconds.argmin())}",
                flush=True,
            )
        job.close()
    finally:
        pool.close()
    return known


def measured(
    space: Space, pool: LocalPool, job: object, found: Population, best: float | None
) -> Floats:
    """Seconds (N,) of candidates, infinite for those that failed."""
    traces = [space.trace(*space.candidate(found, k)) for k in range(len(found))]
    results = pool.measure(job, traces, best)  # type: ignore[arg-type]
    return np.array([r.seconds if r.seconds is not None else np.inf for r in results])


def main() -> None:
    """Measure all workloads; ends with one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--candidates", type=int, default=5000, help="of each workload")
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = {}
    for workload in options.workloads:
        known = collect(workload, options.candidates, options.out, options.seed)
        found[workload] = {
            "candidates": len(known.seconds), "best_us": float(known.seconds.min() * 1e6),
        }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
