"""What the records of a job come to, remembered for a moment.

A page of a job is followed at once by its plot, and both by the next refresh: a job of 100,000
trials is read once for them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request

from records import Store
from records.sql.trials import Tallied
from server.web.course import Course, course_of

KEPT_SECONDS = 10.0
"""How long it is kept while the job does not change; a record may be withdrawn meanwhile."""
KEPT_JOBS = 32


@dataclass(frozen=True)
class JobSummary:
    """The job's trials by status with its best record, and its course."""

    tallied: Tallied
    course: Course


@dataclass
class Summaries:
    """Those of the jobs that were looked at last, by the job as it was then."""

    _kept: OrderedDict[tuple[str, datetime, int], tuple[float, JobSummary]] = field(
        default_factory=OrderedDict
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, store: Store, job_id: str) -> JobSummary:
        """That of a job. Raises NoRecord if there is none."""
        job = store.job(job_id)
        name = (job.id, job.updated_at, job.trials_done)
        with self._lock:
            until, found = self._kept.get(name, (0.0, None))
        if found is not None and time.monotonic() < until:
            return found
        made = JobSummary(store.tallied(job_id), course_of(store, job_id))
        with self._lock:
            self._kept[name] = time.monotonic() + KEPT_SECONDS, made
            if len(self._kept) > KEPT_JOBS:
                self._kept.popitem(last=False)
        return made


def _summaries(request: Request) -> Summaries:
    found: Summaries = request.app.state.summaries
    return found


SummariesOf = Annotated[Summaries, Depends(_summaries)]
"""A parameter of a route."""
