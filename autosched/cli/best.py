"""`autosched best`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import TYPE_CHECKING

from autosched.cli.common import FORMS, add_workload, filled, make_task
from autosched.cli.service import add_source, open_source
from autosched.cli.show import describe, record_json
from autosched.tuning.best import best_compatible, best_schedule
from autosched.tuning.report.text import program_text
from autosched.tuning.stored import title_of
from records import NoRecord

if TYPE_CHECKING:
    from autosched.schedule import Schedule
    from autosched.tuning import SearchTask
    from records import Record, RecordSource

_EPILOG = """\
examples:
  autosched best matmul_add 1024 1024 1024
  autosched best softmax 4096 1024 --as schedule > softmax_schedule.py
  autosched best matmul_add 1024 1024 1024 --server http://tuner:8000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    add_workload(parser)
    add_source(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--device",
        type=filled,
        metavar="FINGERPRINT",
        help="of this device, where there are records of several",
    )
    where.add_argument(
        "--compatible",
        action="store_true",
        help="where there is none of the target, take one of another target whose code runs on it",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--as", dest="form", choices=FORMS, help="print the program in this form")
    output.add_argument("--json", action="store_true", help="the record as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the best record of a workload, or its program."""
    task = make_task(options)
    try:
        schedule, record = _find(task, options)
    except NoRecord as e:
        raise NoRecord(f"{e}\nto make some: autosched {_making(options)}") from e
    if record.target != str(task.target):
        print(
            f"autosched best: no record of target {task.target}; this is one of target "
            f"{record.target}, whose code runs here. It was the best on device {record.device}, "
            "and its time is that device's",
            file=sys.stderr,
        )
    if options.form is not None:
        print(program_text(task, schedule, record, options.form))
    elif options.json:
        print(json.dumps(record_json(record)))
    else:
        print(describe(record, task.workload))
    return 0


def _making(options: argparse.Namespace) -> str:
    """The command that makes records where they were looked for."""
    arguments = shlex.join([options.workload, *options.args])
    if options.server is not None:
        return f"jobs submit {arguments} --server {shlex.quote(options.server)}"
    layout = options.layout_rewrite
    more = "" if layout is None else f" --layout-rewrite {layout}"
    return f"tune {arguments}{more} --db {shlex.quote(options.db)}"


def _find(task: SearchTask, options: argparse.Namespace) -> tuple[Schedule, Record]:
    func, key, target = task.prim_func, task.workload_key, task.target
    with open_source(options) as source:
        if options.compatible:
            return best_compatible(func, source, key, target)
        try:
            return best_schedule(func, source, key, str(target), options.device)
        except NoRecord as e:
            if options.server is None and (others := _of_that_title(task, source)):
                raise NoRecord(f"{e}\n{others}") from e
            raise


def _of_that_title(task: SearchTask, source: RecordSource) -> str:
    """What to know of records of the same function and arguments that have another key."""
    if source.devices(task.workload_key):
        return ""
    keys = [w.key for w in source.workloads() if title_of(w) == task.title]
    recorded = [key for key in keys if source.devices(key)]
    if not recorded:
        return ""
    return (
        f"there are records of {task.title} under another key, {', '.join(recorded)}: of another "
        "--layout-rewrite, or of the program as an older version made it, for which tune anew "
        "(`autosched records export - --workload-key KEY` shows them)"
    )
