"""Which engine is the fastest at what, on this machine: nothing of ours is timed.

python benchmarks/peer_survey.py [--threads 1 2] [--weights run-time constant] [--case NAME ...]
"""

from __future__ import annotations

import argparse

import common
from peer_client import Weights, close, open_peers

CASES = {
    "matmul:1024,1024,1024": (*common.MATMUL_ENGINES, "numpy"),
    "matmul_add:1024,1024,1024": (*common.MATMUL_ENGINES, "numpy"),
    "matmul:128,128,128": (*common.MATMUL_ENGINES, "numpy"),
    "matmul:512,32,512": (*common.MATMUL_ENGINES, "numpy"),
    "matmul:384,1000,520": (*common.MATMUL_ENGINES, "numpy"),
    "conv2d:56,56,64,64,3,1,1": common.CONV_ENGINES,
    "softmax:4096,1024": common.ROW_ENGINES,
    "layer_norm:4096,1024": common.ROW_ENGINES,
}
COMPILED = ("torch-compile", "torch-compile-ma")


def survey(case: str, threads: int, weights: Weights, compiled: bool) -> dict[str, float]:
    """Minimum of each engine on one workload, from Python, in milliseconds."""
    engines = CASES[case] + (COMPILED if compiled else ())
    if compiled and case.startswith("conv"):
        engines += ("torch-compile-cl",)
    peers = open_peers(engines, case, threads, weights)
    best = {peer.engine: float("inf") for peer in peers}
    try:
        for _ in range(8):
            for peer in peers:
                best[peer.engine] = min(best[peer.engine], peer.turn(5, 0.05)[0] * 1e3)
    finally:
        close(peers)
    return dict(sorted(best.items(), key=lambda item: item[1]))


def main() -> None:
    """Print the table and end with one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--weights", nargs="+", default=["run-time"])
    parser.add_argument("--case", nargs="+", default=list(CASES))
    parser.add_argument("--compiled", action="store_true", help="torch.compile too: 20 s a case")
    options = parser.parse_args()
    rows = []
    for case in options.case:
        for weights in options.weights:
            for threads in options.threads:
                found = survey(case, threads, weights, options.compiled)
                cells = ", ".join(f"{name} {ms:.4f}" for name, ms in found.items())
                print(f"{case} {weights} {threads}: {cells} ms", flush=True)
                rows.append({"case": case, "weights": weights, "threads": threads, "ms": found})
    common.finish("peer_survey", {"rows": rows})


if __name__ == "__main__":
    main()
