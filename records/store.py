"""The store of workloads, jobs, records and measurements, in SQLite or by URL in PostgreSQL."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, Unpack

from sqlalchemy import Connection, select

from records.arguments import filters_of, number_of, numbers_of, scope_of, text_of
from records.errors import NoRecord
from records.queue.lease import check_lease
from records.ranking import Scope
from records.source import RecordSource
from records.sql import events, jobs, lookup, measurements, traces, trials, workloads
from records.sql.database import BUSY_SECONDS, Database, address
from records.sql.frontier import Frontier
from records.sql.insertion import Inserter
from records.sql.schema import database_time
from records.sql.traces import Traces
from records.sql.trials import Tallied, TrialPoint
from records.sql.workloads import Title
from records.types import (
    LOCAL,
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
)

PAGE = 500
"""Rows that one read transaction fetches, so that a long listing holds up nobody."""
WINDOW = 1_000
"""Records that one page looks through for those that its filters select."""
WIDEST_WINDOW = 64_000
"""As many, in a listing that finds few."""

T = TypeVar("T")


class Store(RecordSource):
    """Everything that was measured; durable when the writing call returns.

    `url_or_path` is the path of an SQLite file, or a URL such as `sqlite:///tuning.db` or
    `postgresql://user@host/name`; the tables are made in an empty database, unless `make` is false.
    Threads and processes may use one database at once; a forked process opens its own store. A call
    that writes waits `busy_seconds` for others who do (a server's: for each lock).
    Raises RecordError for what cannot be used, StoreUnavailable where the database is busy or away.
    """

    def __init__(
        self,
        url_or_path: str | os.PathLike[str],
        busy_seconds: float = BUSY_SECONDS,
        *,
        make: bool = True,
    ) -> None:
        self._db = Database(address(url_or_path), make=make, busy_seconds=busy_seconds)
        self._traces = Traces()
        self._inserter = Inserter(self._traces)
        self._frontier = Frontier()
        self._titles = workloads.TitleCache()

    @property
    def name(self) -> str:
        """The URL, without its password."""
        return self._db.name

    def now(self) -> datetime:
        """The time by the database's clock, which all times of jobs and events are by."""
        with self._db.transaction(writes=False) as connection:
            return connection.execute(select(database_time())).scalar_one()

    def version(self) -> str | None:
        """The revision of the schema as it is now. Raises StoreUnavailable."""
        return self._db.version()

    def try_write(self) -> None:
        """Write something, and take it away: nothing is different afterwards. Raises
        StoreUnavailable, StoreDamaged, and RecordError where nothing can be written."""
        self._db.write(traces.write_and_delete)

    def close(self) -> None:
        self._db.close()

    def _write(self, work: Callable[[Connection], T], lease: Lease | None = None) -> T:
        """What `work` returns, done by a transaction, perhaps not at once (`Database.write`).

        Raises LeaseLost if `lease` is over.
        """

        def fenced(connection: Connection) -> T:
            if lease is not None:
                check_lease(connection, lease)
            return work(connection)

        return self._db.write(fenced)

    # Workloads

    def put_workload(self, workload: Workload) -> None:
        """Stores a workload once; of the same key, what was stored first stays (but for a text,
        where there was none).

        Raises RecordError if another script has that key.
        """
        self._write(lambda connection: workloads.put(connection, workload))

    def workload(self, key: str) -> Workload:
        """The workload of that key. Raises NoRecord if there is none."""
        key = text_of("key", key)
        with self._db.transaction(writes=False) as connection:
            found = workloads.find(connection, key)
        if found is None:
            raise NoRecord(f"no workload {key} in this store")
        return found

    def workloads(self, after: str = "") -> Iterator[Workload]:
        """All workloads, in order of their keys, those after the key `after`."""
        while True:
            with self._db.transaction(writes=False) as connection:
                found = workloads.following(connection, after, PAGE)
            yield from found
            if len(found) < PAGE:
                return
            after = found[-1].key

    def titles(self, keys: Collection[str]) -> dict[str, Title]:
        """Names, arguments and operations of the workloads with those keys, as they were some
        seconds ago at most."""

        def read(missing: Collection[str]) -> dict[str, Title]:
            with self._db.transaction(writes=False) as connection:
                return workloads.titles(connection, missing)

        return self._titles.of(keys, read)

    # Jobs

    def create_job(
        self,
        workload: str | Workload,
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
        name: str | None = None,
        tags: Sequence[str] = (),
    ) -> Job:
        """A new job of a workload: the key of one that is in the store, or one that is put there in
        the same transaction (see `put_workload`).

        `job_id` is one from `new_job_id()`; if a job of that id is stored already, nothing changes
        and it is returned.
        """
        if isinstance(workload, str):
            key = self.workload(workload).key
        else:
            key = workload.key
        row = {
            "id": job_id or new_job_id(),
            "workload_key": key,
            "target": target,
            "device": device,
            "seed": seed,
            "options": dict(options or {}),
            "state": state,
            "trials_requested": trials_requested,
            "origin": origin,
            "priority": priority,
            "client": client,
            "name": name,
            "tags": tuple(tags),
        }

        def create(connection: Connection) -> Job:
            if isinstance(workload, Workload):
                workloads.put(connection, workload, examined=True)
            return jobs.create(connection, **row)

        return self._write(create)

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
        device: str | None = None,
        name: str | None = None,
        tag: str | None = None,
        batch_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> JobPage:
        """The newest jobs that the filters select, first the newest, of those made before the job
        of id `before`. `name` is part of a job's name, or of its workload's, in any case of
        letters; the times are of when the job was made, from the first and up to the other."""
        with self._db.transaction(writes=False) as connection:
            return jobs.page(
                connection, limit=limit, before=before,
                state=state, client=client, workload_key=workload_key, device=device, name=name,
                tag=tag, batch_id=batch_id, created_after=created_after,
                created_before=created_before,
            )  # fmt: skip

    def job_id(self, text: str) -> str:
        """The id of the only job whose id is `text`, or begins with it. Raises NoRecord, and
        RecordError if there are several."""
        with self._db.transaction(writes=False) as connection:
            return jobs.id_of(connection, text)

    def delete_job(self, job_id: str) -> None:
        """Removes a job that has ended, with all that was measured in it. Raises NoRecord, and
        RecordError for another."""
        self._write(lambda connection: jobs.delete(connection, job_id))
        self._inserter.forget(job_id)

    def count_jobs(self, client: str | None = None) -> Counter[str]:
        """How many jobs there are in each state, of all clients or of one; imported ones count."""
        with self._db.transaction(writes=False) as connection:
            return jobs.counts(connection, client)

    def find_job(
        self, workload_key: str, target: str, seed: int, device: str | None = None
    ) -> Job | None:
        """The newest job made here of that workload, target and seed (and device, if given): the
        one to resume."""
        with self._db.transaction(writes=False) as connection:
            return jobs.newest(connection, workload_key, target, seed, device)

    def update_job(
        self, job_id: str, *, lease: Lease | None = None, **changes: Unpack[JobChanges]
    ) -> Job:
        """Sets what `changes` names. `trials_done` needs no setting: `add_records` counts.

        Raises LeaseLost if `lease` is given and is not the job's any more.
        """
        return self._write(lambda connection: jobs.change(connection, job_id, changes), lease)

    # Events

    def add_event(
        self, job_id: str, kind: str, data: Mapping[str, Any], *, lease: Lease | None = None
    ) -> Event:
        """Notes that something happened to a job. Raises NoRecord if there is no such job, and
        LeaseLost if `lease` is given and is not the job's any more."""

        def add(connection: Connection) -> Event:
            jobs.job_of(connection, job_id, lock=True)
            if lease is not None:
                check_lease(connection, lease)
            return events.add(connection, job_id, kind, data)

        return self._write(add)

    def events(
        self, job_id: str, *, after_id: int = 0, limit: int = PAGE, kind: str | None = None
    ) -> list[Event]:
        """The first `limit` events of a job after the one of id `after_id`, in order."""
        with self._db.transaction(writes=False) as connection:
            return events.following(connection, job_id, after_id=after_id, limit=limit, kind=kind)

    def job_and_events(
        self, job_id: str, *, after_id: int = 0, limit: int = PAGE
    ) -> tuple[Job, list[Event]]:
        """A job, and the first `limit` of its events after the one of id `after_id`; of a job that
        has ended all events are there. Raises NoRecord if there is no such job."""
        with self._db.transaction(writes=False) as connection:
            job = jobs.job_of(connection, job_id)
            return job, events.following(
                connection, job_id, after_id=after_id, limit=limit, kind=None
            )

    def last_events(self, job_ids: Collection[str]) -> dict[str, int]:
        """The id of the last event of each of these jobs; 0 for one without events."""
        with self._db.transaction(writes=False) as connection:
            return events.last_ids(connection, job_ids)

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
        return self._write(lambda connection: self._inserter.insert(connection, records), lease)

    def add_measurements(
        self, record_id: int, timings: Sequence[Measurement], *, lease: Lease | None = None
    ) -> Record:
        """Adds repeated timings to an ok record; those of local origin decide its rank from now on.

        One that is there already (same time and result) is not added again. Returns the record as
        it is now. Raises LeaseLost if `lease` is given and is not the job's any more.
        """
        return self._write(
            lambda connection: measurements.add(connection, self._traces, record_id, timings), lease
        )

    def invalidate(self, record_id: int, status: str, error: str) -> Record:
        """Withdraws a record that was found bad after its trial, with the reason.

        `status` is "stale" for one whose replay gives another program, or that of a failure. The
        record keeps its times and is never handed out again.
        """
        return self._write(
            lambda connection: measurements.invalidate(
                connection, self._traces, record_id, status, error
            )
        )

    def get(self, record_id: int) -> Record:
        """The record of that id. Raises NoRecord if there is none."""
        record_id = number_of("record_id", record_id)
        with self._db.transaction(writes=False) as connection:
            found = measurements.find(connection, self._traces, record_id)
        if found is None:
            raise NoRecord(f"no record {record_id} in this store")
        return found

    def records(self, **filters: Unpack[Filters]) -> Iterator[Record]:
        """The records selected by `filters`, in order of their ids, those after `after_id`."""
        rest = filters_of(filters)
        left = rest.get("limit")
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
        no more, and a page may be short, or empty, and not the last. From page to page nothing is
        passed over that is stored before the last one is asked for (`frontier.py`).
        """
        return self._page(Filters(**{"limit": 100, **filters_of(filters)}), WINDOW)

    def _page(self, filters: Filters, window: int) -> Page:
        with self._db.transaction(writes=False) as connection:
            look = partial(lookup.look, connection, self._traces, filters, window)
            if self._db.is_sqlite or filters.get("job_id") is not None:
                return look()
            return self._frontier.page(connection, look)

    def measurements(self, *record_ids: int) -> list[Measurement]:
        """The repeated timings of some records, in order of their own ids."""
        record_ids = numbers_of("record_ids", record_ids)
        with self._db.transaction(writes=False) as connection:
            return measurements.of_records(connection, record_ids)

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

    def trials_after(self, job_id: str, record_id: int, limit: int) -> list[TrialPoint]:
        """The first `limit` trials of a job after a record, numbered from 1 after it."""
        with self._db.transaction(writes=False) as connection:
            return trials.following(connection, job_id, after_id=record_id, limit=limit)

    def trial_times(self, job_id: str) -> tuple[datetime, datetime] | None:
        """When the first and the last trial of a job were measured; None without trials."""
        with self._db.transaction(writes=False) as connection:
            return trials.ends(connection, job_id)

    def devices(self, workload_key: str) -> list[Scope]:
        """The pairs (target, device) of which there are records of a workload, sorted."""
        workload_key = text_of("workload_key", workload_key)
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
        workload_key = text_of("workload_key", workload_key)
        target, device = scope_of(target, device)
        exclude = numbers_of("exclude", exclude)
        with self._db.transaction(writes=False) as connection:
            return lookup.best(connection, self._traces, workload_key, target, device, exclude)
