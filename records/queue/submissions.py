"""Taking jobs into the queue, many in one transaction: what that costs is mostly the commit.

Whoever submits holds the queue's entrance until it commits (the only writer of an SQLite file does;
in PostgreSQL it is a lock), so a key is taken once and the bounds on waiting jobs hold exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, case, func, insert, select, tuple_

from records.errors import KeyReused, QueueFull, QuotaExceeded, RecordError
from records.queue.model_tasks import Part
from records.sql import workloads
from records.sql.rows import chunks, select_values
from records.sql.schema import (
    EventRow,
    JobRow,
    JobTaskRow,
    SubmissionRow,
    TokenRow,
    database_time,
    seconds_between,
)
from records.types import (
    ENDED,
    LOCAL,
    PAUSED,
    QUEUED,
    STATE,
    Job,
    SubmissionKey,
    Workload,
    new_job_id,
    state_event,
)

_ENTRANCE = 7310580
"""The number of PostgreSQL's lock."""


class Quota(NamedTuple):
    """What all jobs of one token may come to: jobs that wait or run, trials, and seconds for which
    they were worked on; None: any."""

    jobs: int | None = None
    trials: int | None = None
    device_seconds: float | None = None


NO_QUOTA = Quota()


class Spender(NamedTuple):
    """The token towards whose quota a job counts; no token, no quota."""

    token_id: str | None
    quota: Quota = NO_QUOTA


NO_TOKEN = Spender(None)


class Usage(NamedTuple):
    """What the jobs of a token come to: those that wait or run, trials (of these as many as were
    asked for, of others as many as were done), and seconds for which they were worked on; those
    that were deleted count as they did."""

    jobs: int
    trials: int
    device_seconds: float


def usage(connection: Connection, token_id: str) -> Usage:
    """What the jobs of a token come to now."""
    row = connection.execute(_USAGE, {"token": token_id}).one()
    gone = connection.execute(_GONE, {"token": token_id}).first() or (0, 0.0)
    return Usage(row.jobs or 0, int(row.trials or 0) + gone[0], (row.seconds or 0.0) + gone[1])


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job to be queued, with its workload. A request that is repeated under the same `key` gives
    the job of the first time."""

    workload: Workload
    target: str
    seed: int | None
    trials_requested: int
    options: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    client: str = ""
    key: SubmissionKey | None = None
    name: str | None = None
    tags: Sequence[str] = ()
    spender: Spender = NO_TOKEN
    batch_id: str | None = None
    pool: str | None = None
    parts: Sequence[Part] = ()
    """What it tunes of a model, whose tasks are the jobs of the batch."""
    from_library: bool = False
    """Whether the workload's name and arguments are those of the operator library, which go before
    any other name that it is stored under."""


Answers = list[tuple[Job, bool] | RecordError]
"""What becomes of submissions: the job and whether it is new, or why it was refused."""


class Bounds(NamedTuple):
    """How many jobs may wait, of all clients and of one; None: any number."""

    waiting: int | None = None
    waiting_of_client: int | None = None


class Entrance:
    """The queue's entrance, held until the transaction ends; counts the jobs that wait."""

    def __init__(self, connection: Connection, bounds: Bounds) -> None:
        self._bounds = bounds
        self._waiting: Counter[str] = Counter()
        self._connection = connection
        self._used: dict[str, Usage] = {}
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ENTRANCE})")
        if bounds != Bounds():
            self._waiting.update({row.client: row[1] for row in connection.execute(_WAITING)})

    def check(self, client: str) -> None:
        """Raises QueueFull if no other job of `client` may wait."""
        for whose, found, most in (
            ("", self._waiting.total(), self._bounds.waiting),
            (f" of {client or 'nobody'}", self._waiting[client], self._bounds.waiting_of_client),
        ):
            if most is not None and found >= most:
                raise QueueFull(
                    f"{found} jobs{whose} wait, and at most {most} may; try again when some ran"
                )

    def check_quota(self, spender: Spender, trials: int) -> None:
        """Counts a job of so many trials towards the token's quota. Raises QuotaExceeded if that
        would be more than it may."""
        token_id, quota = spender
        if token_id is None or quota == NO_QUOTA:
            return
        found = self._used.get(token_id) or usage(self._connection, token_id)
        then = Usage(found.jobs + 1, found.trials + trials, found.device_seconds)
        for what, before, after, most in (
            ("jobs that wait or run", found.jobs, then.jobs, quota.jobs),
            ("trials", found.trials, then.trials, quota.trials),
        ):
            if most is not None and after > most:
                raise QuotaExceeded(
                    f"this token has {before} {what} of at most {most}, and this job would make it "
                    f"{after}; cancel some, or ask an admin for a token with a higher quota"
                )
        if quota.device_seconds is not None and found.device_seconds >= quota.device_seconds:
            raise QuotaExceeded(
                f"the jobs of this token have run for {found.device_seconds:.0f} of at most "
                f"{quota.device_seconds:g} device seconds; ask an admin for a token with a higher "
                "quota"
            )
        self._used[token_id] = then

    def add(self, client: str) -> None:
        """Counts a job that waits from now on."""
        self._waiting[client] += 1


