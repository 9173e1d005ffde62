"""Jobs as rows: made, submitted once, listed and counted, and what their records change in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Integer,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
    update,
)
from sqlalchemy import delete as sql_delete
from sqlalchemy.orm import aliased

from records.errors import NoRecord, RecordError
from records.ranking import Candidate, Standing, pick, standing_of
from records.sql.lookup import REACH
from records.sql.rows import chunks, insert_new, select_values
from records.sql.schema import (
    DeliveryRow,
    EventRow,
    JobRow,
    JobTaskRow,
    MeasurementRow,
    Moment,
    RecordRow,
    SubmissionRow,
    TokenRow,
    WorkloadRow,
    database_time,
)
from records.types import (
    BASELINE,
    BASELINE_ROUND,
    ENDED,
    JOB_STATES,
    LOCAL,
    OK,
    TRIAL,
    Job,
    JobChanges,
    JobPage,
    Record,
    error_text,
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


def id_of(connection: Connection, text: str) -> str:
    """The id of the only job whose id is `text`, or begins with it (`SHORTEST_ID` characters or
    more).

    Raises NoRecord if there is none, and RecordError if there are several.
    """
    pattern = f"{text}%" if len(text) >= SHORTEST_ID else text
    for sign in "_":
        pattern = pattern.replace(sign, f"\\{sign}")
    query = select(JobRow.id).where(or_(JobRow.id == text, JobRow.id.like(pattern, escape="\\")))
    found = connection.scalars(query.order_by(JobRow.id).limit(3)).all()
    if text in found or len(found) == 1:
        return text if text in found else found[0]
    if not found:
        raise NoRecord(f"no job {text} in this store")
    raise RecordError(f"{text} is the beginning of several jobs' ids; give more of it")


SHORTEST_ID = 4
"""Characters of an id that tell of the rest."""


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
    for name in ("error", "notice"):
        if (text := values.get(name)) is not None:
            values[name] = error_text(text)
    if "state" in changes:
        values["ended_at"] = database_time() if changes["state"] in ENDED else None
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


def page(connection: Connection, *, limit: int, before: str | None, **wanted: Any) -> JobPage:
    """The newest jobs that `wanted` selects (`_SELECTS`), those made before the job `before`."""
    for name in ("name", "tag"):
        if (text := wanted.get(name)) is not None:
            wanted[name] = f"%{_literal(text if name == 'name' else f',{text},')}%"
    given = {name: value for name, value in wanted.items() if value is not None}
    asked: dict[str, Any] = {**given, "most": limit + 1}
    if before is not None:
        asked["before"] = before
    query = _newest(tuple(sorted(given)), following=before is not None)
    jobs = [Job(**row._mapping) for row in connection.execute(query, asked).all()]
    return JobPage(jobs[:limit], jobs[limit - 1].id if len(jobs) > limit else None)


def _literal(text: str) -> str:
    """`text` as part of a LIKE pattern that means just that."""
    for sign in "\\%_":
        text = text.replace(sign, f"\\{sign}")
    return text


_OF_NAME = select(WorkloadRow.key).where(WorkloadRow.name.ilike(bindparam("name"), escape="\\"))
_SELECTS: dict[str, ColumnElement[bool]] = {
    "state": JobRow.state == bindparam("state"),
    "client": JobRow.client == bindparam("client"),
    "workload_key": JobRow.workload_key == bindparam("workload_key"),
    "batch_id": JobRow.batch_id == bindparam("batch_id"),
    "device": JobRow.device == bindparam("device"),
    # Part of the job's name or of its workload's.
    "name": or_(
        JobRow.name.ilike(bindparam("name"), escape="\\"), JobRow.workload_key.in_(_OF_NAME)
    ),
    "tag": cast(JobRow.tags, Text).like(bindparam("tag"), escape="\\"),
    "created_after": JobRow.created_at >= bindparam("created_after", type_=Moment()),
    "created_before": JobRow.created_at < bindparam("created_before", type_=Moment()),
}
"""What a page of jobs can be selected by."""


@cache
def _newest(names: tuple[str, ...], *, following: bool) -> Select[Any]:
    """Selects jobs by the columns of those names. Made once: that takes longer than the answer."""
    query = select_values(Job).where(*(_SELECTS[name] for name in names))
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


def delete(connection: Connection, job_id: str) -> None:
    """Removes a job that has ended, with its records, their timings, and its events; its token goes
    on counting what it has spent. Raises NoRecord, and RecordError for a job that may still be
    worked on."""
    job = job_of(connection, job_id, lock=True)
    if job.state not in ENDED:
        raise RecordError(
            f"job {job_id} is {job.state}: only jobs that have ended are deleted; cancel it first"
        )
    spent = {
        "spent_trials": TokenRow.spent_trials + job.trials_done,
        "spent_seconds": TokenRow.spent_seconds + job.run_seconds,
    }
    connection.execute(update(TokenRow).where(TokenRow.id == job.token_id).values(spent))
    records = select(RecordRow.id).where(RecordRow.job_id == job_id)
    connection.execute(sql_delete(MeasurementRow).where(MeasurementRow.record_id.in_(records)))
    for row in (RecordRow, EventRow, SubmissionRow, DeliveryRow, JobTaskRow):
        connection.execute(sql_delete(row).where(row.job_id == job_id))
    connection.execute(sql_delete(JobRow).where(JobRow.id == job_id))


def counts(connection: Connection, client: str | None) -> Counter[str]:
    """How many jobs there are in each state, of all clients or of one."""
    query = select(JobRow.state, func.count()).group_by(JobRow.state)
    if client is not None:
        query = query.where(JobRow.client == client)
    return Counter({row.state: row[1] for row in connection.execute(query)})


def local_of(connection: Connection, job_ids: Collection[str]) -> set[str]:
    """Those of the jobs that were made here."""
    return {
        job_id
        for chunk in chunks(sorted(job_ids))
        for job_id in connection.scalars(
            select(JobRow.id).where(JobRow.id.in_(chunk), JobRow.origin == LOCAL)
        )
    }


def counting() -> ColumnElement[bool]:
    """Selects, of records joined with their jobs, those that count in them."""
    return or_(JobRow.origin != LOCAL, RecordRow.origin == LOCAL)


def count_records(connection: Connection, records: Iterable[tuple[int, Record]]) -> None:
    """New records, each with its id, are entered in their jobs: how many trials, the best so far
    and the fastest baseline. In a job that was made here imported ones do not count."""
    new_records = list(records)
    imported = {record.job_id for _, record in new_records if record.origin != LOCAL}
    made_here = local_of(connection, imported) if imported else imported
    counted: dict[str, list[tuple[int, Record]]] = {}
    for record_id, record in new_records:
        if record.origin == LOCAL or record.job_id not in made_here:
            counted.setdefault(record.job_id, []).append((record_id, record))
    for job_id, new in sorted(counted.items()):
        values: dict[str, Any] = {"of": job_id, "new": sum(r.kind == TRIAL for _, r in new)}
        timed = [
            (record.seconds, record_id, record.kind)
            for record_id, record in new
            if record.seconds is not None and standing_of(record) is not None
        ]
        if not values["new"] and not timed:
            continue
        statement = _COUNTED
        if timed:
            values["least"], values["record"], kind = min(timed)
            statement = _TRIALS_COUNTED if kind == TRIAL else _BASELINES_COUNTED
        connection.execute(statement, values)
        if baselines := [seconds for seconds, _, kind in timed if kind == BASELINE]:
            connection.execute(_BASELINES_TIMED, {"of": job_id, "least": min(baselines)})


def _counted(best: ColumnElement[bool] | None) -> Update:
    """Counts a job's `new` trials; where `best` holds, `record` with `least` seconds is its best
    from now on. Made once: that takes longer than what it does."""
    values: dict[str, Any] = {
        "trials_done": JobRow.trials_done + bindparam("new", type_=Integer),
        "updated_at": database_time(),
    }
    if best is not None:
        record = bindparam("record", type_=BigInteger)
        values["best_seconds"] = case((best, _LEAST), else_=JobRow.best_seconds)
        values["best_record_id"] = case((best, record), else_=JobRow.best_record_id)
    return update(JobRow).where(JobRow.id == bindparam("of")).values(values)


def _decided() -> ColumnElement[bool]:
    """Whether the best of a job was decided among those that were measured again: then no trial
    that was timed once is, whatever its time."""
    # All of a job's records are looked at only where its best may have been decided so.
    best, other = aliased(RecordRow), aliased(RecordRow)
    may = select(best.id).where(
        best.id == JobRow.best_record_id,
        or_(best.remeasured_seconds.is_not(None), best.round == BASELINE_ROUND),
    )
    again = select(other.id).where(
        other.job_id == JobRow.id, other.standing == int(Standing.REMEASURED)
    )
    return and_(may.exists(), again.exists())


_LEAST = bindparam("least", type_=Double)
_BETTER = or_(JobRow.best_seconds.is_(None), JobRow.best_seconds > _LEAST)
_COUNTED = _counted(None)
_TRIALS_COUNTED = _counted(and_(_BETTER, ~_decided()))
_BASELINES_COUNTED = _counted(_BETTER)
_BASELINES_TIMED = (
    update(JobRow)
    .where(JobRow.id == bindparam("of"))
    .where(or_(JobRow.baseline_seconds.is_(None), JobRow.baseline_seconds > _LEAST))
    .values(baseline_seconds=_LEAST)
)


def best_columns(connection: Connection, job_id: str) -> dict[str, Any]:
    """The columns of a job that tell of its best record and fastest baseline, found by looking at
    its records."""
    best = pick(candidates_of(connection, job_id))
    baseline = select(func.min(RecordRow.ranked_seconds)).where(
        RecordRow.job_id == job_id,
        RecordRow.round == BASELINE_ROUND,
        RecordRow.standing == int(Standing.BASELINE),
    )
    return {
        "best_seconds": None if best is None else best.seconds,
        "best_record_id": None if best is None else best.id,
        "baseline_seconds": connection.execute(baseline).scalar(),
    }


def candidates_of(connection: Connection, job_id: str) -> list[Candidate]:
    """Those of a job's records that may be its best: baselines, what was measured again, and the
    trial of those that may be handed out with the least time."""
    of_job = RecordRow.job_id == job_id
    begin, end = connection.execute(REACH, {"job_id": job_id}).one()
    again = select(MeasurementRow.record_id).where(MeasurementRow.record_id.between(begin, end))
    fastest = (
        select(RecordRow.id, RecordRow.standing)
        .where(of_job, RecordRow.kind == TRIAL, RecordRow.status == OK)
        .where(RecordRow.seconds.is_not(None))
        .order_by(RecordRow.seconds, RecordRow.id)
        .limit(1)
    )
    trial = connection.execute(fastest).first()  # found in an index, which has no standing
    if trial is not None and trial.standing is None:  # it was imported
        trial = connection.execute(fastest.where(RecordRow.standing.is_not(None))).first()
    found: list[Any] = []
    for some in (
        RecordRow.round == BASELINE_ROUND,
        RecordRow.id.in_(again),
        RecordRow.id == (None if trial is None else trial.id),
    ):
        query = select(RecordRow.ranked_seconds, RecordRow.id, RecordRow.standing).where(
            *(of_job, some, RecordRow.standing.is_not(None), RecordRow.ranked_seconds.is_not(None))
        )
        found += connection.execute(query)
    return [Candidate(*row) for row in found]
