"""Taking the entries of a log, or of another store, into a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from records.errors import NoRecord, RecordError, StoreUnavailable
from records.jsonl import LISTED, JsonlReport
from records.lines import Entry, LoggedMeasurement
from records.types import IMPORT, OK, Record, Workload

if TYPE_CHECKING:
    from records.store import Store

BATCH = 500
"""Entries that are taken in by one transaction or one write."""


@dataclass
class ImportReport:
    """What taking records in came to: how many were new, how many were there already, and how many
    lines were refused; of the first LISTED of these, `refused` has the number of the line (of the
    entry, if a store was the source) and the reason.
    """

    new: int = 0
    known: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    refused_count: int = 0

    def refuse(self, number: int, reason: str) -> None:
        """Enter a line that cannot be taken."""
        self.refused_count += 1
        if len(self.refused) < LISTED:
            self.refused.append((number, reason))

    def add_skipped(self, read: JsonlReport) -> None:
        """Enter the lines that could not even be read."""
        self.refused_count += read.skipped_count
        self.refused = sorted(self.refused + read.skipped)[:LISTED]

    def by_reason(self) -> dict[str, list[int]]:
        """The numbers of the listed lines by the reason why they were refused."""
        found: dict[str, list[int]] = {}
        for number, reason in self.refused:
            found.setdefault(reason, []).append(number)
        return found


def take_in(
    store: Store, numbered: Iterable[tuple[int, Entry]], origin: str | None
) -> ImportReport:
    """Stores numbered entries in batches, marked as of `origin` (None: as they are).

    What cannot be stored is refused in the report, entry by entry.
    """
    intake = _Intake(store, origin)
    rest = iter(numbered)
    while batch := list(islice(rest, BATCH)):
        intake.take(batch)
    return intake.report


class _Intake:
    def __init__(self, store: Store, origin: str | None) -> None:
        self.report = ImportReport()
        self._store = store
        self._origin = origin
        self._workloads: set[str] = set()
        self._jobs: set[str] = set()

    def take(self, batch: list[tuple[int, Entry]]) -> None:
        records: list[tuple[int, Record]] = []
        measurements: list[tuple[int, LoggedMeasurement]] = []
        for number, entry in batch:
            match entry:
                case Workload():
                    self._take_workload(number, entry)
                case Record():
                    records.append((number, entry))
                case LoggedMeasurement():
                    measurements.append((number, entry))
        self._take_records([r for r in records if self._is_of_known_workload(*r)])
        self._take_measurements(measurements)

    def _take_workload(self, number: int, workload: Workload) -> None:
        if workload.key in self._workloads:
            return
        try:
            self._store.put_workload(workload)
        except StoreUnavailable:
            raise
        except RecordError as e:
            self.report.refuse(number, str(e))
        else:
            self._workloads.add(workload.key)

    def _is_of_known_workload(self, number: int, record: Record) -> bool:
        key = record.workload_key
        if key not in self._workloads:
            try:
                self._store.workload(key)
            except NoRecord:
                reason = f"workload {key} is neither in the store nor in the lines before"
                self.report.refuse(number, reason)
                return False
            self._workloads.add(key)
        return True

    def _take_records(self, records: list[tuple[int, Record]]) -> None:
        for _, record in records:
            self._make_job_of(record)
        origin = self._origin
        taken = [r if origin is None else replace(r, origin=origin) for _, r in records]
        stored = self._store.insert_records(taken)
        for (number, record), (kept, is_new) in zip(records, stored, strict=True):
            if is_new:
                self.report.new += 1
            elif (kept.workload_key, kept.program_hash) == (
                record.workload_key,
                record.program_hash,
            ):
                self.report.known += 1
            else:
                reason = "another program is stored under the same job, round and slot"
                self.report.refuse(number, reason)

    def _make_job_of(self, record: Record) -> None:
        """A record needs a job; one that comes without is known by its id and its records."""
        if record.job_id in self._jobs:
            return
        self._store.create_job(
            record.workload_key,
            record.target,
            device=record.device,
            seed=None,
            trials_requested=0,
            state="succeeded",
            origin=IMPORT,
            job_id=record.job_id,
        )
        self._jobs.add(record.job_id)

    def _take_measurements(self, measurements: list[tuple[int, LoggedMeasurement]]) -> None:
        found = self._store.find_records([entry.of for _, entry in measurements])
        for number, entry in measurements:
            record = found.get(entry.of)
            if record is None or record.status != OK:
                why = "that is not in the store" if record is None else f"that is {record.status}"
                self.report.refuse(number, f"a measurement of a record {why}")
                continue
            measurement = entry.measurement
            if self._origin is not None:
                measurement = replace(measurement, origin=self._origin)
            self._store.add_measurements(record.id, [measurement])
