"""Following a model's tasks on a service on a terminal."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from autosched.cli.status import FAILED
from autosched.cli.text import plain
from autosched.tuning.report.progress import format_seconds
from autosched.tuning.report.table import as_text

if TYPE_CHECKING:
    from server.client import Client
    from server.schemas import JobTask, JobTasks

SECONDS = 1.0
"""Between two looks."""
ENDED = ("succeeded", "failed", "cancelled")
HEADINGS = ("kernel", "weight", "share", "in a run", "best", "gain", "trials", "")


def watch_model(client: Client, job_id: str, as_json: bool) -> int:
    """Show the model's time as it falls, until all of its tasks have ended; 0 if all have
    succeeded. With `as_json` every change is a line on standard output, the last one has the tasks.
    """
    shown = ""
    while True:
        tasks = client.tasks(job_id)
        line = _event(tasks) if as_json else _line(tasks)
        if line != shown:
            print(line, file=sys.stdout if as_json else sys.stderr, flush=True)
            shown = line
        if all(t.state in ENDED for t in tasks.tasks):
            break
        time.sleep(SECONDS)  # until the tasks are asked for again
    if as_json:
        print(json.dumps({"event": "result", **tasks.model_dump(mode="json")}), flush=True)
    else:
        print(described(tasks))
    return 0 if all(t.state == "succeeded" for t in tasks.tasks) else FAILED


def _event(tasks: JobTasks) -> str:
    model = None if tasks.model is None else tasks.model.model_dump(mode="json")
    counts = {"trials_done": tasks.trials_done, "trials_requested": tasks.trials_requested}
    return json.dumps({"event": "progress", **counts, "model": model})


def _line(tasks: JobTasks) -> str:
    text = f"{tasks.trials_done}/{tasks.trials_requested} trials"
    if (model := tasks.model) is not None:
        now, before = format_seconds(model.estimated_seconds), format_seconds(model.untuned_seconds)
        text += f", kernels {now} of {before} untuned: {model.gain:.3g} x"
    return text


def described(tasks: JobTasks) -> str:
    """The table of tasks, and the model's times."""
    rows = as_text(HEADINGS, map(_row, tasks.tasks))
    errors = [f"{t.title}: {t.error}" for t in tasks.tasks if t.error]
    return plain("\n".join([rows, "", *errors, _line(tasks)]))


def _row(task: JobTask) -> tuple[str, ...]:
    return (
        task.title,
        f"{task.weight:g}",
        "-" if task.share is None else f"{task.share:.1%}",
        "-" if task.seconds is None else format_seconds(task.seconds),
        "-" if task.best_seconds is None else format_seconds(task.best_seconds),
        "-" if task.gain is None else f"{task.gain:.2f}",
        f"{task.trials_done}/{task.trials_requested}",
        task.state if task.taken else f"{task.state}, another way is faster",
    )
