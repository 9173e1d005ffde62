"""Memory and time of the tuning process itself over a long run: nothing is built or timed.

Candidates are answered for by a model (`--pool replay:model`), so that what grows is the search's
own: records, proposals, the cost model. Each workload has a process of its own. Printed are the
resident memory and the CPU time a round that proposing and training take, at 200, 1,000 and 2,000
trials.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORKLOADS: dict[str, tuple[str, tuple[int, ...]]] = {
    "gmm1024": ("matmul_add", (1024, 1024, 1024)),
    "c2d": ("conv2d", (224, 224, 3, 64, 7, 2, 3)),
    "tbg": ("transpose_batch_matmul", (128, 12, 64)),
    "sfm": ("softmax", (1, 100003)),
}
MARKS = (200, 1000, 2000)
BAR_MB = 300.0


def resident_mb() -> float:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS")


def run(name: str, trials: int) -> dict[str, Any]:
    """Tune one workload; memory at the marks, and seconds of search a round around them."""
    import autosched as at
    from autosched.search.evolution import EvolutionarySearch
    from autosched.tuning.callbacks import MeasureCallback

    memory: dict[int, float] = {}
    rounds: dict[int, float] = {}

    class Marks(MeasureCallback):
        count = 0

        def on_records(self, records: Sequence[Any]) -> None:
            self.count += sum(r.round >= 0 for r in records)
            if self.count in MARKS:
                memory[self.count] = resident_mb()

    class Clocked(EvolutionarySearch):
        def propose(self, round: int, n: int, history: Any) -> Any:
            began = time.process_time()
            found = super().propose(round, n, history)
            rounds[round] = time.process_time() - began
            return found

    class Policy(at.SketchPolicy):
        def search(self, seed: int, round_size: int, model: Any = None) -> EvolutionarySearch:
            plain = super().search(seed, round_size, model)
            return Clocked(plain.space, plain.model, seed, plain.params)

    workload, args = WORKLOADS[name]
    task = at.SearchTask(workload, args)
    with tempfile.TemporaryDirectory() as folder:
        options = at.TuningOptions(
            num_measure_trials=trials,
            pool="replay:model",
            measure_callbacks=[at.RecordToStore(Path(folder) / "a.db"), Marks()],
            verbose=0,
        )
        result = task.tune(options, Policy(task))
    third = max(len(rounds) // 3, 1)
    order = [rounds[r] for r in sorted(rounds)]
    return {
        "trials": result.trials,
        "memory_mb": memory,
        "round_s": {
            "middle": sum(order[third : 2 * third]) / third,
            "last": sum(order[-third:]) / third,
        },
    }


def main() -> None:
    """Print a line a workload, and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=MARKS[-1])
    parser.add_argument("--only", choices=tuple(WORKLOADS))
    options = parser.parse_args()
    found: dict[str, Any] = {}
    bars = []
    for name in [options.only] if options.only else WORKLOADS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[name] = pool.apply(run, (name, options.trials))
        marks = ", ".join(f"{n} trials {mb:.0f} MB" for n, mb in found[name]["memory_mb"].items())
        a, b = found[name]["round_s"].values()
        print(
            f"{name}: {marks} (bar {BAR_MB:.0f} MB); a round of search {a:.2f} s of CPU time in "
            f"the middle third of the run, {b:.2f} s in the last"
        )
        most = max(found[name]["memory_mb"].values())
        bars.append(
            {
                "case": f"resident after {options.trials} trials, {name}",
                "bar": f"<= {BAR_MB:.0f} MB",
                "measured": f"{most:.0f} MB",
                "met": most <= BAR_MB,
            }
        )
    print(json.dumps({**found, "bars": bars}))


if __name__ == "__main__":
    main()
