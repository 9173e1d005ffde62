"""Can measurements be trusted? The same random candidates measured again and again.

    python benchmarks/timing.py [--case matmul_add] [--threads 1] [--candidates 64]

The truth is a long measurement: each candidate alone, in long visits, several times. Then the pool
measures all candidates as a search would, five times, each time with new processes and in another
order, and once more while another process on this machine builds without end.

Kendall's tau of two repetitions counts the pairs of candidates that lie within 3 times the best and
whose true times differ by more than the noise figure, which is the larger one of the two (of each
repetition the median of what its records say), and never more than 3 %: that is the bar's.
`tau_recorded` leaves out what the records' own noise figures hide, however large they are;
`tau_all` counts all pairs within 3 times the best. `worst_rank_beyond_noise` is the worst rank of
the true top 5 where only those count as ahead whose true times are slower by more than the noise.

A repetition with a noise figure above 3 % is made again: other work, or a host that puts this
machine's cores under different caches (a noise of 20 %: it is another machine then). Where hardly
any is quiet all count, and the figures say so.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import common
import numpy as np

import autosched as at
from autosched.schedule import Trace
from measure.local.pool import PRELOAD, LocalPool
from measure.local.slot import LocalRunner
from measure.machine.threads import Granted
from measure.process.child import Child
from measure.process.template_client import Limits, Template
from measure.status import MeasureResult, Status

CASES: dict[str, tuple[str, tuple[int, ...]]] = {
    "matmul_add": ("matmul_add", (512, 512, 512)),
    "conv2d": ("conv2d", (56, 56, 64, 64, 3, 1, 1)),
    "softmax": ("softmax", (4096, 1024)),
}
IN_THE_RACE = 3.0
SHORT = 10e-3
TRUTH_TURNS = 5
NOISY = 0.03
FIRST_BUILD_SECONDS = 120.0
TAU, RANK, WINNER, COST_S, RESPAWN_S = 0.95, 10, 1.02, 0.060, 0.050


@dataclass(frozen=True)
class Measuring:
    """All candidates once: `seconds` by candidate, NaN where a status is not ok."""

    seconds: np.ndarray[Any, Any]
    noise: float
    device_s: np.ndarray[Any, Any]

    @staticmethod
    def of(results: Sequence[MeasureResult]) -> Measuring:
        """From the results, in the order of the candidates."""
        times = [r.seconds if r.seconds is not None else np.nan for r in results]
        noises = [r.noise for r in results if r.noise is not None]
        walls = [r.run_wall_seconds for r in results]
        return Measuring(np.array(times), statistics.median(noises or [0.0]), np.array(walls))


class Case:
    """One workload with its candidates."""

    def __init__(self, name: str, threads: int, candidates: int) -> None:
        self.key = name
        operator, arguments = CASES[name]
        self.name = f"{operator} {'x'.join(map(str, arguments))}, {threads} threads"
        self.task = at.SearchTask(operator, arguments, target=f"llvm -num-cores={threads}")
        self.traces = self._drawn(candidates)

    def _drawn(self, count: int) -> list[Trace]:
        space = self.task.space
        drawn = space.sample(np.random.default_rng(0), 2 * count)
        drawn = drawn.take(drawn.unique()[:count])
        return [space.trace(*space.candidate(drawn, n)) for n in range(len(drawn))]

    def pool(self, **options: Any) -> LocalPool:
        """A new pool for it."""
        return LocalPool(self.task.target, runner=LocalRunner(**options))

    def truth(self) -> Measuring:
        """Each candidate alone and long, several times over; the median counts."""
        found = []
        with self.pool(repeat=20, budget_ms=100.0) as pool:
            job = pool.open_job(self.task.prim_func, seed=0)
            for _ in range(TRUTH_TURNS):
                # One candidate a call: nobody is given up for being slower than another.
                results = [pool.measure(job, [trace])[0] for trace in self.traces]
                found.append(Measuring.of(results))
        usual = np.nanmedian([m.seconds for m in found], axis=0)
        return Measuring(usual, statistics.median(m.noise for m in found), found[0].device_s)

    def repetitions(self, count: int) -> list[Measuring]:
        """`count` repetitions, quiet ones if they can be had in twice as many tries."""
        found: list[Measuring] = []
        while len(found) < 2 * count and sum(m.noise <= NOISY for m in found) < count:
            found.append(self.repetition(1 + len(found)))
        return sorted(found, key=lambda m: m.noise)[:count]

    def repetition(self, seed: int) -> Measuring:
        """All candidates as a search measures them, in an order of their own."""
        order = np.random.default_rng(seed).permutation(len(self.traces))
        with self.pool() as pool:
            job = pool.open_job(self.task.prim_func, seed=0)
            found = pool.measure(job, [self.traces[n] for n in order])
        return Measuring.of([found[n] for n in np.argsort(order)])


def kendall(
    one: np.ndarray[Any, Any], two: np.ndarray[Any, Any], pairs: Sequence[tuple[int, int]]
) -> float:
    """(concordant - discordant) / all, over these pairs; 1 where there are none."""
    agree = [np.sign(one[i] - one[j]) * np.sign(two[i] - two[j]) for i, j in pairs]
    return float(np.mean(agree)) if agree else 1.0


def counted_pairs(truth: np.ndarray[Any, Any], noise: float) -> list[tuple[int, int]]:
    """Pairs in the race whose true times differ by more than `noise`, a fraction."""
    racing = np.flatnonzero(truth <= IN_THE_RACE * np.nanmin(truth))
    return [
        (int(i), int(j))
        for i, j in itertools.combinations(racing, 2)
        if abs(truth[i] - truth[j]) > noise * min(truth[i], truth[j])
    ]


def rank_beyond_noise(found: Measuring, truth: np.ndarray[Any, Any], of: int) -> int:
    """1 + how many were measured to be faster and are slower by more than the noise."""
    noise = min(NOISY, found.noise)
    ahead = (found.seconds < found.seconds[of]) & (truth > (1 + noise) * truth[of])
    return 1 + int(ahead.sum())


def _build_without_end(
    target: str, name: str, arguments: tuple[int, ...], stop: Any, count: Any
) -> None:
    """Another process on this host that builds candidates, and takes turns by the lock."""
    task = at.SearchTask(name, arguments, target=target)
    drawn = task.space.sample(np.random.default_rng(1), 512)
    traces = [task.space.trace(*task.space.candidate(drawn, n)) for n in range(len(drawn))]
    with LocalPool(task.target) as pool:
        job = pool.open_job(task.prim_func)
        for start in itertools.cycle(range(0, len(traces), 8)):
            if stop.is_set():
                return
            built = pool.build(job, traces[start : start + 8])
            count.value += sum(r.status is Status.OK for r in built)


@contextmanager
def builder_beside(case: Case) -> Iterator[Any]:
    """A building process while the body runs; gives the number of programs that it built."""
    context = multiprocessing.get_context("spawn")
    stop, count = context.Event(), context.Value("i", 0)
    process = context.Process(
        target=_build_without_end, args=(str(case.task.target), *CASES[case.key], stop, count)
    )
    process.start()
    try:
        end = time.monotonic() + FIRST_BUILD_SECONDS
        while count.value == 0 and process.is_alive() and time.monotonic() < end:
            time.sleep(0.05)  # until the other process has built a kernel
        if not process.is_alive():
            raise RuntimeError(f"the process that builds ended with status {process.exitcode}")
        if count.value == 0:
            raise RuntimeError(f"nothing was built within {FIRST_BUILD_SECONDS:g} s")
        yield count
    finally:
        stop.set()
        process.join(FIRST_BUILD_SECONDS)
        process.kill()


def taus(
    pairs: Sequence[tuple[Measuring, Measuring]], truth: Measuring, most: float = NOISY
) -> list[float]:
    """Kendall's tau of each two measurings, over the pairs that their noise, as far as it is
    believed (`most`), does not hide."""
    found = []
    for a, b in pairs:
        noise = min(most, max(a.noise, b.noise))
        found.append(kendall(a.seconds, b.seconds, counted_pairs(truth.seconds, noise)))
    return found


def judge(case: Case, repetitions: int) -> dict[str, Any]:
    """All figures of one case."""
    truth = case.truth()
    quiet = case.repetitions(repetitions)
    with builder_beside(case) as count:
        before = count.value
        beside = case.repetition(3 * repetitions)
        built = count.value - before
    everyone = counted_pairs(truth.seconds, 0.0)
    both = list(itertools.combinations(quiet, 2))
    between, alone = taus(both, truth), [kendall(a.seconds, b.seconds, everyone) for a, b in both]
    with_builder = taus([(m, beside) for m in quiet], truth)
    top = np.argsort(truth.seconds)[:5]
    ranks = [np.argsort(np.argsort(m.seconds)) + 1 for m in quiet]
    best = float(np.nanmin(truth.seconds))
    winners = [truth.seconds[np.nanargmin(m.seconds)] / best for m in quiet]
    short = truth.seconds < SHORT
    return {
        "case": case.name,
        "best_s": best,
        "failed": int(np.isnan(truth.seconds).sum()),
        "in_the_race": int((truth.seconds <= IN_THE_RACE * best).sum()),
        "noise": [m.noise for m in quiet],
        "disturbed": sum(m.noise > NOISY for m in quiet),
        "pairs": len(counted_pairs(truth.seconds, min(NOISY, max(m.noise for m in quiet)))),
        "pairs_all": len(everyone),
        "tau_mean": statistics.fmean(between),
        "tau_min": min(between),
        "tau_recorded_mean": statistics.fmean(taus(both, truth, math.inf)),
        "pairs_recorded": len(counted_pairs(truth.seconds, max(m.noise for m in quiet))),
        "tau_all_mean": statistics.fmean(alone),
        "tau_truth_min": min(taus([(m, truth) for m in quiet], truth)),
        "worst_rank_of_top_5": int(max(r[top].max() for r in ranks)),
        "worst_rank_beyond_noise": max(
            rank_beyond_noise(m, truth.seconds, of) for m in quiet for of in top
        ),
        "worst_winner": float(max(winners)),
        "device_s": float(np.mean([m.device_s[short].mean() for m in quiet])),
        "short": int(short.sum()),
        "tau_beside_mean": statistics.fmean(with_builder),
        "tau_beside_min": min(with_builder),
        "noise_beside": beside.noise,
        "built_beside": built,
    }


def respawn(count: int = 20) -> dict[str, float]:
    """Seconds until a runner that was killed answers again, from the warm template."""
    with closing(Template(PRELOAD, "measure.local.build:warm")) as template:
        child = Child(template, Limits())
        # The template warms up once.
        child.call(Granted(), timeout=60)
        times = []
        for _ in range(count):
            child.kill()
            began = time.perf_counter()
            outcome = child.call(Granted(), timeout=10)
            times.append(time.perf_counter() - began)
            assert outcome.kind == "value", outcome.text
        child.kill()
    return {"median_s": statistics.median(times), "max_s": max(times)}


def bars_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table of bars for one case."""
    name = row["case"]
    tau, beside, rank = row["tau_mean"], row["tau_beside_mean"], row["worst_rank_of_top_5"]
    winner, cost = row["worst_winner"], row["device_s"]
    return [
        common.bar(
            f"{name}: tau between repetitions",
            f">= {TAU}",
            f"{tau:.3f} (worst two {row['tau_min']:.3f}; {row['pairs']} of {row['pairs_all']} "
            f"pairs outside the noise)",
            tau >= TAU,
        ),
        common.bar(f"{name}: worst rank of the true top 5", f"<= {RANK}", f"{rank}", rank <= RANK),
        common.bar(
            f"{name}: winner against the true best",
            f"<= {WINNER}",
            f"{winner:.3f}",
            winner <= WINNER,
        ),
        common.bar(
            f"{name}: device time a candidate",
            f"<= {COST_S * 1e3:.0f} ms",
            f"{cost * 1e3:.1f} ms",
            cost <= COST_S,
        ),
        common.bar(
            f"{name}: tau with building beside", f">= {TAU}", f"{beside:.3f}", beside >= TAU
        ),
    ]


