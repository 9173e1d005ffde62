"""Receivers of a `TaskScheduler`'s rounds."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosched.tuning.run.scheduler import TaskScheduler


class TaskSchedulerCallback:
    """Base of receivers; each method may be left as it is. What there is to see stands in
    `scheduler.states`: tasks, histories, trials, who is dead and why."""

    def pre_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        """Task number `task_id` gets the next round."""

    def post_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        """Its round is over."""


class LogEstimatedLatency(TaskSchedulerCallback):
    """Adds a line to a file after each round in which the objective is known:
    `ElapsedTime(s)	12	EstimatedLatency(ms)	3.456	Trials	128`.

    What the file has already stays. The latency is the objective's value: for the default one, the
    weighted sum of the tasks' times.
    """

    def __init__(self, log_file: str | os.PathLike[str]) -> None:
        self.path = Path(log_file)
        self._began: float | None = None

    def pre_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        """The clock starts with the first round."""
        self._began = self._began or time.perf_counter()

    def post_tune(self, scheduler: TaskScheduler, task_id: int) -> None:
        """One line. Raises OSError if it cannot be written."""
        value = scheduler.value()
        if math.isinf(value):
            return
        elapsed = time.perf_counter() - (self._began or 0.0)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(
                f"ElapsedTime(s)\t{elapsed:.0f}\tEstimatedLatency(ms)\t{value * 1e3:.3f}\t"
                f"Trials\t{scheduler.trials()}\n"
            )
