"""Receivers of a tuning run's records."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.checks import path_text
from autosched.errors import TuningError
from records import Job, JsonlWriter, Measurement, Record, RecordError, RecordKey, Workload
from records.opening import is_store
from records.types import ENDED, LOCAL, STATE, state_event

if TYPE_CHECKING:
    from records.store import Store

DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
LISTED = 5
"""Jobs that a run names where there is none to resume."""


@dataclass(frozen=True)
class JobInfo:
    """What a receiver may want to know of the job, fixed at its start.

    `trials` is the job's total, `round_size` the candidates that are proposed at a time.
    """

    id: str
    target: str
    device: str
    seed: int
    trials: int
    round_size: int
    resumed: bool


class MeasureCallback:
    """Base of receivers. A record is handed over as soon as it exists, so that nothing is lost when
    the run ends early; each method may be left as it is. A `TaskScheduler` starts several jobs
    before the first is finished."""

    def on_start(self, workload: Workload, job: JobInfo) -> None:
        """The run begins."""

    def on_phase(self, phase: str) -> None:
        """What the run is at from now on, one of `records.types.PHASES`; also before `on_start`."""

    def on_records(self, records: Sequence[Record]) -> None:
        """New trials or baselines."""

    def on_measurements(self, record: Record, measurements: Sequence[Measurement]) -> None:
        """Repeated timings of a finalist."""

    def on_notice(self, job: JobInfo, text: str) -> None:
        """What the outcome does not say by itself: why trials are left, that nothing was gained."""

    def on_finish(self, job: JobInfo, state: str, error: str | None) -> None:
        """The job's run ended: `state` is succeeded, failed or cancelled."""

    def close(self) -> None:
        """Nothing more will come."""


def close_at_end(stack: ExitStack, callbacks: Sequence[MeasureCallback]) -> None:
    """Have all of them closed at the end of `stack`, whatever one of them raises."""
    for callback in callbacks:
        stack.callback(callback.close)


class RecordToFile(MeasureCallback):
    """Appends every record to a JSON-lines log, one whole line at a time.

    Several processes may append to one file. The file is made on the first record. Raises
    TuningError for a database's URL, and for a name that ends in .db, .sqlite or .sqlite3 where no
    log has it yet.
    """

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.where = path_text("filename", filename, TuningError)
        named = "://" in self.where or Path(self.where).suffix.lower() in DATABASE_SUFFIXES
        if named and is_store(self.where):
            raise TuningError(
                f"filename is {self.where!r}, a database's name; expected that of a log of JSON "
                "lines, such as 'log.json', or RecordToStore in the place of RecordToFile"
            )
        self._writer = JsonlWriter(filename)

    def on_start(self, workload: Workload, job: JobInfo) -> None:
        self._writer.write_workload(workload)

    def on_records(self, records: Sequence[Record]) -> None:
        self._writer.write_records(records)

    def on_measurements(self, record: Record, measurements: Sequence[Measurement]) -> None:
        self._writer.write_measurements(record, measurements)


class RecordToStore(MeasureCallback):
    """Writes every record to a store: a SQLite file or a database URL."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.where = path_text("url", url, TuningError)
        self._store: Store | None = None
        self._ids: dict[RecordKey, int] = {}
        self._notices: defaultdict[str, list[str]] = defaultdict(list)

    def open(self) -> Store:
        """The open store. Raises RecordError if it cannot be used."""
        if self._store is None:
            from records import Store

            self._store = Store(self.where)
        return self._store

    def on_start(self, workload: Workload, job: JobInfo) -> None:
        if job.resumed:
            from records.queue.resuming import RESUMED

            self.open().put_workload(workload)
            ended = self.open().job(job.id).state in ENDED
            changed = self.open().update_job(
                job.id, state="running", trials_requested=job.trials, error=None
            )
            if ended:
                self.open().add_event(job.id, STATE, state_event(RESUMED, vars(changed)))
        else:
            self.open().create_job(
                workload,
                job.target,
                job_id=job.id,
                device=job.device,
                seed=job.seed,
                options={"round_size": job.round_size},
                state="running",
                trials_requested=job.trials,
            )

    def on_records(self, records: Sequence[Record]) -> None:
        for record in self.open().add_records(list(records)):
            self._ids[record.key] = record.id

    def on_measurements(self, record: Record, measurements: Sequence[Measurement]) -> None:
        self.open().add_measurements(self._ids[record.key], list(measurements))

    def on_notice(self, job: JobInfo, text: str) -> None:
        self._notices[job.id].append(text)

    def on_finish(self, job: JobInfo, state: str, error: str | None) -> None:
        notice = self.notice(job.id)
        self.open().update_job(job.id, state=state, error=error, notice=notice)

    def notice(self, job_id: str) -> str | None:
        """What was said of a job in this run, None if nothing was."""
        return "; ".join(self._notices[job_id]) or None

    def history(
        self, workload_key: str, target: str, seed: int, device: str
    ) -> tuple[Job, list[Record]] | None:
        """The newest job of that workload, target, seed and device, and its records; None without
        one."""
        job = self.open().find_job(workload_key, target, seed, device)
        if job is None:
            return None
        found = self.open().records(job_id=job.id)
        records = [record for record in found if record.origin == LOCAL]
        self._ids.update({r.key: r.id for r in records})
        return job, records

    def early_stopping_from(self, job: Job) -> int:
        """Trials that `job` had when it was resumed after an end; 0 where it never was. Of a job
        that was killed, which is no end, it is what it was before."""
        from records.queue.resuming import RESUMED

        if job.state in ENDED:
            return job.trials_done
        found, after = 0, 0
        while events := self.open().events(job.id, kind=STATE, after_id=after):
            for event in events:
                if event.data["reason"] == RESUMED:
                    found = int(event.data["trials_done"])
            after = events[-1].id
        return found

    def others(self, workload_key: str) -> list[Job]:
        """The newest jobs of that workload, at most `LISTED`."""
        return list(self.open().jobs(workload_key=workload_key, limit=LISTED).jobs)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def recorder_of(where: str | os.PathLike[str], resume: bool) -> RecordToFile | RecordToStore:
    """What writes a run's records to a log or a store. Raises RecordError if it cannot, before
    anything is measured, and TuningError for a log to resume from."""
    if is_store(where):
        recorder = RecordToStore(where)
        recorder.open()
        return recorder
    if resume:
        raise TuningError(
            f"resuming needs a store, and {where} is a log, which does not keep jobs; "
            "give a SQLite file such as tuning.db, or a database URL"
        )
    if not (folder := Path(where).absolute().parent).is_dir():
        raise RecordError(f"no folder {folder} to keep {where} in")
    return RecordToFile(where)
