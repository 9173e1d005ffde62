"""Tuned kernels beside PyTorch's (cuBLAS, cuDNN) and the copy bandwidth, on one CUDA device.

    python benchmarks/gpu.py [--trials 512] [--minutes 60] [--only GMM-1024,C2D]
                             [--torch-python PYTHON] [--out FILE] [--records FILE]

Each workload is tuned; the best program, timed again in turns with the other finalists, stands
beside what PyTorch takes just before and just after (the faster of the two), float32 with TF32 off,
or halves and bytes as the case says.
PyTorch runs in a process of its own, of an interpreter that has a CUDA build of it: this one, if it
has torch and no other is named. `--minutes` bounds the whole run: each workload has its share of
what is left, and what its search has found by then counts. A row is printed as soon as it is there,
and kept in `--out` with those before; every measurement goes to `--records`. Ends with one line of
JSON; on a machine without a CUDA device it says so and exits with status 3; without a package that
it needs it names that.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import autosched as at
    from autosched.errors import AutoschedError, BuildError
except ImportError as e:
    sys.exit(
        f"{sys.executable} lacks {e.name}: install it, as with `pip install -e '.[cuda]'` in the "
        "repository, or unpack wheels into a folder that PYTHONPATH names, with the repository"
    )

NEEDED = ("numpy", "llvmlite", "xgboost", "sqlalchemy", "alembic", "rich", "cuda.bindings")
"""Packages without which nothing is tuned; some are imported late."""
NO_DEVICE = 3
"""Exit status on a machine without a CUDA device."""
PEER = Path(__file__).resolve().parent / "peers" / "gpu_torch.py"
BENCH_PYTHON = Path(__file__).resolve().parents[1] / ".bench-venv" / "bin" / "python"
ROWS = (65536, 1024)


@dataclass(frozen=True)
class Case:
    """A workload of the library, what of PyTorch it is compared with, and the bar: how many times
    as fast as that it must be."""

    name: str
    workload: str
    args: tuple[int | str, ...]
    op: str
    op_args: tuple[int | str, ...]
    bar: float
    """0 where none is set."""


def _same(name: str, workload: str, args: tuple[int | str, ...], bar: float) -> Case:
    return Case(name, workload, args, workload, args, bar)


CASES = (
    _same("GMM-1024", "matmul", (1024, 1024, 1024), 0.85),
    _same("GMM-4096", "matmul", (4096, 4096, 4096), 0.85),
    _same("C2D", "conv2d", (224, 224, 3, 64, 7, 2, 3), 1.0),
    _same("C2D-R50", "conv2d", (56, 56, 64, 64, 3, 1, 1), 1.0),
    _same("DEP", "depthwise_conv2d", (112, 112, 32, 3, 1, 1), 1.0),
    _same("GRP", "conv2d", (56, 56, 64, 128, 3, 2, 1, 1, 4), 1.0),
    _same("CBR", "conv2d_bias_relu", (224, 224, 3, 64, 7, 2, 3), 1.0),
    _same("GMM-1024-f16", "matmul_mixed", (1024, 1024, 1024, "float16", "float16"), 0.0),
    _same("GMM-4096-f16", "matmul_mixed", (4096, 4096, 4096, "float16", "float16"), 0.0),
    _same("GMM-4096-bf16", "matmul_mixed", (4096, 4096, 4096, "bfloat16", "bfloat16"), 0.0),
    _same("GMM-4096-int8", "matmul_mixed", (4096, 4096, 4096, "int8", "int32"), 0.0),
    _same(
        "C2D-R50-f16", "conv2d_mixed", (56, 56, 64, 64, 3, 1, 1, 1, 1, "float16", "float16"), 0.0
    ),
    Case("softmax", "softmax", ROWS, "copy", ROWS, 0.9),
    Case("layer_norm", "layer_norm", ROWS, "copy", ROWS, 0.9),
    Case("cumsum", "cumsum", ROWS, "copy", ROWS, 0.8),
)
TRIALS_A_SECOND = 4.0


def missing() -> list[str]:
    """Those of `NEEDED` that are not installed."""
    found = []
    for name in NEEDED:
        try:
            there = importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:  # of the package around it
            there = False
        if not there:
            found.append(name)
    return found


class Torch:
    """PyTorch in a process of its own. Use as a context. Raises RuntimeError, with its words."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), str(PEER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self.about = str(self._answer("ready"))
        except RuntimeError:
            self.__exit__()
            raise

    def __enter__(self) -> Torch:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def seconds(self, op: str, args: Sequence[int | str]) -> float:
        """What a call takes, in seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, "args": list(args)}) + "\n")
        self._process.stdin.flush()
        return float(self._answer("seconds"))

    def _answer(self, field: str) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = json.loads(line) if line else {"error": "it ended without a word"}
        if field not in found:
            raise RuntimeError(f"PyTorch: {found.get('error', found)}")
        return found[field]


def run(
    case: Case,
    target: at.Target,
    trials: int,
    seed: int,
    seconds: float,
    torch: Torch,
    records: Path | None,
) -> dict[str, Any]:
    """One row of the table; the search begins no round after `seconds`."""
    task = at.SearchTask(case.workload, case.args, target=target)
    before = torch.seconds(case.op, case.op_args)
    start = time.perf_counter()
    options = at.TuningOptions(
        num_measure_trials=trials,
        seed=seed,
        verbose=0,
        time_budget_s=seconds,
        measure_callbacks=[] if records is None else [at.RecordToFile(records)],
    )
    result = task.tune(options)
    elapsed = time.perf_counter() - start
    peer = min(before, torch.seconds(case.op, case.op_args))
    ratio = peer / result.best_seconds
    return {
        "name": case.name,
        "seconds": result.best_seconds,
        "gflops": result.gflops,
        "default_seconds": result.baseline_seconds,
        "torch_seconds": peer,
        "beside": case.op,
        "ratio": ratio,
        "bar": case.bar,
        "met": ratio >= case.bar,
        "trials": result.trials,
        "statuses": result.statuses,
        "trials_a_second": result.trials / elapsed,
        "phases": result.phases,
    }


def _python_with_torch() -> Path:
    here = not BENCH_PYTHON.exists() and importlib.util.find_spec("torch") is not None
    return Path(sys.executable) if here else BENCH_PYTHON


def main() -> int:
    """Tune, compare, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="for all of it")
    parser.add_argument("--out", type=Path, help="a file for the rows so far, as JSON")
    parser.add_argument("--records", type=Path, help="a file for every measurement")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--torch-python", type=Path, default=_python_with_torch())
    options = parser.parse_args()
    only = options.only.split(",") if options.only else [c.name for c in CASES]
    unknown = set(only) - {c.name for c in CASES}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if lacking := missing():
        parser.error(
            f"{sys.executable} lacks {', '.join(lacking)}; install them, as with `pip install -e "
            "'.[cuda]'` in the repository"
        )
    from autosched.runtime.cuda import open_cuda
    from autosched.runtime.detect import architecture

    try:
        target = at.Target(f"cuda -arch={architecture()}")
        device = open_cuda().name
    except BuildError as e:
        print(f"no CUDA device on this machine, so nothing is measured: {e}")
        return NO_DEVICE
    if not options.torch_python.exists():
        parser.error(
            f"{options.torch_python} does not exist; expected a Python that has a CUDA build of "
            "PyTorch (make bench-gpu TORCH_PYTHON=…)"
        )
    rows: list[dict[str, Any]] = []
    errors: dict[str, str] = {}
    end = time.monotonic() + 60 * options.minutes
    chosen = [c for c in CASES if c.name in only]
    with Torch(options.torch_python) as torch:
        print(f"{device}; {torch.about}", flush=True)
        for number, case in enumerate(chosen):
            share = max(end - time.monotonic(), 30.0) / (len(chosen) - number)
            try:
                row = run(
                    case,
                    target,
                    options.trials,
                    options.seed,
                    0.9 * share,
                    torch,
                    options.records,
                )
            except (AutoschedError, RuntimeError) as e:
                errors[case.name] = str(e)
                print(f"{case.name:<12}{e}", flush=True)
                continue
            rows.append(row)
            print(
                f"{row['name']:<12}{row['seconds'] * 1e6:10.1f} us  {row['beside']:<18}"
                f"{row['torch_seconds'] * 1e6:10.1f} us  ratio {row['ratio']:.3f} "
                f"(bar {row['bar']:.2f})  {row['trials_a_second']:.1f} trials/s",
                flush=True,
            )
            if options.out is not None:
                kept = {"device": device, "peer": torch.about, "rows": rows, "errors": errors}
                options.out.write_text(json.dumps(kept) + "\n", encoding="utf-8")
        about = torch.about
    speed = min((r["trials_a_second"] for r in rows), default=0.0)
    met = not errors and all(r["met"] for r in rows) and speed >= TRIALS_A_SECOND
    print(
        json.dumps(
            {
                "benchmark": "gpu",
                "device": device,
                "peer": about,
                "rows": rows,
                "errors": errors,
                "trials_a_second": speed,
                "trials_a_second_bar": TRIALS_A_SECOND,
                "bars_met": met,
            }
        )
    )
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
