"""Doubles for tuning: a pool that replays candidates but times nothing, and odd receivers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from autosched.errors import AutoschedError
from autosched.schedule import Trace
from autosched.tir.canonical import program_hash
from autosched.tir.nodes import PrimFunc
from autosched.tuning.callbacks import JobInfo, MeasureCallback
from measure.devices import Device
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing
from records import Measurement, Record, Workload


@dataclass
class FakeJob:
    func: PrimFunc
    baseline: MeasureResult
    baseline_trace: Trace = field(default_factory=Trace)
    closed: bool = False

    def close(self) -> None:
        self.closed = True


def seconds_of(name: str) -> float:
    """A time that depends on nothing but the program: 1 to 2 microseconds."""
    digest = hashlib.sha256(name.encode()).digest()
    return 1e-6 * (1 + int.from_bytes(digest[:6], "little") / 2**48)


class FakePool:
    """Replays every candidate, and gives it a time that follows from its program.

    `fail(place)` says, for the n-th trial asked for, which status it gets instead of ok.
    `asked` counts what was measured and measured again.
    """

    def __init__(
        self, model: str = "fake", fail: Callable[[int], Status | None] = lambda n: None
    ) -> None:
        self.device = Device(model, "x86_64", 2, (), "none")
        self.fail = fail
        self.measured: list[Trace] = []
        self.remeasured: list[Trace] = []
        self.jobs: list[FakeJob] = []

    def open_job(self, func: PrimFunc, seed: int | None = None) -> FakeJob:
        self.jobs.append(FakeJob(func, self._time(func, 9.0)))
        return self.jobs[-1]

    def measure(
        self,
        job: FakeJob,
        traces: Sequence[Trace],
        best_seconds: float | None = None,
        on_results: Callable[[Sequence[tuple[int, MeasureResult]]], None] | None = None,
        cancel: Event | None = None,
    ) -> list[MeasureResult]:
        results = []
        for n, trace in enumerate(traces):
            self.measured.append(trace)
            results.append(self._measure(job, trace))
            if on_results is not None:
                on_results([(n, results[-1])])
        return results

    def remeasure(
        self, job: FakeJob, traces: Sequence[Trace], rounds: int = 10, cancel: Event | None = None
    ) -> list[MeasureResult]:
        self.remeasured += traces
        return [self._measure(job, trace, trial=False) for trace in traces]

    def close(self) -> None:
        pass

    def _measure(self, job: FakeJob, trace: Trace, trial: bool = True) -> MeasureResult:
        try:
            func = trace.apply(job.func).func
        except AutoschedError as e:
            return MeasureResult(Status.INSTANTIATION_ERROR, str(e))
        status = self.fail(len(self.measured) - 2) if trial else None
        if status is not None:
            text = f"{status} on purpose"
            return MeasureResult(status, text, program_hash=program_hash(func))
        return self._time(func)

    @staticmethod
    def _time(func: PrimFunc, scale: float = 1.0) -> MeasureResult:
        name = program_hash(func)
        seconds = scale * seconds_of(name)
        return MeasureResult(
            Status.OK,
            timing=Timing(seconds, seconds, spread=0.01, noise=0.02, runs=3),
            build_seconds=0.001,
            program_hash=name,
        )


class Recorder(MeasureCallback):
    """Keeps everything it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.records: list[Record] = []
        self.job: JobInfo | None = None
        self.end: tuple[str, str | None] | None = None

    def on_start(self, workload: Workload, job: JobInfo) -> None:
        self.events.append("start")
        self.job = job

    def on_records(self, records: Sequence[Record]) -> None:
        self.events += ["record"] * len(records)
        self.records += records

    def on_measurements(self, record: Record, measurements: Sequence[Measurement]) -> None:
        self.events.append("measurement")

    def on_finish(self, job: JobInfo, state: str, error: str | None) -> None:
        self.events.append("finish")
        self.end = state, error

    def close(self) -> None:
        self.events.append("close")


class Raises(MeasureCallback):
    """Raises `error` when the n-th record comes."""

    def __init__(self, error: BaseException, n: int) -> None:
        self.error, self.left = error, n

    def on_records(self, records: Sequence[Record]) -> None:
        self.left -= len(records)
        if self.left == 0:
            raise self.error


def proposals(records: Sequence[Record]) -> list[tuple[int, int, Any, Any]]:
    """What was proposed, in slot order, apart from how it was measured."""
    found = sorted(records, key=lambda r: (r.round, r.slot))
    return [(r.round, r.slot, r.trace, dict(r.decisions)) for r in found if r.round >= 0]