def take(
    connection: Connection,
    submissions: Sequence[Submission],
    bounds: Bounds,
    stored: dict[str, Workload],
) -> Answers:
    """For each submission its job, as it is now, and whether it is new; or why it was refused.

    `stored` has workloads that are in the database, by key; those that are not yet are stored and
    entered. Any other error is the transaction's: then nothing was taken, nor is `stored` true.
    """
    admission = _Admission(connection, submissions, bounds, stored)
    answers: dict[int, tuple[str, bool] | RecordError] = {}
    # By their keys: who else stores workloads now must not wait for this in a circle.
    for number in sorted(range(len(submissions)), key=lambda n: submissions[n].workload.key):
        try:
            answers[number] = admission.take(submissions[number])
        except RecordError as e:
            answers[number] = e
    admission.store()
    jobs = _jobs(connection, {found[0] for found in answers.values() if isinstance(found, tuple)})
    return [
        found if isinstance(found, RecordError) else (jobs[found[0]], found[1])
        for _, found in sorted(answers.items())
    ]


class _Admission:
    """What becomes of some submissions: their rows are collected, and stored together."""

    def __init__(
        self,
        connection: Connection,
        submissions: Sequence[Submission],
        bounds: Bounds,
        stored: dict[str, Workload],
    ) -> None:
        self._connection, self._stored = connection, stored
        self._entrance = Entrance(connection, bounds)
        self._known = _known(connection, [s.key[:2] for s in submissions if s.key is not None])
        self._made: dict[str, Submission] = {}

    def take(self, submission: Submission) -> tuple[str, bool]:
        """The id of its job, and whether it is new. Raises KeyReused, QueueFull, or RecordError for
        a workload that contradicts the stored one."""
        key = submission.key
        if key is not None and (known := self._known.get(key[:2])) is not None:
            return _same(key, known), False
        self._entrance.check(submission.client)
        self._entrance.check_quota(submission.spender, submission.trials_requested)
        workload = submission.workload
        if self._stored.get(workload.key) != workload:
            workloads.put(
                self._connection, workload, examined=True, library=submission.from_library
            )
            self._stored[workload.key] = workload
        self._entrance.add(submission.client)
        job_id = new_job_id()
        self._made[job_id] = submission
        if key is not None:
            self._known[key[:2]] = job_id, key.digest
        return job_id, True

    def store(self) -> None:
        """Insert the rows of the new jobs, of their keys, and the events that tell of them."""
        if not self._made:
            return
        rows = {job_id: _row(job_id, submission) for job_id, submission in self._made.items()}
        keys = [
            {**s.key._asdict(), "job_id": job_id}
            for job_id, s in self._made.items()
            if s.key is not None
        ]
        events = [
            {"job_id": row["id"], "data": state_event("submitted", row)} for row in rows.values()
        ]
        parts = [
            {"job_id": job_id, **part._asdict()}
            for job_id, s in self._made.items()
            for part in s.parts
        ]
        self._connection.execute(_INSERT_JOB, list(rows.values()))
        if parts:
            self._connection.execute(insert(JobTaskRow), parts)
        if keys:
            self._connection.execute(_INSERT_KEY, keys)
        self._connection.execute(_INSERT_EVENT, events)


