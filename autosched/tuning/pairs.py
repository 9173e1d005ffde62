"""Records as TVM's auto_scheduler hands them out: pairs of what was measured and what it gave."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Union

from autosched.checks import instance
from autosched.errors import TargetError, TuningError
from autosched.integers import integer
from autosched.schedule import Trace
from autosched.target import Target
from autosched.tuning.best import RecordsLike, opened, schedule_of, target_text
from autosched.tuning.best import load_best_record as best_record
from autosched.tuning.task import SearchTask, task_of_key
from records import STALE, JsonlWriter, NoRecord, Record

ERRORS = {
    "ok": 0,
    "instantiation_error": 1,
    "build_error": 2,
    "runtime_error": 4,
    "out_of_bounds": 4,
    "out_of_memory": 4,
    "device_lost": 4,
    "wrong_result": 5,
    "build_timeout": 6,
    "run_timeout": 7,
    "cancelled": 8,
    STALE: 8,
}
"""The predecessor's `MeasureErrorNo` by status; 8 is that of an unknown error."""
NO_TIME = 1e10
"""Seconds that it gives to what has none."""


@dataclass(frozen=True)
class RecordedTask:
    """What a record says of its task, where none with its key was made in this process or this
    version does not know its target."""

    workload_key: str
    target: str


@dataclass(frozen=True)
class MeasureInput:
    """What was measured: a program of a task."""

    record: Record
    """All that is stored of it."""

    @property
    def task(self) -> SearchTask | RecordedTask:
        """The workload as a task of it was made in this process, on the target that the record
        names; else key and target alone."""
        key, target = self.record.workload_key, self.record.target
        try:
            found = task_of_key(key, target)
        except TargetError:
            found = None  # of a kind, or an instruction set, that this version does not know
        return found or RecordedTask(key, target)

    @property
    def state(self) -> Trace:
        """The steps of the schedule. Raises TuningError where the task was not made here,
        or the record is stale."""
        task = task_of_key(self.record.workload_key)
        if task is None:
            raise TuningError(
                f"no task with the workload key {self.record.workload_key!r} was made in this "
                "process, and a stored schedule addresses its program; make the SearchTask first"
            )
        return schedule_of(task.prim_func, self.record).trace


@dataclass(frozen=True)
class MeasureResult:
    """What measuring gave. `costs`: seconds, 1e10 where there are none; `error_no`: 0 for ok;
    `all_cost`: seconds of the build; `timestamp`: seconds since 1970."""

    costs: tuple[float, ...]
    error_no: int
    error_msg: str
    all_cost: float
    timestamp: float


Pair = tuple[MeasureInput, MeasureResult]


def pair_of(record: Record) -> Pair:
    """A record as the two that it is there."""
    seconds = record.remeasured_seconds or record.seconds
    valid = record.status == "ok" and seconds is not None
    result = MeasureResult(
        (float(seconds),) if valid and seconds is not None else (NO_TIME,),
        ERRORS[record.status],
        record.error or "",
        record.build_seconds or 0.0,
        record.created_at.timestamp(),
    )
    return MeasureInput(record), result


def load_records(filename: RecordsLike) -> list[Pair]:
    """All records of a log, a SQLite file or a database URL, baselines too, each as (input,
    result). Raises RecordError."""
    return list(RecordReader(filename))


class RecordReader:
    """The records of a log, a SQLite file or a database URL, each as (input, result):
    `for inp, res in reader`. A log is read whole before its first pair is given, a database page
    by page."""

    def __init__(self, filename: RecordsLike) -> None:
        self.filename = filename

    def __iter__(self) -> Iterator[Pair]:
        with opened(self.filename) as source:
            yield from map(pair_of, source.records())

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Inputs and results of `max_lines` records, or all, after the first `skip_lines`."""
        first = integer("skip_lines", skip_lines, 0, TuningError)
        found = load_records(self.filename)[first:]
        if max_lines is not None:
            found = found[: integer("max_lines", max_lines, 0, TuningError)]
        return [i for i, _ in found], [r for _, r in found]


def load_best_record(
    filename: RecordsLike,
    workload_key: str | None = None,
    target: Target | str | None = None,
    include_compatible: bool = False,
) -> Pair | tuple[None, None]:
    """The best valid record of a workload, or of all that `filename` holds; (None, None) where
    there is none. `include_compatible` is accepted and ignored: the time of a record is that of
    its own target, and is not compared with those of others."""
    instance("include_compatible", include_compatible, bool, "True or False", TuningError)
    key, on = workload_key, target_text(target)
    valid = [
        p
        for p in load_records(filename)
        if p[1].error_no == 0
        and (key is None or p[0].record.workload_key == key)
        and (on is None or p[0].record.target == on)
    ]
    if not valid:
        return None, None
    least, measured = min(valid, key=lambda p: p[1].costs)
    record = least.record
    try:
        best = best_record(filename, record.workload_key, record.target, record.device)
    except NoRecord:
        return least, measured  # all are imported, and none was measured again here
    return pair_of(best)


Saved = Union[MeasureInput, Record, Pair]


def save_records(
    filename: str | os.PathLike[str],
    inputs: Iterable[Saved],
    results: Sequence[MeasureResult] | None = None,
) -> None:
    """Appends records to a log, those of tasks made in this process with their workloads.

    `inputs`: what `load_records` gives, or its inputs, whose `results` say nothing more. Raises
    RecordError if it cannot be written, TuningError for what are no inputs.
    """
    found = [_record(x) for x in inputs]
    if results is not None and len(results) != len(found):
        raise TuningError(f"{len(found)} inputs and {len(results)} results; expected one of each")
    writer = JsonlWriter(filename)
    for key in dict.fromkeys(r.workload_key for r in found):
        task = task_of_key(key)
        if task is not None:
            writer.write_workload(task.workload)
    writer.write_records(found)


def _record(value: Saved) -> Record:
    first = value[0] if isinstance(value, tuple) and value else value
    found = first.record if isinstance(first, MeasureInput) else first
    instance("an item of inputs", found, Record, "a MeasureInput or a record", TuningError)
    assert isinstance(found, Record)
    return found
