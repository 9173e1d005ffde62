"""The course of a job: its improvements, its trials as columns, its baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from autosched.tuning.report.result import BASELINES
from records import BASELINE, OK, STATUSES, Store
from records.sql.trials import TrialPoint


@dataclass(frozen=True)
class Baseline:
    """A baseline of a job; `seconds` is None if it was not timed."""

    id: int
    name: str
    status: str
    seconds: float | None


@dataclass(frozen=True)
class Improvement:
    """A trial that was faster than all before, `elapsed` seconds after the first trial."""

    trial: int
    id: int
    seconds: float
    elapsed: float


@dataclass(frozen=True)
class Course:
    """How a job went. `began`: when its first trial was measured, None before that; `elapsed`:
    seconds from there to the last."""

    began: datetime | None
    elapsed: float | None
    improvements: Sequence[Improvement]

    def points(self, trials: Sequence[TrialPoint]) -> dict[str, Any]:
        """Trials, with all improvements among them, as columns of JSON data, in order.

        `status` are indices into `statuses`.
        """
        rows = {}
        for t in trials:
            elapsed = _between(self.began or t.created_at, t.created_at)
            rows[t.record_id] = (t.trial, elapsed, STATUSES.index(t.status), t.seconds)
        ok = STATUSES.index(OK)
        rows |= {p.id: (p.trial, p.elapsed, ok, p.seconds) for p in self.improvements}
        ids = sorted(rows)
        names = ("trial", "elapsed", "status", "seconds")
        columns = zip(*(rows[i] for i in ids), strict=True) if rows else ((),) * len(names)
        points = dict(zip(names, map(list, columns), strict=True))
        return {"statuses": list(STATUSES), "points": {"id": ids, **points}}


def growth(store: Store, job_id: str, after: int, most: int) -> dict[str, Any]:
    """The trials of a job after the record `after`, as columns of JSON data, in order; `more`: that
    there were more than `most`, so that it is better to begin anew."""
    found = store.trials_after(job_id, after, most + 1)
    ends = store.trial_times(job_id)
    points = Course(ends[0] if ends else None, None, []).points(found[:most])
    return {**points, "more": len(found) > most}


def course_of(store: Store, job_id: str) -> Course:
    """The course of a job."""
    ends = store.trial_times(job_id)
    if ends is None:
        return Course(None, None, [])
    began, last = ends
    improvements = [
        Improvement(p.trial, p.record_id, p.seconds, _between(began, p.created_at))
        for p in store.curve(job_id)
    ]
    return Course(began, _between(began, last), improvements)


def _between(first: datetime, later: datetime) -> float:
    """Seconds, never negative: clocks are set."""
    return max(0.0, round((later - first).total_seconds(), 3))


def baselines_of(store: Store, job_id: str) -> list[Baseline]:
    """The baselines of a job, in order of their slots."""
    page = store.page(job_id=job_id, kind=BASELINE, limit=len(BASELINES))
    return [
        Baseline(
            r.id,
            BASELINES.get(r.slot, f"baseline {r.slot}"),
            r.status,
            r.final_seconds if r.status == OK else None,
        )
        for r in sorted(page.records, key=lambda r: r.slot)
    ]
