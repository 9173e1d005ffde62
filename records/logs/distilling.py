"""Keeping the best record of each workload, target and device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from records.arguments import file_of
from records.errors import NoRecord, RecordError
from records.logs.exchange import entries, write_entries
from records.logs.jsonl import numbered_entries
from records.logs.lines import Entry, LoggedMeasurement, logged
from records.opening import is_store, open_records
from records.ranking import Candidate, candidate, pick
from records.source import RecordSource
from records.types import LOCAL, Measurement, Record, RecordKey, Workload


def distill(source: str | os.PathLike[str], destination: str | os.PathLike[str]) -> int:
    """Writes the best record of each workload, target and device to a new store or log.

    Returns how many there are. A log is read line by line; of its records the keys are held in
    memory, and its repeated measurements. Raises RecordError if the destination is there already.
    """
    file = file_of(source)
    if file is not None and file.exists() and not is_store(source):
        return _write(_Log(file).bests(), destination)
    with open_records(source) as opened:
        return _write(entries(opened, _bests(opened)), destination)


def _write(best: Iterator[Entry], destination: str | os.PathLike[str]) -> int:
    if not is_store(destination):
        return write_entries(destination, best)
    from records.logs.checks import as_it_is
    from records.logs.importing import import_entries
    from records.store import Store

    with Store(destination) as store:
        if next(store.records(limit=1), None) is not None:
            raise RecordError(f"{store.name} holds records already; name a new store")
        return import_entries(store, enumerate(best, 1), None, as_it_is).new


def _bests(source: RecordSource) -> Iterator[Record]:
    for workload in source.workloads():
        for target, device in source.devices(workload.key):
            try:
                yield source.best(workload.key, target, device)
            except NoRecord:
                continue  # nothing valid there, and nothing to distill


class _Log:
    """What may be the best in a log: of each scope the first record of each standing.

    The log is read twice, since the measurements on which a record's standing depends may come long
    after it. Raises RecordError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._workloads: dict[str, Workload] = {}
        self._timings: dict[RecordKey, list[Measurement]] = {}
        self._firsts: dict[tuple[str, str, str], dict[int, tuple[Candidate, Record]]] = {}
        for number, entry in numbered_entries(path):
            match entry:
                case Workload():
                    known = self._workloads.setdefault(entry.key, entry)
                    if known.text is None and entry.text is not None:
                        self._workloads[entry.key] = replace(known, text=entry.text)
                case LoggedMeasurement():
                    timing = replace(entry.measurement, id=number)
                    self._timings.setdefault(entry.of, []).append(timing)
        seen: set[RecordKey] = set()
        jobs: dict[str, str] = {}
        for number, entry in numbered_entries(path, quiet=True):
            if isinstance(entry, Record) and entry.key not in seen:
                job_id = jobs.setdefault(entry.job_id, entry.job_id)  # one text for all its records
                seen.add(RecordKey(job_id, entry.round, entry.slot))
                self._consider(number, entry)

    def _consider(self, number: int, record: Record) -> None:
        local = [m.seconds for m in self._timings.get(record.key, ()) if m.origin == LOCAL]
        record = replace(record, id=number, remeasured_seconds=median(local) if local else None)
        found = candidate(record)
        if found is None or record.workload_key not in self._workloads:
            return
        scope = record.workload_key, record.target, record.device
        firsts = self._firsts.setdefault(scope, {})
        if found.standing not in firsts or found < firsts[found.standing][0]:
            firsts[found.standing] = found, record

    def bests(self) -> Iterator[Entry]:
        """The best records with their workloads and measurements."""
        told: set[str] = set()
        for scope, firsts in sorted(self._firsts.items()):
            if scope[0] not in told:
                told.add(scope[0])
                yield self._workloads[scope[0]]
            best = pick([found for found, _ in firsts.values()])
            assert best is not None  # a scope is made with its first candidate
            record = firsts[best.standing][1]
            yield record
            for timing in self._timings.get(record.key, ()):
                yield logged(record, timing)
