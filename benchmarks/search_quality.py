"""Mean best-so-far of the search, of random sampling and of a plain genetic search.

Nothing is timed: a candidate's seconds are those of a made-up machine, the roofline with other
rates and habits than the model assumes (a third of the load bandwidth, dear panels, slow short
reductions), so the model starts wrong and has to learn. All three see the same candidates of the
same space, twenty seeds each; the plot is an SVG file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

import autosched as at
from autosched.search.evolution import EvolutionarySearch, Measured, SearchParams
from autosched.sketch.space import Population, Space
from cost_model.evaluation import RAW, evaluator_of
from cost_model.xgb import BoostedModel

Floats = npt.NDArray[np.float64]
ROUND = 8
COLORS = {"search": "#0b6", "genetic": "#06b", "random": "#999"}


def truth(space: Space, population: Population) -> Floats:
    """Seconds of candidates on the made-up machine; infinite where they are not legal."""
    seconds = np.full(len(population), np.inf)
    for part in evaluator_of(space).parts(population):
        found, valid, raw = part.results[0], part.results[1], part.results[2 : 2 + RAW]
        compute, l1 = raw[0], raw[1]
        loads, packed, steps = raw[7], raw[10], raw[11]
        slower = found + 0.6 * compute * loads + 2.0 * l1 + packed / 20e9
        slower = slower * (1.0 + 12.0 / np.maximum(steps, 1.0))
        seconds[part.rows] = np.where(valid > 0.0, slower, np.inf)
    return seconds


def learned(space: Space, trials: int, seed: int) -> Floats:
    """Seconds in the order of measuring, by the search."""
    search = EvolutionarySearch(space, BoostedModel(seed), seed, SearchParams(round_size=ROUND))
    history: list[Measured] = []
    for r in range(trials // ROUND):
        proposed = search.propose(r, ROUND, history)
        seconds = truth(space, space.population(proposed))
        history += [
            Measured(r, n, v, d, "ok", float(s))
            for n, ((v, d), s) in enumerate(zip(proposed, seconds, strict=True))
        ]
    return np.array([h.seconds for h in history])


def sampled(space: Space, trials: int, seed: int) -> Floats:
    """The same by drawing at random."""
    found = space.sample(np.random.default_rng(seed), 4 * trials)
    seconds = truth(space, found.take(found.unique()))
    return seconds[np.isfinite(seconds)][:trials]


def genetic(space: Space, trials: int, seed: int) -> Floats:
    """The same by mutation and crossover of the best measured, without a model."""
    rng = np.random.default_rng(seed)
    known = space.sample(rng, 2 * ROUND)
    known = known.take(known.unique())
    seconds = truth(space, known)
    while len(known) < trials:
        fit = np.argsort(seconds, kind="stable")[: 2 * ROUND]
        parents = known.take(fit[rng.integers(0, len(fit), ROUND)])
        others = known.take(fit[rng.integers(0, len(fit), ROUND)])
        children = Population.concat(
            [space.mutate(parents, rng), space.crossover(parents, others, rng)]
        )
        old = set(known.keys())
        fresh = children.take(np.array([k not in old for k in children.keys()]))  # noqa: SIM118
        fresh = fresh.take(fresh.unique()[:ROUND])
        known = Population.concat([known, fresh])
        seconds = np.concatenate([seconds, truth(space, fresh)])
    return seconds[:trials]


STRATEGIES: dict[str, Callable[[Space, int, int], Floats]] = {
    "search": learned,
    "genetic": genetic,
    "random": sampled,
}


def curves(task: at.SearchTask, trials: int, seeds: int) -> dict[str, Floats]:
    """Mean over the seeds of the best of all over the best so far, after each trial."""
    runs = {
        name: np.stack([np.minimum.accumulate(run(task.space, trials, s)) for s in range(seeds)])
        for name, run in STRATEGIES.items()
    }
    best = min(float(r.min()) for r in runs.values())
    return {name: (best / r).mean(axis=0) for name, r in runs.items()}


def plot(found: dict[str, Floats], title: str) -> str:
    """The curves as SVG."""
    width, height, left, top = 640, 360, 50, 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="20">{title}: share of the best speed found, by trials</text>',
    ]
    low = min(float(c[4]) for c in found.values())
    for share in np.linspace(low, 1.0, 5):
        y = top + (1.0 - share) / (1.0 - low) * (height - top - 40)
        lines.append(
            f'<line x1="{left}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="8" y="{y + 4:.1f}">{share:.2f}</text>'
        )
    for n, (name, curve) in enumerate(found.items()):
        x = left + np.arange(len(curve)) / len(curve) * (width - left - 10)
        y = top + (1.0 - np.maximum(curve, low)) / (1.0 - low) * (height - top - 40)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        color = COLORS[name]
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>'
            f'<text x="{left + 110 * n}" y="{height - 8}" fill="{color}">{name}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> None:
    """Print the curves, write the plot, and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--plot", type=Path, default=Path(__file__).parent / "search_quality.svg")
    options = parser.parse_args()
    task = at.SearchTask("matmul_add", (1024, 1024, 1024))
    found = curves(task, options.trials, options.seeds)
    marks = [m for m in (16, 32, 64, 128, 256) if m <= options.trials]
    for name, curve in found.items():
        print(f"{name:8}", ", ".join(f"{m} trials {curve[m - 1]:.3f}" for m in marks))
    options.plot.write_text(plot(found, task.title), encoding="utf-8")
    print(json.dumps({k: [float(c[m - 1]) for m in marks] for k, c in found.items()}))


if __name__ == "__main__":
    main()
