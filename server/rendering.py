"""A record's program as text, made in a child process (`server.examine`): replaying a trace and
compiling are work that would hold up every other request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosched.errors import AutoschedError
from autosched.tuning.best import schedule_of
from autosched.tuning.stored import stored_task
from autosched.tuning.text import program_text, source_mode
from records import Record, Workload


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """The text of `{"form", "workload", "record"}`, or a problem: a program that cannot be made
    again, or that is not the one that was measured any more."""
    workload = Workload(**question["workload"])
    record = Record(**question["record"])
    try:
        task = stored_task(workload, record.target)
        schedule = schedule_of(task.prim_func, record)
        form = question["form"]  # of the service; "source" is no mode of the library
        mode = source_mode(task.target) if form == "source" else form
        return {"text": program_text(task, schedule, record, mode)}
    except AutoschedError as e:
        return {"problem": "conflict", "detail": f"record {record.id} cannot be shown: {e}"}