def show(row: dict[str, Any]) -> None:
    """One case's figures as they come."""
    noise = ", ".join(f"{n:.1%}" for n in row["noise"])
    print(
        f"{row['case']}: best {row['best_s'] * 1e3:.3f} ms, {row['in_the_race']} in the race, "
        f"{row['failed']} failed; tau {row['tau_mean']:.3f} (over the "
        f"{row['pairs_recorded']} pairs outside the recorded noise "
        f"{row['tau_recorded_mean']:.3f}, with all pairs "
        f"{row['tau_all_mean']:.3f}, against the truth at worst {row['tau_truth_min']:.3f}), "
        f"with {row['built_beside']} built beside {row['tau_beside_mean']:.3f}; noise {noise}; "
        f"worst rank of the top 5 beyond it {row['worst_rank_beyond_noise']}"
    )
    if row["disturbed"]:
        print(f"  DISTURBED: {row['disturbed']} repetitions, by other work or other guests")
    sys.stdout.flush()


def main() -> None:
    """Print the figures of each case and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=CASES, action="append", help="default: all")
    parser.add_argument("--threads", type=int, help="of a kernel (default: all cores, then 1)")
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    cores = at.Target("llvm").num_cores
    threads = [options.threads] if options.threads else sorted({cores, 1}, reverse=True)
    rows, bars = [], []
    for name, count in itertools.product(options.case or CASES, threads):
        row = judge(Case(name, count, options.candidates), options.repetitions)
        rows.append(row)
        bars += bars_of(row)
        show(row)
    again = respawn()
    bars.append(
        common.bar(
            "respawn from the warm template, median",
            f"<= {RESPAWN_S * 1e3:.0f} ms",
            f"{again['median_s'] * 1e3:.1f} ms (worst {again['max_s'] * 1e3:.1f})",
            again["median_s"] <= RESPAWN_S,
        )
    )
    for row in bars:
        state = "met" if row["met"] else "NOT met"
        print(f"{row['case']}: {row['bar']}: {row['measured']}: {state}")
    common.finish("timing", {"rows": rows, "respawn": again, "bars": bars})


if __name__ == "__main__":
    main()
