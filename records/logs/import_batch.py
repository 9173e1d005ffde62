"""A batch of a log's entries, entered in a store by one transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from records.errors import RecordError
from records.logs.import_report import ImportReport
from records.logs.lines import Entry, LoggedMeasurement
from records.sql import insertion, jobs, lookup, measurements, workloads
from records.sql.traces import Traces
from records.types import IMPORT, LOCAL, OK, Measurement, Record, RecordKey, Workload


def id_elsewhere(job_id: str) -> str:
    """The id under which records are imported that name a job of this store without being of it.
    The same each time, so that importing them again changes nothing."""
    return hashlib.sha256(f"imported {job_id}".encode()).hexdigest()[:32]


def _is_at(record: Record, there: Mapping[RecordKey, Any]) -> bool:
    place = there.get(record.key)
    return place is not None and (place.workload_key, place.program_hash) == (
        *(record.workload_key, record.program_hash),
    )


class ImportBatch:
    """Enters entries, marked as of `origin` (None: as they are), by the transaction at hand.

    `seen` are workloads and jobs that are known to be stored, and `found` those met here, which are
    if the transaction is committed. What is refused for good reason is in the report; an error is
    the transaction's.
    """

    def __init__(
        self,
        connection: Connection,
        traces: Traces,
        origin: str | None,
        seen: Collection[tuple[str, str]],
    ) -> None:
        self.report = ImportReport()
        self.found: set[tuple[str, str]] = set()
        self._connection = connection
        self._traces = traces
        self._origin = origin
        self._seen = seen

    def take(self, batch: Sequence[tuple[int, Entry]]) -> None:
        """Enter workloads first, then records, then measurements of them."""
        met: list[tuple[int, Workload]] = []
        records: list[tuple[int, Record]] = []
        timings: list[tuple[int, LoggedMeasurement]] = []
        for number, entry in batch:
            match entry:
                case Workload():
                    met.append((number, entry))
                case Record():
                    records.append((number, entry))
                case LoggedMeasurement():
                    timings.append((number, entry))
        # Rows of each kind by their keys: several who take the same in must not wait for each other
        # in a circle.
        for number, workload in sorted(met, key=lambda numbered: numbered[1].key):
            self._take_workload(number, workload)
        self._take_records([(n, r) for n, r in records if self._is_of_known_workload(n, r)])
        self._take_measurements(timings)

    def _take_workload(self, number: int, workload: Workload) -> None:
        if self._is_known("workload", workload.key) and workload.text is None:
            return
        try:
            workloads.put(self._connection, workload)
        except RecordError as e:
            self.report.refuse(number, str(e))
        else:
            self.found.add(("workload", workload.key))

    def _is_of_known_workload(self, number: int, record: Record) -> bool:
        key = record.workload_key
        if not self._is_known("workload", key):
            if workloads.find(self._connection, key) is None:
                reason = f"workload {key} is neither in the store nor in the lines before"
                self.report.refuse(number, reason)
                return False
            self.found.add(("workload", key))
        return True

    def _is_known(self, what: str, name: str) -> bool:
        return (what, name) in self._seen or (what, name) in self.found

    def _take_records(self, numbered: Sequence[tuple[int, Record]]) -> None:
        numbered = self._elsewhere(numbered)
        first: dict[RecordKey, Record] = {}
        job_of: dict[str, Record] = {}
        for _, record in numbered:
            first.setdefault(record.key, record.stored_as(0, self._origin))
            job_of.setdefault(record.job_id, record)
        for _, record in sorted(job_of.items()):
            self._make_job_of(record)
        new = insertion.put(self._connection, self._traces, first) if first else {}
        there = lookup.places(self._connection, [key for key in first if key not in new])
        programs = {key: (r.workload_key, r.program_hash) for key, r in first.items()}
        programs |= {key: (r.workload_key, r.program_hash) for key, r in there.items()}
        for number, record in numbered:
            if new.pop(record.key, None) is not None:
                self.report.new += 1
            elif programs[record.key] == (record.workload_key, record.program_hash):
                self.report.known += 1
            else:
                reason = "another program is stored under the same job, round and slot"
                self.report.refuse(number, reason)

    def _elsewhere(self, numbered: Sequence[tuple[int, Record]]) -> Sequence[tuple[int, Record]]:
        """The records, those that claim to be of a job made here under that job's id elsewhere,
        unless they are stored: a job's budget, best and resumption are what was measured here."""
        here = self._made_here({record.job_id for _, record in numbered})
        keys = [record.key for _, record in numbered if record.job_id in here]
        there = lookup.places(self._connection, keys) if keys else {}
        return [
            (number, record)
            if record.job_id not in here or _is_at(record, there)
            else (number, replace(record, job_id=id_elsewhere(record.job_id)))
            for number, record in numbered
        ]

    def _made_here(self, job_ids: Collection[str]) -> set[str]:
        """Those of the jobs that were made here; none where records are taken as they are."""
        if self._origin is None:
            return set()
        return jobs.local_of(self._connection, job_ids)

    def _make_job_of(self, record: Record) -> None:
        """A record needs a job; one that comes without is known by its id and its records."""
        if self._is_known("job", record.job_id):
            return
        jobs.create(
            self._connection,
            id=record.job_id,
            workload_key=record.workload_key,
            target=record.target,
            device=record.device,
            seed=None,
            options={},
            state="succeeded",
            trials_requested=0,
            origin=IMPORT,
        )
        self.found.add(("job", record.job_id))

    def _take_measurements(self, numbered: Sequence[tuple[int, LoggedMeasurement]]) -> None:
        here = self._made_here({entry.of.job_id for _, entry in numbered})
        keys = {
            entry.of: entry.of._replace(job_id=id_elsewhere(entry.of.job_id))
            for _, entry in numbered
            if entry.of.job_id in here
        }
        asked = [*(entry.of for _, entry in numbered), *keys.values()]
        places = lookup.places(self._connection, asked)
        taken: list[Measurement] = []
        for number, entry in numbered:
            place = places.get(keys.get(entry.of, entry.of)) or places.get(entry.of)
            if place is None or place.status != OK:
                why = "that is not in the store" if place is None else f"that is {place.status}"
                self.report.refuse(number, f"a measurement of a record {why}")
                continue
            origin = entry.measurement.origin if self._origin is None else self._origin
            taken.append(replace(entry.measurement, origin=origin, record_id=place.id))
        measurements.add_new(self._connection, taken)
        for record_id in sorted({m.record_id for m in taken if m.origin == LOCAL}):
            # What this transaction stored is not to be remembered: it may be taken back.
            measurements.rank(self._connection, Traces(), record_id)
