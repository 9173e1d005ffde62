"""A record's program as text and as files, made in a child process (`server.programs.worker`):
replaying a trace and compiling are work that would hold up every other request."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosched.errors import AutoschedError, TuningError
from autosched.tuning.best import bounded_depth, schedule_of
from autosched.tuning.report.text import program_text, source_mode
from autosched.tuning.stored import stored_task
from records import Record, Workload

if TYPE_CHECKING:
    from autosched.schedule import Schedule
    from autosched.tuning import SearchTask


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """The text of `{"form", "workload", "record"}`, or a problem: a program that cannot be made
    again, or that is not the one that was measured any more."""
    workload = Workload(**question["workload"])
    record = Record(**question["record"])
    try:
        task = stored_task(workload, record.target)
        schedule = schedule_of(task.prim_func, record)
        form = question["form"]  # of the service; "source" is no mode of the library
        if form in ("object", "header", "listing"):
            with bounded_depth(record):
                return {"text": _made(task, schedule, form, stem_of(workload.name))}
        mode = source_mode(task.target) if form == "source" else form
        return {"text": program_text(task, schedule, record, mode)}
    except AutoschedError as e:
        return {"problem": "conflict", "detail": f"record {record.id} cannot be shown: {e}"}


def stem_of(name: str) -> str:
    """A workload's name as that of a file, and of a function in C."""
    stem = re.sub(r"[^A-Za-z0-9_]", "_", name)[:64]
    return stem if stem[:1].isalpha() else f"program_{stem}"


def _made(task: SearchTask, schedule: Schedule, form: str, stem: str) -> str:
    """An object file in base64, its header, or the listing as JSON. Raises TuningError for a GPU,
    whose driver makes its code."""
    if task.target.is_gpu:
        raise TuningError(
            f"the program is for {task.target.kind}, whose driver makes its code; there are its "
            "schedule, its script and its source"
        )
    if form == "listing":
        from autosched.codegen.llvm.listing import listing

        found = listing(schedule.func, task.target)
        lines = [{"text": line.text, "source": line.source} for line in found.assembly]
        return json.dumps({"script": found.script, "assembly": lines, "linked": found.linked})
    from autosched.building.build import build

    built = build(schedule, target=task.target, compile_only=True, name=stem)
    with tempfile.TemporaryDirectory() as folder:
        files = built.export(Path(folder) / stem)
        if form == "header":
            return files.header.read_text(encoding="utf-8")
        return base64.b64encode(files.object.read_bytes()).decode()
