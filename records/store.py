"""The store of workloads, jobs, records and measurements, in SQLite or by URL in PostgreSQL."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median
from types import TracebackType
from typing import Any, Self, Unpack

from sqlalchemy import Connection, Integer, bindparam, func, insert, select, update

from records import jobs, lookup, trials
from records.database import Database, address
from records.errors import NoRecord, RecordError
from records.leases import check_lease
from records.ranking import Scope, candidate, choose_scope, no_record, pick
from records.rows import (
    Traces,
    chunks,
    columns,
    insert_record_rows,
    put_workload,
    ranking_columns,
    select_records,
    select_values,
)
from records.schema import EventRow, JobRow, MeasurementRow, RecordRow, WorkloadRow, database_time
from records.trials import Tallied, TrialPoint
from records.types import (
    LOCAL,
    OK,
    STATUSES,
    CurvePoint,
    Event,
    Filters,
    Job,
    JobChanges,
    JobPage,
    Lease,
    Measurement,
    Page,
    Record,
    RecordKey,
    Workload,
    new_job_id,
    storable_text,
)

PAGE = 500
"""Rows that one read transaction fetches, so that a long listing holds up nobody."""
WINDOW = 1_000
"""Records that one page looks through for those that its filters select."""
WIDEST_WINDOW = 64_000
"""As many, in a listing that finds few."""


class Store:
    """Everything that was measured; durable when the writing call returns.

    `url_or_path` is the path of an SQLite file, or a URL such as `sqlite:///tuning.db` or
    `postgresql://user@host/name`; the tables are made in an empty database. Any number of
    threads and processes may use one database at once; a store must not be carried into a forked
    process. The read side is that of `RecordSource`.

    Raises RecordError for what cannot be used, StoreUnavailable where the database is busy or away.
    """

    def __init__(self, url_or_path: str | os.PathLike[str]) -> None:
        self._db = Database(address(url_or_path))
        self._traces = Traces()

    @property
    def name(self) -> str:
        """The URL, without its password."""
        return self._db.name

    def version(self) -> str | None:
        """The revision of the schema as it is now. Raises StoreUnavailable."""
        return self._db.version()

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Workloads

    def put_workload(self, workload: Workload) -> None:
        """Stores a workload once; of the same key, what was stored first stays (but for a text,
        where there was none).

        Raises RecordError if another script has that key.
        """
        with self._db.transaction(writes=True) as connection:
            put_workload(connection, workload)

    def workload(self, key: str) -> Workload:
        """The workload of that key. Raises NoRecord if there is none."""
        query = select_values(Workload).where(WorkloadRow.key == key)
        with self._db.transaction(writes=False) as connection:
            row = connection.execute(query).first()
        if row is None:
            raise NoRecord(f"no workload {key} in {self.name}")
        return Workload(**row._mapping)

    def workloads(self, after: str = "") -> Iterator[Workload]:
        """All workloads, in order of their keys, those after the key `after`."""
        query = select_values(Workload).order_by(WorkloadRow.key).limit(PAGE)
        last = after
        while True:
            with self._db.transaction(writes=False) as connection:
                rows = connection.execute(query.where(WorkloadRow.key > last)).all()
            yield from (Workload(**row._mapping) for row in rows)
            if len(rows) < PAGE:
                return
            last = rows[-1].key

    def titles(self, keys: Collection[str]) -> dict[str, tuple[str, Sequence[Any] | None]]:
        """Names and arguments of the workloads with those keys."""
        found: dict[str, tuple[str, Sequence[Any] | None]] = {}
        query = select(WorkloadRow.key, WorkloadRow.name, WorkloadRow.args)
        with self._db.transaction(writes=False) as connection:
            for chunk in chunks(sorted(set(keys))):
                for row in connection.execute(query.where(WorkloadRow.key.in_(chunk))):
                    found[row.key] = row.name, row.args
        return found

    # Jobs

    def create_job(
        self,
        workload_key: str,
        target: str,
        *,
        seed: int | None,
        trials_requested: int,
        device: str | None = None,
        options: Mapping[str, Any] | None = None,
        state: str = "queued",
        origin: str = LOCAL,
        job_id: str | None = None,
        priority: int = 0,
        client: str = "",
    ) -> Job:
        """A new job of a workload that is in the store.

        `job_id` is one from `new_job_id()`; if a job of that id is stored already, nothing changes
        and it is returned.
        """
        self.workload(workload_key)
        with self._db.transaction(writes=True) as connection:
            return jobs.create(
                connection,
                id=job_id or new_job_id(),
                workload_key=workload_key,
                target=target,
                device=device,
                seed=seed,
                options=dict(options or {}),
                state=state,
                trials_requested=trials_requested,
                origin=origin,
                priority=priority,
                client=client,
            )

    def job(self, job_id: str) -> Job:
        """The job of that id. Raises NoRecord if there is none."""
        with self._db.transaction(writes=False) as connection:
            return jobs.job_of(connection, job_id)

    def jobs(
        self,
        *,
        state: str | None = None,
        client: str | None = None,
        workload_key: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> JobPage:
        """The newest jobs that the filters select, first the newest, of those made before the job
        of id `before`."""
        with self._db.transaction(writes=False) as connection:
            return jobs.page(
                connection, limit=limit, before=before,
                state=state, client=client, workload_key=workload_key,
            )  # fmt: skip

    def count_jobs(self, client: str | None = None) -> Counter[str]:
        """How many jobs there are in each state, of all clients or of one; imported ones count."""
        with self._db.transaction(writes=False) as connection:
            return jobs.counts(connection, client)

    def find_job(
        self, workload_key: str, target: str, seed: int, device: str | None = None
    ) -> Job | None:
        """The newest job made here of that workload, target and seed (and device, if given): the
        one to resume."""
        query = (
            select_values(Job)
            .where(JobRow.workload_key == workload_key, JobRow.target == target)
            .where(JobRow.seed == seed, JobRow.origin == LOCAL)
            .order_by(JobRow.created_at.desc(), JobRow.id.desc())
            .limit(1)
        )
        if device is not None:
            query = query.where(JobRow.device == device)
        with self._db.transaction(writes=False) as connection:
            row = connection.execute(query).first()
        return None if row is None else Job(**row._mapping)

    def update_job(
        self, job_id: str, *, lease: Lease | None = None, **changes: Unpack[JobChanges]
    ) -> Job:
        """Sets what `changes` names. `trials_done` needs no setting: `add_records` counts.

        Raises LeaseLost if `lease` is given and is not the job's any more.
        """
        if "state" in changes:
            jobs.check_state(changes["state"])
        if (error := changes.get("error")) is not None:
            changes["error"] = storable_text(error)
        values: dict[str, Any] = {**changes, "updated_at": database_time()}
        with self._db.transaction(writes=True) as connection:
            if lease is not None:
                check_lease(connection, lease)
            connection.execute(update(JobRow).where(JobRow.id == job_id).values(values))
            return jobs.job_of(connection, job_id)

    # Events

    def add_event(
        self, job_id: str, kind: str, data: Mapping[str, Any], *, lease: Lease | None = None
    ) -> Event:
        """Notes that something happened to a job. Raises NoRecord if there is no such job, and
        LeaseLost if `lease` is given and is not the job's any more."""
        row = {"job_id": job_id, "kind": kind, "data": data, "created_at": database_time()}
        with self._db.transaction(writes=True) as connection:
            # One at a time: an id that is seen means that the job's smaller ones were seen.
            jobs.job_of(connection, job_id, lock=True)
            if lease is not None:
                check_lease(connection, lease)
            added = insert(EventRow).values(row).returning(EventRow.id)
            event_id = connection.execute(added).scalar_one()
            found = connection.execute(select_values(Event).where(EventRow.id == event_id)).one()
        return Event(**found._mapping)

    def events(
        self, job_id: str, *, after_id: int = 0, limit: int = PAGE, kind: str | None = None
    ) -> list[Event]:
        """The first `limit` events of a job after the one of id `after_id`, in order."""
        query = _EVENTS
        asked: dict[str, Any] = {"job_id": job_id, "after_id": after_id, "most": limit}
        if kind is not None:
            query = _EVENTS_OF_KIND
            asked["kind"] = kind
        with self._db.transaction(writes=False) as connection:
            rows = connection.execute(query, asked).all()
        return [Event(**row._mapping) for row in rows]

    def last_events(self, job_ids: Collection[str]) -> dict[str, int]:
        """The id of the last event of each of these jobs; 0 for one without events."""
        last = select(func.max(EventRow.id)).where(EventRow.job_id == JobRow.id).scalar_subquery()
        found: dict[str, int] = {}
        with self._db.transaction(writes=False) as connection:
            for chunk in chunks(sorted(set(job_ids))):
                query = select(JobRow.id, func.coalesce(last, 0)).where(JobRow.id.in_(chunk))
                found.update((row[0], row[1]) for row in connection.execute(query))
        return found

    # Records

    def add_records(self, records: Sequence[Record], *, lease: Lease | None = None) -> list[Record]:
        """Stores records in one transaction and returns them as stored, in the same order.

        Of several records with the same (job, round, slot) the first one stays and is returned.
        The jobs' `trials_done` grow by the new trials. Raises RecordError, and stores nothing, if
        a job or workload is unknown or a trace is not JSON data, and LeaseLost if `lease` is given
        and is not that job's any more.
        """
        return [record for record, _ in self.insert_records(records, lease=lease)]

    def insert_records(
        self, records: Sequence[Record], *, lease: Lease | None = None
    ) -> list[tuple[Record, bool]]:
        """`add_records`, telling with each record whether it was new."""
        if not records:
            return []
        first: dict[RecordKey, Record] = {}
        for record in records:
            first.setdefault(record.key, replace(record, remeasured_seconds=None))
        with self._db.transaction(writes=True) as connection:
            if lease is not None:
                check_lease(connection, lease)
            _check_known(connection, first.values())
            rows = self._traces.rows_of(connection, list(first.values()))
            ids = insert_record_rows(connection, rows)
            stored = self._traces.by_keys(connection, [key for key in first if key not in ids])
            stored |= {key: replace(first[key], id=row_id) for key, row_id in ids.items()}
            jobs.count_trials(connection, (stored[key] for key in ids))
        answer = []
        for record in records:
            answer.append((stored[record.key], record.key in ids))
            ids.pop(record.key, None)
        return answer

    def add_measurements(
        self, record_id: int, measurements: Sequence[Measurement], *, lease: Lease | None = None
    ) -> Record:
        """Adds repeated timings to an ok record; those of local origin decide its rank from now on.

        One that is there already (same time and result) is not added again. Returns the record as
        it is now. Raises LeaseLost if `lease` is given and is not the job's any more.
        """
        with self._db.transaction(writes=True) as connection:
            if lease is not None:
                check_lease(connection, lease)
            record = self._locked(connection, record_id)
            if record.status != OK:
                raise RecordError(f"record {record_id} is {record.status}: its time means nothing")
            known = {m.identity: m for m in _measurements(connection, [record_id])}
            for measurement in measurements:
                if measurement.identity in known:
                    continue
                row = columns(replace(measurement, record_id=record_id))
                del row["id"]
                connection.execute(insert(MeasurementRow).values(row))
                known[measurement.identity] = measurement
            local = [m.seconds for m in known.values() if m.origin == LOCAL]
            record = replace(record, remeasured_seconds=median(local) if local else None)
            _update_record(connection, record)
        return record

    def invalidate(self, record_id: int, status: str, error: str) -> Record:
        """Withdraws a record that was found bad after its trial, with the reason.

        `status` is "stale" for one whose replay gives another program, or that of a failure. The
        record keeps its times and is never handed out again.
        """
        if status == OK or status not in STATUSES:
            raise RecordError(f"status {status!r} does not withdraw a record")
        with self._db.transaction(writes=True) as connection:
            record = replace(self._locked(connection, record_id), status=status, error=error)
            _update_record(connection, record)
            best = {"best_seconds": jobs.best_seconds(connection, record.job_id)}
            connection.execute(update(JobRow).where(JobRow.id == record.job_id).values(best))
        return record

    def get(self, record_id: int) -> Record:
        """The record of that id. Raises NoRecord if there is none."""
        with self._db.transaction(writes=False) as connection:
            return self._get(connection, record_id)

    def records(self, **filters: Unpack[Filters]) -> Iterator[Record]:
        """The records selected by `filters`, in order of their ids, those after `after_id`."""
        rest = Filters(**filters)
        left = filters.get("limit")
        window = WINDOW
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            rest["limit"] = size
            page = self._page(rest, window)
            yield from page.records
            if page.after_id is None:
                return
            rest["after_id"] = page.after_id
            left = None if left is None else left - len(page.records)
            window = WINDOW if len(page.records) == size else min(4 * window, WIDEST_WINDOW)

    def page(self, **filters: Unpack[Filters]) -> Page:
        """The first records (at most `limit`, 100 if it is left out) that `filters` select.

        However many records there are, this takes some milliseconds: it looks through so many and
        no more, and a page may be short, or empty, and not the last.
        """
        return self._page(Filters(**{"limit": 100, **filters}), WINDOW)

    def _page(self, filters: Filters, window: int) -> Page:
        limit = filters["limit"] or 0
        with self._db.transaction(writes=False) as connection:
            query = lookup.page(filters, window)
            found = self._traces.fetch(connection, query.records, query.parameters)
            if len(found) >= limit:
                return Page(found, found[-1].id if found else filters.get("after_id"))
            rows, last = connection.execute(query.looked_at, query.parameters).one()
        return Page(found, last if rows == query.parameters["size"] else None)

    def measurements(self, *record_ids: int) -> list[Measurement]:
        """The repeated timings of some records, in order of their own ids."""
        found: list[Measurement] = []
        with self._db.transaction(writes=False) as connection:
            for chunk in chunks(record_ids):
                found += _measurements(connection, chunk)
        return sorted(found, key=lambda measurement: measurement.id)

    def find_records(self, keys: Collection[RecordKey]) -> dict[RecordKey, Record]:
        """Those of the records named by `keys` that are stored."""
        with self._db.transaction(writes=False) as connection:
            return self._traces.by_keys(connection, keys)

    def curve(self, job_id: str) -> list[CurvePoint]:
        """How a job got faster: its trials that improved on all before, as they were timed then."""
        with self._db.transaction(writes=False) as connection:
            return list(lookup.curve(connection, job_id))

    def tallied(self, job_id: str) -> Tallied:
        """The trials of a job by status, and its best record."""
        with self._db.transaction(writes=False) as connection:
            return trials.tallied(connection, job_id)

    def sample(
        self, job_id: str, *, at_most: int, always: Collection[int] = ()
    ) -> list[TrialPoint]:
        """Every n-th trial of a job, about `at_most`, and those of the ids in `always`."""
        with self._db.transaction(writes=False) as connection:
            return trials.sample(connection, job_id, at_most=at_most, always=always)

    def trial_times(self, job_id: str) -> tuple[datetime, datetime] | None:
        """When the first and the last trial of a job were measured; None without trials."""
        with self._db.transaction(writes=False) as connection:
            return trials.ends(connection, job_id)

    def devices(self, workload_key: str) -> list[Scope]:
        """The pairs (target, device) of which there are records of a workload, sorted."""
        with self._db.transaction(writes=False) as connection:
            return lookup.scopes(connection, workload_key)

    def best(
        self,
        workload_key: str,
        target: str | None = None,
        device: str | None = None,
        *,
        exclude: Collection[int] = (),
    ) -> Record:
        """The fastest valid record measured here; see `RecordSource.best`."""
        with self._db.transaction(writes=False) as connection:
            if target is None or device is None:
                scopes = lookup.scopes(connection, workload_key)
                target, device = choose_scope(workload_key, target, device, scopes)
            scope = target, device
            asked: dict[str, Any] = {
                "workload_key": workload_key,
                "target": target,
                "device": device,
            }
            if exclude:
                asked["exclude"] = list(exclude)
            query = lookup.first_records(exclude=bool(exclude))
            found = {r.id: r for r in self._traces.fetch(connection, query, asked)}
            best = pick([one for one in map(candidate, found.values()) if one])
            if best is None:
                tally = lookup.tally(connection, workload_key, scope)
                scopes = lookup.scopes(connection, workload_key)
                raise no_record(workload_key, scope, tally, scopes)
            return found[best.id]

    def _get(self, connection: Connection, record_id: int) -> Record:
        if not (found := self._traces.fetch(connection, _BY_ID, {"record_id": record_id})):
            raise NoRecord(f"no record {record_id} in {self.name}")
        return found[0]

    def _locked(self, connection: Connection, record_id: int) -> Record:
        """A record that nobody else changes until the transaction ends."""
        row = select(RecordRow.id).where(RecordRow.id == record_id).with_for_update()
        connection.execute(row)
        return self._get(connection, record_id)


