"""`autosched bench`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from autosched.cli.common import add_db, add_workload, at_least, filled, make_task
from autosched.cli.model import (
    add_denormals,
    add_precision,
    add_shape,
    is_model,
    refuse_model_options,
)
from autosched.errors import AutoschedError
from autosched.tuning.best import best_schedule
from autosched.tuning.report.progress import format_seconds
from records import NoRecord

if TYPE_CHECKING:
    from autosched.schedule import Schedule
    from autosched.tuning import SearchTask
    from measure.status import MeasureResult

_EPILOG = """\
Times what is handed out for a workload on this machine, now: the best program recorded in --db, and
beside it the default schedule, in alternation, each verified, at full optimisation; then the
program as written, the machine's peak (float32) and NumPy's BLAS (matrix products).

examples:
  autosched bench matmul_add 1024 1024 1024
  autosched bench softmax 4096 1024 --db tuning.db --rounds 20 --json
  autosched bench resnet50.onnx

A model is timed beside onnxruntime and OpenVINO where they are installed, in alternation, and each
of its kernels by itself.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    add_workload(parser)
    add_db(parser)
    parser.add_argument(
        "--rounds", type=at_least(1), default=10, metavar="N",
        help="rounds of timings of each program (default: %(default)s)",
    )  # fmt: skip
    add_shape(parser)
    parser.add_argument("--threads", type=at_least(1), metavar="N", help="of a model")
    parser.add_argument(
        "--cache", type=filled, metavar="DIR", help="of a model: folder of compiled kernels"
    )
    add_denormals(parser)
    add_precision(parser)
    parser.add_argument(
        "--no-limits", action="store_true", help="leave out the machine's peak and NumPy"
    )
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Time the best recorded program of a workload beside its baselines, or a model."""
    if is_model(options.workload):
        from autosched.cli.bench_model import bench_model

        return bench_model(options.workload, options)
    refuse_model_options(options, options.workload)
    from autosched.cli.rivals import measure_beside
    from autosched.sketch.default import default_schedule
    from measure.local.pool import LocalPool

    task = make_task(options)
    schedules = {"default schedule": default_schedule(task.prim_func, task.target)}
    with LocalPool(task.target) as pool:
        device = str(pool.device.fingerprint)
        recorded = _recorded(task, options.db, device)
        if recorded is not None:
            schedules = {f"record {recorded[1]}": recorded[0], **schedules}
        handle = pool.open_job(task.prim_func)
        try:
            traces = [s.trace for s in schedules.values()]
            found = pool.remeasure(handle, traces, options.rounds)
            written = handle.baseline.seconds
        finally:
            handle.close()
    timed = dict(zip(schedules, found, strict=True))
    failed = [f"{name}: {d.status}: {d.error}" for name, d in timed.items() if d.seconds is None]
    if failed:
        raise AutoschedError("; ".join(failed))
    rows = [_row(task, name, d) for name, d in timed.items()]
    if written is not None:
        rows.append({"program": "as written", **_figures(task, written)})
    beside = None
    if not options.no_limits and not task.target.is_gpu:
        beside = measure_beside(task, next(iter(schedules.values())))
    peak = None if beside is None else beside.peak
    answer = {
        "workload_key": task.workload_key,
        "target": str(task.target),
        "device": device,
        "programs": rows,
        "share_of_peak": None if peak is None else rows[0]["gflops"] * 1e9 / peak,
        "numpy_ratio": None if beside is None else beside.numpy_ratio,
    }
    if options.json:
        print(json.dumps(answer))
        return 0
    for row in rows:
        ratio = row["seconds"] / rows[0]["seconds"]
        print(
            f"{row['program']:18} {format_seconds(row['seconds']):>9}, "
            f"{row['gflops']:.4g} GFLOP/s, {ratio:.2f} x the first"
        )
    if answer["share_of_peak"] is not None:
        print(f"{'machine':18} {answer['share_of_peak']:.1%} of its peak by the first")
    if beside is not None and beside.numpy_ratio is not None:
        print(f"{'NumPy':18} {beside.numpy_ratio:.2f} x as long as the first: {beside.numpy_name}")
    return 0


def _recorded(task: SearchTask, db: str, device: str) -> tuple[Schedule, int] | None:
    """The best program that was measured on this machine, and its record's id."""
    func, key = task.prim_func, task.workload_key
    try:
        schedule, record = best_schedule(func, db, key, str(task.target), device)
    except NoRecord as e:
        print(f"autosched bench: {e}; only the default schedule is timed", file=sys.stderr)
        return None
    return schedule, record.id


def _row(task: SearchTask, name: str, found: MeasureResult) -> dict[str, Any]:
    assert found.seconds is not None  # the caller has looked
    figures = _figures(task, found.seconds)
    return {"program": name, **figures, "spread": found.spread, "noise": found.noise}


def _figures(task: SearchTask, seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "gflops": task.compute_dag.flop_ct / seconds / 1e9}
