"""Tuning: where the core, measuring, the cost model and the records are wired together."""

from __future__ import annotations

from autosched.tuning.best import load_best_record
from autosched.tuning.callbacks import MeasureCallback, RecordToFile, RecordToStore
from autosched.tuning.options import TuningOptions
from autosched.tuning.report.result import TuningResult
from autosched.tuning.run.scheduler import SchedulerResult, TaskScheduler
from autosched.tuning.run.scheduler_callbacks import LogEstimatedLatency, TaskSchedulerCallback
from autosched.tuning.task import SearchTask
from records import RecordReader

__all__ = [
    "LogEstimatedLatency",
    "MeasureCallback",
    "RecordReader",
    "RecordToFile",
    "RecordToStore",
    "SchedulerResult",
    "SearchTask",
    "TaskScheduler",
    "TaskSchedulerCallback",
    "TuningOptions",
    "TuningResult",
    "load_best_record",
]