_EVENTS = (
    select_values(Event)
    .where(EventRow.job_id == bindparam("job_id"), EventRow.id > bindparam("after_id"))
    .order_by(EventRow.id)
    .limit(bindparam("most", type_=Integer))
)
_EVENTS_OF_KIND = _EVENTS.where(EventRow.kind == bindparam("kind"))
_BY_ID = select_records().where(RecordRow.id == bindparam("record_id"))


def _check_known(connection: Connection, records: Collection[Record]) -> None:
    """Raises RecordError if a job or workload of the records is not stored."""
    for what, column, wanted in (
        ("job", JobRow.id, {record.job_id for record in records}),
        ("workload", WorkloadRow.key, {record.workload_key for record in records}),
    ):
        for chunk in chunks(sorted(wanted)):
            wanted.difference_update(
                connection.execute(select(column).where(column.in_(chunk))).scalars()
            )
        if wanted:
            raise RecordError(f"records of {what} {min(wanted)}, which is not in the store")


def _measurements(connection: Connection, record_ids: Sequence[int]) -> list[Measurement]:
    query = select_values(Measurement).where(MeasurementRow.record_id.in_(record_ids))
    rows = connection.execute(query.order_by(MeasurementRow.id))
    return [Measurement(**row._mapping) for row in rows]


def _update_record(connection: Connection, record: Record) -> None:
    values = ranking_columns(record) | {"status": record.status, "error": record.error}
    connection.execute(update(RecordRow).where(RecordRow.id == record.id).values(values))
