"""Jobs as rows: made, submitted once, listed and counted, and what their records change in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection, Integer, Select, and_, bindparam, case, func, or_, select, update
from sqlalchemy.orm import aliased

from records.errors import NoRecord, RecordError
from records.rows import insert_new, select_values
from records.schema import JobRow, RecordRow, database_time
from records.types import (
    JOB_STATES,
    LOCAL,
    OK,
    TRIAL,
    Job,
    JobChanges,
    JobPage,
    Record,
    storable_text,
)


def check_state(state: str) -> None:
    """Raises RecordError for what is no state of a job."""
    if state not in JOB_STATES:
        raise RecordError(f"job state {state!r}: expected one of {', '.join(JOB_STATES)}")


def job_of(connection: Connection, job_id: str, *, lock: bool = False) -> Job:
    """The job of that id; with `lock` nobody else changes it until the transaction ends.

    Raises NoRecord if there is none.
    """
    row = connection.execute(_LOCKED if lock else _BY_ID, {"job_id": job_id}).first()
    if row is None:
        raise NoRecord(f"no job {job_id} in this store")
    return Job(**row._mapping)


_BY_ID = select_values(Job).where(JobRow.id == bindparam("job_id"))
# Of a kind that leaves those alone who insert rows that name the job.
_LOCKED = _BY_ID.with_for_update(key_share=True)


def create(connection: Connection, **values: Any) -> Job:
    """A new job with these columns; if there is one of that id already, nothing changes and it is
    returned."""
    check_state(values["state"])
    row = values | {
        "trials_done": 0,
        "error": None,
        "created_at": database_time(),
        "updated_at": database_time(),
    }
    connection.execute(insert_new(connection, JobRow, ["id"]).values(row))
    return job_of(connection, values["id"])


def change(connection: Connection, job_id: str, changes: JobChanges) -> Job:
    """The job with new values. Raises NoRecord, and RecordError for what is no state."""
    if "state" in changes:
        check_state(changes["state"])
    values: dict[str, Any] = {**changes, "updated_at": database_time()}
    if (error := changes.get("error")) is not None:
        values["error"] = storable_text(error)
    connection.execute(update(JobRow).where(JobRow.id == job_id).values(values))
    return job_of(connection, job_id)


def newest(
    connection: Connection, workload_key: str, target: str, seed: int, device: str | None
) -> Job | None:
    """The newest job made here of that workload, target and seed, and of `device` if given."""
    query = (
        select_values(Job)
        .where(JobRow.workload_key == workload_key, JobRow.target == target)
        .where(JobRow.seed == seed, JobRow.origin == LOCAL)
        .order_by(JobRow.created_at.desc(), JobRow.id.desc())
        .limit(1)
    )
    if device is not None:
        query = query.where(JobRow.device == device)
    row = connection.execute(query).first()
    return None if row is None else Job(**row._mapping)


def page(
    connection: Connection, *, limit: int, before: str | None, **wanted: str | None
) -> JobPage:
    """The newest jobs with the columns that are `wanted`, those made before the job `before`."""
    given = {name: value for name, value in wanted.items() if value is not None}
    asked: dict[str, Any] = {**given, "most": limit + 1}
    if before is not None:
        asked["before"] = before
    query = _newest(tuple(sorted(given)), following=before is not None)
    jobs = [Job(**row._mapping) for row in connection.execute(query, asked).all()]
    return JobPage(jobs[:limit], jobs[limit - 1].id if len(jobs) > limit else None)


@cache
def _newest(names: tuple[str, ...], *, following: bool) -> Select[Any]:
    """Selects jobs by the columns of those names. Made once: that takes longer than the answer."""
    query = select_values(Job).where(*(getattr(JobRow, name) == bindparam(name) for name in names))
    if following:
        other = aliased(JobRow)
        made = select(other.created_at).where(other.id == bindparam("before")).scalar_subquery()
        query = query.where(
            JobRow.created_at <= made,  # where the index is entered
            or_(
                JobRow.created_at < made,
                and_(JobRow.created_at == made, JobRow.id < bindparam("before")),
            ),
        )
    newest = query.order_by(JobRow.created_at.desc(), JobRow.id.desc())
    return newest.limit(bindparam("most", type_=Integer))


def counts(connection: Connection, client: str | None) -> Counter[str]:
    """How many jobs there are in each state, of all clients or of one."""
    query = select(JobRow.state, func.count()).group_by(JobRow.state)
    if client is not None:
        query = query.where(JobRow.client == client)
    return Counter({row.state: row[1] for row in connection.execute(query)})


def count_trials(connection: Connection, records: Iterable[Record]) -> None:
    """New records are entered in their jobs: how many trials, and the least time of them."""
    trials: Counter[str] = Counter()
    best: dict[str, float] = {}
    for record in records:
        if record.kind != TRIAL:
            continue
        trials[record.job_id] += 1
        if record.status == OK and record.seconds is not None:
            best[record.job_id] = min(record.seconds, best.get(record.job_id, record.seconds))
    for job_id, count in sorted(trials.items()):
        values: dict[str, Any] = {
            "trials_done": JobRow.trials_done + count,
            "updated_at": database_time(),
        }
        if (seconds := best.get(job_id)) is not None:
            better = or_(JobRow.best_seconds.is_(None), JobRow.best_seconds > seconds)
            values["best_seconds"] = case((better, seconds), else_=JobRow.best_seconds)
        connection.execute(update(JobRow).where(JobRow.id == job_id).values(values))


def best_seconds(connection: Connection, job_id: str) -> float | None:
    """The least time of a job's ok trials, found by looking at all of them."""
    query = select(func.min(RecordRow.seconds)).where(
        RecordRow.job_id == job_id, RecordRow.kind == TRIAL, RecordRow.status == OK
    )
    found: float | None = connection.execute(query).scalar()
    return found
