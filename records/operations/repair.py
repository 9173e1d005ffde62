"""Putting right what follows from the rest of a store, and saying what cannot be put right.

A store keeps such columns right by itself. This is for one that was changed by hand, restored in
part, or written by a version with a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, select, update

from records.sql.jobs import best_columns, counting
from records.sql.measurements import held
from records.sql.rows import ranking_columns
from records.sql.schema import JobRow, MeasurementRow, RecordRow, TraceRow
from records.sql.traces import trace_hash
from records.types import LOCAL, OK, STALE, TRIAL, Measurement, Record

if TYPE_CHECKING:
    from records.store import Store

_RANKING = ("remeasured_seconds", "standing", "ranked_seconds")


@dataclass
class RepairReport:
    """How many records, jobs and traces were looked at; what was `repaired`, and the `faults` that
    need a person, a line each."""

    records: int = 0
    jobs: int = 0
    traces: int = 0
    repaired: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def repair(store: Store, *, dry_run: bool = False) -> RepairReport:
    """Checks a whole store, and repairs it unless `dry_run`.

    Repaired: the columns by which the best is looked up, the jobs' counts and best times, and
    records whose trace is not the one that its hash names, which become stale. Doing it again
    changes nothing. Others may use the store meanwhile.
    """
    report = RepairReport()
    with store._db.transaction(writes=False) as connection:
        _check_file(connection, report)
    _traces(store, report, dry_run)
    _records(store, report, dry_run)
    _jobs(store, report, dry_run)
    return report


def _check_file(connection: Connection, report: RepairReport) -> None:
    """What SQLite finds in its own file."""
    if connection.dialect.name != "sqlite":
        return
    for row in connection.exec_driver_sql("PRAGMA integrity_check(20)"):
        if row[0] != "ok":
            report.faults.append(f"the file is damaged: {row[0]}; restore it from a copy")
    for table, rowid, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        report.faults.append(f"row {rowid} of {table} names a row of {parent} that is not there")


def _traces(store: Store, report: RepairReport, dry_run: bool) -> None:
    """Records of a trace whose content has changed are stale: nobody knows what was measured."""
    last = 0
    while True:
        query = select(TraceRow).where(TraceRow.id > last).order_by(TraceRow.id).limit(200)
        with store._db.transaction(writes=False) as connection:
            rows = connection.execute(query).all()
        for row in rows:
            report.traces += 1
            found = trace_hash(row.dialect, row.data)
            if found != row.hash:
                _withdraw(store, row.id, row.hash, found, report, dry_run)
        if not rows:
            return
        last = rows[-1].id


def _withdraw(
    store: Store, trace_id: int, hash_: str, found: str, report: RepairReport, dry_run: bool
) -> None:
    reason = f"trace {trace_id} has hash {found[:12]}, and was stored as {hash_[:12]}"
    query = select(RecordRow.id).where(RecordRow.trace_id == trace_id, RecordRow.status == OK)
    with store._db.transaction(writes=False) as connection:
        ids = connection.scalars(query).all()
    for record_id in ids:
        report.repaired.append(f"record {record_id} is stale: {reason}")
        if not dry_run:
            store.invalidate(record_id, STALE, reason)


def _records(store: Store, report: RepairReport, dry_run: bool) -> None:
    batch: list[Record] = []
    for record in store.records():
        batch.append(record)
        if len(batch) == 500:
            _rank(store, batch, report, dry_run)
            batch = []
    _rank(store, batch, report, dry_run)


def _rank(store: Store, batch: list[Record], report: RepairReport, dry_run: bool) -> None:
    """Compare what the columns of ranking hold with what follows from the measurements."""
    report.records += len(batch)
    if not batch:
        return
    measured: dict[int, list[Measurement]] = {}
    for measurement in store.measurements(*(record.id for record in batch)):
        measured.setdefault(measurement.record_id, []).append(measurement)
    for record, stored in zip(batch, _stored(store, batch), strict=True):
        if _ranking_of(record, measured.get(record.id, [])) != stored:
            _rank_one(store, record.id, report, dry_run)


def _rank_one(store: Store, record_id: int, report: RepairReport, dry_run: bool) -> None:
    """Look again, with the record held, since it may have been measured meanwhile."""
    with store._db.transaction(writes=not dry_run) as connection:
        record = held(connection, store._traces, record_id)
        query = select(MeasurementRow.seconds, MeasurementRow.origin)
        rows = connection.execute(query.where(MeasurementRow.record_id == record_id))
        found = [Measurement(seconds=row.seconds, origin=row.origin) for row in rows]
        right = _ranking_of(record, found)
        columns = [getattr(RecordRow, name) for name in _RANKING]
        stored = connection.execute(select(*columns).where(RecordRow.id == record_id)).one()
        if tuple(stored) == right:
            return
        report.repaired.append(f"record {record_id}: {_RANKING} was {tuple(stored)}, is {right}")
        if not dry_run:
            values = dict(zip(_RANKING, right, strict=True))
            connection.execute(update(RecordRow).where(RecordRow.id == record_id).values(values))


def _stored(store: Store, batch: list[Record]) -> list[tuple[Any, ...]]:
    columns = [getattr(RecordRow, name) for name in _RANKING]
    query = select(RecordRow.id, *columns).where(
        RecordRow.id >= batch[0].id, RecordRow.id <= batch[-1].id
    )
    with store._db.transaction(writes=False) as connection:
        rows = {row.id: tuple(row)[1:] for row in connection.execute(query)}
    return [rows[record.id] for record in batch]


def _ranking_of(record: Record, measurements: list[Measurement]) -> tuple[Any, ...]:
    local = [m.seconds for m in measurements if m.origin == LOCAL]
    right = replace(record, remeasured_seconds=median(local) if local else None)
    values: Mapping[str, Any] = ranking_columns(right)
    return tuple(values[name] for name in _RANKING)


def _jobs(store: Store, report: RepairReport, dry_run: bool) -> None:
    count = (
        select(func.count())
        .where(RecordRow.job_id == JobRow.id, RecordRow.kind == TRIAL, counting())
        .scalar_subquery()
    )
    with store._db.transaction(writes=False) as connection:
        ids = connection.scalars(select(JobRow.id).order_by(JobRow.id)).all()
    for job_id in ids:
        report.jobs += 1
        with store._db.transaction(writes=not dry_run) as connection:
            of_job = JobRow.id == job_id
            best = (JobRow.best_seconds, JobRow.best_record_id, JobRow.baseline_seconds)
            held = select(JobRow.trials_done, *best).where(of_job).with_for_update()
            stored = connection.execute(held).one()._asdict()
            right = {
                "trials_done": connection.execute(select(count).where(of_job)).scalar_one(),
            } | best_columns(connection, job_id)
            wrong = [name for name in right if stored[name] != right[name]]
            report.repaired += [
                f"job {job_id}: {name} was {stored[name]}, is {right[name]}" for name in wrong
            ]
            if wrong and not dry_run:
                connection.execute(update(JobRow).where(of_job).values(right))
