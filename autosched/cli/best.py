"""`autosched best`."""

from __future__ import annotations

import argparse
import json

from autosched.cli.common import FORMS, add_db, add_workload, make_task
from autosched.cli.show import describe, record_json
from autosched.tuning.best import best_schedule
from autosched.tuning.text import program_text
from records import NoRecord

_EPILOG = """\
examples:
  autosched best matmul_add 1024 1024 1024
  autosched best softmax 4096 1024 --as schedule > softmax_schedule.py
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    add_workload(parser)
    add_db(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--as", dest="form", choices=FORMS, help="print the program in this form")
    output.add_argument("--json", action="store_true", help="the record as one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the best record of a workload, or its program."""
    task = make_task(options)
    try:
        schedule, record = best_schedule(
            task.prim_func, options.db, task.workload_key, str(task.target)
        )
    except NoRecord as e:
        arguments = " ".join([options.workload, *options.args])
        raise NoRecord(f"{e}\nto make some: autosched tune {arguments} --db {options.db}") from e
    if options.form is not None:
        print(program_text(task, schedule, record, options.form))
    elif options.json:
        print(json.dumps(record_json(record)))
    else:
        print(describe(record, task.workload))
    return 0
