"""The public suite: every workload tuned, and its best program held against the engines.

    python benchmarks/suite.py [--trials 128] [--only GMM-128,C2D] [--seed 0] [--odd]

`--odd` takes shapes that nobody has had in mind instead: skinny and prime, layers of common
networks, rows of 10 to 32768 elements.

Weights come at run time on both sides. "MetaSchedule" is what Apache TVM's successor of the
auto-scheduler reached on another machine (AMD Zen 5, 2 cores, AVX-512); it is printed for
orientation and no part of a ratio: `metaschedule.py` runs it on this machine.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
import peer_client

import autosched as at
from autosched.building.build import BuiltFunction
from autosched.runtime.arrays import empty
from autosched.target import Target
from autosched.target.machine import FmaPeak
from autosched.tir.nodes import outputs_of

LEAST = 0.8
"""No workload may be slower than this share of the fastest engine."""
SECONDS = {"GMM-128": 15.0, "GMM-1024": 30.0}
"""Wall time that a whole run of 128 trials may take; any other workload 45 s."""
CONV = (*common.CONV_ENGINES, "torch-compile-ma")
MATMUL = common.MATMUL_ENGINES
ROWS = common.ROW_ENGINES


@dataclass(frozen=True)
class Case:
    """One workload: its name in the suite and in the library, the engines that have it, and what
    MetaSchedule reached, in milliseconds."""

    name: str
    workload: str
    args: tuple[int, ...]
    engines: Sequence[str]
    metaschedule_ms: float | None = None


CASES = (
    Case("GMM-128", "matmul", (128, 128, 128), MATMUL, 0.0097),
    Case("GMM-1024", "matmul_add", (1024, 1024, 1024), MATMUL, 8.8),
    Case("GMM-BERT", "matmul_bias_gelu", (128, 768, 3072), MATMUL[1:]),
    Case("C1D", "conv1d", (256, 64, 128, 3, 2, 1), ("torch", "ort", "openvino"), 0.0150),
    Case("C2D", "conv2d", (224, 224, 3, 64, 7, 2, 3), CONV, 0.566),
    Case("C2D-R50", "conv2d", (56, 56, 64, 64, 3, 1, 1), CONV, 0.508),
    Case("C2D-R50b", "conv2d", (14, 14, 256, 256, 3, 1, 1), CONV, 0.535),
    Case(
        "C3D",
        "conv3d",
        (16, 112, 112, 3, 64, 7, 2, 3),
        ("torch", "ort", "openvino", "torch-compile-ma"),
        8.2,
    ),
    Case("DEP", "depthwise_conv2d", (112, 112, 32, 3, 1, 1), CONV, 0.0335),
    Case("DIL", "conv2d", (224, 224, 3, 64, 7, 2, 3, 2), CONV, 0.509),
    Case("GRP", "conv2d", (56, 56, 64, 128, 3, 2, 1, 1, 4), CONV, 0.0716),
    Case("T2D", "conv2d_transpose", (4, 4, 512, 256, 4, 2, 1), CONV, 0.369),
    Case("CAP", "conv2d_capsule", (16, 16, 32, 32, 3, 2, 1, 4), (), 0.171),
    Case("NRM", "norm", (256, 256), ROWS, 0.0022),
    Case("SFM", "softmax", (256, 256), ROWS, 0.0711),
    Case("SFM-big", "softmax", (4096, 1024), ROWS, 5.25),
    Case("LN", "layer_norm", (4096, 1024), ROWS, 0.95),
    Case("CBR", "conv2d_bias_relu", (224, 224, 3, 64, 7, 2, 3), CONV, 0.554),
    Case("TBG", "transpose_batch_matmul", (128, 12, 64), MATMUL, 0.127),
)


_IMAGES = ("torch-cl", "ort", "openvino-nhwc")
_SERIES = ("torch", "ort", "openvino")
_ODD: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "matmul": (
        MATMUL,
        ("1,4096,4096", "7,1024,1000", "197,768,3072", "100,100,100", "333,77,1025")
        + ("4096,64,64", "64,1000,1", "1000,1000,10"),
    ),
    "batch_matmul": (MATMUL, ("12,384,64,384", "64,32,32,32")),
    "matmul_bias_gelu": (MATMUL[1:], ("197,768,768",)),
    "conv1d": (_SERIES, ("1000,80,384,3,1,1", "16000,1,64,80,4,0")),
    "conv2d": (
        _IMAGES,
        ("112,112,32,64,1,1,0", "224,224,3,32,3,2,1", "224,224,3,64,3,1,1", "14,14,1024,256,1,1,0")
        + ("7,7,512,512,3,1,1", "7,7,512,2048,1,1,0", "56,56,64,128,3,2,1", "28,28,256,512,1,2,0")
        + ("28,28,96,96,5,1,2", "28,28,128,128,3,1,2,2", "56,56,128,128,3,1,1,1,32"),
    ),
    "conv3d": (_SERIES, ("8,28,28,64,64,3,1,1",)),
    "depthwise_conv2d": (
        _IMAGES,
        ("7,7,960,3,1,1", "14,14,480,5,1,2", "112,112,64,3,2,1", "56,56,144,5,2,2"),
    ),
    "conv2d_transpose": (
        _IMAGES,
        ("16,16,128,64,4,2,1", "32,32,64,3,4,2,1", "28,28,256,128,2,2,0"),
    ),
    "max_pool2d": (_IMAGES, ("112,112,64,3,2,1",)),
    "softmax": (ROWS, ("1000,10", "64,1000", "16,32768")),
    "layer_norm": (ROWS, ("128,768", "64,32768")),
    "norm": (ROWS, ("10,1000", "4096,1024")),
    "argmax": (("numpy", "torch"), ("128,1000", "1024,10")),
}
ODD = tuple(
    Case(f"{name}:{args}", name, tuple(int(n) for n in args.split(",")), engines)
    for name, (engines, shapes) in _ODD.items()
    for args in shapes
)


def arrays(task: at.SearchTask, built: BuiltFunction) -> list[np.ndarray[Any, Any]]:
    """Random inputs and outputs for all parameters."""
    rng = np.random.default_rng(0)
    written = {b.name for b in outputs_of(task.prim_func)}
    found = []
    for buffer in task.prim_func.params:
        shape = tuple(int(n) for n in buffer.shape)
        array = empty(shape, buffer.dtype)
        array[...] = 0 if buffer.name in written else rng.standard_normal(shape)
        found.append(array)
    built(*found)
    return found


def tuned(
    case: Case, target: Target, trials: int, seed: int
) -> tuple[at.SearchTask, BuiltFunction, at.TuningResult]:
    """The best program of a whole search from nothing, and how that went."""
    task = at.SearchTask(case.workload, case.args, target=target)
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "records.json")
        options = at.TuningOptions(
            num_measure_trials=trials, measure_callbacks=[at.RecordToFile(log)], seed=seed
        )
        result = task.tune(options)
        schedule, _ = task.apply_best(log)
    built = at.build(schedule, target=target)
    assert isinstance(built, BuiltFunction)
    return task, built, result


def run(case: Case, target: Target, trials: int, seed: int) -> dict[str, Any]:
    """Tune one workload and compare; prints what it finds."""
    threads = target.num_cores
    task, built, result = tuned(case, target, trials, seed)
    spec = f"{case.workload}:{','.join(str(n) for n in case.args)}"
    figures: dict[str, Any] = {"case": case.name, "ratio": None}
    if case.engines:
        peers = peer_client.open_peers(case.engines, spec, threads)
        try:
            figures = common.compare(
                case.name,
                common.Side.of("tuned", built.with_threads(threads), arrays(task, built)),
                peers,
                flop=int(result.flop),
                bar=1.0,
                peak=FmaPeak(target, threads, result.best_seconds),
                rounds=6,
            )
        finally:
            peer_client.close(peers)
    phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in result.phases.items())
    print(f"  {result.trials} trials in {result.elapsed_s:.1f} s: {phases}")
    return figures | {
        "elapsed_s": result.elapsed_s,
        "phases": result.phases,
        "trials": result.trials,
        "statuses": result.statuses,
        "best_s": result.best_seconds,
        "baseline_s": result.baseline_seconds,
        "metaschedule_ms": case.metaschedule_ms,
    }


def main() -> None:
    """Tune what is named (default: all) and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", help="names from the suite, divided by commas (odd ones: by semicolons)"
    )
    parser.add_argument("--odd", action="store_true", help="odd shapes instead of the suite")
    options = parser.parse_args()
    cases = ODD if options.odd else CASES
    wanted = (
        options.only.split(";" if options.odd else ",") if options.only else [c.name for c in cases]
    )
    unknown = set(wanted) - {c.name for c in cases}
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))} in the suite")
    target = Target("llvm")
    rows, bars = [], []
    for case in cases:
        if case.name not in wanted:
            continue
        found = run(case, target, options.trials, options.seed)
        rows.append(found)
        allowed = SECONDS.get(case.name, 45.0)
        if found["ratio"] is not None:
            bars.append(
                common.bar(
                    case.name,
                    f">= {LEAST} of {found['fastest']}",
                    f"{found['ratio']:.3f} (native {found['ratio_native']:.3f})",
                    found["ratio"] >= LEAST,
                )
            )
        bars.append(
            common.bar(
                f"{case.name}, {options.trials} trials",
                f"<= {allowed:.0f} s",
                f"{found['elapsed_s']:.1f} s",
                found["elapsed_s"] <= allowed,
            )
        )
    ratios = [r["ratio"] for r in rows if r["ratio"] is not None]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    bars.append(common.bar("geometric mean", ">= 1.0", f"{mean:.3f}", mean >= 1.0))
    common.finish("suite", {"rows": rows, "geometric_mean": mean, "bars": bars})


if __name__ == "__main__":
    main()
