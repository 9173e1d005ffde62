"""A log of JSON lines, read like a store."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self, Unpack

from records.arguments import (
    filters_of,
    number_of,
    numbers_of,
    path_of,
    scope_of,
    text_of,
)
from records.errors import NoRecord, RecordError
from records.logs.jsonl import JsonlReport, numbered_entries
from records.ranking import (
    Scope,
    Tally,
    candidate,
    choose_scope,
    no_record,
    pick,
    standing_of,
)
from records.types import LOCAL, OK, Filters, Measurement, Record, RecordKey, Workload


class RecordReader:
    """The read side of a log; see `RecordSource`. Iterating gives all its records.

    A record's `id` is the number of its line. The log is read once, and again when it has changed.
    `report` tells what was read and which lines were skipped, with the reason.

    Raises RecordError if the log cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path_of("path", path))
        self._read_at: tuple[int, int, int] | None = None
        self._refresh()

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    @property
    def name(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def records(self, **filters: Unpack[Filters]) -> Iterator[Record]:
        """The records selected by `filters`, in order of their lines, those after `after_id`."""
        filters = filters_of(filters)
        self._refresh()
        left = filters.get("limit")
        after = filters.get("after_id") or 0
        for record in self._records.values():
            if left is not None and left <= 0:
                return
            if record.id > after and _selected(record, filters):
                yield record
                left = None if left is None else left - 1

    def get(self, record_id: int) -> Record:
        """The record of that line. Raises NoRecord if there is none."""
        record_id = number_of("record_id", record_id)
        self._refresh()
        if record_id not in self._records:
            raise NoRecord(f"no record in line {record_id} of {self.path}")
        return self._records[record_id]

    def measurements(self, *record_ids: int) -> list[Measurement]:
        """The repeated timings of some records, in the order of their lines."""
        wanted = numbers_of("record_ids", record_ids)
        self._refresh()
        return sorted(
            (m for record_id in set(wanted) for m in self._measurements.get(record_id, ())),
            key=lambda measurement: measurement.id,
        )

    def workload(self, key: str) -> Workload:
        """The workload of that key. Raises NoRecord if there is none."""
        key = text_of("key", key)
        self._refresh()
        if key not in self._workloads:
            raise NoRecord(f"no workload {key} in {self.path}")
        return self._workloads[key]

    def workloads(self) -> Iterator[Workload]:
        """All workloads, in order of their keys."""
        self._refresh()
        return iter([self._workloads[key] for key in sorted(self._workloads)])

    def devices(self, workload_key: str) -> list[Scope]:
        """The pairs (target, device) of which there are records of a workload, sorted."""
        return sorted({(r.target, r.device) for r in self.records(workload_key=workload_key)})

    def best(
        self,
        workload_key: str,
        target: str | None = None,
        device: str | None = None,
        *,
        exclude: Collection[int] = (),
    ) -> Record:
        """The fastest valid record; see `RecordSource.best`."""
        target, device = scope_of(target, device)
        passed_over = set(numbers_of("exclude", exclude))
        scopes = self.devices(workload_key)
        if target is None or device is None:
            valid = (r for r in self.records(workload_key=workload_key) if candidate(r))
            usable = {(r.target, r.device) for r in valid}
            asked = target, device
            target, device = choose_scope(workload_key, *asked, scopes, usable.__contains__)
        scope = target, device
        found = list(self.records(workload_key=workload_key, target=target, device=device))
        ranked = (candidate(record) for record in found if record.id not in passed_over)
        best = pick([one for one in ranked if one])
        if best is None:
            raise no_record(workload_key, scope, _tally(found), scopes)
        return self._records[best.id]

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except OSError as e:
            raise RecordError(f"cannot read {self.path}: {e}") from e
        now = status.st_ino, status.st_size, status.st_mtime_ns
        if now == self._read_at:
            return
        self.report = JsonlReport()
        self._workloads: dict[str, Workload] = {}
        self._records: dict[int, Record] = {}
        self._measurements: dict[int, list[Measurement]] = {}
        ids: dict[RecordKey, int] = {}
        later: list[tuple[RecordKey, Measurement]] = []  # a merged log may have them first
        for number, entry in numbered_entries(self.path, self.report):
            match entry:
                case Workload():
                    known = self._workloads.setdefault(entry.key, entry)
                    if known.text is None and entry.text is not None:
                        self._workloads[entry.key] = replace(known, text=entry.text)
                case Record():
                    if ids.setdefault(entry.key, number) == number:
                        self._records[number] = replace(entry, id=number)
                case _:
                    later.append((entry.of, replace(entry.measurement, id=number)))
        for key, measurement in later:
            if key in ids:
                self._add(ids[key], measurement)
        self._read_at = now

    def _add(self, record_id: int, measurement: Measurement) -> None:
        known = self._measurements.setdefault(record_id, [])
        if any(m.identity == measurement.identity for m in known):
            return
        known.append(replace(measurement, record_id=record_id))
        if local := [m.seconds for m in known if m.origin == LOCAL]:
            record = self._records[record_id]
            self._records[record_id] = replace(record, remeasured_seconds=median(local))


def _selected(record: Record, filters: Filters) -> bool:
    wanted = (
        (filters.get("workload_key"), record.workload_key),
        (filters.get("target"), record.target),
        (filters.get("device"), record.device),
        (filters.get("status"), record.status),
        (filters.get("job_id"), record.job_id),
        (filters.get("kind"), record.kind),
    )
    return all(value is None or value == found for value, found in wanted)


def _tally(found: list[Record]) -> Tally:
    result = Tally()
    for record in found:
        result.statuses[record.status] += 1
        if record.status == OK:
            result.imported += standing_of(record) is None
        elif result.first_error is None:
            result.first_error = record.error
    return result
