"""`autosched tune`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from autosched.cli.common import (
    FORMS,
    add_db,
    add_workload,
    at_least,
    filled,
    make_task,
    positive_seconds,
)
from autosched.cli.model import add_precision, add_shape, is_model, refuse_model_options
from autosched.cli.report import Report
from autosched.cli.status import INTERRUPTED
from autosched.errors import TuningError
from autosched.tuning import TuningOptions
from autosched.tuning.callbacks import JobInfo, MeasureCallback, recorder_of
from autosched.tuning.pools import LOCAL, PoolAddress, cluster_pool
from autosched.tuning.report.text import check_mode_of
from measure.pool import Pool
from records import Record, Workload
from records.opening import is_store

_EPILOG = """\
examples:
  autosched tune matmul_add 1024 1024 1024 --trials 64
  autosched tune matmul_add 1024 1024 1024 --trials 64 --as schedule
  autosched tune softmax 4096 1024 --trials 32 --db softmax.json
  autosched tune my_ops.py:attention 128 64 --trials 256 --db tuning.db
  autosched tune matmul_add 1024 1024 1024 --trials 256 --resume
  autosched tune matmul_add 1024 1024 1024 --trials 256 --target cuda
  autosched tune resnet50.onnx --trials 2000 -o resnet50/
  autosched tune ocr.onnx --shape x=1,3,48,320 --time-budget 300

Every measurement is in the records as soon as it is made. Ctrl-C ends a run at any time; with
--resume, and a store for --db, the next one goes on where it stopped.

A model's trials are spread over its kernels, where its time may fall most: each kernel is held
against the peak of this machine, and what is near it gets none. A run ends when no further round
promises 0.05 % of the model's time; kernels below half a per cent of it keep their default
schedule. At the end the whole model is timed, tuned and
untuned in alternation, and kernels that are slower inside it fall back. `autosched compile
MODEL.onnx` with the same --db takes the best of the records.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    add_workload(parser)
    parser.set_defaults(target=None)  # the pool's
    add_db(parser, "takes the records")
    positive = at_least(1)
    parser.add_argument(
        "--trials",
        type=positive,
        metavar="N",
        help="candidates to measure; of a model the total over all kernels (default: 64; of a "
        "model 64 for each kernel, most of which are left when no kernel promises more)",
    )
    parser.add_argument(
        "--seed",
        type=at_least(0),
        default=0,
        metavar="N",
        help="governs proposals and input data (default: %(default)s)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the last job of this workload, target, seed and device in the store; "
        "--trials is then its total",
    )
    parser.add_argument(
        "--time-budget",
        type=positive_seconds,
        metavar="S",
        help="propose no more candidates after S seconds",
    )
    parser.add_argument(
        "--early-stopping",
        type=positive,
        metavar="N",
        help="stop when N trials in a row brought no gain",
    )
    parser.add_argument(
        "--per-round",
        type=positive,
        metavar="N",
        help="candidates proposed at a time (default: an eighth of the trials, at least 8 and at "
        "most as many as are built at a time; 64 of a cluster)",
    )
    parser.add_argument(
        "--pool",
        default=LOCAL,
        metavar="ADDRESS",
        help="where to measure: local (this machine; local?device=1 is its second GPU); "
        "tls://HOST:PORT?tls-dir=DIR, the workers of a scheduler; replay:model or "
        "replay:RECORDS, which run nothing and answer from a model or from what was recorded, for "
        "trying things out (default: %(default)s). Without --target programs are for the devices "
        "of the pool",
    )
    add_shape(parser)
    add_precision(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=filled,
        metavar="DIR",
        help="of a model: write it compiled, as `compile` does",
    )
    parser.add_argument(
        "--as",
        dest="form",
        choices=FORMS,
        help="print the best program, too, in this form (later: autosched best)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--json", action="store_true", help="one JSON object a line: start, record..., result"
    )
    output.add_argument("--quiet", action="store_true", help="no progress, just the result")
    parser.add_argument(
        "--no-limits",
        action="store_true",
        help="skip timing this machine's peak and NumPy beside the result of the local pool",
    )


def run(options: argparse.Namespace) -> int:
    """Tune and print what was found."""
    if is_model(options.workload):
        from autosched.cli.tune_model import tune_model

        return tune_model(options)
    refuse_model_options(options, options.workload)
    address = PoolAddress.parse(options.pool)
    if options.target is None and address.is_cluster:
        with cluster_pool(address, None, options.seed) as pool:
            options.target = str(pool.target)
            return _tune(options, address, pool)
    options.target = "llvm" if options.target is None else options.target
    return _tune(options, address, options.pool)


def _tune(options: argparse.Namespace, address: PoolAddress, pool: Pool | str) -> int:
    task = make_task(options)
    if options.form is not None:
        if options.json:
            raise TuningError("--json prints no program: leave out --as, or use autosched best")
        check_mode_of(task, options.form)  # before the run, not at its end
    callbacks: list[MeasureCallback] = [recorder_of(options.db, options.resume)]
    if options.json:
        callbacks.append(JsonProgress())
    tuning = tuning_options(options, options.trials or 64, pool, callbacks)
    try:
        with ends_in_order():
            result = task.tune(tuning)
    except KeyboardInterrupt:
        return interrupted(options.db)
    report = Report(task, result, options.db, address, limits=not options.no_limits)
    print(json.dumps(report.as_json()) if options.json else report.as_text(options.form))
    return 0


def tuning_options(
    options: argparse.Namespace,
    trials: int,
    pool: Pool | str,
    callbacks: Sequence[MeasureCallback],
) -> TuningOptions:
    """What the command's options say of the run."""
    return TuningOptions(
        num_measure_trials=trials,
        early_stopping=options.early_stopping,
        num_measures_per_round=options.per_round,
        time_budget_s=options.time_budget,
        measure_callbacks=callbacks,
        pool=pool,
        resume=options.resume,
        seed=options.seed,
        verbose=0 if options.json or options.quiet else 1,
    )


def interrupted(db: str) -> int:
    """Say where the records are; the exit status."""
    text = f"autosched tune: interrupted; what was measured is in {db}"
    if is_store(db):
        text += "; the same command with --resume goes on from there"
    print(text, file=sys.stderr)
    return INTERRUPTED


@contextmanager
def ends_in_order() -> Iterator[None]:
    """A run that is terminated, or whose terminal goes away, ends like an interrupted one: its
    children are ended and the job is marked. What is ignored from the start (nohup) stays so."""

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    heeded = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
    before = {s: signal.signal(s, leave) for s in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class JsonProgress(MeasureCallback):
    """Every event as one JSON line on standard output."""

    def on_start(self, workload: Workload, job: JobInfo) -> None:
        _line(
            event="start",
            job_id=job.id,
            workload_key=workload.key,
            target=job.target,
            device=job.device,
            trials=job.trials,
            resumed=job.resumed,
        )

    def on_records(self, records: Sequence[Record]) -> None:
        for r in records:
            _line(
                event="record",
                kind=r.kind,
                round=r.round,
                slot=r.slot,
                status=r.status,
                seconds=r.seconds,
                error=r.error,
            )


def _line(**values: Any) -> None:
    print(json.dumps(values), flush=True)
