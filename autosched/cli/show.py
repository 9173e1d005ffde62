"""`autosched show`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autosched.cli.common import FORMS, filled, task_of
from autosched.cli.model import add_model_options, is_model, refuse_model_options
from autosched.cli.service import add_source, open_source
from autosched.cli.show_model import MODEL_FORMS, show_model
from autosched.errors import AutoschedError, WorkloadError
from autosched.tuning.best import schedule_of
from autosched.tuning.report.progress import format_seconds
from autosched.tuning.report.text import program_text
from autosched.tuning.stored import stored_task, title_of
from records import Record, Workload
from records.types import quoted_text

if TYPE_CHECKING:
    from autosched.tuning import SearchTask

_EPILOG = """\
examples:
  autosched show 12
  autosched show 12 --as asm
  autosched show 12 --server http://tuner:8000 --as schedule
  autosched show 3 --db tuning.db --as schedule --workload my_ops.py:attention
  autosched show resnet50.onnx --as groups
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "id",
        metavar="ID|MODEL.onnx",
        type=_subject,
        help="a record's id (in a log: the number of its line), or a model",
    )
    add_source(parser)
    add_model_options(parser, db=False)
    parser.add_argument("--target", default="llvm", help="what a model is compiled for")
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--as",
        dest="form",
        choices=(*FORMS, *MODEL_FORMS),
        help="print the program in this form; a model as graph, groups, tasks, plan or script",
    )
    output.add_argument("--json", action="store_true", help="the record as one JSON object")
    parser.add_argument(
        "--workload",
        type=filled,
        metavar="FILE.PY:FUNCTION",
        help="where the workload's function is, if the store has no text of the workload",
    )


def run(options: argparse.Namespace) -> int:
    """Print one record, or its program; or a model."""
    forms = (*MODEL_FORMS, "script") if isinstance(options.id, str) else FORMS
    if options.form is not None and options.form not in forms:
        raise WorkloadError(f"--as {options.form}: expected one of {', '.join(forms)} here")
    if isinstance(options.id, str):
        if options.json or options.workload is not None:
            raise WorkloadError("--json and --workload are of a record; a model has --as")
        print(show_model(options.id, options.form or "graph", options))
        return 0
    refuse_model_options(options, f"record {options.id}")
    with open_source(options) as source:
        record = source.get(options.id)
        workload = source.workload(record.workload_key)
    if options.form is not None:
        task = _task(record, workload, options.workload)
        print(program_text(task, schedule_of(task.prim_func, record), record, options.form))
    elif options.json:
        print(json.dumps(record_json(record)))
    else:
        print(describe(record, workload))
    return 0


def _subject(text: str) -> int | str:
    """An argparse type: a record's number, or a model's path."""
    if is_model(text):
        return text
    try:
        return int(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(
            f"expected a record's number, or a model MODEL.onnx, found {text!r}"
        ) from e


def _task(record: Record, workload: Workload, function: str | None) -> SearchTask:
    """The task that a record is of: of the stored text, or of the `function` that the user names
    (for what an older version stored, and for programs whose reads nobody can prove in bounds)."""
    if function is None:
        try:
            return stored_task(workload, record.target)
        except AutoschedError as e:
            raise WorkloadError(
                f"{e}\nrecord {record.id} is of {title_of(workload)}: say where that function is "
                "by --workload file.py:function"
            ) from e
    task = task_of(function, list(workload.args or ()), record.target)
    if task.workload_key != record.workload_key:
        raise WorkloadError(
            f"record {record.id} is of workload {record.workload_key}, recorded as "
            f"{title_of(workload)}; {task.title} is now workload {task.workload_key}"
        )
    return task


def record_json(record: Record) -> dict[str, Any]:
    """The record as JSON data."""
    return {**asdict(record), "created_at": record.created_at.isoformat()}


def describe(record: Record, workload: Workload) -> str:
    """The record in a few lines."""
    seconds = record.final_seconds
    time = "none"
    if seconds is not None:
        time = f"{format_seconds(seconds)} a call, {workload.flop / seconds / 1e9:.4g} GFLOP/s"
        if record.remeasured_seconds is not None and record.seconds is not None:
            time += f" (measured again; in its trial {format_seconds(record.seconds)})"
    place = "baseline" if record.round < 0 else f"trial, round {record.round}, slot {record.slot}"
    rows = [
        f"record     {record.id}: {place}, of job {record.job_id}",
        f"workload   {title_of(workload)}, key {record.workload_key}",
        f"status     {record.status}",
        f"time       {time}",
        f"target     {record.target}",
        f"device     {record.device}",
        f"measured   {record.created_at:%Y-%m-%d %H:%M:%S} UTC",
        f"decisions  {', '.join(f'{k}={v}' for k, v in record.decisions.items()) or 'none'}",
    ]
    if record.error:
        rows.append(f"error      {record.error}")
    return "\n".join(map(quoted_text, rows))
