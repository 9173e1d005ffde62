"""Apache TVM's MetaSchedule tunes a workload, then autosched does; their programs take turns.

    python benchmarks/metaschedule.py [--only GMM-1024,C2D] [--trials 128] [--peer-trials 128]

It needs TVM in .tvm-venv (`make metaschedule-setup`, 1.3 GB), a machine with nothing else to do,
and patience: one to ten minutes of search a workload. Both searches have the same threads, weights
at run time, and one runs after the other. A ratio is the time of MetaSchedule's program over ours.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import common
import peer_client
from suite import CASES, Case, arrays, tuned

from autosched.target import Target

PYTHON = peer_client.ROOT / ".tvm-venv" / "bin" / "python"
SERVER = peer_client.ROOT / "benchmarks" / "peers" / "serve_tvm.py"
CANNOT = ("GMM-BERT", "T2D", "CAP", "LN")
"""Workloads of the suite that peers/serve_tvm.py does not write down."""
MEAN = 1.3
REACHED_S = 20.0
"""Wall time until a program as fast as MetaSchedule's is found for GMM-1024."""


def run(case: Case, target: Target, trials: int, peer_trials: int) -> dict[str, Any]:
    """Both searches, and the comparison of what they found; prints it."""
    threads = target.num_cores
    spec = f"{case.workload}:{','.join(str(n) for n in case.args)}"
    words = [str(PYTHON), str(SERVER), "--workload", spec, "--trials", str(peer_trials)]
    words += ["--threads", str(threads), "--mcpu", target.mcpu]
    with peer_client.Peer(
        "metaschedule", spec, threads, command=words, open_seconds=3600.0
    ) as peer:
        task, built, result = tuned(case, target, trials, seed=0)
        ours = common.Side.of("tuned", built.with_threads(threads), arrays(task, built))
        figures = common.compare(case.name, ours, [peer], flop=int(result.flop), bar=1.0, rounds=6)
        about = peer.about
    print(
        f"  MetaSchedule searched {about['search_s']:.0f} s for {about['trials']} trials, "
        f"we {result.elapsed_s:.1f} s for {result.trials}"
    )
    return figures | {"metaschedule": about, "elapsed_s": result.elapsed_s}


def main() -> None:
    """Tune what is named (default: all that MetaSchedule can) and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--peer-trials", type=int, default=128)
    parser.add_argument("--only", help="names from the suite, divided by commas")
    options = parser.parse_args()
    if not PYTHON.exists():
        parser.error(f"{PYTHON} does not exist; `make metaschedule-setup` makes it")
    able = [c for c in CASES if c.name not in CANNOT]
    wanted = options.only.split(",") if options.only else [c.name for c in able]
    unknown = set(wanted) - {c.name for c in able}
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))} among those it can do")
    target = Target("llvm")
    rows, bars = [], []
    for case in able:
        if case.name not in wanted:
            continue
        found = run(case, target, options.trials, options.peer_trials)
        rows.append(found)
        bars.append(common.ratio_bar(found))
        if case.name == "GMM-1024":
            bars.append(
                common.bar(
                    f"GMM-1024: as fast as MetaSchedule's {options.peer_trials} trials",
                    f"<= {REACHED_S:.0f} s of search",
                    f"{found['elapsed_s']:.1f} s, ratio {found['ratio']:.3f}",
                    found["elapsed_s"] <= REACHED_S and found["ratio"] >= 1.0,
                )
            )
    mean = math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows))
    bars.append(common.bar("geometric mean", f">= {MEAN}", f"{mean:.3f}", mean >= MEAN))
    common.finish("metaschedule", {"rows": rows, "geometric_mean": mean, "bars": bars})


if __name__ == "__main__":
    main()