def _row(job_id: str, submission: Submission) -> dict[str, Any]:
    return {
        "id": job_id,
        "workload_key": submission.workload.key,
        "target": submission.target,
        "device": None,
        "seed": submission.seed,
        "options": dict(submission.options),
        "state": QUEUED,
        "trials_requested": submission.trials_requested,
        "trials_done": 0,
        "best_seconds": None,
        "error": None,
        "origin": LOCAL,
        "priority": submission.priority,
        "client": submission.client,
        "name": submission.name,
        "tags": tuple(submission.tags),
        "token_id": submission.spender.token_id,
        "batch_id": submission.batch_id,
        "pool": submission.pool,
    }


def _same(key: SubmissionKey, known: tuple[str, str]) -> str:
    """The job that was submitted under the key. Raises KeyReused if by another request."""
    job_id, digest = known
    if digest != key.digest:
        raise KeyReused(
            f"the key {key.key!r} was used before, for another request (job {job_id}); "
            "use a new key for each request"
        )
    return job_id


def taken(connection: Connection, key: SubmissionKey) -> str | None:
    """The job that was submitted under the key before; None if none was. Raises KeyReused."""
    known = _known(connection, [key[:2]]).get(key[:2])
    return None if known is None else _same(key, known)


def _known(
    connection: Connection, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """(client, key) -> (id of the job, digest of the request) of those that were taken before."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for chunk in chunks(sorted(set(names))):
        for row in connection.execute(_KEYS, {"names": chunk}):
            found[row.client, row.key] = row.job_id, row.digest
    return found


def _jobs(connection: Connection, ids: set[str]) -> dict[str, Job]:
    found: dict[str, Job] = {}
    for chunk in chunks(sorted(ids)):
        for row in connection.execute(_JOBS, {"ids": chunk}):
            found[row.id] = Job(**row._mapping)
    return found


_WAITING = (
    select(JobRow.client, func.count())
    .where(JobRow.state == QUEUED, JobRow.origin == LOCAL)
    .group_by(JobRow.client)
)
_USAGE = select(
    func.sum(case((JobRow.state.in_((*ENDED, PAUSED)), 0), else_=1)).label("jobs"),
    func.sum(
        case((JobRow.state.in_(ENDED), JobRow.trials_done), else_=JobRow.trials_requested)
    ).label("trials"),
    func.sum(
        JobRow.run_seconds
        + case(
            (
                JobRow.lease_owner.is_not(None),
                func.coalesce(seconds_between(JobRow.claimed_at, database_time()), 0.0)
                * JobRow.device_part,
            ),
            else_=0.0,
        )
    ).label("seconds"),
).where(JobRow.token_id == bindparam("token"))
_GONE = select(TokenRow.spent_trials, TokenRow.spent_seconds).where(
    TokenRow.id == bindparam("token")
)
"""In jobs that were deleted."""
_KEYS = select(
    SubmissionRow.client, SubmissionRow.key, SubmissionRow.job_id, SubmissionRow.digest
).where(tuple_(SubmissionRow.client, SubmissionRow.key).in_(bindparam("names", expanding=True)))
_JOBS = select_values(Job).where(JobRow.id.in_(bindparam("ids", expanding=True)))
_INSERT_JOB = insert(JobRow).values(created_at=database_time(), updated_at=database_time())
_INSERT_KEY = insert(SubmissionRow).values(created_at=database_time())
_INSERT_EVENT = insert(EventRow).values(kind=STATE, created_at=database_time())
